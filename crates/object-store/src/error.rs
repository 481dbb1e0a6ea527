//! The reasons why a request failed, before they are converted to errors of a version of object_store.

use braid_client::Kind;
use braid_client::NameError;
use braid_wire::Reason;

/// The reason why a request failed. It is the source of the errors of object_store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the client.
    #[error(transparent)]
    Client(Box<braid_client::Error>),
    /// The path cannot be a name: one of its parts is over 255 bytes, or all of it over 4096.
    #[error("the path {location:?} cannot be a name: {source}")]
    Path {
        /// The path that was given.
        location: String,
        /// The rule that the path breaks.
        source: NameError,
    },
    /// A directory or a special file has this name.
    #[error("{name} is not a file")]
    NoFile {
        /// The name, with its volume.
        name: String,
    },
    /// The object is in a snapshot, and was to be changed.
    #[error("{name} is in a snapshot, which cannot be changed: use a store without a snapshot")]
    ReadOnly {
        /// The name, with its volume and snapshot.
        name: String,
    },
    /// An object of this name exists already.
    #[error("{name} exists already")]
    Exists {
        /// The name, with its volume.
        name: String,
    },
    /// The object is not, or is no longer, the one that was to be updated.
    #[error("{name} has changed since it was seen: {why}")]
    Changed {
        /// The name, with its volume.
        name: String,
        /// The difference that was found.
        why: String,
    },
    /// An update was asked for without a valid tag, so that it is unknown which content was to be updated.
    #[error("{e_tag:?} is not an e_tag of this store: give one from a result of this store")]
    NoTag {
        /// The text that was given as the tag.
        e_tag: Option<String>,
    },
    /// The file became shorter while it was read: it was truncated through a mount or by another client.
    #[error("{name} became shorter while it was read: {read} of {wanted} bytes were there")]
    Shrunk {
        /// The name of the file.
        name: String,
        /// Number of bytes read.
        read: usize,
        /// Number of bytes that should have been read.
        wanted: usize,
    },
    /// An upload was to be completed before all of its parts were written.
    #[error("{name}: {written} of the upload's {begun} parts are written: wait for all, or abort it")]
    Parts {
        /// The name of the object.
        name: String,
        /// Number of parts that are written.
        written: usize,
        /// Number of parts that were begun.
        begun: usize,
    },
    /// The upload was completed or aborted before.
    #[error("{name}: the upload was completed or aborted before")]
    Ended {
        /// The name of the object.
        name: String,
    },
    /// The object changed too often, or other clients removed its directory again and again.
    #[error("{name}: gave up after {tries} tries: {source}")]
    Contended {
        /// The name of the object.
        name: String,
        /// Number of tries.
        tries: usize,
        /// The error of the last try.
        source: Box<braid_client::Error>,
    },
}

/// The kinds of error that object_store distinguishes.
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
            Error::ReadOnly { .. } => Family::Permission,
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

/// Returns true if the error says that no object has the name: nothing has the name, or something without
/// bytes has it, or the path leads through a file.
pub(crate) fn says_absent(error: &braid_client::Error) -> bool {
    let reasons =
        [Reason::NotFound, Reason::NotDirectory, Reason::IsDirectory, Reason::NotFile, Reason::Loop];
    error.reason().is_some_and(|reason| reasons.contains(&reason))
}

/// Converts the error of a request about an object that must exist.
pub(crate) fn of_object(error: braid_client::Error) -> Error {
    match error.reason() {
        // The client's own error says this already, and is found as the source.
        Some(Reason::NotFound) => error.into(),
        _ if says_absent(&error) => match error {
            braid_client::Error::Refused { subject, .. } => Error::NoFile { name: subject },
            error => error.into(),
        },
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
