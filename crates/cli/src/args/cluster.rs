//! `braid cluster`.

use std::path::PathBuf;

use braid_transport::Managers;
use clap::{Args, Subcommand};

use super::Supervised;

/// The port of etcd for managers, if none is told.
pub(crate) const ETCD_PORT: u16 = 7380;

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Begin a cluster with several managers on this host, and serve its first manager in the foreground
    #[command(
        after_help = "The managers' state is in etcd, which braid starts and looks after: install the program (`apt install etcd-server`), and no more. It prints the command for each other host, with a token that one host can use, for a day. The host is started again by `braid manager serve --dir DIR`.\n\nExample:\n  \
        braid cluster init --hosts 10.77.0.1,10.77.0.2,10.77.0.3 --dir /var/lib/braid/manager"
    )]
    Init(ClusterInit),
    /// Make this host one of a cluster's managers, and serve it in the foreground
    #[command(
        after_help = "The manager at --manager must show a certificate of the authority that the token names, before anything is sent to it. The directory must be empty or new. A join that did not come to its end may be repeated. The host is started again by `braid manager serve --dir DIR`.\n\nExample:\n  \
        braid cluster join --manager 10.77.0.1:7400 --listen 10.77.0.2:7400 --dir /var/lib/braid/manager --token-file b.token"
    )]
    Join(ClusterJoin),
    /// Begin a cluster anew from a snapshot of its managers' state, and serve its first manager in the
    /// foreground
    #[command(
        after_help = "It is served in the foreground. For when most managers' disks are lost (see `braid manager replace` for one), and for a cluster of one manager that is to have several: stop the manager, make a backup (`braid manager backup FILE --dir DIR`), and restore that. Snapshots are made each day on the host whose manager leads, in etcd-snapshots in its directory. No other manager of the old cluster may run. The restored state is compared with what the drives hold before anything is answered, as after `braid manager restore`; then other hosts join anew, with `braid token new NAME --role manager`.\n\nExample:\n  \
        braid cluster restore braid-1795929286.snapshot --listen 10.77.0.1:7400 --dir /var/lib/braid/manager\n  \
        braid cluster restore braid-manager.backup --listen 10.77.0.1:7400 --dir /var/lib/braid/managers"
    )]
    Restore(ClusterRestore),
    /// List the managers, and the members of their etcd
    #[command(after_help = "Example:\n  braid cluster ls --json")]
    Ls,
}

impl ClusterCommand {
    /// The options of a command that serves; `None`: it does not.
    pub(crate) fn supervised(&self) -> Option<&Supervised> {
        match self {
            ClusterCommand::Init(asked) => Some(&asked.host.supervised),
            ClusterCommand::Join(asked) => Some(&asked.host.supervised),
            ClusterCommand::Restore(asked) => Some(&asked.host.supervised),
            ClusterCommand::Ls => None,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ClusterInit {
    /// The hosts of the managers, names or addresses; this host is the first [default: the host of --listen]
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    pub(crate) hosts: Vec<String>,
    /// The address to listen on [default: this host, port 7400]
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "hosts")]
    pub(crate) listen: Option<String>,
    #[command(flatten)]
    pub(crate) host: Hosting,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterJoin {
    /// A file with the token that `braid cluster init` or `braid token new NAME --role manager` printed; `-`:
    /// standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// The address of a manager of the cluster, or several with commas between
    #[arg(long, value_parser = str::parse::<Managers>, value_name = "HOST:PORT,...")]
    pub(crate) manager: Managers,
    /// The address to listen on
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: String,
    #[command(flatten)]
    pub(crate) host: Hosting,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterRestore {
    /// The file of the snapshot
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: PathBuf,
    /// The address to listen on: that of the lost manager, where clients and drives look for it
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: String,
    #[command(flatten)]
    pub(crate) host: Hosting,
}

/// Options of a host that becomes one of a manager.
#[derive(Debug, Args)]
pub(crate) struct Hosting {
    /// The directory of the manager: empty, or not there yet
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The address that others connect to, if it differs from --listen
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Option<String>,
    /// The port of this host's etcd for managers; the next one is for the members of etcd
    #[arg(long, default_value_t = ETCD_PORT, value_parser = clap::value_parser!(u16).range(1..=65534), value_name = "PORT")]
    pub(crate) etcd_port: u16,
    /// The program etcd, 3.4 or later [default: the one in PATH]
    #[arg(long, value_name = "PATH")]
    pub(crate) etcd: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) supervised: Supervised,
}
