//! What can go wrong for a caller, in plain words and with the remedy.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use braid_transport::TransportError;
use braid_wire::{Reason, Refusal};

use crate::name::NameError;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that cannot be.
    #[error("name {name:?}: {source}")]
    Name {
        /// As it was given.
        name: String,
        /// The rule it breaks.
        source: NameError,
    },
    /// The manager could not be reached in time.
    #[error("{}", manager_words(address, source))]
    Manager {
        /// Its address.
        address: String,
        /// The last try's error.
        source: TransportError,
    },
    /// The manager said no.
    #[error("{subject}: {refusal}")]
    Refused {
        /// What was asked for.
        subject: String,
        /// Reason and sentence.
        refusal: Refusal,
    },
    /// More columns of a stripe are away or damaged than its parity can replace.
    #[error(
        "{file}: stripes {} to {} of segment {segment} cannot be {action}: {}. Start these drives again, or replace and rebuild \
         them", stripes.start, stripes.end.saturating_sub(1), Unusable(drives, *spare)
    )]
    TooManyAway {
        /// The file.
        file: String,
        /// The segment's index.
        segment: usize,
        /// Stripes that were asked for and not served.
        stripes: Range<u64>,
        /// "read" or "written".
        action: &'static str,
        /// Columns it can do without.
        spare: u8,
        /// The drives, each with why it cannot be used.
        drives: Vec<String>,
    },
    /// A drive would not store a write: no space, quota, a failed medium.
    #[error(
        "{file}: drive {drive} did not store the write: {refusal}. Close the file: what was not acknowledged is rolled back"
    )]
    NotStored {
        /// The file.
        file: String,
        /// The drive's name.
        drive: String,
        /// Reason and sentence.
        refusal: Refusal,
    },
    /// A drive refused in a way that no retry mends.
    #[error("{file}: drive {drive}: {refusal}")]
    Drive {
        /// The file.
        file: String,
        /// The drive's name.
        drive: String,
        /// Reason and sentence.
        refusal: Refusal,
    },
    /// The writer's lease is gone: it was silent for too long, or the file was taken over.
    #[error(
        "{file}: the write lease is lost ({why}). Open the file again; what was not acknowledged may be rolled back"
    )]
    LeaseLost {
        /// The file.
        file: String,
        /// How it was lost.
        why: String,
    },
    /// An earlier write of this handle failed or was dropped midway: its stripes are not settled.
    #[error(
        "{file}: an earlier write through this handle did not finish ({why}). Close it and open the file again"
    )]
    Unfinished {
        /// The file.
        file: String,
        /// What happened.
        why: String,
    },
    /// The request went on for longer than the client's patience.
    #[error("{file}: gave up after {} s: {why}", after.as_secs())]
    TimedOut {
        /// The file, or what was asked for.
        file: String,
        /// How long it was tried.
        after: Duration,
        /// The last obstacle.
        why: String,
    },
    /// Stripes kept changing while they were read, or their columns do not agree.
    #[error(
        "{file}: stripe {stripe} of segment {segment}: its columns name different versions of the data ({why}). \
             Try again; if it stays, run braid check"
    )]
    Torn {
        /// The file.
        file: String,
        /// The segment's index.
        segment: usize,
        /// The stripe.
        stripe: u64,
        /// Which do not agree.
        why: String,
    },
    /// The handle was not opened for this.
    #[error("{file}: it was not opened for {access}")]
    Access {
        /// The file.
        file: String,
        /// "reading" or "writing".
        access: &'static str,
    },
    /// An offset or size past the end of what a file can have.
    #[error("{file}: {offset} + {bytes} bytes is past the largest file offset")]
    Range {
        /// The file.
        file: String,
        /// Offset asked for.
        offset: u64,
        /// Bytes asked for.
        bytes: u64,
    },
    /// A seek to before the first byte.
    #[error("{file}: a position before the first byte")]
    Seek {
        /// The file.
        file: String,
    },
    /// The request was refused by the planner.
    #[error("{file}: {why}")]
    Plan {
        /// The file.
        file: String,
        /// The planner's words.
        why: String,
    },
    /// The manager's answer contradicts itself or the request: a version mismatch or a damaged state.
    #[error(
        "{subject}: the manager's answer makes no sense: {why}. Do manager and client have the same release?"
    )]
    Answer {
        /// What was asked for.
        subject: String,
        /// What is wrong.
        why: String,
    },
    /// No drive of that name or id.
    #[error("no drive is called {0:?}: see braid status")]
    NoDrive(String),
}

/// The families of errors, for exit codes and errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The request itself is wrong.
    Usage,
    /// There is no such file, directory, volume, drive or snapshot.
    NotFound,
    /// It is there already, or its number was used before.
    Exists,
    /// Not empty, not a directory, is a directory.
    WrongKind,
    /// The token or the capability does not allow it.
    Permission,
    /// Someone else holds the lease, it was lost, or what is under way must be settled first.
    Busy,
    /// No space or quota left, or as many as there may be.
    NoSpace,
    /// Manager or drives could not be reached, or too many are away.
    Unavailable,
    /// Stored bytes are damaged beyond what parity repairs, or a medium failed.
    Corrupt,
    /// A peer or this program broke a rule.
    Internal,
}

impl Error {
    /// The family.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Name { .. } | Error::Range { .. } | Error::Seek { .. } | Error::Access { .. } => {
                Kind::Usage
            }
            Error::Manager { source, .. } => transport_kind(source),
            Error::Refused { refusal, .. }
            | Error::NotStored { refusal, .. }
            | Error::Drive { refusal, .. } => reason_kind(refusal.reason),
            Error::TooManyAway { .. } | Error::TimedOut { .. } => Kind::Unavailable,
            Error::LeaseLost { .. } | Error::Unfinished { .. } => Kind::Busy,
            Error::Torn { .. } => Kind::Corrupt,
            Error::Plan { .. } | Error::Answer { .. } => Kind::Internal,
            Error::NoDrive(_) => Kind::NotFound,
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
        TransportError::Forged { .. } | TransportError::WrongPeer { .. } => Kind::Permission,
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
        | Reason::NoSnapshot => Kind::NotFound,
        Reason::Exists | Reason::SnapshotUsed => Kind::Exists,
        Reason::NotDirectory | Reason::IsDirectory | Reason::NotEmpty | Reason::PartitionNotEmpty => {
            Kind::WrongKind
        }
        Reason::BadToken | Reason::NotAllowed | Reason::Forged | Reason::Rights | Reason::OtherCluster => {
            Kind::Permission
        }
        Reason::Leased | Reason::LeaseLost | Reason::DriveInUse | Reason::Unsettled => Kind::Busy,
        Reason::Full | Reason::Quota | Reason::TooManySnapshots => Kind::NoSpace,
        Reason::Medium | Reason::Damaged | Reason::ReadOnly => Kind::Corrupt,
        Reason::BadName | Reason::BadScheme => Kind::Usage,
        Reason::TooFewDrives
        | Reason::TooManyAway
        | Reason::NotLeading
        | Reason::StateOlder
        | Reason::NotServing
        | Reason::Busy
        | Reason::Outdated
        | Reason::Closing => Kind::Unavailable,
        // These are for the client itself to act on: whoever sees one has met a mistake.
        Reason::Malformed
        | Reason::Unsupported
        | Reason::Expired
        | Reason::Replayed
        | Reason::Range
        | Reason::Scope
        | Reason::StaleKey
        | Reason::StaleGeneration
        | Reason::PayloadChecksum
        | Reason::Gone => Kind::Internal,
    }
}

/// What is wrong with the way to the manager, and what to look at.
fn manager_words(address: &str, source: &TransportError) -> String {
    match source {
        TransportError::Damaged { .. } => format!(
            "the manager at {address} cannot be understood: {source}. Look at the network between here and there: it \
             changes bytes on their way"
        ),
        source => {
            format!(
                "no answer from the manager at {address}: {source}. Is it running, and is the address right?"
            )
        }
    }
}

/// The columns that cannot be used, and how many a stripe can do without. Where fewer are known than that, others must be away that
/// were not asked: then the number would read like a contradiction.
struct Unusable<'a>(&'a [String], u8);

impl fmt::Display for Unusable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Unusable(drives, spare), named) = (self, self.0.join("; "));
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
            let (file, action, spare) = ("f".to_owned(), "written", 1);
            Error::TooManyAway { file, segment: 0, stripes: 2..4, action, spare, drives }.to_string()
        };
        assert!(
            away(&["a: x", "b: y"])
                .contains("2 of its columns cannot be used (a: x; b: y), and it can do without 1")
        );
        let one = away(&["a: x"]);
        assert!(
            one.contains("stripes 2 to 3") && one.contains("a: x") && !one.contains("can do without"),
            "{one}"
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
        check(Reason::NoSnapshot, Kind::NotFound);
        check(Reason::SnapshotUsed, Kind::Exists);
        check(Reason::Unsettled, Kind::Busy);
        check(Reason::TooManySnapshots, Kind::NoSpace);
    }
}
