//! Failures of a state in etcd, in plain words with the remedy.

use std::path::PathBuf;

use braid_meta::records::kv::KvError;
use braid_meta::records::log::LogError;

/// Failure of a state in etcd.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// An option is wrong, or a file of TLS cannot be read.
    #[error("{0}")]
    Config(String),
    /// No member of etcd answers.
    #[error(
        "{state} does not answer: {what}. Look whether most of etcd's members run and reach each other, and whether addresses and \
         certificates are right (etcdctl --endpoints ... endpoint status)"
    )]
    Silent {
        state: String,
        /// Fault of the last member that was asked.
        what: String,
    },
    /// Etcd's certificate is not of the CA that the manager was told.
    #[error(
        "{state} cannot be trusted: {what}. Its certificate must be of the CA in --etcd-ca and name the host that is connected to; if it asks for the manager's, that \
         must be of the CA that etcd trusts (--etcd-certificate, --etcd-key)"
    )]
    Untrusted {
        state: String,
        /// Words of the check of the certificate.
        what: String,
    },
    /// Etcd has no space left, and takes no writes until somebody acts.
    #[error(
        "{0} has no space left (NOSPACE), and nothing was changed: compact it, defragment each member, and disarm the alarm \
         (etcdctl compact REVISION; etcdctl defrag; etcdctl alarm disarm), or raise its quota; Braid does this by itself \
         where it runs etcd"
    )]
    Full(String),
    /// Etcd refuses, for another reason.
    #[error("{state} refuses: {what}")]
    Refused {
        state: String,
        /// The words of etcd.
        what: String,
    },
    /// This manager's time as the leader is over.
    #[error("this manager does not lead any more: {0}")]
    Deposed(String),
    /// The directory belongs to another state.
    #[error(
        "{state} holds another cluster's state than {dir}: correct --state or --dir; or, if the directory is to follow this \
         state from now on, empty it"
    )]
    OtherState { state: String, dir: PathBuf },
    /// Etcd has lost the state that the directory has a copy of.
    #[error(
        "{state} has no state, or an older one than the copy in {dir} (change {copy}, and {there} in etcd): etcd was put back from \
         an older snapshot, or the address or prefix is wrong. To go on with what etcd has, move the copy away; to go on with \
         the copy, write it to a file (braid manager backup FILE --dir {dir}) and restore that into an empty prefix (braid manager restore \
         FILE --state etcd://...)"
    )]
    Older {
        state: String,
        dir: PathBuf,
        /// Number of the last record of the copy.
        copy: u64,
        /// Number of the last record in etcd.
        there: u64,
    },
    /// There is a state already where one is to be imported.
    #[error(
        "{0} holds a state already: import into another prefix (etcd://HOST:PORT/PREFIX), or remove that state first"
    )]
    Taken(String),
    /// The directory has a state of its own.
    #[error(
        "{0} has a state of its own: to move it into etcd, write it to a file (braid manager backup FILE --dir {0}), restore that \
         (braid manager restore FILE --state etcd://...), and start with an empty directory"
    )]
    Embedded(PathBuf),
    /// A value in etcd is not what it should be.
    #[error(
        "{state}: {what} {error}; restore a snapshot of etcd, or a backup (braid manager restore FILE --state etcd://...)"
    )]
    Broken {
        state: String,
        /// The value, such as a record of the log.
        what: String,
        error: LogError,
    },
    /// The copy in the directory cannot be read or written.
    #[error(transparent)]
    Copy(#[from] KvError),
}

impl EtcdError {
    /// Returns true if trying again cannot help before an operator acts.
    pub(super) fn is_final(&self) -> bool {
        match self {
            EtcdError::Silent { .. } | EtcdError::Full(_) | EtcdError::Refused { .. } => false,
            EtcdError::Deposed(_) | EtcdError::Copy(_) => false,
            EtcdError::Config(_) | EtcdError::Untrusted { .. } | EtcdError::OtherState { .. } => true,
            EtcdError::Older { .. } | EtcdError::Taken(_) | EtcdError::Embedded(_) => true,
            EtcdError::Broken { .. } => true,
        }
    }
}
