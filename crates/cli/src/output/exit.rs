//! Exit codes and failures: one line for users, one number for programs.
//!
//! `TABLE` is the only list of codes; `--help` prints it. A [`Failure`] says what was attempted, why it did
//! not work and what to do. Its code is set where the cause is known; `main` prints it once.

use std::{fmt, io};

/// Reason why the program ended, as its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done; also if the reader of the output closed the pipe.
    Ok = 0,
    /// Any failure that has no code of its own.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// No such file, directory, volume or drive.
    NotFound = 3,
    /// The target exists already, is not empty, or is a directory where a file is needed (or the reverse).
    Conflict = 4,
    /// No cluster here, or its manager does not answer.
    NoCluster = 5,
    /// Bad token, another cluster's token or drive, or a file that may not be opened.
    NotAllowed = 6,
    /// In use by another client or another process.
    Busy = 7,
    /// Too few drives: more columns are away than the parity can replace, or too few to place a file; or `up`
    /// could not start one.
    DrivesAway = 8,
    /// A drive, the quota, the manager's disk or the local one is full.
    NoSpace = 9,
    /// Data differs from what it must be.
    Mismatch = 10,
    /// A bounded wait ended without an answer.
    Timeout = 11,
    /// Another program listens on the port.
    PortInUse = 12,
    /// `status` found something at risk, or a manager that does not answer clients yet.
    NotWell = 13,
    /// The directory of a running server was removed or replaced.
    DirectoryGone = 14,
    /// A data rate was not admitted.
    NotAdmitted = 15,
    /// A stream's data was late.
    Late = 16,
    /// Ctrl-C, SIGTERM or SIGHUP.
    Interrupted = 130,
}

/// Every code with its meaning.
pub(crate) const TABLE: &[(Exit, &str)] = &[
    (Exit::Ok, "done"),
    (Exit::Failed, "failed, for a reason without a code of its own"),
    (Exit::Usage, "the command line is wrong"),
    (Exit::NotFound, "no such file, directory, volume or drive"),
    (
        Exit::Conflict,
        "exists already, is not empty, or is a directory where a file is needed (or the reverse)",
    ),
    (Exit::NoCluster, "no cluster here, or its manager does not answer"),
    (Exit::NotAllowed, "token or permission refused, or the drive is another cluster's"),
    (Exit::Busy, "in use: open for writing elsewhere, or the directory belongs to a running process"),
    (
        Exit::DrivesAway,
        "drives are away: more than the parity can replace, too few to place a file, check or rebuild needs them, or up could not \
         start them",
    ),
    (Exit::NoSpace, "a drive, the quota, the manager's disk or the local one is full"),
    (
        Exit::Mismatch,
        "bytes differ: check, scrub, store check or demo found data that is not what it must be",
    ),
    (Exit::Timeout, "a bounded wait ended without an answer"),
    (Exit::PortInUse, "another program listens on the port"),
    (
        Exit::NotWell,
        "status: something is at risk, or the manager does not do all of its work; it says what, and what mends it",
    ),
    (
        Exit::DirectoryGone,
        "the directory of a running server was removed or replaced: the server has stopped",
    ),
    (
        Exit::NotAdmitted,
        "reserve, stream: the rate cannot be kept; it says what is scarce, and what can be had instead",
    ),
    (Exit::Late, "stream: data was later than was promised, or than a period without a promise"),
    (Exit::Interrupted, "interrupted; nothing half-done is left under a target name"),
];

// One line: clap breaks it to the width of the terminal.
const JSON: &str = "\
JSON: with --json a command that succeeds prints one JSON value on standard output; ls, stat, cp, rm, mkdir, \
check, store dump and demo print one object per line, as they go; cat, and cp to -, print the bytes asked for \
and nothing else. `name` is a whole name, from braid:// on; where it is not UTF-8, `name_bytes` has its bytes \
in base64 (so have `source`, `target`, `from` and `to`). Errors stay lines of text on standard error: programs \
go by the exit code.

";

/// The part of `--help` on output and exit codes.
pub(crate) fn help() -> String {
    let mut text = String::from(JSON);
    text.push_str("Exit codes:\n");
    for (exit, meaning) in TABLE {
        text.push_str(&format!("  {:>3}  {meaning}\n", *exit as u8));
    }
    text.push_str(
        "\nDrives and the manager log to standard error; BRAID_LOG sets the filter (for example debug).",
    );
    text
}

/// A failed command: the act, the reason, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Exit code that the program ends with.
    pub(crate) exit: Exit,
    /// The act attempted, such as `copy a.bin to braid://main/a`.
    what: String,
    why: String,
    /// Advice to the user; empty if the reason says it already.
    remedy: String,
}

impl Failure {
    /// A failure with its reason.
    pub fn new(exit: Exit, what: impl Into<String>, why: impl Into<String>) -> Failure {
        Failure { exit, what: what.into(), why: why.into(), remedy: String::new() }
    }

    /// Adds advice to the failure.
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Failure {
        self.remedy = remedy.into();
        self
    }

    /// The reason and the remedy, for places where the act is known.
    pub(crate) fn reason(&self) -> String {
        if self.remedy.is_empty() { self.why.clone() } else { format!("{}; {}", self.why, self.remedy) }
    }

    /// The failure when the reader of standard output closed it: not an error, nothing to print.
    pub(crate) fn closed_pipe() -> Failure {
        Failure::new(Exit::Ok, "", "")
    }

    /// The failure of a command line that asks for something impossible.
    pub(crate) fn usage(what: impl Into<String>, why: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, what, why)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Always one line, whatever control characters a peer or a file name put into the reason.
        let mut line = match (self.what.as_str(), self.why.as_str()) {
            (what, "") => what.to_owned(),
            ("", why) => why.to_owned(),
            (what, why) => format!("{what}: {why}"),
        };
        if !self.remedy.is_empty() {
            line = format!("{line}; {}", self.remedy);
        }
        for character in line.chars() {
            if character.is_control() {
                write!(f, "{}", character.escape_default())?
            } else {
                write!(f, "{character}")?
            }
        }
        Ok(())
    }
}

/// The reason of a failure, before the attempted act is known.
#[derive(Debug)]
pub struct Cause {
    exit: Exit,
    why: String,
    remedy: String,
}

impl Cause {
    /// A reason and what to do about it (may be empty).
    pub(crate) fn new(exit: Exit, why: impl Into<String>, remedy: impl Into<String>) -> Cause {
        Cause { exit, why: why.into(), remedy: remedy.into() }
    }

    /// Makes the failure of the act `what`.
    pub(crate) fn doing(self, what: String) -> Failure {
        Failure { exit: self.exit, what, why: self.why, remedy: self.remedy }
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Cause {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            io::ErrorKind::PermissionDenied => Exit::NotAllowed,
            io::ErrorKind::AlreadyExists
            | io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::NotADirectory => Exit::Conflict,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Exit::NoSpace,
            io::ErrorKind::TimedOut => Exit::Timeout,
            io::ErrorKind::AddrInUse => Exit::PortInUse,
            _ => Exit::Failed,
        };
        Cause::new(exit, plain(&error), "")
    }
}

/// The system's message, without the error number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// Adds the attempted act to an error.
pub trait Doing<T> {
    /// Names what was attempted; the error gives the reason and the code.
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<Cause>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| error.into().doing(what()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        let failure = Failure::new(Exit::Failed, "open \"a\nb\"", "no\u{7}").remedy("try again");
        assert_eq!(failure.to_string(), "open \"a\\nb\": no\\u{7}; try again");
    }

    #[test]
    fn the_table_has_each_code_once_and_in_order() {
        let codes: Vec<u8> = TABLE.iter().map(|(exit, _)| *exit as u8).collect();
        assert!(codes.windows(2).all(|pair| pair[0] < pair[1]), "{codes:?}");
        assert_eq!(codes.len(), 18);
    }

    #[test]
    fn the_systems_errors_keep_their_meaning() {
        let failed: Result<(), io::Error> = Err(io::Error::from_raw_os_error(2));
        let failure = failed.doing(|| "open x".into()).unwrap_err();
        assert_eq!(
            (failure.exit, failure.to_string().as_str()),
            (Exit::NotFound, "open x: no such file or directory")
        );
    }
}
