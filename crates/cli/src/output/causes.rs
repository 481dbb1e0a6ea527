//! The only table that maps the libraries' errors to exit codes and hints.

use braid_client::{Error, KeyError, Kind, NameError};
use braid_drive::DriveError;
use braid_layout::SchemeError;
use braid_manager::ManagerError;
use braid_transport::{Mismatch, TransportError};
use braid_wire::Reason;

use crate::output::exit::{Cause, Exit, Failure};

impl From<Error> for Cause {
    fn from(error: Error) -> Cause {
        let exit = exit_of(&error);
        Cause::new(exit, error.to_string(), hint(&error))
    }
}

impl From<Error> for Failure {
    /// The client's errors name their subject, so nothing is added.
    fn from(error: Error) -> Failure {
        let hint = hint(&error);
        Failure::new(exit_of(&error), "", error.to_string()).remedy(hint)
    }
}

impl From<NameError> for Cause {
    fn from(error: NameError) -> Cause {
        Cause::new(Exit::Usage, error.to_string(), "")
    }
}

impl From<SchemeError> for Cause {
    fn from(error: SchemeError) -> Cause {
        Cause::new(Exit::Usage, error.to_string(), "")
    }
}

impl From<DriveError> for Cause {
    fn from(error: DriveError) -> Cause {
        let exit = match &error {
            DriveError::InUse(_) => Exit::Busy,
            DriveError::NotADrive { .. } => Exit::Conflict,
            DriveError::OtherCluster { .. } | DriveError::NotAJoinToken => Exit::NotAllowed,
            DriveError::NoToken(_)
            | DriveError::NoManager
            | DriveError::Capacity { .. }
            | DriveError::OtherName { .. } => Exit::Usage,
            DriveError::Join(source) => match server_exit(source) {
                Exit::Failed => Exit::NoCluster,
                exit => exit,
            },
            DriveError::Transport(source) => server_exit(source),
            _ => Exit::Failed,
        };
        let remedy = match &error {
            DriveError::NoSendfile(_) => "leave --send sendfile out",
            _ => "",
        };
        Cause::new(exit, error.to_string(), remedy)
    }
}

impl From<braid_store::Error> for Cause {
    fn from(error: braid_store::Error) -> Cause {
        use braid_store::Error;
        let (exit, remedy) = match &error {
            Error::InUse(_) => (Exit::Busy, "stop the drive first: its store changes while it runs"),
            Error::NotAStore(_) => (Exit::NotFound, "name a drive's directory, or the store/ in it"),
            Error::Damaged { .. } => (Exit::Mismatch, ""),
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => (Exit::NotFound, ""),
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                (Exit::NotAllowed, "")
            }
            _ => (Exit::Failed, ""),
        };
        Cause::new(exit, error.to_string(), remedy)
    }
}

impl From<ManagerError> for Cause {
    fn from(error: ManagerError) -> Cause {
        let exit = match &error {
            ManagerError::InUse(_) => Exit::Busy,
            ManagerError::NotAManager { .. } => Exit::Conflict,
            ManagerError::Listen(source) => server_exit(source),
            _ => Exit::Failed,
        };
        Cause::new(exit, error.to_string(), "")
    }
}

impl From<TransportError> for Cause {
    fn from(error: TransportError) -> Cause {
        let exit = match server_exit(&error) {
            Exit::Failed => Exit::NoCluster,
            exit => exit,
        };
        Cause::new(exit, error.to_string(), "")
    }
}

/// The exit code for an error of a server's connections.
fn server_exit(error: &TransportError) -> Exit {
    match error {
        TransportError::InUse { .. } => Exit::PortInUse,
        TransportError::Bind { .. } => Exit::Usage,
        TransportError::Forged { .. } | TransportError::WrongPeer { .. } | TransportError::Refusal(_) => {
            Exit::NotAllowed
        }
        TransportError::Timeout { .. } => Exit::Timeout,
        _ => Exit::Failed,
    }
}

/// The exit code for a client's error.
fn exit_of(error: &Error) -> Exit {
    match (error, error.reason()) {
        (Error::TooManyAway { .. }, _) | (_, Some(Reason::TooFewDrives | Reason::TooManyAway)) => {
            Exit::DrivesAway
        }
        (Error::TimedOut { .. } | Error::Key { error: KeyError::Silent { .. }, .. }, _) => Exit::Timeout,
        _ => match error.kind() {
            Kind::Usage => Exit::Usage,
            Kind::NotFound => Exit::NotFound,
            Kind::Exists | Kind::WrongKind => Exit::Conflict,
            Kind::Permission => Exit::NotAllowed,
            Kind::Busy => Exit::Busy,
            Kind::NoSpace => Exit::NoSpace,
            Kind::Unavailable => Exit::NoCluster,
            Kind::Corrupt => Exit::Mismatch,
            Kind::NotAdmitted => Exit::NotAdmitted,
            _ => Exit::Failed,
        },
    }
}

/// A hint on what to type, where a command can help.
fn hint(error: &Error) -> &'static str {
    if let Error::Manager { source, .. } = error
        && let TransportError::WrongPeer { mismatch, .. } = &**source
        && !matches!(mismatch, Mismatch::Version { .. } | Mismatch::Authority { .. })
    {
        return "the token or the address in cluster.toml belongs to another cluster";
    }
    match error.reason() {
        Some(Reason::NoVolume) => "see `braid volume ls`",
        Some(Reason::NoDrive) => "see `braid drive ls`",
        Some(Reason::NotEmpty) => "remove what is in it first, or use rm -r",
        Some(Reason::TooFewDrives | Reason::TooManyAway) => "see `braid status`",
        Some(Reason::Full) => "see `braid df`, which also says what snapshots keep",
        _ => "",
    }
}
