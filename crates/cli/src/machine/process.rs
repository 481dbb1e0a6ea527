//! Processes by identity: never signals a pid that the system may have given to another process meanwhile.
//!
//! A server writes its [`PidRecord`] once it serves: pid, start time and boot id. A [`Handle`] is a pidfd
//! that is opened first and then checked against the record, so a signal reaches that process or none.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

use crate::machine::cluster_dir::replace_file;

/// Time limit for a process to end after SIGTERM; then it gets SIGKILL.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(15);
/// Time limit for the system to end a process after SIGKILL.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// Identity and address of a serving process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidRecord {
    pub pid: u32,
    /// Start time of the process, in clock ticks since the boot.
    started: u64,
    /// Boot id of the machine when the process started.
    boot: String,
    /// Address that the process listens on.
    pub address: String,
}

impl PidRecord {
    /// The record of this process, serving at `address`.
    pub(crate) fn of_self(address: &str) -> io::Result<PidRecord> {
        let pid = std::process::id();
        let started = start_of(pid)?
            .ok_or_else(|| io::Error::other("the start time of this process is not in /proc"))?;
        Ok(PidRecord { pid, started, boot: boot()?, address: address.to_owned() })
    }

    /// Writes the record to a file atomically.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let text = toml::to_string(self).map_err(io::Error::other)?;
        replace_file(path, text.as_bytes())
    }

    /// Reads the record in a file; `None` if the file is missing or invalid.
    pub(crate) fn read(path: &Path) -> Option<PidRecord> {
        toml::from_str(&fs::read_to_string(path).ok()?).ok()
    }

    /// Returns true if the same process still runs.
    fn runs(&self) -> bool {
        boot().is_ok_and(|boot| boot == self.boot)
            && matches!(start_of(self.pid), Ok(Some(started)) if started == self.started)
    }
}

/// A process that can be signalled and waited for.
#[derive(Debug)]
pub struct Handle {
    fd: AsyncFd<OwnedFd>,
}

impl Handle {
    /// The process of a record, if it still runs.
    pub(crate) fn of(record: &PidRecord) -> io::Result<Option<Handle>> {
        let handle = match Handle::of_pid(record.pid) {
            Ok(handle) => handle,
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // Checked after opening: from here on the handle cannot refer to another process.
        Ok(record.runs().then_some(handle))
    }

    /// A handle for a child of this process that has not been reaped.
    #[expect(
        deprecated,
        reason = "its successor is unsafe only for types that may close the descriptor early; OwnedFd does not"
    )]
    pub fn of_pid(pid: u32) -> io::Result<Handle> {
        let pid = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("not a process id"))?;
        Ok(Handle { fd: AsyncFd::new(pidfd_open(pid, PidfdFlags::empty())?)? })
    }

    /// Waits until the process has ended.
    pub async fn ended(&self) -> io::Result<()> {
        self.fd.readable().await.map(|_| ())
    }

    /// Sends a signal; no error if the process has ended.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(self.fd.get_ref(), signal) {
            Err(error) if error != rustix::io::Errno::SRCH => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Sends SIGTERM, and SIGKILL if that does not help in time. Returns true if SIGTERM sufficed.
    pub(crate) async fn stop(&self) -> io::Result<bool> {
        self.signal(Signal::TERM)?;
        if timeout(STOP_PATIENCE, self.ended()).await.is_ok() {
            return Ok(true);
        }
        self.kill().await?;
        Ok(false)
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) async fn kill(&self) -> io::Result<()> {
        self.signal(Signal::KILL)?;
        timeout(KILL_PATIENCE, self.ended()).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

/// Processor time that a process has had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTicks {
    /// Time in the program, in clock ticks.
    pub user: u64,
    /// Time in the kernel on its behalf, in clock ticks.
    pub kernel: u64,
}

impl CpuTicks {
    /// Reads the time of a process with all its threads. The process may have ended, as long as it has not
    /// been waited for.
    pub fn of(pid: u32) -> io::Result<CpuTicks> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        CpuTicks::parse(&stat).ok_or_else(|| io::Error::other("its times cannot be read"))
    }

    fn parse(stat: &str) -> Option<CpuTicks> {
        let fields = fields(stat)?;
        Some(CpuTicks { user: fields.get(11)?.parse().ok()?, kernel: fields.get(12)?.parse().ok()? })
    }
}

/// A process's start time; `None` if there is no such process or it has ended.
fn start_of(pid: u32) -> io::Result<Option<u64>> {
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(parse_stat(&stat))
}

/// The fields of `/proc/PID/stat` from the third on, which is the state: the name before it may hold
/// anything.
fn fields(stat: &str) -> Option<Vec<&str>> {
    Some(stat[stat.rfind(')')? + 1..].split_whitespace().collect())
}

/// The 22nd field, the start time; `None` for a zombie.
fn parse_stat(stat: &str) -> Option<u64> {
    let fields = fields(stat)?;
    if matches!(fields.first(), Some(&("Z" | "X"))) { None } else { fields.get(19)?.parse().ok() }
}

fn boot() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_brackets_does_not_confuse() {
        let line = "7 (a) Z b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 100 200";
        assert_eq!(parse_stat(line), Some(4711));
        assert_eq!(parse_stat(&line.replace(") S", ") Z")), None);
        assert_eq!(parse_stat("garbage"), None);
        let ticks = CpuTicks { user: 5, kernel: 6 };
        assert_eq!(CpuTicks::parse(&line.replace(") S", ") Z")), Some(ticks), "a zombie's are there");
        assert_eq!(CpuTicks::parse("garbage"), None);
    }

    #[tokio::test]
    async fn only_the_very_process_is_found() {
        let record = PidRecord::of_self("x").expect("this process");
        assert!(Handle::of(&record).expect("opened").is_some());
        let other = PidRecord { started: record.started + 1, ..record };
        assert!(Handle::of(&other).expect("opened").is_none());
    }

    #[tokio::test]
    async fn a_child_is_stopped() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep runs");
        let handle = Handle::of_pid(child.id()).expect("opened");
        assert!(handle.stop().await.expect("stopped"));
        child.wait().expect("waited for");
        assert!(handle.signal(Signal::TERM).is_ok());
    }
}
