//! A cluster on this machine: starts, watches and stops its processes, all found through its directory.
//!
//! Each process is this binary with `manager serve` or `drive serve`. It writes its pid record once it
//! serves. *Attached* processes have a lifeline, the pipe at their standard input: they stop when this
//! process ends, however it ends. *Detached* ones keep running, in a process group of their own. Every wait
//! is bounded.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::args::DriveOptions;
use crate::machine::cluster_dir::ClusterDir;
use crate::machine::process::{Handle, PidRecord};
use crate::output::exit::{Doing, Exit, Failure};

/// Time limit for a process from its start until it serves.
const START_BOUND: Duration = Duration::from_secs(60);
/// Interval between two looks for its pid record meanwhile.
const START_POLL: Duration = Duration::from_millis(5);
/// Address to listen on: loopback, with a port chosen by the system.
pub const ANY_PORT: &str = "127.0.0.1:0";
/// The manager's name in the directory's tables.
pub const MANAGER: &str = "manager";

/// A server process of a local cluster.
#[derive(Debug)]
pub struct Server {
    /// `manager` or the drive's name.
    pub name: String,
    /// Address and identity of the process.
    pub record: PidRecord,
    /// Handle to signal the process and to wait for it.
    pub(crate) handle: Handle,
    /// Present if the process was started here and not released: it is then killed and reaped on drop.
    started: Option<Started>,
}

/// Lifetime of the servers relative to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The servers end with this process.
    Attached,
    Detached,
}

/// A child that does not outlive its owner, unless it is released.
#[derive(Debug)]
struct Started {
    child: Child,
    released: bool,
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.released {
            // Both calls fail only if the child has ended already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The arguments of a drive's start.
#[derive(Debug)]
pub struct DriveStart<'a> {
    pub name: &'a str,
    /// Directory in which the drive keeps its objects.
    pub directory: &'a Path,
    /// Address of the manager, `HOST:PORT`.
    pub manager: &'a str,
    pub options: DriveOptions,
    /// Host of the drive, if that is not this one.
    pub host: Option<NamespaceHost>,
}

/// A network namespace that stands for a host.
#[derive(Debug, Clone)]
pub struct NamespaceHost {
    /// Name of the namespace, which is also the host's name.
    pub name: String,
    /// Its addresses, without ports: one for each rail.
    pub addresses: Vec<String>,
}

impl Server {
    /// Finds the process of this name, if it runs.
    pub(crate) fn find(dir: &ClusterDir, name: &str) -> Result<Option<Server>, Failure> {
        let Some(record) = PidRecord::read(&dir.pid(name)) else { return Ok(None) };
        let handle = Handle::of(&record).doing(|| format!("look for {name}, process {}", record.pid))?;
        Ok(handle.map(|handle| Server { name: name.to_owned(), record, handle, started: None }))
    }

    /// Starts the manager, listening at `listen`.
    pub(crate) async fn start_manager(dir: &ClusterDir, listen: &str, mode: Mode) -> Result<Server, Failure> {
        Self::start_manager_with(dir, listen, mode, &[]).await
    }

    /// Starts the manager with further arguments.
    pub async fn start_manager_with(
        dir: &ClusterDir,
        listen: &str,
        mode: Mode,
        more: &[&str],
    ) -> Result<Server, Failure> {
        let mut command = braid(None)?;
        command
            .args(["manager", "serve", "--no-config", "--listen", listen, "--dir"])
            .arg(dir.manager())
            .args(more);
        start(dir, MANAGER, command, mode).await
    }

    /// Starts a process that serves, with these words of the command line, as `name`.
    pub async fn start_as(
        dir: &ClusterDir,
        name: &str,
        words: &[&str],
        mode: Mode,
    ) -> Result<Server, Failure> {
        let mut command = braid(None)?;
        command.args(words);
        start(dir, name, command, mode).await
    }

    /// Starts a drive, at its previous address if that is free: clients with open files look there first.
    pub async fn start_drive(dir: &ClusterDir, drive: DriveStart<'_>, mode: Mode) -> Result<Server, Failure> {
        let before = PidRecord::read(&dir.pid(drive.name)).map(|record| record.address);
        if let Some(listen) = before {
            match Self::start_drive_at(dir, &drive, &listen, mode).await {
                Err(failure) if failure.exit == Exit::PortInUse => {}
                started => return started,
            }
        }
        match &drive.host {
            None => Self::start_drive_at(dir, &drive, ANY_PORT, mode).await,
            Some(host) => {
                let listen: Vec<String> = host.addresses.iter().map(|at| format!("{at}:0")).collect();
                Self::start_drive_at(dir, &drive, &listen.join(","), mode).await
            }
        }
    }

    async fn start_drive_at(
        dir: &ClusterDir,
        drive: &DriveStart<'_>,
        listen: &str,
        mode: Mode,
    ) -> Result<Server, Failure> {
        let mut command = braid(drive.host.as_ref())?;
        command.args(["drive", "serve", "--no-config", "--name", drive.name, "--manager", drive.manager]);
        // A record of a drive with several rails has all of its addresses.
        for listen in listen.split(',') {
            command.args(["--listen", listen]);
        }
        command.arg("--dir").arg(drive.directory);
        command.args(drive.options.typed());
        if let Some(host) = &drive.host {
            command.args(["--host", &host.name]);
        }
        command.arg("--token-file").arg(dir.manager().join("join.token"));
        start(dir, drive.name, command, mode).await
    }

    /// Stops the process, by SIGKILL if it does not end in time. Returns true if force was needed.
    pub async fn stop(self) -> Result<bool, Failure> {
        let clean =
            self.handle.stop().await.doing(|| format!("stop {}, process {}", self.name, self.record.pid))?;
        Ok(!clean)
    }

    pub async fn kill(self) -> Result<(), Failure> {
        self.handle.kill().await.doing(|| format!("kill {}, process {}", self.name, self.record.pid))?;
        Ok(())
    }

    /// The exit status, if the process was started here and has ended.
    pub(crate) fn status(&mut self) -> Option<String> {
        let status = self.started.as_mut()?.child.try_wait().ok()??;
        Some(status.to_string())
    }

    /// Returns true if the process was started here, as opposed to found running.
    pub(crate) fn was_started(&self) -> bool {
        self.started.is_some()
    }

    /// Lets the process run on when this one ends.
    pub(crate) fn release(mut self) {
        if let Some(started) = &mut self.started {
            started.released = true;
        }
    }
}

/// The command that starts this program again, on this host or another.
fn braid(host: Option<&NamespaceHost>) -> Result<Command, Failure> {
    let this = std::env::current_exe().doing(|| "find this program".into())?;
    let Some(host) = host else { return Ok(Command::new(this)) };
    let mut command = Command::new("ip");
    // `ip netns exec` becomes the program: no process is in between.
    command.args(["netns", "exec", &host.name]).arg(this);
    Ok(command)
}

/// Starts `command` as `name` and waits until it serves or has ended.
async fn start(dir: &ClusterDir, name: &str, mut command: Command, mode: Mode) -> Result<Server, Failure> {
    let what = || format!("start {name}");
    let pid_file = dir.pid(name);
    match fs::remove_file(&pid_file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).doing(what),
        _ => {}
    }
    let log_path = dir.log(name);
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&log_path).doing(what)?;
    let log_begins = log.metadata().map_or(0, |metadata| metadata.len());
    command.arg("--pid-file").arg(&pid_file).stdout(Stdio::null()).stderr(log).env_remove("BRAID_CLUSTER");
    // A process group of its own: Ctrl-C goes to this process only, which then stops the servers in order.
    command.process_group(0);
    match mode {
        Mode::Attached => command.arg("--lifeline").stdin(Stdio::piped()),
        Mode::Detached => command.stdin(Stdio::null()),
    };
    let mut started = Started { child: command.spawn().doing(what)?, released: false };
    let end = Instant::now() + START_BOUND;
    loop {
        let ended = started.child.try_wait().doing(what)?;
        if let Some(record) = PidRecord::read(&pid_file).filter(|record| record.pid == started.child.id()) {
            let handle = Handle::of_pid(record.pid).doing(what)?;
            return Ok(Server { name: name.to_owned(), record, handle, started: Some(started) });
        }
        if let Some(status) = ended {
            let why =
                last_line(&log_path, log_begins).unwrap_or_else(|| format!("it ended at once, {status}"));
            let exit =
                if status.code() == Some(Exit::PortInUse as i32) { Exit::PortInUse } else { Exit::Failed };
            return Err(Failure::new(exit, what(), why).remedy(format!("its log is {}", log_path.display())));
        }
        if Instant::now() > end {
            return Err(Failure::new(
                Exit::Timeout,
                what(),
                format!("it does not serve after {} s", START_BOUND.as_secs()),
            )
            .remedy(format!("see {}", log_path.display())));
        }
        sleep(START_POLL).await;
    }
}

/// Finds the reason why the process ended in the part of its log after `from`.
fn last_line(path: &Path, from: u64) -> Option<String> {
    let text = fs::read(path).ok()?;
    let new = String::from_utf8_lossy(text.get(usize::try_from(from).ok()?..)?).into_owned();
    let said = new.lines().rev().find_map(|line| line.strip_prefix("braid: "));
    said.or_else(|| new.lines().rev().find(|line| !line.trim().is_empty())).map(str::to_owned)
}
