//! `braid up`: starts a whole cluster on this machine and, in the foreground, supervises it.
//!
//! Servers that run already are left alone and the others are started, so the command can be repeated at any
//! time. With `--detach` it returns once everything serves. A drive that cannot be started is left out and
//! named: the other drives serve. In the foreground, a server that ends is started again, after pauses that
//! grow. Without a manager nothing is started.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::args;
use crate::machine::bring_up::{Lack, Running, bring_up, remedy_of};
use crate::machine::cluster_dir::{ClusterDir, DirLock};
use crate::machine::down::stop_all;
use crate::machine::local::{DriveStart, MANAGER, Mode, Server};
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::interrupt::{Interrupts, Of};
use crate::output::report::{Report, complain};
use crate::output::shell::quoted;

/// Number of restarts in a row after which a manager is given up in the foreground.
const RESTARTS_MAX: u32 = 5;
/// A server that has run for longer than this has its restart count set to zero.
const RESTART_FORGET: Duration = Duration::from_secs(60);
/// Pause before the first restart; each further one is twice as long, up to [`RESTART_PAUSE_MAX`].
const RESTART_PAUSE: Duration = Duration::from_millis(250);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Output of `up`, in `--json`.
#[derive(Debug, Serialize)]
struct UpReport {
    directory: String,
    manager: String,
    drives: Vec<String>,
    started: Vec<String>,
    /// The drives that do not serve, and why.
    lacks: Vec<Lack>,
}

/// Runs the command. In the foreground it returns on Ctrl-C, or if a server cannot be kept running.
pub(crate) async fn run(up: args::Up, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let mut interrupts = Interrupts::new(Of::Supervisor)?;
    let dir = ClusterDir::choose(up.dir.as_deref(), cluster)?;
    dir.prepare()?;
    let lock = dir.lock()?;
    if !up.detach {
        refuse_running(&dir)?;
    }
    let mode = if up.detach { Mode::Detached } else { Mode::Attached };
    let running = tokio::select! {
        running = bring_up(dir, up.drives, mode, up.options) => running?,
        _ = interrupts.next() => return Err(Interrupts::failure()),
    };
    // Output that cannot be written must not stop a running cluster: the result is returned later.
    let said = say(&running, report);
    let whole = running.whole();
    if up.detach {
        running.servers.into_iter().for_each(Server::release);
        return said.and(whole);
    }
    if let Err(failure) = whole {
        complain(&failure.to_string());
    }
    supervise(running, lock, interrupts, report).await
}

/// In the foreground all servers must be children of this process.
fn refuse_running(dir: &ClusterDir) -> Result<(), Failure> {
    let names = dir.read()?.map(|cluster| cluster.drives).unwrap_or_default();
    for name in [MANAGER.to_owned()].iter().chain(&names) {
        if let Some(server) = Server::find(dir, name)? {
            let why = format!("its {name} runs already, detached, as process {}", server.record.pid);
            return Err(Failure::new(
                Exit::Busy,
                format!("run {} in the foreground", dir.root().display()),
                why,
            )
            .remedy("use `braid up --detach` to start what is missing, or `braid down` first"));
        }
    }
    Ok(())
}

fn say(running: &Running, report: Report) -> Result<(), Failure> {
    let facts = UpReport {
        directory: running.dir.root().display().to_string(),
        manager: running.cluster.manager.clone(),
        drives: running.cluster.drives.clone(),
        started: running
            .servers
            .iter()
            .filter(|server| server.was_started())
            .map(|server| server.name.clone())
            .collect(),
        lacks: running.lacks.clone(),
    };
    let root = quoted(running.dir.root().as_os_str());
    report.line(&facts, |facts| {
        let started = if facts.started.is_empty() {
            "nothing had to be started".into()
        } else {
            format!("started {}", facts.started.join(", "))
        };
        format!(
            "cluster in {}: manager at {}, {} drives; {started}\nuse it with: export BRAID_CLUSTER={}",
            facts.directory,
            facts.manager,
            facts.drives.len() - facts.lacks.len(),
            root
        )
    })
}

/// A server that is kept running.
struct Kept {
    name: String,
    /// Process of the server; absent while it does not run.
    server: Option<Server>,
    restarts: u32,
    /// Time at which the server was started, or ended.
    since: Instant,
}

impl Kept {
    fn new(server: Server) -> Kept {
        Kept { name: server.name.clone(), server: Some(server), restarts: 0, since: Instant::now() }
    }

    /// Returns true if the server is not to be restarted any more: only the manager is given up, for without
    /// it nothing is of use.
    fn is_given_up(&self) -> bool {
        self.name == MANAGER && self.restarts >= RESTARTS_MAX
    }

    fn again_in(&self) -> String {
        format!("starting it again in {} s", pause(self.restarts).as_secs_f64())
    }
}

/// Pause before a restart, by the number of restarts before it.
fn pause(restarts: u32) -> Duration {
    RESTART_PAUSE.saturating_mul(1 << restarts.min(16)).min(RESTART_PAUSE_MAX)
}

/// Restarts servers that die, until Ctrl-C (which stops them all), a manager that cannot be kept running, or
/// the loss of the directory.
async fn supervise(
    mut running: Running,
    lock: DirLock,
    mut interrupts: Interrupts,
    report: Report,
) -> Result<(), Failure> {
    let place = running.dir.root().display().to_string();
    let lost = || lock.held.failure(format!("run the cluster in {place}"));
    let _ = report.say("running; Ctrl-C stops all of it");
    let mut kept: Vec<Kept> = std::mem::take(&mut running.servers).into_iter().map(Kept::new).collect();
    let signal = loop {
        let event = tokio::select! {
            ended = first_ended(&kept) => Event::Ended(ended.doing(|| "watch the servers".into())?),
            due = first_due(&kept) => Event::Due(due),
            signal = interrupts.next() => break signal,
            // Returning kills the other servers: they must not write to the directory's successor.
            () = lock.held.gone() => return Err(lost()),
        };
        // The servers notice this too, perhaps first, and end.
        if lock.held.is_gone().await {
            return Err(lost());
        }
        match event {
            Event::Ended(index) => has_ended(&running, &mut kept[index])?,
            Event::Due(index) => tokio::select! {
                done = start_again(&running, &mut kept[index]) => done?,
                signal = interrupts.next() => break signal,
            },
        }
    };
    let _ = report.say(format!("stopping: {signal}"));
    let missing = kept.iter().filter(|kept| kept.server.is_none());
    running.lacks.extend(missing.map(|kept| {
        let why = format!("it ended; its log is {}", running.dir.log(&kept.name).display());
        Lack { drive: kept.name.clone(), why }
    }));
    stop_all(kept.into_iter().filter_map(|kept| kept.server).collect()).await?;
    running.whole()
}

/// Event that a supervisor waits for, with the server's index.
enum Event {
    Ended(usize),
    /// The server is to be started again.
    Due(usize),
}

fn has_ended(running: &Running, kept: &mut Kept) -> Result<(), Failure> {
    let name = &kept.name;
    let how =
        kept.server.take().and_then(|mut server| server.status()).unwrap_or_else(|| "it is gone".into());
    if kept.since.elapsed() > RESTART_FORGET {
        kept.restarts = 0;
    }
    if kept.is_given_up() {
        let why = format!("it ended {RESTARTS_MAX} times in a row, {how}");
        return Err(Failure::new(Exit::Failed, format!("keep {name} running"), why)
            .remedy(format!("see {}", running.dir.log(name).display())));
    }
    kept.since = Instant::now();
    complain(&format!("{name} ended, {how}; {}", kept.again_in()));
    Ok(())
}

async fn start_again(running: &Running, kept: &mut Kept) -> Result<(), Failure> {
    let started = restart(running, &kept.name).await;
    kept.restarts += 1;
    kept.since = Instant::now();
    match started {
        Ok(server) => kept.server = Some(server),
        Err(failure) if kept.is_given_up() => return Err(failure),
        Err(failure) if kept.name == MANAGER => complain(&format!("{failure}; {}", kept.again_in())),
        Err(failure) => {
            let remedy = remedy_of(&[&kept.name]);
            complain(&format!("{failure}; the others serve; {}; {remedy}", kept.again_in()));
        }
    }
    Ok(())
}

/// Waits until one of the servers has ended, and returns its index.
async fn first_ended(kept: &[Kept]) -> io::Result<usize> {
    let runs = kept.iter().enumerate().filter_map(|(index, kept)| Some((index, kept.server.as_ref()?)));
    let mut waits: Vec<_> = runs.map(|(index, server)| (index, Box::pin(server.handle.ended()))).collect();
    poll_fn(|context| {
        for (index, wait) in &mut waits {
            if let Poll::Ready(ended) = wait.as_mut().poll(context) {
                return Poll::Ready(ended.map(|()| *index));
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits until one of the servers is to be started again, and returns its index.
async fn first_due(kept: &[Kept]) -> usize {
    let missing = kept.iter().enumerate().filter(|(_, kept)| kept.server.is_none());
    let due = missing.map(|(index, kept)| (kept.since + pause(kept.restarts), index)).min();
    let Some((at, index)) = due else { return pending().await };
    sleep_until(at).await;
    index
}

/// Restarts a server at its previous address.
async fn restart(running: &Running, name: &str) -> Result<Server, Failure> {
    if name == MANAGER {
        return Server::start_manager(&running.dir, &running.cluster.manager, Mode::Attached).await;
    }
    let directory = running.dir.drive(name);
    let manager = &running.cluster.manager;
    let options = running.options;
    let start = DriveStart { name, directory: &directory, manager, options, host: None };
    Server::start_drive(&running.dir, start, Mode::Attached).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end_nowhere() {
        let seconds = |restarts| pause(restarts).as_secs_f64();
        assert_eq!([0, 1, 4, 8, 99].map(seconds), [0.25, 0.5, 4.0, 60.0, 60.0]);
    }
}
