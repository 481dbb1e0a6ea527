//! Errors of the client as error numbers of the system, which programs get.

use braid_client::{Error, Kind};
use braid_wire::Reason;
use fuser::Errno;

/// The system's error number for an error of the client.
pub(crate) fn errno(error: &Error) -> Errno {
    // "Required key not available", which says what is wrong; EACCES would hint at permissions.
    if matches!(error, Error::Key { .. }) && error.kind() == Kind::Permission {
        return Errno::from_i32(rustix::io::Errno::NOKEY.raw_os_error());
    }
    let of_reason = error.reason().and_then(|reason| match reason {
        Reason::NotEmpty => Some(Errno::ENOTEMPTY),
        Reason::NotDirectory => Some(Errno::ENOTDIR),
        Reason::IsDirectory => Some(Errno::EISDIR),
        Reason::Quota => Some(Errno::EDQUOT),
        Reason::BadName => Some(Errno::EINVAL),
        Reason::OtherQuota => Some(Errno::EXDEV),
        Reason::NoXattr => Some(Errno::ENODATA),
        Reason::TooManyLinks => Some(Errno::EMLINK),
        Reason::TooLarge => Some(Errno::ENOSPC),
        Reason::Loop => Some(Errno::ELOOP),
        Reason::SnapshotReadOnly => Some(Errno::EROFS),
        Reason::NotOwner => Some(Errno::EPERM),
        _ => None,
    });
    of_reason.unwrap_or_else(|| match error.kind() {
        Kind::Usage | Kind::WrongKind => Errno::EINVAL,
        Kind::NotFound => Errno::ENOENT,
        Kind::Exists => Errno::EEXIST,
        Kind::Permission => Errno::EACCES,
        Kind::Busy => Errno::EBUSY,
        Kind::NoSpace => Errno::ENOSPC,
        Kind::NotAdmitted => Errno::EAGAIN,
        _ => Errno::EIO,
    })
}

/// Result with the error that a program gets.
pub(crate) type Outcome<T> = Result<T, Errno>;
