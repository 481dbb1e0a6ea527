//! Error numbers of the system for the client's errors: what programs in Python and C get. A mount has a
//! table of its own, as the kernel expects some of them otherwise.

use braid_wire::Reason;
use rustix::io::Errno;

use crate::error::{Error, Kind};

impl Error {
    /// The system's error number that says best what is wrong.
    pub fn errno(&self) -> i32 {
        self.errno_of_system().raw_os_error()
    }

    fn errno_of_system(&self) -> Errno {
        match self {
            Error::Access { .. } => return Errno::BADF,
            Error::Range { .. } => return Errno::FBIG,
            Error::TimedOut { .. } => return Errno::TIMEDOUT,
            Error::Key { .. } if self.kind() == Kind::Permission => return Errno::NOKEY,
            Error::Manager { .. } if self.kind() == Kind::Unavailable => return Errno::CONNREFUSED,
            _ => {}
        }
        let of_reason = self.reason().and_then(|reason| match reason {
            Reason::NotEmpty => Some(Errno::NOTEMPTY),
            Reason::NotDirectory => Some(Errno::NOTDIR),
            Reason::IsDirectory => Some(Errno::ISDIR),
            Reason::Quota => Some(Errno::DQUOT),
            Reason::TooManyLinks => Some(Errno::MLINK),
            Reason::Loop => Some(Errno::LOOP),
            Reason::NoXattr => Some(Errno::NODATA),
            Reason::Written => Some(Errno::BUSY),
            Reason::SnapshotReadOnly => Some(Errno::ROFS),
            Reason::NotOwner => Some(Errno::PERM),
            _ => None,
        });
        of_reason.unwrap_or_else(|| match self.kind() {
            Kind::Usage | Kind::WrongKind => Errno::INVAL,
            Kind::NotFound => Errno::NOENT,
            Kind::Exists => Errno::EXIST,
            Kind::Permission => Errno::ACCESS,
            Kind::Busy => Errno::BUSY,
            Kind::NoSpace => Errno::NOSPC,
            Kind::NotAdmitted => Errno::AGAIN,
            _ => Errno::IO,
        })
    }
}
