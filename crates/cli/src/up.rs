//! `braid up`: starts a whole cluster on this machine and, in the foreground, supervises it.
//!
//! Servers that run already are left alone and the others are started, so the command can be repeated at any
//! time. With `--detach` it returns once everything serves. A drive that cannot be started, or that keeps
//! ending, is left out and named: the others serve. Without a manager nothing is started.

use std::future::{Future, poll_fn};
use std::io;
use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::args;
use crate::bring_up::{Lack, Running, bring_up, remedy_of};
use crate::cluster_dir::{ClusterDir, DirLock};
use crate::down::stop_all;
use crate::exit::{Doing, Exit, Failure};
use crate::interrupt::{Interrupts, Of};
use crate::local::{DriveStart, MANAGER, Mode, Server};
use crate::report::{Report, complain};
use crate::shell::quoted;

/// How often a server that keeps ending is restarted in the foreground before giving up.
const RESTARTS_MAX: u32 = 5;
/// After running for longer than this, a server's restart count begins at zero again.
const RESTART_FORGET: Duration = Duration::from_secs(60);
/// Pause before the first restart; each further one is twice as long.
const RESTART_PAUSE: Duration = Duration::from_millis(250);
/// What `up` prints.
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
    let (said, whole) = (say(&running, report), running.whole());
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

/// Restarts servers that die, until Ctrl-C (which stops them all), a manager that cannot be kept running, or
/// the loss of the directory. A drive that cannot be kept running is given up.
async fn supervise(
    mut running: Running,
    lock: DirLock,
    mut interrupts: Interrupts,
    report: Report,
) -> Result<(), Failure> {
    let place = running.dir.root().display().to_string();
    let lost = || lock.held.failure(format!("run the cluster in {place}"));
    let _ = report.say("running; Ctrl-C stops all of it");
    let mut history = vec![(0_u32, Instant::now()); running.servers.len()];
    let signal = loop {
        let index = tokio::select! {
            ended = first_ended(&running.servers) => ended.doing(|| "watch the servers".into())?,
            signal = interrupts.next() => break signal,
            // Returning kills the other servers: they must not write to the directory's successor.
            () = lock.held.gone() => return Err(lost()),
        };
        // The servers notice this too, perhaps first, and end.
        if lock.held.is_gone().await {
            return Err(lost());
        }
        let server = &mut running.servers[index];
        let name = server.name.clone();
        let how = server.status().unwrap_or_else(|| "it is gone".into());
        let (restarts, since) = &mut history[index];
        if since.elapsed() > RESTART_FORGET {
            *restarts = 0;
        }
        let again = if *restarts == RESTARTS_MAX {
            let why = format!("it ended {RESTARTS_MAX} times in a row, {how}");
            Err(Failure::new(Exit::Failed, format!("keep {name} running"), why)
                .remedy(format!("see {}", running.dir.log(&name).display())))
        } else {
            complain(&format!("{name} ended, {how}; starting it again"));
            sleep(RESTART_PAUSE * 2_u32.pow(*restarts)).await;
            (*restarts, *since) = (*restarts + 1, Instant::now());
            tokio::select! {
                server = restart(&running, &name) => server,
                signal = interrupts.next() => break signal,
            }
        };
        match again {
            Ok(server) => running.servers[index] = server,
            Err(failure) if name == MANAGER => return Err(failure),
            Err(failure) => {
                complain(&format!("{failure}; the others serve; {}", remedy_of(&[&name])));
                running.servers.remove(index);
                history.remove(index);
            }
        }
    };
    let _ = report.say(format!("stopping: {signal}"));
    stop_all(running.servers).await.map(|_| ())
}

/// Waits until one of them has ended.
async fn first_ended(servers: &[Server]) -> io::Result<usize> {
    let mut waits: Vec<_> = servers.iter().map(|server| Box::pin(server.handle.ended())).collect();
    poll_fn(|context| {
        for (index, wait) in waits.iter_mut().enumerate() {
            if let Poll::Ready(ended) = wait.as_mut().poll(context) {
                return Poll::Ready(ended.map(|()| index));
            }
        }
        Poll::Pending
    })
    .await
}

/// Restarts a server at its previous address.
async fn restart(running: &Running, name: &str) -> Result<Server, Failure> {
    if name == MANAGER {
        return Server::start_manager(&running.dir, &running.cluster.manager, Mode::Attached).await;
    }
    let directory = running.dir.drive(name);
    let (manager, options) = (&running.cluster.manager, running.options);
    let start = DriveStart { name, directory: &directory, manager, options, host: None };
    Server::start_drive(&running.dir, start, Mode::Attached).await
}
