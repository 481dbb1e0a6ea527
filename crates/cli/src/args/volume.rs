//! Arguments of the commands on volumes and on layouts.

use std::ffi::OsString;
use std::path::PathBuf;

use braid_client::{KeySource, VolumeKeys};
use braid_sim::units::Rate;
use clap::{Args, Subcommand};

use crate::output::size;

#[derive(Debug, Subcommand)]
pub(crate) enum Volume {
    /// Make a volume
    #[command(after_help = "Examples:\n  braid volume create media --scheme raid5 --width 5 --unit 512K\n  \
        braid volume create safe --scheme 'rs(4,2)' --unit 1M\n  head -c 32 /dev/urandom > /etc/braid/secret.key && braid volume create secret --encrypt --key-file /etc/braid/secret.key")]
    Create(VolumeCreate),
    /// List the volumes
    #[command(after_help = "Example:\n  braid volume ls")]
    Ls,
    /// Change how new files of a volume lie, where no directory says otherwise, or how its data is protected
    #[command(
        after_help = "What is not said stays as it is. Existing files stay as they are: `braid relayout` lays them out anew. How data is protected between clients and drives changes for all files; those that are open change within two minutes.\n\nExamples:\n  braid volume set media --scheme raid1\n  braid volume set media --unit 1M\n  braid volume set media --data privacy"
    )]
    Set(VolumeSet),
    /// Wrap the data key of an encrypted volume by another key; no file is written anew
    #[command(
        after_help = "Who has the key before and a copy of what it wrapped can still open what was written: to shut them out, copy the files to a new volume.\n\nExample:\n  braid volume rekey secret --key-file old.key --new-key-file new.key"
    )]
    Rekey(VolumeRekey),
    /// Remove a volume that holds no files
    #[command(after_help = "Example:\n  braid rm -r braid://old && braid volume rm old")]
    Rm {
        /// The volume's name
        #[arg(value_name = "NAME")]
        name: String,
        /// Remove its snapshots first
        #[arg(long)]
        snapshots: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct VolumeCreate {
    /// The volume's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// raid0, raid1, raid4, raid5 or rs(k,m)
    #[arg(long, default_value = "raid5")]
    pub(crate) scheme: String,
    /// Columns, parity included
    /// [default: 2 for raid1, k+m for rs, or else as many as there are drives, up to 5]
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) width: Option<u16>,
    /// Bytes of a unit, a power of two from 4K to 64M
    #[arg(long, default_value = "512K", value_parser = size::parse, value_name = "SIZE")]
    pub(crate) unit: u64,
    /// The most bytes that the volume may hold; 0 for no limit
    #[arg(long, default_value = "0", value_parser = size::parse, value_name = "SIZE")]
    pub(crate) quota: u64,
    /// Protection of its data between clients and drives
    #[arg(long, value_name = "HOW", default_value = "integrity")]
    pub(crate) data: DataMode,
    /// Encrypt what files hold, here, before it goes to drives; a lost key is lost data
    #[arg(long, requires = "by_key")]
    pub(crate) encrypt: bool,
    #[command(flatten)]
    pub(crate) key: KeyPlace,
}

/// The protection of a volume's data on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DataMode {
    /// Requests and answers are authentic, and data has checksums
    Integrity,
    /// Nobody reads along either: sessions are in TLS 1.3
    Privacy,
}

#[derive(Debug, Args)]
#[group(id = "by_key", multiple = false)]
pub(crate) struct KeyPlace {
    /// A file with the key that wraps the volume's data key: 32 random bytes, or 64 hex digits
    #[arg(long, value_name = "FILE", requires = "encrypt")]
    pub(crate) key_file: Option<PathBuf>,
    /// A command that wraps and unwraps the data key, such as one that asks a key server
    #[arg(long, value_name = "COMMAND", requires = "encrypt")]
    pub(crate) key_command: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("old").required(true), group = clap::ArgGroup::new("new").required(true))]
pub(crate) struct VolumeRekey {
    /// The volume's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The file with the key by which the data key is wrapped
    #[arg(long, value_name = "FILE", group = "old")]
    pub(crate) key_file: Option<PathBuf>,
    /// The command that unwraps it
    #[arg(long, value_name = "COMMAND", group = "old")]
    pub(crate) key_command: Option<String>,
    /// The file with the key by which it is to be wrapped
    #[arg(long, value_name = "FILE", group = "new")]
    pub(crate) new_key_file: Option<PathBuf>,
    /// The command that is to wrap it
    #[arg(long, value_name = "COMMAND", group = "new")]
    pub(crate) new_key_command: Option<String>,
}

/// The place of a key, of a file or a command; `None` if neither is given.
pub(crate) fn key_source(file: Option<PathBuf>, command: Option<String>) -> Option<KeySource> {
    file.map(KeySource::File).or(command.map(KeySource::Command))
}

/// Checks a text that says where a volume's key is.
pub(super) fn key(text: &str) -> Result<String, String> {
    VolumeKeys::default().add(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

#[derive(Debug, Args)]
pub(crate) struct VolumeSet {
    /// The volume's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// raid0, raid1, raid4, raid5 or rs(k,m)
    #[arg(long, required_unless_present_any = ["width", "unit", "data", "methods"])]
    pub(crate) scheme: Option<String>,
    /// Columns, parity included
    /// [default with --scheme: 2 for raid1, k+m for rs, or else as many as there are drives, up to 5]
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) width: Option<u16>,
    /// Bytes of a unit, a power of two from 4K to 64M
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub(crate) unit: Option<u64>,
    /// Protection of data between clients and drives
    #[arg(long, value_name = "HOW")]
    pub(crate) data: Option<DataMode>,
    /// Methods that drives run on the volume's files, for who opens them from now on
    #[arg(long, value_name = "WHICH")]
    pub(crate) methods: Option<MethodsMode>,
}

/// The methods that drives run on a volume's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MethodsMode {
    /// None: clients read, and run them themselves
    None,
    /// Those that drives have: see `braid run`
    Builtin,
    /// These, and modules of users: see `braid module`
    Wasm,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Layout {
    /// Set the layout of what is made in directories and below them from now on
    #[command(
        after_help = "A file can be given a layout until something is written to it. A volume's name alone stands for the whole volume, as with `braid volume set`.\n\nExamples:\n  \
        braid layout set braid://main/photos --scheme 'rs(4,2)' --unit 1M\n  braid layout set braid://main/scratch --scheme raid0 --width 3\n  braid layout set braid://main/video --rate 200MB/s\n  braid layout set braid://main/thumbnails --clustering directory"
    )]
    Set(LayoutSet),
    /// Show the layout of files, or of what is made in directories, and where it comes from
    #[command(
        visible_alias = "get",
        after_help = "Examples:\n  braid layout ls braid://main/photos\n  braid layout ls -R braid://main"
    )]
    Ls {
        /// List the directories below that have a layout of their own too
        #[arg(short = 'R', long)]
        recursive: bool,
        #[arg(required = true, value_name = "braid://VOLUME/PATH")]
        names: Vec<OsString>,
    },
    /// Take the layouts of directories away: what holds above counts from now on
    #[command(after_help = "Example:\n  braid layout rm braid://main/photos")]
    Rm {
        #[arg(required = true, value_name = "braid://VOLUME/DIR")]
        names: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub(crate) struct LayoutSet {
    #[arg(required = true, value_name = "braid://VOLUME/DIR")]
    pub(crate) names: Vec<OsString>,
    /// raid0, raid1, raid4, raid5 or rs(k,m)
    #[arg(long, group = "what")]
    pub(crate) scheme: Option<String>,
    /// The layout that a reservation of this rate would give to new files there; nothing is reserved
    #[arg(long, value_name = "RATE", group = "what", conflicts_with_all = ["scheme", "width", "unit"])]
    pub(crate) rate: Option<Rate>,
    /// Columns, parity included
    /// [default: 2 for raid1, k+m for rs, or else as many as there are drives, up to 5]
    #[arg(long, value_name = "COLUMNS", requires = "scheme")]
    pub(crate) width: Option<u16>,
    /// Bytes of a unit, a power of two from 4K to 64M
    #[arg(long, default_value = "512K", value_parser = size::parse, value_name = "SIZE", requires = "scheme")]
    pub(crate) unit: u64,
    /// Small files that are placed near each other on the drives, so that they are read in one sweep: those
    /// of each directory, all below the one named, none, or as the directory above says
    #[arg(long, value_name = "WHICH", group = "what")]
    pub(crate) clustering: Option<Clustering>,
}

/// Small files that are placed near each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Clustering {
    /// Those of each directory
    Directory,
    /// All below the directory that is named
    Tree,
    /// No files are placed near others
    None,
    /// As the directory above says
    Inherit,
}
