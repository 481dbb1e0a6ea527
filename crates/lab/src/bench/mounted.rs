//! A mount of a bench's volume, as a process of its own.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use braid_cli::machine::process::CpuTicks;
use braid_cli::output::exit::{Doing, Exit, Failure};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::cluster::{Cluster, VOLUME};

/// Longest wait until it is mounted, and until it has ended.
const WAIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// Longest wait for the process of a mount that is dropped to unmount it.
const LEAVE_WAIT: Duration = Duration::from_secs(5);
/// Bytes of one call of a program that reads or writes.
const CALL_BYTES: usize = 1 << 20;

/// A mounted volume. Dropping it unmounts it, by force after a while, and ends its process: a mount that
/// stays without its process could not be removed with the bench's directory.
pub(super) struct Mounted {
    child: Child,
    at: PathBuf,
}

impl Mounted {
    /// The reason why nothing can be mounted here; `None`: it can.
    pub(super) fn lacking() -> Option<String> {
        (!Path::new("/dev/fuse").exists()).then(|| "there is no /dev/fuse here".to_owned())
    }

    /// Mounts the cluster's volume in a new directory below `parent`.
    pub(super) async fn up(cluster: &Cluster, parent: &Path) -> Result<Mounted, Failure> {
        let doing = || "mount the volume".to_owned();
        let at = parent.join("mount");
        fs::create_dir_all(&at).doing(doing)?;
        let mut command = Command::new(std::env::current_exe().doing(doing)?);
        command.args(["mount", &format!("braid://{VOLUME}")]).arg(&at);
        command.env("BRAID_CLUSTER", cluster.running.dir.root()).kill_on_drop(true).process_group(0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().doing(doing)?;
        let mut mounted = Mounted { child, at };
        let end = Instant::now() + WAIT;
        while !mounted.is_there() {
            let ended = mounted.child.try_wait().doing(doing)?.is_some();
            if ended || Instant::now() > end {
                return Err(Failure::new(
                    Exit::Failed,
                    doing(),
                    "its process said why above, or took too long",
                ));
            }
            sleep(POLL).await;
        }
        Ok(mounted)
    }

    fn is_there(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let at = self.at.to_string_lossy();
        table.lines().any(|line| line.split(' ').nth(1) == Some(&*at))
    }

    /// Unmounts, and waits for the process to end.
    pub(super) async fn down(mut self) -> Result<(), Failure> {
        let doing = || "unmount the volume".to_owned();
        self.terminate().doing(doing)?;
        match tokio::time::timeout(WAIT, self.child.wait()).await {
            Ok(ended) => ended.doing(doing).map(drop),
            Err(_) => {
                Err(Failure::new(Exit::Timeout, doing(), format!("it takes over {} s", WAIT.as_secs())))
            }
        }
    }

    /// Asks the process to unmount and end, if it still runs.
    fn terminate(&self) -> std::io::Result<()> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        pid.map_or(Ok(()), |pid| Ok(kill_process(pid, Signal::TERM)?))
    }

    /// Clock ticks of the mount's process so far.
    pub(super) fn ticks(&self) -> Result<u64, Failure> {
        let pid =
            self.child.id().ok_or_else(|| Failure::new(Exit::Failed, "look at the mount", "it has ended"))?;
        let ticks = CpuTicks::of(pid).doing(|| "read the processor time of the mount".into())?;
        Ok(ticks.user + ticks.kernel)
    }

    /// Writes a file from the beginning, over what it has, in calls of 1 MiB, and syncs it. Returns the
    /// seconds.
    pub(super) fn write(&self, name: &str, bytes: u64) -> Result<f64, Failure> {
        let doing = || format!("write {name} in the mount");
        let piece = vec![0xa5; CALL_BYTES];
        let began = Instant::now();
        let open = OpenOptions::new().write(true).create(true).truncate(false).open(self.at.join(name));
        let mut file = open.doing(doing)?;
        for _ in 0..bytes / u64::try_from(CALL_BYTES).unwrap_or(1) {
            file.write_all(&piece).doing(doing)?;
        }
        file.sync_all().doing(doing)?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Reads a file from the beginning, in calls of 1 MiB. Returns the seconds, and the bytes that it had.
    pub(super) fn read(&self, name: &str) -> Result<(f64, u64), Failure> {
        let doing = || format!("read {name} in the mount");
        let mut piece = vec![0xa5; CALL_BYTES];
        let began = Instant::now();
        let mut file = File::open(self.at.join(name)).doing(doing)?;
        let mut bytes = 0;
        loop {
            match file.read(&mut piece).doing(doing)? {
                0 => return Ok((began.elapsed().as_secs_f64(), bytes)),
                read => bytes += u64::try_from(read).unwrap_or(0),
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let end = Instant::now() + LEAVE_WAIT;
        let is_asked = self.terminate().is_ok();
        while is_asked && matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(POLL);
        }
        if self.is_there() && rustix::mount::unmount(&self.at, UnmountFlags::DETACH).is_err() {
            // Users other than root have a helper that may unmount.
            let helper = std::process::Command::new("fusermount3").args(["-uz", "--"]).arg(&self.at).status();
            if !helper.is_ok_and(|ended| ended.success()) {
                eprintln!("{} is still mounted: run `umount -l` on it", self.at.display());
            }
        }
        let _ = self.child.start_kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that leaves in order when it is asked, as `braid mount` does; a kill does not ask.
    #[tokio::test]
    async fn a_mount_that_is_dropped_is_asked_to_leave() {
        let parent = tempfile::tempdir().expect("a directory");
        let at = parent.path().join("mount");
        let ready = parent.path().join("ready");
        let script = "trap 'echo > \"$0.left\"; exit' TERM; echo > \"$1\"; while :; do sleep 0.02; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&at).arg(&ready).kill_on_drop(true);
        let child = command.spawn().expect("started");
        let mounted = Mounted { child, at };
        while !ready.exists() {
            sleep(POLL).await;
        }
        drop(mounted);
        assert!(parent.path().join("mount.left").exists(), "it was killed, which leaves its mount");
    }
}
