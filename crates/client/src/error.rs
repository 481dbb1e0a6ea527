//! Errors of the client, in plain words and with the remedy.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use braid_methods::{MethodError, SeamsError};
use braid_transport::{Mismatch, TransportError};
use braid_wire::control::NotAdmitted;
use braid_wire::{Reason, Refusal};

use crate::methods::failure::RunFailure;
use crate::naming::name::NameError;
use crate::sealed::keys::KeyError;
use crate::show_rate::show_rate;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Error of a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid name.
    #[error("name {name:?}: {source}")]
    Name {
        /// The name as given.
        name: String,
        /// The rule it breaks.
        source: NameError,
    },
    /// The manager could not be reached in time.
    #[error("{}", manager_words(address, source))]
    Manager {
        /// The manager's `HOST:PORT`.
        address: String,
        /// The error of the last try.
        source: Arc<TransportError>,
    },
    /// The manager refused the request.
    #[error("{subject}: {refusal}")]
    Refused {
        /// The object of the request, such as a file's name.
        subject: String,
        /// Reason and explanation.
        refusal: Refusal,
    },
    /// A data rate was not admitted.
    #[error("{name}: {}", Scarce(refused))]
    NotAdmitted {
        /// The name that the rate was asked for.
        name: String,
        /// The scarce resource, the reason, and what would be admitted.
        refused: Box<NotAdmitted>,
    },
    /// More columns of a stripe are away or damaged than its parity can replace.
    #[error(
        "{file}: bytes {} to {} (stripes {} to {} of segment {segment}) cannot be {action}: {}. Start these drives again, or \
         replace and rebuild them", bytes.start, bytes.end, stripes.start, stripes.end.saturating_sub(1),
        Unusable(drives, *spare)
    )]
    TooManyAway {
        /// The file's name.
        file: String,
        /// The segment's index.
        segment: usize,
        /// The bytes of the file that could not be served, in whole stripes.
        bytes: Range<u64>,
        /// The stripes of `bytes`, within the segment.
        stripes: Range<u64>,
        /// "read" or "written".
        action: &'static str,
        /// Number of columns that a stripe can do without.
        spare: u8,
        /// The unusable drives, each with the reason.
        drives: Vec<String>,
    },
    /// A drive did not store a write: no space, quota, a failed medium.
    #[error(
        "{file}: drive {drive} did not store the write: {refusal}. Close the file: what was not acknowledged is rolled back"
    )]
    NotStored {
        /// The file's name.
        file: String,
        /// The drive's name.
        drive: String,
        /// Reason and explanation.
        refusal: Refusal,
    },
    /// A drive refused, and no retry would help.
    #[error("{file}: drive {drive}: {refusal}")]
    Drive {
        /// The file's name.
        file: String,
        /// The drive's name.
        drive: String,
        /// Reason and explanation.
        refusal: Refusal,
    },
    /// The writer's lease is lost: it was silent for too long, or the file was taken over.
    #[error(
        "{file}: the write lease is lost ({why}). Open the file again; what was not acknowledged may be rolled back"
    )]
    LeaseLost {
        /// The file's name.
        file: String,
        /// The way in which the lease was lost.
        why: String,
    },
    /// An earlier write of this handle failed or was dropped midway: its stripes are not settled.
    #[error(
        "{file}: an earlier write through this handle did not finish ({why}). Close it and open the file again"
    )]
    Unfinished {
        /// The file's name.
        file: String,
        /// The failure of the earlier write.
        why: String,
    },
    /// The request took longer than the client's patience.
    #[error("{file}: gave up after {} s: {why}", after.as_secs())]
    TimedOut {
        /// The file's name, or the object of the request.
        file: String,
        /// Time spent on tries.
        after: Duration,
        /// The last obstacle.
        why: String,
    },
    /// Stripes kept changing while they were read, or their columns have different versions.
    #[error(
        "{file}: stripe {stripe} of segment {segment}: its columns name different versions of the data ({why}). \
             Try again; if it stays, run braid check"
    )]
    Torn {
        /// The file's name.
        file: String,
        /// The segment's index.
        segment: usize,
        /// The stripe's number in the segment.
        stripe: u64,
        /// The differing versions, or the number of tries.
        why: String,
    },
    /// A block of an encrypted volume's file does not open: its bytes are not those that were sealed for this
    /// place, or were sealed by another key.
    #[error(
        "{file}: block {block} (bytes {} to {}) does not open: it was damaged, exchanged, or sealed by another key. \
             braid check tells whether drives hold what was written", bytes.start, bytes.end - 1
    )]
    NotSealed {
        /// The file's name.
        file: String,
        /// The block's number in the file.
        block: u64,
        /// The bytes of the file that it has.
        bytes: Range<u64>,
    },
    /// The key of an encrypted volume cannot be had.
    #[error("volume {volume} is encrypted: {error}")]
    Key {
        /// The volume's name.
        volume: String,
        /// The reason for it.
        error: KeyError,
    },
    /// The settings have a key for the volume, and its files are not encrypted. They are not opened: a
    /// manager that is not to be trusted would get in plain text what is written.
    #[error(
        "{file} is not encrypted, and a key is given for volume {volume}: if the volume is meant to be plain, remove \
         its key from the settings (--volume-key, BRAID_VOLUME_KEYS, [volume-keys] in cluster.toml); else ask who \
         runs the manager what has become of it"
    )]
    NotEncrypted {
        /// The file's name.
        file: String,
        /// The volume's name.
        volume: String,
    },
    /// The handle was not opened for this kind of access.
    #[error("{file}: it was not opened for {access}")]
    Access {
        /// The file's name.
        file: String,
        /// "reading" or "writing".
        access: &'static str,
    },
    /// Options that contradict each other.
    #[error("{file}: {why}")]
    Options {
        /// The file's name.
        file: String,
        /// The contradicting options, and the combinations that are allowed.
        why: &'static str,
    },
    /// The handle was opened to write a range of the file, and the request is not within that range.
    #[error("{file}: {what}: it was opened to write bytes {}..{} only", .range.start, Bound(.range.end))]
    OutOfRange {
        /// The file's name.
        file: String,
        /// The refused operation.
        what: String,
        /// The bytes for which the handle was opened.
        range: Range<u64>,
    },
    /// An offset or size beyond the largest that a file can have.
    #[error("{file}: {offset} + {bytes} bytes is past the largest file offset")]
    Range {
        /// The file's name.
        file: String,
        /// Requested offset, in bytes.
        offset: u64,
        /// Requested number of bytes.
        bytes: u64,
    },
    /// A seek to before the first byte.
    #[error("{file}: the position is before the first byte")]
    Seek {
        /// The file's name.
        file: String,
    },
    /// The planner refused the request.
    #[error("{file}: {why}")]
    Plan {
        /// The file's name.
        file: String,
        /// The planner's message.
        why: String,
    },
    /// A method cannot be run, or has no answer.
    #[error("{file}: {why}")]
    Run {
        /// The file's name.
        file: String,
        /// Reason and remedy.
        why: Box<RunFailure>,
    },
    /// The manager's answer contradicts itself or the request: a version mismatch or damaged state.
    #[error(
        "{subject}: the manager's answer makes no sense: {why}. Do manager and client have the same release?"
    )]
    Answer {
        /// The object of the request, such as a file's name.
        subject: String,
        /// The contradiction in the answer.
        why: String,
    },
    /// No drive has that name or id.
    #[error("no drive is called {0:?}: see braid status")]
    NoDrive(String),
}

/// Categories of errors, for exit codes and errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The request itself is wrong.
    Usage,
    /// There is no such file, directory, volume, drive or snapshot.
    NotFound,
    /// The object exists already, or its number was used before.
    Exists,
    /// A directory that is not empty, or an object that is, or is not, a directory as the request needs.
    WrongKind,
    /// The token or the capability does not allow it.
    Permission,
    /// Another client holds the lease, it was lost, or work in progress must be settled first.
    Busy,
    /// No space or quota is left, or a maximum number is reached.
    NoSpace,
    /// Manager or drives could not be reached, or too many are away.
    Unavailable,
    /// Stored bytes are damaged beyond what parity repairs, or a medium failed.
    Corrupt,
    /// A data rate cannot be kept.
    NotAdmitted,
    /// A peer or this program broke a rule.
    Internal,
}

/// Displays the scarce resource, and the rates that would be admitted.
struct Scarce<'a>(&'a NotAdmitted);

impl fmt::Display for Scarce<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotAdmitted { resource, needed_permille: needed, free_permille: free, detail, offers } = self.0;
        let tenths = |permille: &u64| format!("{}.{} %", permille / 10, permille % 10);
        write!(f, "{detail} ({resource}: {} of {} free)", tenths(needed), tenths(free))?;
        for offer in offers {
            write!(f, "; instead: {}, {}", show_rate(offer.rate), offer.detail)?;
        }
        Ok(())
    }
}

/// Displays the end of a range; displays nothing for a range without an end (`u64::MAX`).
struct Bound(u64);

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == u64::MAX { Ok(()) } else { write!(f, "{}", self.0) }
    }
}

impl Error {
    /// The error's category.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Name { .. }
            | Error::Range { .. }
            | Error::Seek { .. }
            | Error::Access { .. }
            | Error::Options { .. }
            | Error::OutOfRange { .. } => Kind::Usage,
            Error::Manager { source, .. } => transport_kind(source),
            Error::Refused { refusal, .. }
            | Error::NotStored { refusal, .. }
            | Error::Drive { refusal, .. } => reason_kind(refusal.reason),
            Error::NotAdmitted { .. } => Kind::NotAdmitted,
            Error::TooManyAway { .. } | Error::TimedOut { .. } => Kind::Unavailable,
            Error::LeaseLost { .. } | Error::Unfinished { .. } => Kind::Busy,
            Error::Torn { .. } | Error::NotSealed { .. } => Kind::Corrupt,
            Error::Key { error: KeyError::Silent { .. }, .. } => Kind::Unavailable,
            Error::Key { .. } | Error::NotEncrypted { .. } => Kind::Permission,
            Error::Plan { .. } | Error::Answer { .. } => Kind::Internal,
            Error::NoDrive(_) => Kind::NotFound,
            Error::Run { why, .. } => match &**why {
                RunFailure::NotAtDrives(_) => Kind::Permission,
                RunFailure::Cut | RunFailure::Hashes(_) => Kind::Busy,
                RunFailure::Ended | RunFailure::Seams(SeamsError::Place { .. }) => Kind::Internal,
                RunFailure::Method(MethodError::Partial | MethodError::Incomplete) => Kind::Internal,
                _ => Kind::Usage,
            },
        }
    }

    /// The reason a peer gave, if one did.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Error::Refused { refusal, .. }
            | Error::NotStored { refusal, .. }
            | Error::Drive { refusal, .. } => Some(refusal.reason),
            _ => None,
        }
    }
}

fn transport_kind(error: &TransportError) -> Kind {
    match error {
        TransportError::Refusal(refusal) => reason_kind(refusal.reason),
        TransportError::WrongPeer { mismatch: Mismatch::Version { .. }, .. } => Kind::Unavailable,
        TransportError::Forged { .. } | TransportError::WrongPeer { .. } | TransportError::Tls { .. } => {
            Kind::Permission
        }
        error if error.is_misbehaviour() => Kind::Internal,
        _ => Kind::Unavailable,
    }
}

fn reason_kind(reason: Reason) -> Kind {
    match reason {
        Reason::NotFound
        | Reason::NoVolume
        | Reason::NoDrive
        | Reason::NoObject
        | Reason::NoPartition
        | Reason::NoSnapshot
        | Reason::NoXattr => Kind::NotFound,
        Reason::Exists => Kind::Exists,
        Reason::NotDirectory
        | Reason::IsDirectory
        | Reason::NotEmpty
        | Reason::NotFile
        | Reason::Written
        | Reason::Loop
        | Reason::PartitionNotEmpty => Kind::WrongKind,
        Reason::BadToken
        | Reason::NotAllowed
        | Reason::NotOwner
        | Reason::Forged
        | Reason::Rights
        | Reason::OtherCluster
        | Reason::NoKey
        | Reason::SnapshotReadOnly => Kind::Permission,
        Reason::Leased | Reason::LeaseLost | Reason::DriveInUse | Reason::Unsettled => Kind::Busy,
        Reason::Full
        | Reason::ManagerFull
        | Reason::Quota
        | Reason::TooManySnapshots
        | Reason::TooManyLinks
        | Reason::TooLarge => Kind::NoSpace,
        Reason::Medium | Reason::Damaged | Reason::ReadOnly => Kind::Corrupt,
        Reason::BadName | Reason::BadScheme | Reason::Range | Reason::OtherQuota | Reason::ModuleFailed => {
            Kind::Usage
        }
        Reason::TooFewDrives
        | Reason::TooManyAway
        | Reason::NotLeading
        | Reason::StateOlder
        | Reason::NotServing
        | Reason::NotCaughtUp
        | Reason::Busy
        | Reason::Outdated
        | Reason::Closing
        | Reason::Newer => Kind::Unavailable,
        // The client itself should have handled these: a refusal that gets here is a bug.
        Reason::Malformed
        | Reason::Unsupported
        | Reason::Expired
        | Reason::Replayed
        | Reason::Scope
        | Reason::StaleKey
        | Reason::StaleGeneration
        | Reason::PayloadChecksum
        | Reason::NoModule
        | Reason::Gone => Kind::Internal,
    }
}

/// Describes a problem in reaching the manager, and what to check.
fn manager_words(address: &str, source: &TransportError) -> String {
    match source {
        TransportError::Damaged { .. } => format!(
            "the manager at {address} cannot be understood: {source}. Look at the network between here and there: it \
             changes bytes on their way"
        ),
        TransportError::WrongPeer {
            mismatch: Mismatch::Version { .. } | Mismatch::Authority { .. }, ..
        }
        | TransportError::Tls { .. } => {
            format!("the manager at {address} cannot be talked to: {source}")
        }
        source => {
            format!(
                "no answer from the manager at {address}: {source}. Is it running, and is the address right?"
            )
        }
    }
}

/// Displays the unusable columns, and how many a stripe can do without. If no more unusable columns than that
/// are known, others were never asked: the spare count would read like a contradiction, and is left out.
struct Unusable<'a>(&'a [String], u8);

impl fmt::Display for Unusable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unusable(drives, spare) = self;
        let named = self.0.join("; ");
        if drives.len() > usize::from(*spare) {
            write!(
                f,
                "{} of its columns cannot be used ({named}), and it can do without {spare}",
                drives.len()
            )
        } else {
            write!(f, "too few of its columns can be used; known to be away: {named}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_that_what_can_be_done_without_is_missing() {
        let away = |drives: &[&str]| {
            let drives = drives.iter().map(|&drive| drive.to_owned()).collect();
            let file = "f".to_owned();
            let action = "written";
            let spare = 1;
            let bytes = 8192..16_384;
            let stripes = 2..4;
            Error::TooManyAway { file, segment: 0, bytes, stripes, action, spare, drives }.to_string()
        };
        assert!(
            away(&["a: x", "b: y"])
                .contains("2 of its columns cannot be used (a: x; b: y), and it can do without 1")
        );
        let one = away(&["a: x"]);
        assert!(
            one.contains("bytes 8192 to 16384 (stripes 2 to 3")
                && one.contains("a: x")
                && !one.contains("can do without"),
            "{one}"
        );
    }

    #[test]
    fn a_refused_rate_comes_with_offers() {
        let offer = braid_wire::control::CounterOffer {
            rate: 12_345,
            begins_ms: 0,
            survive: 1,
            shape: braid_wire::control::ShapeSpec::DEFAULT,
            detail: "the greatest rate that is free".to_owned(),
        };
        let refused = NotAdmitted {
            resource: "the disk of d1".to_owned(),
            needed_permille: 1015,
            free_permille: 400,
            detail: "it has too little left".to_owned(),
            offers: vec![offer],
        };
        let error = Error::NotAdmitted { name: "f".to_owned(), refused: Box::new(refused) };
        assert_eq!(error.kind(), Kind::NotAdmitted);
        assert_eq!(
            error.to_string(),
            "f: it has too little left (the disk of d1: 101.5 % of 40.0 % free); instead: 12.3 kB/s, the greatest rate \
             that is free"
        );
    }

    #[test]
    fn a_refused_snapshot_has_a_family_of_its_cause() {
        let check = |reason, expected| {
            let refusal = Refusal::new(reason, "object 2 in partition 1: the drive's words");
            let error = Error::Drive { file: "f".to_owned(), drive: "d1".to_owned(), refusal };
            assert_eq!(error.kind(), expected, "{reason:?}");
            assert_eq!(error.to_string(), "f: drive d1: object 2 in partition 1: the drive's words");
        };
        check(Reason::Unsettled, Kind::Busy);
        check(Reason::TooManySnapshots, Kind::NoSpace);
    }
}
