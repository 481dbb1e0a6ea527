//! Commands that examine one drive's store on this machine.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Store {
    /// Read all of a store and report what is damaged, and where
    #[command(
        after_help = "Every header, payload, checkpoint page and reference is read and compared, up to the end of the log. Nothing is changed. What the next opening would cut off after a crash is reported as harmless. A damaged unit need not be lost to its file: once the drive serves again, `braid check` names the file, and `braid drive replace` and `braid rebuild` reconstruct the unit from the others.\n\nExit 0: whole; 10: damaged.\n\nExamples:\n  \
        braid store check /srv/braid/drive-1\n  braid store check --json /disk1/braid/store"
    )]
    Check(StoreDir),
    /// Print every record of a store: file, offset, kind, fields
    #[command(
        after_help = "In the order of the files: superblock, checkpoints, segments. Payloads are not read. docs/format-store.md says what the fields mean. With --json one object per line.\n\nExamples:\n  \
        braid store dump /srv/braid/drive-1 | less\n  braid store dump /srv/braid/drive-1 | grep ' verdict '"
    )]
    Dump(StoreDir),
    /// Show a store's statistics: live and dead bytes, segments, memory for its index
    #[command(after_help = "Example:\n  braid store stat /srv/braid/drive-1")]
    Stat(StoreDir),
}

#[derive(Debug, Args)]
pub(crate) struct StoreDir {
    /// The drive's directory, or the store/ in it; the drive must be stopped
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}
