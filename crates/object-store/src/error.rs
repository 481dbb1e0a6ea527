//! Why a request failed, before a version of object_store has its words for it.

use braid_client::{Kind, NameError};
use braid_wire::Reason;

/// Why a request failed. It is the source of the errors of object_store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The client's error.
    #[error(transparent)]
    Client(Box<braid_client::Error>),
    /// The path cannot be a name: one of its parts is over 255 bytes, or all of it over 4096.
    #[error("the path {location:?} cannot be a name: {source}")]
    Path {
        /// The path.
        location: String,
        /// The rule it breaks.
        source: NameError,
    },
    /// A directory or a special file has this name.
    #[error("{name} is no file")]
    NoFile {
        /// The name.
        name: String,
    },
    /// There is an object of this name already.
    #[error("{name} exists already")]
    Exists {
        /// The name.
        name: String,
    },
    /// The object is not, or no more, the one that was to be updated.
    #[error("{name} is not what it was when it was seen: {why}")]
    Changed {
        /// The name.
        name: String,
        /// What was found.
        why: String,
    },
    /// It was to be updated, but from which content is not said.
    #[error("{e_tag:?} is no e_tag of this store: give the one of a result or of the object's facts")]
    NoTag {
        /// What was given.
        e_tag: Option<String>,
    },
    /// The file became shorter while it was read: somebody truncated it, by a mount or another client.
    #[error("{name} became shorter while it was read: {read} of {wanted} bytes were there")]
    Shrunk {
        /// The file.
        name: String,
        /// Bytes read.
        read: usize,
        /// Bytes wanted.
        wanted: usize,
    },
    /// An upload was to be completed, but not all of its parts have been written.
    #[error("{name}: {written} of the upload's {begun} parts are written: wait for all, or abort it")]
    Parts {
        /// The object.
        name: String,
        /// How many are done.
        written: usize,
        /// How many were begun.
        begun: usize,
    },
    /// An upload that was completed or aborted before.
    #[error("{name}: the upload was completed or aborted before")]
    Ended {
        /// The object.
        name: String,
    },
    /// It changed too often, or others removed its directory again and again.
    #[error("{name}: gave up after {tries} tries: {source}")]
    Contended {
        /// The object.
        name: String,
        /// How many.
        tries: usize,
        /// The last try's.
        source: Box<braid_client::Error>,
    },
}

/// What object_store tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    NotFound,
    Exists,
    Precondition,
    Permission,
    Token,
    Other,
}

impl From<braid_client::Error> for Error {
    fn from(error: braid_client::Error) -> Error {
        Error::Client(Box::new(error))
    }
}

impl Error {
    pub(crate) fn family(&self) -> Family {
        match self {
            Error::NoFile { .. } => Family::NotFound,
            Error::Exists { .. } => Family::Exists,
            Error::Changed { .. } | Error::NoTag { .. } => Family::Precondition,
            Error::Client(error) | Error::Contended { source: error, .. } => family(error),
            _ => Family::Other,
        }
    }
}

fn family(error: &braid_client::Error) -> Family {
    if error.reason() == Some(Reason::BadToken) {
        return Family::Token;
    }
    match error.kind() {
        Kind::NotFound => Family::NotFound,
        Kind::Exists => Family::Exists,
        Kind::Permission => Family::Permission,
        _ => Family::Other,
    }
}

/// Whether the error says that no object has the name: nothing has it, or something without bytes, or its way
/// leads over a file.
pub(crate) fn says_absent(error: &braid_client::Error) -> bool {
    let reasons =
        [Reason::NotFound, Reason::NotDirectory, Reason::IsDirectory, Reason::NotFile, Reason::Loop];
    error.reason().is_some_and(|reason| reasons.contains(&reason))
}

/// The error of a request about an object that must be there.
pub(crate) fn of_object(error: braid_client::Error) -> Error {
    match error.reason() {
        // The client's own words say as much, and are found again as the source.
        Some(Reason::NotFound) => error.into(),
        _ if says_absent(&error) => Error::NoFile { name: error.to_string() },
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_wire::Refusal;

    fn refused(reason: Reason) -> braid_client::Error {
        braid_client::Error::Refused { subject: "x".to_owned(), refusal: Refusal::new(reason, "why") }
    }

    #[test]
    fn what_has_no_bytes_is_not_found_where_an_object_must_be() {
        for reason in [Reason::NotFound, Reason::NotDirectory, Reason::IsDirectory, Reason::NotFile] {
            assert_eq!(of_object(refused(reason)).family(), Family::NotFound, "{reason:?}");
        }
        assert_eq!(
            Error::from(refused(Reason::NotDirectory)).family(),
            Family::Other,
            "of a new object's way"
        );
    }

    #[test]
    fn families_of_refusals() {
        let families = [
            (Reason::Exists, Family::Exists),
            (Reason::BadToken, Family::Token),
            (Reason::NotAllowed, Family::Permission),
            (Reason::Quota, Family::Other),
        ];
        for (reason, expected) in families {
            assert_eq!(of_object(refused(reason)).family(), expected, "{reason:?}");
        }
    }
}
