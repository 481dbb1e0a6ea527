//! Identifies a peer's process so that another process on the same machine can look it up.
//!
//! A drive sends its process mark with its heartbeats. A manager under the same kernel and in the same
//! namespaces can then ask the host whether the process is gone. Nothing else proves that: an address that
//! refuses connections may be behind a firewall.
//!
//! The answer is "gone" only if that is certain. With a mark of another boot or other namespaces, or a
//! `/proc` that hides processes or is missing, nothing is known, and the drive's lease decides.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use braid_wire::control::ProcessMark;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Time to wait for a lock. A killed process holds its locks until the last of its threads has ended,
/// slightly after it looks dead. A process that is started in its place at once must not be told that the
/// killed one still runs.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Knowledge of the host about a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The process has ended: it executes nothing any more.
    Gone,
    /// The process exists, or this host cannot tell.
    MayLive,
}

/// The fields of `/proc/PID/stat` that this module uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    state: u8,
    threads: u64,
    started: u64,
}

/// Mark of this process; all zeros if the system does not provide one.
pub fn own_mark() -> ProcessMark {
    mark_of(std::process::id()).unwrap_or_default()
}

/// Tells whether the process with this mark is gone.
pub fn presence(mark: &ProcessMark) -> Presence {
    let same_view = mark_of(std::process::id()).is_some_and(|own| {
        (own.boot, own.pid_namespace, own.time_namespace)
            == (mark.boot, mark.pid_namespace, mark.time_namespace)
    });
    if !same_view {
        return Presence::MayLive;
    }
    match fs::read_to_string(format!("/proc/{}/stat", mark.pid)) {
        Ok(text) => parse(&text).map_or(Presence::MayLive, |stat| judge(stat, mark.started)),
        // A /proc that hides other users' processes fails the same way, so ask the kernel directly.
        Err(_) => {
            let pid = i32::try_from(mark.pid).ok().and_then(Pid::from_raw);
            match pid.map(test_kill_process) {
                Some(Err(Errno::SRCH)) => Presence::Gone,
                _ => Presence::MayLive,
            }
        }
    }
}

/// Locks an open file for this process. Blocks for up to two seconds while another process holds the lock,
/// and returns false if it still does.
pub fn lock(file: &File) -> io::Result<bool> {
    let end = Instant::now() + LOCK_PATIENCE;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(LOCK_PATIENCE / 100),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The mark of the process with this pid in our namespace. `None` if `/proc` does not show our own namespace.
pub fn mark_of(pid: u32) -> Option<ProcessMark> {
    let own = fs::read_link("/proc/self").ok()?;
    if own.to_str()? != std::process::id().to_string() {
        return None;
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).map(|found| found.ino());
    Some(ProcessMark {
        boot: parse_boot(&boot)?,
        pid_namespace: namespace("pid").ok()?,
        time_namespace: namespace("time").unwrap_or(0),
        pid,
        started: parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?.started,
    })
}

/// Judges a process by its state. A pid with another start time was reused, so the process is gone. A zombie
/// has ended once it has no other thread left.
fn judge(stat: Stat, started: u64) -> Presence {
    let ended = matches!(stat.state, b'Z' | b'X' | b'x') && stat.threads <= 1;
    if stat.started != started || ended { Presence::Gone } else { Presence::MayLive }
}

/// Fields 3, 20 and 22 of `/proc/PID/stat` (proc(5)). The second is the command name in parentheses, which
/// may contain anything.
fn parse(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse().ok();
    Some(Stat { state: *fields.first()?.as_bytes().first()?, threads: number(20)?, started: number(22)? })
}

/// Parses the boot id, which is printed as a UUID.
fn parse_boot(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|&c| c != '-').collect();
    let boot = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok()).flatten()?;
    Some(boot.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// Kills the process when the test ends, whatever the result.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_is_gone_from_when_it_was_killed() {
        let mut child = Running(Command::new("sleep").arg("600").spawn().unwrap());
        let mark = mark_of(child.0.id()).expect("Linux tells");
        assert_eq!(presence(&mark), Presence::MayLive);
        child.0.kill().unwrap();
        // The child is a zombie now, or soon will be.
        let until = Instant::now() + Duration::from_secs(20);
        while presence(&mark) == Presence::MayLive {
            assert!(Instant::now() < until, "a killed process still counts as living");
            std::thread::yield_now();
        }
        child.0.wait().unwrap();
        assert_eq!(presence(&mark), Presence::Gone, "nor when its number is free");
    }

    #[test]
    fn a_lock_that_is_given_back_soon_is_waited_for() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(path.path()).unwrap();
        let held = open();
        let other = open();
        assert!(lock(&held).unwrap());
        let holder = std::thread::spawn(move || {
            std::thread::sleep(LOCK_PATIENCE / 10);
            drop(held);
        });
        assert!(lock(&other).unwrap(), "given back within the patience");
        assert!(!lock(&open()).unwrap(), "another holds it for longer");
        holder.join().unwrap();
    }

    #[test]
    fn a_number_that_another_process_has_now_is_not_ours() {
        let mark = own_mark();
        assert_eq!((mark.pid, presence(&mark)), (std::process::id(), Presence::MayLive));
        let earlier = ProcessMark { started: mark.started - 1, ..mark };
        assert_eq!(presence(&earlier), Presence::Gone);
    }

    #[test]
    fn what_another_kernel_or_namespace_runs_is_not_known_here() {
        let gone = ProcessMark { started: 1, ..own_mark() };
        assert_eq!(presence(&gone), Presence::Gone);
        assert_eq!(presence(&ProcessMark { boot: [7; 16], ..gone.clone() }), Presence::MayLive);
        assert_eq!(presence(&ProcessMark { pid_namespace: 7, ..gone.clone() }), Presence::MayLive);
        assert_eq!(presence(&ProcessMark { time_namespace: 7, ..gone }), Presence::MayLive);
        assert_eq!(presence(&ProcessMark::default()), Presence::MayLive, "a peer that could not tell");
    }

    #[test]
    fn the_name_in_the_middle_may_hold_anything() {
        let text = "7 (a) Z 1 (b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 3 0 4711 20";
        assert_eq!(parse(text), Some(Stat { state: b'R', threads: 3, started: 4711 }));
        assert_eq!(parse("7 (a) R 1"), None);
    }

    #[test]
    fn a_process_whose_first_thread_ended_before_others_may_live() {
        let stat = |state, threads| Stat { state, threads, started: 5 };
        assert_eq!(judge(stat(b'Z', 2), 5), Presence::MayLive);
        assert_eq!(judge(stat(b'Z', 1), 5), Presence::Gone);
        assert_eq!(judge(stat(b'S', 1), 5), Presence::MayLive);
    }
}
