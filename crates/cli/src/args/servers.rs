//! Arguments of the servers, and of the commands that manage drives.

use std::path::PathBuf;
use std::sync::Arc;

use braid_client::Policy;
use braid_drive::Sending;
use braid_manager::EtcdConfig;
use braid_sim::units::Rate;
use braid_store::disk::modelled::Device;
use clap::{Args, Subcommand, ValueEnum};

use super::disk_model::DiskModel;
use crate::output::duration;
use crate::output::size;

#[derive(Debug, Subcommand)]
pub(crate) enum Drive {
    /// Serve a drive in the foreground, until SIGTERM or Ctrl-C
    #[command(
        after_help = "The first start needs the join token that the manager wrote; later ones need none. The drive's directory remembers --name, --manager, --listen with --advertise, --host, --rack and --capacity; all else each start is told anew. Flags may be in a file instead: `listen = [\"0.0.0.0:7401\"]`.\n\nExample:\n  \
        braid drive serve --dir /disk1/braid --manager host-a:7400 --token-file join.token --listen 0.0.0.0:7401 \\\n      \
        --advertise host-b:7401 --name b1\n  \
        braid drive serve --config /etc/braid/b1.toml --check\n  braid drive serve --dir /disk1/braid --no-udp"
    )]
    Serve(Box<DriveServe>),
    /// Add one more drive to the cluster that `braid up --detach` started here
    #[command(
        after_help = "Columns of old files move to it by themselves: `braid rebalance`.\n\nExample:\n  braid drive add"
    )]
    Add {
        /// The drive's name [default: the next drive-N]
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        options: DriveOptions,
    },
    /// List the drives
    #[command(after_help = "Examples:\n  braid drive ls\n  braid drive ls --json\n  braid drive ls --cost")]
    Ls {
        /// Show what the drives' disks, processors and rails cost instead
        #[arg(long)]
        cost: bool,
    },
    /// Measure what drives' disks cost: a few seconds for each drive
    #[command(
        after_help = "Operations of several sizes are timed on a file of the drive's own, by direction; what fits them is stored in the drive's directory and told to the manager. A drive that has no result measures once by itself, for up to 0.3 s, at its start. While clients read or write on a drive the command is refused. A result that no disk has, or that is more than four times away from the last good one, is refused too: the last good one stays, with its date.\n\nExamples:\n  braid drive calibrate\n  braid drive calibrate drive-2\n  braid drive ls --cost"
    )]
    Calibrate {
        /// The drives [default: all]
        #[arg(value_name = "DRIVE")]
        drives: Vec<String>,
        /// Do not compare with the last result: the disk is another
        #[arg(long)]
        anew: bool,
    },
    /// Move all columns off a drive to other drives; the drive serves meanwhile, and gets no new files
    #[command(
        after_help = "It is refused if the other drives have too little room, or if a column may go to none of them. A column stays, read and written, until its successor on another drive is ready; columns of some files move at a time, at the rate that `braid heal --rate` sets. Then take the drive out of the cluster: braid drive rm NAME.\n\nExample:\n  braid drive drain old --wait && braid drive rm old"
    )]
    Drain {
        /// The drive, as `braid drive ls` names it
        #[arg(value_name = "NAME")]
        name: String,
        /// Stop draining: moved columns stay where they are, and moves under way are completed
        #[arg(long, visible_alias = "undo")]
        stop: bool,
        /// Wait until the drive holds no column
        #[arg(long, conflicts_with = "stop")]
        wait: bool,
    },
    /// Pause a drive for a restart or an upgrade of its process: for a time it is not taken to be lost
    #[command(
        after_help = "The drive serves on until it is stopped. While it is away its files are read and written without it, as of any drive that is away; but its columns do not move to other drives, whatever --lost-after of the manager says. The pause ends by itself, or with braid drive resume.\n\nExample:\n  \
        braid drive pause b1 && systemctl restart braid-b1 && braid drive resume b1"
    )]
    Pause {
        /// The drive, as `braid drive ls` names it
        #[arg(value_name = "NAME")]
        name: String,
        /// The time, at most 24h
        #[arg(long = "for", default_value = "10m", value_parser = duration::parse, value_name = "TIME")]
        time: u64,
    },
    /// End the pause of a drive
    #[command(after_help = "Example:\n  braid drive resume b1")]
    Resume {
        /// The drive, as `braid drive ls` names it
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Take a drive that holds no column out of the cluster, for ever
    #[command(after_help = "Example:\n  braid drive drain old --wait && braid drive rm old")]
    Rm {
        /// The drive, as `braid drive ls` names it
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Write what a stopped drive holds of its cluster's names to a file, for `braid manager rebuild`
    #[command(
        after_help = "The file holds the drive's key and the cluster's names: carry it to the machine of the new manager by a way you trust, and remove it afterwards.\n\nExample:\n  braid drive testify --dir /disk1/braid b1.testimony"
    )]
    Testify {
        /// The drive's directory
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// The file to write; it must not exist
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Put drive NEW in the place of OLD, which is lost, in all layouts; NEW then makes the columns anew
    #[command(
        after_help = "OLD must be stopped or dead, and never serves again: what it holds is given up. NEW should be empty. Where it \
        has another column of a file already, that file's column goes to another drive; if there is none, the command is refused. To empty a \
        drive that still serves: braid drive drain.\n\nExample:\n  braid drive replace drive-2 drive-7 && braid heal --watch"
    )]
    Replace {
        /// The drive that is lost
        #[arg(value_name = "OLD")]
        old: String,
        /// The drive that takes its place, which has joined
        #[arg(value_name = "NEW")]
        new: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DriveServe {
    /// The directory in which the drive keeps its objects
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The manager's address, or several with commas between; needed at the first start, and after the
    /// manager has moved
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) manager: Option<String>,
    /// A file that holds the join token, which is needed at the first start only
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The address to listen on, by TCP and by UDP; port 0 takes any free port. Again for each further rail,
    /// at most 8: clients use all that they reach
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT")]
    pub(crate) listen: Vec<String>,
    /// The address that clients connect to, if it differs from --listen; one for each --listen, in their
    /// order
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Vec<String>,
    /// The drive's name [default: the name of its directory]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The machine that the drive is on; a file's columns are placed on different hosts where possible
    /// [default: this host's name]
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// The rack that the machine is in
    #[arg(long, default_value = "")]
    pub(crate) rack: String,
    /// The most bytes that the drive may hold [default: the size of the file system]
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub(crate) capacity: Option<u64>,
    /// Bytes a second that the drive's periodic scrub reads, a quarter of that while clients read or write; 0
    /// for no scrub
    #[arg(long, default_value = "8M", value_parser = size::parse, value_name = "SIZE")]
    pub(crate) scrub_rate: u64,
    /// Bytes that the cleaner moves for every 100 bytes that clients write, once less than an eighth of the
    /// space is free; the less is free, the more it moves. With 0 it cleans only when a write would otherwise
    /// wait
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(..=1000), value_name = "PERCENT")]
    pub(crate) clean_share: u32,
    #[command(flatten)]
    pub(crate) options: DriveOptions,
    #[command(flatten)]
    pub(crate) configured: Configured,
    #[command(flatten)]
    pub(crate) supervised: Supervised,
}

/// Options for how a drive uses its disk. They are not stored: every start gets them from the command line.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct DriveOptions {
    /// Way of sending bytes of reads that are in the page cache; all other bytes are copied. `sendfile` needs
    /// Linux 6.5
    #[arg(long, value_enum, default_value_t, value_name = "WAY")]
    pub(crate) send: Way,
    /// Make the disk as slow as a modelled device, for tests and measurements: each read and sync takes the
    /// device's time, and nothing comes from the page cache but what was read ahead.
    /// `spindle,op=8ms,read=200MB/s,write=180MB/s,sync=1ms` has one head,
    /// `flash,iops=20000,read=1GB/s,write=500MB/s,sync=100us` does operations and bytes at the same time
    #[arg(long, value_name = "MODEL")]
    pub(crate) disk_model: Option<DiskModel>,
    /// Bytes of the page cache that are read ahead of clients that read in order, of all together; 0 for none
    /// [default: 128M]
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub(crate) read_ahead: Option<u64>,
    /// Rate of the drive's rail, the network path that it serves by, such as 10Gbit/s, on the wire; without
    /// it no rate of the rail is promised
    #[arg(long, value_parser = rail, value_name = "RATE")]
    pub(crate) rail: Option<u64>,
    /// Do not measure a disk whose cost is not known when the drive starts
    #[arg(long)]
    pub(crate) no_calibration: bool,
    /// Do not listen for datagrams (UDP) at the ports that it listens at for TCP
    #[arg(long)]
    pub(crate) no_udp: bool,
    /// Policy of what the drive sends by datagrams, for measurements: cubic, credit, selective-repeat,
    /// go-back-n, window-N, stop-and-wait [default: cubic]
    #[arg(long, value_name = "NAME", conflicts_with = "no_udp")]
    pub(crate) udp_policy: Option<Policy>,
}

/// A rail's rate, in bytes a second.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is above 0, and clamped")]
fn rail(text: &str) -> Result<u64, String> {
    let Rate(rate) = text.parse()?;
    let bytes = rate.round().min(1e18) as u64;
    if bytes < RAIL_MIN { Err(format!("{text} is too slow for a rail: at least 1Mbit/s")) } else { Ok(bytes) }
}

/// The lowest rate of a rail, in bytes a second.
const RAIL_MIN: u64 = 125_000;

/// A value of `--send`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Way {
    /// The one that takes less processor time here, by measurement
    #[default]
    Auto,
    /// Always copy through a buffer
    Copy,
    /// Always send by sendfile
    Sendfile,
}

impl DriveOptions {
    /// Options of a drive whose disk is made as slow as a model, as `--disk-model` takes it.
    pub fn modelled(model: &str) -> Result<DriveOptions, String> {
        Ok(DriveOptions { disk_model: Some(model.parse()?), ..DriveOptions::default() })
    }

    /// The same on a rail of this many bytes a second.
    ///
    /// # Errors
    /// The rate is too small for a rail.
    pub fn on_rail(self, bytes_per_second: u64) -> Result<DriveOptions, String> {
        if bytes_per_second < RAIL_MIN {
            return Err(format!("{bytes_per_second} B/s is too slow for a rail: at least 1Mbit/s"));
        }
        Ok(DriveOptions { rail: Some(bytes_per_second), ..self })
    }

    /// The same with this many bytes read ahead; 0: none.
    pub fn reading_ahead(self, bytes: u64) -> DriveOptions {
        DriveOptions { read_ahead: Some(bytes), ..self }
    }

    /// The same without a measurement of the disk at the drive's start.
    pub fn uncalibrated(self) -> DriveOptions {
        DriveOptions { no_calibration: true, ..self }
    }

    /// The same with this policy of what is sent by datagrams.
    pub fn sending_by(self, policy: Policy) -> DriveOptions {
        DriveOptions { udp_policy: Some(policy), no_udp: false, ..self }
    }

    /// The policy of what the drive sends by datagrams; `None`: it does not listen for them.
    pub(crate) fn udp(self) -> Option<Policy> {
        (!self.no_udp).then(|| self.udp_policy.unwrap_or(Policy::Cubic))
    }

    /// Returns the choice in the drive's own type.
    pub(crate) fn sending(self) -> Sending {
        match self.send {
            Way::Auto => Sending::Auto,
            Way::Copy => Sending::Copy,
            Way::Sendfile => Sending::Sendfile,
        }
    }

    /// Returns the device whose time the disk takes.
    pub(crate) fn device(self) -> Option<Arc<Device>> {
        self.disk_model.map(|DiskModel(cost)| Arc::new(Device::new(cost)))
    }

    /// Command line arguments that make this choice; none for the default.
    pub fn typed(self) -> Vec<String> {
        let send = match self.send {
            Way::Auto => None,
            Way::Copy => Some("--send=copy".to_owned()),
            Way::Sendfile => Some("--send=sendfile".to_owned()),
        };
        let model = self.disk_model.map(|model| format!("--disk-model={model}"));
        let ahead = self.read_ahead.map(|bytes| format!("--read-ahead={bytes}"));
        let rail = self.rail.map(|bytes| format!("--rail={bytes}B/s"));
        let still = self.no_calibration.then(|| "--no-calibration".to_owned());
        let deaf = self.no_udp.then(|| "--no-udp".to_owned());
        let policy = self.udp_policy.map(|policy| format!("--udp-policy={policy}"));
        [send, model, ahead, rail, still, deaf, policy].into_iter().flatten().collect()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Manager {
    /// Serve a manager in the foreground, until SIGTERM or Ctrl-C
    #[command(
        after_help = "The manager writes its tokens and a cluster.toml into its directory. Its cluster.toml is for admins, and `braid token new` makes those of others; join.token is for machines that add drives. Its directory remembers --listen with --advertise, --lost-after and --state. Flags may be in a file instead: `lost-after = 600`.\n\nWith --state several managers share one state in etcd: one leads, the others stand by and follow it, each in a directory of its own.\n\nExamples:\n  \
        braid manager serve --dir /var/lib/braid --listen 0.0.0.0:7400 --advertise host-a:7400\n  \
        braid manager serve --dir /var/lib/braid --listen 0.0.0.0:7400 --advertise host-a:7400 \\\n      \
        --state etcd://host-a:2379,host-b:2379,host-c:2379 --etcd-ca ca.pem --etcd-certificate a.pem --etcd-key a.key"
    )]
    Serve(Box<ManagerServe>),
    /// Write a backup of the state of the manager that leads: the whole state in one file
    #[command(
        visible_alias = "export",
        after_help = "The backup holds every name, layout and secret of the cluster, not the files' bytes. Make one after every change of \
        drives or volumes, and as often as the names made since the last one matter. It does not depend on where the state is kept: restored, it may be moved from one manager's directory to an etcd, and back.\n\nExample:\n  braid manager backup /safe/braid-manager.backup"
    )]
    Backup {
        /// The file to write the backup to
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Of the manager in this directory, which is stopped
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Restore a backup into the directory of a manager that is stopped, or into an etcd
    #[command(
        visible_alias = "import",
        after_help = "The directory must hold no state: move manager.redb away first. Without BACKUP, the state that is there is treated as one that \
        was restored by other means (a snapshot, a copied directory).\n\nThe manager that starts then compares its names with what the drives \
        hold, before it answers anybody: complete files are kept, files that were removed or lost since are listed in \
        comparison.txt beside the state, and stored objects that belong to no file are kept until `braid manager free-unnamed`.\n\nExample:\n  \
        braid manager restore /safe/braid-manager.backup --dir /var/lib/braid/manager\n  \
        braid manager restore /safe/braid-manager.backup --state etcd://127.0.0.1:2379"
    )]
    Restore(ManagerRestore),
    /// Make a lost manager's state anew, from what the drives hold
    #[command(
        after_help = "Drives keep the names, layouts, quotas and snapshots of their cluster, a few seconds behind the manager. With these, and each drive's own key, a manager comes back in an empty directory. The drives must be stopped. Drives of other hosts tell what they hold in a file (braid drive testify), which is given in place of a directory.\n\nWithout --yes it is a trial: it says what would come back, what is certain as two drives say the same, and what is not. The manager that starts on the new state first compares every file with what the drives hold; comparison.txt beside the state says which are whole. Files whose names are lost are then in lost+found of their volumes. Secrets are new: clients need the new cluster.toml.\n\nExample:\n  \
        braid manager rebuild --dir /var/lib/braid/manager --from-drives /disk1/braid /disk2/braid b1.testimony --yes"
    )]
    Rebuild(ManagerRebuild),
    /// After a restore: free the stored objects that belong to no file
    #[command(after_help = "Example:\n  braid manager free-unnamed")]
    FreeUnnamed,
    /// Take a manager that is lost out of a cluster of several, and print the command for a host in its place
    #[command(
        after_help = "It is refused while that manager answers, and if those that are left and answer would be no majority: start others first. What the lost manager has on its disk counts for nothing from then on. Without a majority there is `braid cluster restore`.\n\nExample:\n  \
        braid manager replace 10.77.0.3"
    )]
    Replace {
        /// The lost manager's address, or its host, as `braid cluster ls` names it
        #[arg(value_name = "OLD")]
        old: String,
    },
}

/// The etcd that holds the managers' state.
#[derive(Debug, Default, Args)]
pub(crate) struct EtcdOfState {
    /// Where the state is, if several managers share it: the members of an etcd, as
    /// etcd://H1:2379,H2:2379,... or with a prefix for the cluster's keys, etcd://H1:2379/PREFIX [default: in
    /// --dir]
    #[arg(long, value_parser = EtcdConfig::of_state, value_name = "STATE")]
    pub(crate) state: Option<EtcdConfig>,
    /// The certificate of the CA of etcd's certificates, in PEM; without it etcd must be on this machine
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_ca: Option<PathBuf>,
    /// The certificate by which this manager proves itself to etcd, in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_certificate: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ManagerRestore {
    /// The backup to restore
    #[arg(value_name = "BACKUP", required_unless_present = "dir")]
    pub(crate) backup: Option<PathBuf>,
    /// The manager's directory
    #[arg(long, value_name = "DIR", required_unless_present = "state", conflicts_with = "state")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) etcd: EtcdOfState,
}

#[derive(Debug, Args)]
pub(crate) struct ManagerRebuild {
    /// The directory for the manager: empty, or not there yet
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Directories of stopped drives, and files by `braid drive testify`
    #[arg(long, value_name = "PATH", num_args = 1.., required = true)]
    pub(crate) from_drives: Vec<PathBuf>,
    /// Make the state; without this it is a trial
    #[arg(long)]
    pub(crate) yes: bool,
    /// Believe this drive alone, where drives contradict each other
    #[arg(long, value_name = "NAME")]
    pub(crate) believe: Option<String>,
    /// Leave out what only one drive says
    #[arg(long, conflicts_with = "believe")]
    pub(crate) agreed: bool,
    /// Go on if no drive has any names: files come back in lost+found
    #[arg(long)]
    pub(crate) without_names: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ManagerServe {
    /// The directory in which the manager keeps its state
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The address to listen on; port 0 takes any free port
    #[arg(long, default_value = "127.0.0.1:7400", value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// The address that clients connect to, if it differs from --listen
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Option<String>,
    /// Seconds without a message from a drive after which its columns move to other drives that have room; 0
    /// for never
    #[arg(long, default_value_t = braid_manager::LOST_AFTER_MS / 1000, value_name = "SECONDS")]
    pub(crate) lost_after: u64,
    #[command(flatten)]
    pub(crate) etcd: EtcdOfState,
    #[command(flatten)]
    pub(crate) configured: Configured,
    #[command(flatten)]
    pub(crate) supervised: Supervised,
}

/// Sources of flags that the command line of a serving process does not have.
#[derive(Debug, Args)]
pub(crate) struct Configured {
    /// A TOML file with flags of this command under their names; flags of the command line win over it
    /// [default: manager.toml, drive.toml or mount.toml in /etc/braid, by the command, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Read no such file, not the default one either, and neither use nor change what the directory remembers
    #[arg(long, conflicts_with = "config")]
    pub(crate) no_config: bool,
    /// Serve nothing; say whether the flags and the file are right, and print each value with its origin
    #[arg(long)]
    pub(crate) check: bool,
}

/// A value of `--log-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// One object per line: time, level, target, message, fields
    Json,
}

/// Options for a parent process that supervises the server.
#[derive(Debug, Args)]
pub(crate) struct Supervised {
    /// Write the process id and the address to this file once it serves
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// The form of the log
    #[arg(long, visible_alias = "log", value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    /// Stop when standard input ends, so that the server stops when its parent dies, for whatever reason
    #[arg(long, hide = true)]
    pub(crate) lifeline: bool,
}
