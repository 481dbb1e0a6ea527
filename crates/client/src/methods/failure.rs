//! The reasons for which a run of a method has no answer.

use braid_methods::{ArgumentsError, MethodError, SeamsError};

/// The least bound on records, and the step of a piece's length.
pub(crate) const RECORD_MAX_LEAST: u64 = 4096;
/// Bytes of the file's beginning in which a method's header must end.
pub(crate) const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Reason for which a method has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunFailure {
    /// Its arguments are wrong.
    #[error(transparent)]
    Arguments(#[from] ArgumentsError),
    /// It cannot go on.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// A record is too long, or a drive's answer does not fit.
    #[error(transparent)]
    Seams(#[from] SeamsError),
    /// It is no Parquet file that can be read.
    #[error("{0}")]
    Table(String),
    /// Rows cannot be made Arrow.
    #[error("its rows cannot be made Arrow: {0}")]
    Arrow(String),
    /// Drives may not run it on this file.
    #[error("{0}, so no drive runs methods on it: leave out --at drive")]
    NotAtDrives(&'static str),
    /// The file has no first line that could be its header.
    #[error("its first line, the header, does not end within {HEADER_BYTES_MAX} bytes")]
    Header,
    /// The file's first line is no text.
    #[error(
        "its first line, the header, is not UTF-8: give header=NAME,NAME,... and, as that line is no row, \
         skip-first=yes"
    )]
    HeaderText,
    /// The file has become shorter than it was.
    #[error("the file was cut meanwhile: run it again, or on a snapshot")]
    Cut,
    /// Hashes of a block of two files differ, but their bytes do not.
    #[error(
        "the hashes of the blocks at byte {0} differ, and their bytes do not: a file was written meanwhile, or \
         a drive's answer is wrong; compare snapshots, or use --at client"
    )]
    Hashes(u64),
    /// A plan is for one run.
    #[error("it takes several runs, each of which depends on the one before: there is no one plan to show")]
    SeveralRuns,
    /// The bound on records is too low.
    #[error("records of {0} bytes at most are too short: the bound is at least {RECORD_MAX_LEAST}")]
    RecordMax(u64),
    /// A module that cannot be had.
    #[error("{why}")]
    Module {
        /// Reason and remedy.
        why: String,
    },
    /// A module failed at a drive.
    #[error("at drive {drive}, {why}")]
    AtDrive {
        /// The drive at which it failed.
        drive: String,
        /// The module's fault, in words.
        why: String,
    },
    /// A task of this program ended early.
    #[error("the work was given up: this program is ending")]
    Ended,
}
