//! Errors that end a measurement without a result.

use std::io;

/// An error that ends a measurement without a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The part being measured refused or failed.
    #[error("the store failed to {doing}: {source}")]
    Store {
        /// The action attempted.
        doing: &'static str,
        /// The store's error.
        source: braid_store::Error,
    },
    /// A system call on plain files or sockets failed.
    #[error("failed to {doing}: {source}")]
    Io {
        /// The action attempted.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The client failed.
    #[error("failed to {doing}: {source}")]
    Client {
        /// The action attempted.
        doing: &'static str,
        /// The client's error.
        source: Box<braid_client::Error>,
    },
    /// The bytes read are not those that were written, or the request makes no sense.
    #[error("{what}")]
    Content {
        /// Description of the error, with its place.
        what: String,
    },
    /// The caller asked the run to stop ([`crate::Watch`]).
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// Returns true if no space was left.
    pub fn is_full(&self) -> bool {
        let says_so = |source: &io::Error| source.kind() == io::ErrorKind::StorageFull;
        match self {
            Error::Store { source: braid_store::Error::Full { .. }, .. } => true,
            Error::Store { source: braid_store::Error::Io { source, .. }, .. } => says_so(source),
            Error::Io { source, .. } => says_so(source),
            _ => false,
        }
    }
}

/// Adds the attempted action to an error.
pub(crate) trait Doing<T> {
    /// Wraps an error together with the action `doing` that was attempted.
    fn doing(self, doing: &'static str) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T, Error> {
        self.map_err(|source| Error::Io { doing, source })
    }
}

impl<T> Doing<T> for rustix::io::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T, Error> {
        self.map_err(|error| Error::Io { doing, source: error.into() })
    }
}

impl<T> Doing<T> for Result<T, braid_client::Error> {
    fn doing(self, doing: &'static str) -> Result<T, Error> {
        self.map_err(|source| Error::Client { doing, source: Box::new(source) })
    }
}

impl<T> Doing<T> for Result<T, braid_store::Error> {
    fn doing(self, doing: &'static str) -> Result<T, Error> {
        self.map_err(|source| Error::Store { doing, source })
    }
}
