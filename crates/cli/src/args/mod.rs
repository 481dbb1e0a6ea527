//! The command line: every flag is defined once, with its help and its parser. Invalid arguments are refused
//! here, before anything is touched.

mod bench;
mod cluster;
mod disk_model;
mod files;
mod keys;
mod methods;
mod quota;
mod reserve;
mod servers;
mod sim;
mod snapshot;
mod store;
mod stream;
mod tokens;
mod volume;

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use braid_client::Transport;
use braid_client::cluster as cluster_file;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::output::exit;
use crate::output::size;

pub(crate) use bench::{Bench, Qualify};
pub(crate) use cluster::{ClusterCommand, ClusterInit, ClusterJoin, ClusterRestore, ETCD_PORT, Hosting};
pub(crate) use files::{Cat, Chmod, Chown, Cp, Ln, Ls, Mkdir, Mv, Rm, Stat, Touch, Truncate};
pub(crate) use keys::{KeyRevoke, KeyRotate, Keys};
pub(crate) use methods::{At, ModuleCommand, Run, Sum};
pub(crate) use quota::{Quota, QuotaOf};
pub(crate) use reserve::{Reserve, ReserveCommand, ReserveRate};
pub use servers::DriveOptions;
pub(crate) use servers::{
    Configured, Drive, DriveServe, EtcdOfState, LogFormat, Manager, ManagerRebuild, ManagerRestore,
    ManagerServe, Supervised,
};
pub use sim::SimRun;
pub(crate) use sim::{Sim, Size};
pub(crate) use snapshot::{Snapshot, SnapshotOf, SnapshotRestore};
pub(crate) use store::Store;
pub(crate) use stream::{Pace, Play, Record, Stream};
pub(crate) use tokens::{Role as TokenRole, TokenCommand, TokenNew};
pub(crate) use volume::{
    Clustering, DataMode, Layout, LayoutSet, MethodsMode, Volume, VolumeCreate, VolumeRekey, VolumeSet,
    key_source,
};

/// Striped, redundant storage over ordinary machines.
#[derive(Debug, Parser)]
#[command(name = "braid", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_long_help = format!("{EXAMPLES}\n{}", exit::help()))]
#[command(after_help = "Exit codes and examples: braid --help")]
pub(crate) struct Cli {
    /// The cluster: a directory made by `braid up`, or a cluster.toml file [env: BRAID_CLUSTER]
    /// [default: the `up` default directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) cluster: Option<PathBuf>,
    /// The key of an encrypted volume, or the command that unwraps it, as NAME=command:COMMAND; may be
    /// repeated [env: BRAID_VOLUME_KEYS, with commas between]
    #[arg(long = "volume-key", global = true, value_name = "NAME=FILE", value_parser = volume::key)]
    pub(crate) volume_keys: Vec<String>,
    /// The way of data to and from drives: tcp, udp (datagrams), or auto: udp where datagrams come through,
    /// else tcp. A policy of what is sent by datagrams may follow, for measurements: udp:credit [env:
    /// BRAID_TRANSPORT] [default: what cluster.toml says, else tcp]
    #[arg(long, global = true, value_name = "HOW")]
    pub(crate) transport: Option<Transport>,
    /// Print JSON instead of text: one value, or one object per line from ls, stat, cp, rm, mkdir, check,
    /// store dump and demo
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The cluster that the command line names, else the environment.
    pub(crate) fn cluster(&self) -> Option<PathBuf> {
        self.cluster.clone().or_else(cluster_file::from_environment)
    }
}

impl Command {
    /// The sources of flags that the command line does not have; `None`: there are none.
    pub(crate) fn configured(&self) -> Option<&Configured> {
        match self {
            Command::Mount(mount) => Some(&mount.configured),
            Command::Manager(Manager::Serve(serve)) => Some(&serve.configured),
            Command::Drive(Drive::Serve(serve)) => Some(&serve.configured),
            _ => None,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  braid demo                                   see everything work, in a temporary directory
  braid up --detach --dir /srv/braid           a lasting cluster: six drives, volume main
  export BRAID_CLUSTER=/srv/braid
  braid cp movie.mkv braid://main/movie.mkv
  tar c src | braid cp - braid://main/src.tar
  braid ls -l braid://main
  braid stat braid://main/movie.mkv            its layout, component by component
  braid plan read braid://main/movie.mkv 0..4M --down drive-2
  braid --transport auto cp movie.mkv braid://main/
  braid down --dir /srv/braid
";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a cluster on this machine: a manager and some drives, each a process of its own
    #[command(
        after_help = "Without --detach it stays in the foreground, restarts processes that die, and stops all of them on Ctrl-C.\n\
        Run again on the same directory, it keeps the cluster's data and starts the processes that are not running.\n\
        A drive that cannot be started is named and left out, with exit code 8, in the foreground when it ends: the others serve.\n\nExamples:\n  \
        braid up\n  braid up --detach --dir /srv/braid --drives 8\n  braid up --transport auto --detach --dir /srv/braid    and its cluster.toml says so to all clients"
    )]
    Up(Up),
    /// Stop the cluster that `braid up` started in a directory
    #[command(after_help = "Example:\n  braid down --dir /srv/braid")]
    Down(Down),
    /// Show the manager, the drives and their states
    #[command(
        after_help = "Exit 13 if something is at risk; the lines \"at risk\" say what, and the command that mends it.\n\nExamples:\n  braid status\n  braid status --json | jq .well\n  braid status --jobs\n  braid status --reservations\n  braid status --rails\n  braid status --transport auto                whether datagrams come through"
    )]
    Status {
        /// List the manager's background jobs instead: progress, next round, last error
        #[arg(long)]
        jobs: bool,
        /// List reserved rates instead: promised, delivered, lateness; exit 13 if one is at risk
        #[arg(long, conflicts_with = "jobs")]
        reservations: bool,
        /// List the addresses of each drive instead, and which of them answer this host
        #[arg(long, conflicts_with_all = ["jobs", "reservations"])]
        rails: bool,
    },
    /// Show space: capacity and use of each drive, files of each volume
    #[command(after_help = "Example:\n  braid df")]
    Df,
    /// Copy files to, from and between volumes; `-` is standard input or output
    #[command(
        after_help = "A target appears complete or not at all: after an error or Ctrl-C there is nothing under its name, and an existing target is unchanged. Only bytes are copied; with -p also permission bits and the time of the last change of files; with -a everything but extended attributes. Holes of sparse files are kept. Names need not be UTF-8.\n\nMany files are copied at once. If one cannot be copied, standard error says so and the others go on; the exit code is not 0 at the end. --update compares size and time, as rsync does, not the bytes. Its copies get the time of their source, as with -p. A copy made with neither -u nor -p has another time, so --update copies the file again.\n\nWith -r, a volume, or a directory written with /. at its end, has its contents copied into the target directory. Any other directory is copied into it under its own name.\n\nSymbolic links to files are followed: the copy holds the bytes. Below -r, links to directories, links to nothing, all links in a volume, named pipes, sockets and devices are skipped, each with a line on standard error, and the exit code is 1 once the rest is copied. With -a they are copied as what they are.\n\nWhile a local file is written, it is .braid-PID-N.part beside its target. Only kill -9 or a crash leaves that file there, and it may be removed.\n\nExamples:\n  \
        braid cp a.bin braid://main/a.bin\n  braid cp -r src braid://main/backup/\n  braid cp -rpu src braid://main/backup/\n  braid cp -r braid://main/ copy/\n  braid cp -a braid://main/home /srv\n  braid cp braid://main/a.bin .\n  \
        braid cp braid://main/a.bin - | sha256sum\n  tar c src | braid cp - braid://main/src.tar"
    )]
    Cp(Cp),
    /// Mount a volume as a file system, for any program
    #[command(
        after_help = "It stays in the foreground. Ctrl-C, SIGTERM or `umount DIR` unmounts it; what was written is with the drives then. If programs use it, it goes from its directory all the same. With --detach it returns when the volume is mounted, or says why it is not.\n\nWhat a program writes is kept for at most 5 seconds, or until fsync or close. Other mounts see it when the file is closed.\n\nIt needs FUSE (/dev/fuse), and users other than root the program fusermount3. Permissions and owners are enforced by the kernel, as in any file system.\n\nCalled as mount.braid it takes what mount(8) gives it, for /etc/fstab: see docs/mount.md.\n\nExamples:\n  braid mount braid://main /mnt\n  braid mount --detach --log /var/log/braid.log braid://main /mnt"
    )]
    Mount(Mount),
    /// Write files to standard output
    #[command(after_help = "Example:\n  braid cat braid://main/notes.txt | less")]
    Cat(Cat),
    /// List volumes and directories
    #[command(
        after_help = "Control characters, bytes that are not UTF-8 and the backslash are escaped with a backslash.\n\nExamples:\n  braid ls\n  braid ls braid://main\n  braid ls -lhR braid://main/photos"
    )]
    Ls(Ls),
    /// Change permission bits
    #[command(
        after_help = "Braid stores them, and a mount enforces them; whoever has the cluster's token may do all.\n\nExample:\n  braid chmod u+x,go-w braid://main/run.sh"
    )]
    Chmod(Chmod),
    /// Change owner and group
    #[command(after_help = "Example:\n  braid chown -R alice:staff braid://main/alice")]
    Chown(Chown),
    /// Give a file another name, or make a symbolic link
    #[command(
        after_help = "Symbolic links lead on within their volume, and may lead anywhere where it is mounted.\n\nExamples:\n  braid ln braid://main/a braid://main/b\n  braid ln -s ../data/a braid://main/latest/a"
    )]
    Ln(Ln),
    /// Set times of the last access and change, and make files that are not there
    #[command(after_help = "Example:\n  braid touch --date @1234567890.5 braid://main/a")]
    Touch(Touch),
    /// Make files shorter or longer, with room kept for what is to come
    #[command(
        after_help = "What is cut off is gone, and what a file grows by reads as zeros. Room that is kept counts as used, is given back as it is written, when the file is made shorter, or removed.\n\nExamples:\n  braid truncate --size 0 braid://main/log\n  braid truncate --size 200G --allocate braid://main/recording"
    )]
    Truncate(Truncate),
    /// Remove files, and directories with -r
    #[command(
        after_help = "rm -r braid://VOLUME empties the volume; `braid volume rm` removes it.\n\nExample:\n  braid rm -r braid://main/old"
    )]
    Rm(Rm),
    /// Rename a file or directory within its volume
    #[command(
        after_help = "Examples:\n  braid mv braid://main/a braid://main/b\n  braid mv braid://main/a braid://main/directory/"
    )]
    Mv(Mv),
    /// Make directories, with -p those above them too
    #[command(after_help = "Example:\n  braid mkdir -p braid://main/photos/2026")]
    Mkdir(Mkdir),
    /// Show a file's or directory's size, layout and components
    #[command(after_help = "Example:\n  braid stat braid://main/a.bin")]
    Stat(Stat),
    /// Make, list, change and remove volumes
    #[command(
        subcommand,
        after_help = "Examples:\n  braid volume create media --scheme raid5 --width 5 && braid cp movie.mkv braid://media/\n  braid volume set media --unit 1M"
    )]
    Volume(Volume),
    /// Bound what a volume, a directory or a user may hold
    #[command(subcommand, after_help = "Example:\n  braid quota set braid://media/projects --bytes 200G")]
    Quota(Quota),
    /// Turn keys, and end what clients are allowed before it expires
    #[command(
        subcommand,
        after_help = "Examples:\n  braid key rotate --all\n  braid key revoke braid://media/a.mkv"
    )]
    Key(Keys),
    /// Say who may use the cluster, and for what
    #[command(
        subcommand,
        after_help = "Examples:\n  braid token new laptop --volumes main --read-only --expires 30d --out laptop.toml\n  braid token revoke laptop"
    )]
    Token(TokenCommand),
    /// Keep a volume or directory as it is at one moment
    #[command(
        subcommand,
        after_help = "Example:\n  braid snapshot make braid://media before-upgrade && braid ls braid://media@before-upgrade"
    )]
    Snapshot(Snapshot),
    /// Say how new files in a directory lie on the drives: scheme, width and unit
    #[command(
        subcommand,
        after_help = "A new file lies as its maker says (cp --scheme); else as a reserved rate's plan says; else as the nearest directory above it that has a layout says; else as the volume says. What exists stays as it is: `braid relayout` lays it out anew.\n\nIn a mount the extended attribute user.braid.layout shows and sets the same.\n\nExamples:\n  \
        braid layout set braid://main/photos --scheme 'rs(4,2)' --unit 1M\n  braid layout ls braid://main/photos/2026\n  braid layout ls -R braid://main\n  braid layout rm braid://main/photos"
    )]
    Layout(Layout),
    /// Print the plan set of a read or write: which drive does what, and in which order
    #[command(
        after_help = "With --analyze the request is run for real: queue is the wait at the drive for a turn, disk and commit are the drive's disk, in flight is the wait for requests before it, credit is the wait for a turn on a congested link, within is the rest of the drive's time, such as the wait of a unit write for the parity drives. A write is run only with --rewrite: it reads the range, and writes the same bytes again, as the only writer; the time of change moves, a range with holes or past the end is refused, and a hole beside the range in a stripe that is written becomes zeros.\n\nWith --time each instruction has beside it when it begins and when it is done, as the simulator predicts it for this plan set alone: on idle parts, with nothing cached, each drive on a host of its own. What this cluster's parts cost is measured by `braid-lab bench calibrate` on a machine like its own.\n\nExamples:\n  \
        braid plan read braid://main/a.bin 0..1M\n  \
        braid plan write braid://main/a.bin 4K+128K --down drive-2\n  \
        braid-lab bench calibrate --out parts.toml && braid plan read braid://main/a.bin 0..1M --time --parts parts.toml\n  \
        braid plan read braid://main/a.bin 0..64M --analyze\n  \
        braid plan write braid://main/a.bin 0..1M --analyze --rewrite"
    )]
    Plan(Plan),
    /// Ask a question about a file's records: the drives that hold them answer, and only the answer moves
    #[command(
        after_help = "Methods: checksum, compare, count, csv, frequent-sets, grep, histogram, sample, tree, wasm. Without a method they are listed, each with its arguments. Lines need not be UTF-8.\n\nWhat no drive can answer for, as of a drive that is away, is read and answered here: the answer is the same. --explain shows what runs where, and what either way costs.\n\nExit 7 if the file was written meanwhile: the answer may be of several states of it.\n\nExamples:\n  \
        braid run count braid://main/log\n  braid run grep braid://main/log pattern='error|warn' ignore-case=yes\n  braid run histogram braid://main/log of=length to=500 bins=20\n  braid run csv braid://main/sales.csv columns=item,price where='price>100'\n  braid run compare braid://main/a with=braid://main/b\n  braid run frequent-sets braid://main/sales support=1000 items=3\n  braid run grep braid://main/log pattern=error --explain\n  braid run wasm braid://main/log module=./words.wasm"
    )]
    Run(Run),
    /// Print checksums of files, without moving them: BLAKE3, or SHA-256 as sha256sum does
    #[command(
        after_help = "Examples:\n  braid sum braid://main/a.bin\n  braid sum --sha256 braid://main/a.bin | sha256sum --check -"
    )]
    Sum(Sum),
    /// Store code of your own, compiled to WebAssembly, for `braid run wasm`
    #[command(
        subcommand,
        after_help = "A module is stored in the file .modules/HASH.wasm of a volume, and named by its hash. What it must export is in docs/methods.md. Drives run it if the volume lets them: `braid volume set VOLUME --methods wasm`.\n\nExample:\n  braid module put words.wasm braid://main"
    )]
    Module(ModuleCommand),
    /// Say why one file is slow: reads a little of it, and looks at its drives
    #[command(
        after_help = "It reads a few MiB of the file and drops them, and asks the manager what goes on at the file's drives. The causes come with the most likely first, each with what to do about it. Bytes that are in the drives' page caches say nothing about their disks: it says so.\n\nExamples:\n  \
        braid why braid://main/a.bin\n  \
        braid why braid://main/a.bin --range 1G+64M"
    )]
    Why(Why),
    /// Read every unit and its parity, and report what does not match
    #[command(after_help = "Examples:\n  braid check braid://main/a.bin\n  braid check --all braid://main")]
    Check(Check),
    /// Have drives verify the checksums of everything they store
    #[command(
        after_help = "Each drive reads what it stores in the background, with lower priority than clients, and lists what does not match its checksum; a restart does not lose the position. Drives also scrub by themselves, slowly: `braid drive serve --scrub-rate`. A scrub reads one drive's bytes only; `braid check` also compares data with parity.\n\nExamples:\n  \
        braid scrub --all --rate 100M --wait\n  braid scrub drive-3\n  braid scrub --status"
    )]
    Scrub(Scrub),
    /// Serve, add, list, drain, remove and replace drives
    #[command(
        subcommand,
        after_help = "Examples:\n  braid drive ls\n  braid drive drain old --wait && braid drive rm old"
    )]
    Drive(Drive),
    /// Examine the store of a stopped drive: check, dump, statistics
    #[command(subcommand)]
    Store(Store),
    /// Show how the drives bring stale columns up to date, which they do by themselves, and set the rate
    #[command(
        after_help = "Columns are stale on a drive that was away while files were written, or that takes the place of another. Only what differs is written, beside readers and writers.\n\nExamples:\n  braid heal\n  braid heal --watch\n  braid heal --rate 100M"
    )]
    Heal(Heal),
    /// Show how equally full the drives are, and switch on or off that columns move to emptier ones
    #[command(
        after_help = "When the fullest and the emptiest drive differ by more than 5 % of their capacity, as after a drive was added, columns move by themselves until all are about equally full, at the rate that `braid heal --rate` sets. No file lacks a column meanwhile, nor is it on fewer hosts afterwards.\n\nExamples:\n  braid rebalance --watch\n  braid rebalance --off"
    )]
    Rebalance(Rebalance),
    /// Lay files out anew: in another scheme, width or unit, beside their readers
    #[command(
        override_usage = "braid relayout braid://VOLUME/PATH... --scheme SCHEME [--width COLUMNS] [--unit SIZE] [--wait]\n       \
        braid relayout braid://VOLUME/PATH... --cancel\n       braid relayout --status",
        after_help = "Directories are done with all that is below them. The drives do it by themselves, at the rate that `braid heal --rate` sets. Readers notice nothing. A file that is opened for writing meanwhile is begun anew when it is closed. Both layouts take room until a file is done.\n\nExamples:\n  \
        braid relayout braid://main/photos --scheme 'rs(4,2)' --unit 1M\n  braid relayout braid://main/a.bin --scheme raid1 --wait\n  braid relayout --status\n  braid relayout braid://main/photos --cancel"
    )]
    Relayout(Relayout),
    /// Wait until the columns on a drive are up to date after it replaced another or was away
    #[command(after_help = "Example:\n  braid rebuild drive-7")]
    Rebuild(Rebuild),
    /// Reserve a data rate for a file, a directory or a volume: it is kept, or refused with what can be had
    #[command(
        after_help = "A rate is admitted if drives, and network paths whose rate is known, can keep it beside all other reservations, with as many drives lost as --survive says. Then the drives keep it, whatever else is asked of them. What anyone opens under the name, in the direction of the rate, shares it. A file that is made under it gets the layout of the plan.

If the rate is not admitted the exit code is 15, and the output says what is scarce and what would be admitted.

Examples:
  braid reserve braid://main/cam1 --write 200MB/s --for 2h
  braid reserve braid://main/training --read 1GB/s --for 8h --streams 16 --survive 2
  braid reserve braid://main/cam1 --write 200MB/s --for 2h --dry-run --explain
  braid reserve ls
  braid reserve extend braid://main/cam1 --for 1h
  braid reserve rm braid://main/cam1"
    )]
    Reserve(Reserve),
    /// Play or record paced streams, each with its rate reserved
    #[command(subcommand)]
    Stream(Stream),
    /// Serve a manager
    #[command(subcommand)]
    Manager(Manager),
    /// Begin a cluster with several managers, join one, restore one, and list its managers
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Demonstrate everything: copy files in and out, kill a drive, work degraded, rebuild, and compare every
    /// copy
    #[command(
        after_help = "It starts six drives and a manager as processes, and uses raid5 4+1 with a unit of 512K. Every step that moves bytes prints its rate. `braid-lab demo` also measures what plain sockets and files come to, and prints the ratio. \
        Exit 0 only if every comparison held.\n\nExamples:\n  braid demo\n  braid demo --dir /dev/shm movie.mkv\n  braid demo --json"
    )]
    Demo(Demo),
    /// Measure what all drives do together; or run an experiment of braid-lab, if that is installed
    #[command(
        subcommand,
        disable_help_subcommand = true,
        after_help = "All other words are those of braid-lab, the program that has the experiments.\n\nExamples:\n  braid bench qualify\n  braid bench store"
    )]
    Bench(Bench),
    /// Simulate a cluster: the same plan sets on modelled disks, links and processors
    #[command(subcommand, after_help = "Example:\n  braid sim run --help")]
    Sim(Sim),
    /// Say how many drives carry so many streams and bytes, how to use them, and what breaks first
    #[command(
        after_help = "Arithmetic on the simulator's cost models, with all drives there and with as many lost as are to be survived: no part may be more than 80 % busy, and no drive more than 85 % full. Streams are taken to be so many that every unit needs positioning.\n\nExamples:\n  \
        braid size --streams 40 --rate 25MB/s --capacity 200TB --survive 1 --drive hdd-18tb --link 25GbE\n  \
        braid size --streams 4000 --rate 25MB/s --capacity 1PB --survive 2 --drive nvme-2026 --link 100GbE --json"
    )]
    Size(Size),
    /// Print a shell's completion script
    #[command(
        after_help = "Examples:\n  braid completions bash > ~/.local/share/bash-completion/completions/braid\n  \
        braid completions zsh > ~/.zfunc/_braid       with fpath+=~/.zfunc before compinit in ~/.zshrc\n  \
        braid completions fish > ~/.config/fish/completions/braid.fish"
    )]
    Completions {
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write the man pages, one for each command, into a directory
    #[command(after_help = "Example:\n  braid man ~/.local/share/man/man1 && man braid-cp")]
    Man {
        /// The directory, which is made if it does not exist; pages of the same names are replaced
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The cluster's directory [default: --cluster, or ~/.local/share/braid]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Number of drives; if it is more than the cluster has, drives are added [default: 6 for a new cluster]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) drives: Option<u16>,
    /// Leave the cluster running in the background, and return once all of it serves
    #[arg(long)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) options: DriveOptions,
}

#[derive(Debug, Args)]
pub(crate) struct Mount {
    /// The volume to mount, or a directory of it with all below
    #[arg(value_name = "braid://VOLUME[/PATH]")]
    pub(crate) volume: OsString,
    /// An empty directory to mount it on
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Mount it for reading only
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Let other users use it too; users other than root need `user_allow_other` in /etc/fuse.conf for that
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Do not let programs in the volume be run
    #[arg(long)]
    pub(crate) no_exec: bool,
    /// Answer each write as if `fsync` followed
    #[arg(long)]
    pub(crate) sync: bool,
    /// Change `--read-only` and `--no-exec` of what is mounted there
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub(crate) remount: bool,
    /// Return when it is mounted, and go on in the background
    #[arg(long)]
    pub(crate) detach: bool,
    /// Append to this file the errors, and what is done about them
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// The form of errors and of the log
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    #[command(flatten)]
    pub(crate) configured: Configured,
    /// Be the background process of a mount with --detach
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub(crate) detached: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Down {
    /// The cluster's directory [default: --cluster, or ~/.local/share/braid]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Direction {
    Read,
    /// By the only writer
    Write,
    /// Beside other writers
    SharedWrite,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[arg(value_enum)]
    pub(crate) direction: Direction,
    #[arg(value_name = "braid://VOLUME/PATH")]
    pub(crate) name: OsString,
    /// FROM..TO or FROM+LENGTH, such as 0..1M or 4K+128K
    #[arg(value_parser = size::parse_range)]
    pub(crate) range: Range<u64>,
    /// Plan as if this drive were away; may be repeated
    #[arg(long, value_name = "DRIVE")]
    pub(crate) down: Vec<String>,
    /// Print beside each instruction the predicted time at which it begins and is done
    #[arg(long)]
    pub(crate) time: bool,
    /// A file with the costs of the parts, as `braid-lab bench calibrate --out` writes it [default: hdd-18tb,
    /// 25GbE, server-2026]
    #[arg(long, value_name = "FILE.toml", requires = "time")]
    pub(crate) parts: Option<PathBuf>,
    /// Run the request too, and print beside each instruction how long it took where. A read drops the bytes
    #[arg(long, conflicts_with_all = ["time", "down"])]
    pub(crate) analyze: bool,
    /// With --analyze of a write: write again the bytes that the range has now. Without it no write is run
    #[arg(long, requires = "analyze")]
    pub(crate) rewrite: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    #[arg(value_name = "braid://VOLUME/PATH")]
    pub(crate) name: OsString,
    /// Read these bytes, FROM..TO or FROM+LENGTH [default: 4 MiB at each of up to four places]
    #[arg(long, value_parser = size::parse_range)]
    pub(crate) range: Option<Range<u64>>,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Check everything below the directories or volumes named
    #[arg(long)]
    pub(crate) all: bool,
    #[arg(required = true, value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Scrub {
    /// The drives, by name or identity; with --wait or --status alone all of them
    #[arg(value_name = "DRIVE", required_unless_present_any = ["all", "status", "wait"])]
    pub(crate) drives: Vec<String>,
    /// Select all drives
    #[arg(long, conflicts_with = "drives")]
    pub(crate) all: bool,
    /// Bytes a second that each drive may read for the scrub; a quarter of that while clients read or write
    #[arg(long, default_value = "50M", value_parser = size::parse_rate, value_name = "SIZE")]
    pub(crate) rate: u64,
    /// Wait until the scrub has ended; the exit code is not 0 if something is damaged
    #[arg(long)]
    pub(crate) wait: bool,
    /// Start nothing; only show the state of the scrubs
    #[arg(long, conflicts_with_all = ["rate", "wait"])]
    pub(crate) status: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Heal {
    /// Wait until nothing is left to do
    #[arg(long)]
    pub(crate) watch: bool,
    /// Bytes a second that each drive may write for this from now on; 0 for no limit [default: 100M at first]
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub(crate) rate: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Rebalance {
    /// Let columns move to emptier drives from now on, which is the setting at first
    #[arg(long)]
    pub(crate) on: bool,
    /// Let no more columns move; moves under way are completed
    #[arg(long, conflicts_with_all = ["on", "watch"])]
    pub(crate) off: bool,
    /// Wait until nothing moves any more
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Relayout {
    /// Files and directories
    #[arg(value_name = "braid://VOLUME/PATH", required_unless_present = "status")]
    pub(crate) names: Vec<OsString>,
    /// raid0, raid1, raid4, raid5 or rs(k,m)
    #[arg(long, required_unless_present_any = ["status", "cancel"])]
    pub(crate) scheme: Option<String>,
    /// Columns, parity included
    /// [default: 2 for raid1, k+m for rs, or else as many as there are drives, up to 5]
    #[arg(long, value_name = "COLUMNS", requires = "scheme")]
    pub(crate) width: Option<u16>,
    /// Bytes of a unit, a power of two from 4K to 64M
    #[arg(long, default_value = "512K", value_parser = size::parse, value_name = "SIZE")]
    pub(crate) unit: u64,
    /// Wait until these files are laid out anew
    #[arg(long)]
    pub(crate) wait: bool,
    /// Cancel the relayout asked for before; the files stay as they are
    #[arg(long, conflicts_with_all = ["scheme", "wait"])]
    pub(crate) cancel: bool,
    /// Begin nothing; show the files that are still to be laid out anew
    #[arg(long, conflicts_with_all = ["names", "scheme", "wait", "cancel"])]
    pub(crate) status: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rebuild {
    /// The drive, as `braid drive ls` names it
    #[arg(value_name = "DRIVE")]
    pub(crate) drive: String,
}

// The words for another program, which gets the whole command line, with what stands before. (Not a doc
// comment: that would become the command's help.)
#[derive(Debug, Args)]
pub(crate) struct Elsewhere {
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// Files to use [default: a few hundred MB of libraries found on this machine]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The directory for the demo's temporary directory, such as /dev/shm [default: the system's]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Leave the demo's directory in place at the end
    #[arg(long)]
    pub(crate) keep: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_and_ranges_are_checked_before_anything_runs() {
        for line in [
            "braid volume create v --unit 512Q",
            "braid plan read braid://main/a 9..3",
            "braid up --drives 0",
            "braid cp onlyone",
            "braid frobnicate",
            "braid scrub",
            "braid scrub drive-1 --all",
            "braid scrub --all --rate 0",
            "braid scrub --status --wait",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
