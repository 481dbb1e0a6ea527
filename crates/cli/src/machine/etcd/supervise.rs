//! Keeps etcd running as a child: started again when it ends, after pauses that grow; ended with its parent.
//!
//! A thread of its own starts the child and lives as long as it: the kernel ends a child with the thread that
//! started it, if that was asked for, and not only with the process.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// Interval between two looks whether the child runs.
const LOOK: Duration = Duration::from_millis(100);
/// Time for etcd to end after SIGTERM; then it gets SIGKILL. A leader hands its office over meanwhile.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// First pause before another start, and the longest.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Time after which a child that ends has not failed at its start.
const STEADY: Duration = Duration::from_secs(60);
/// Time for which a line of its log that repeats itself is passed on once, and how many are remembered.
const SEEN: Duration = Duration::from_secs(60);
const SEEN_MAX: usize = 100;
/// Longest line of its log that is passed on.
const LINE_MAX: usize = 2000;

/// A child that is kept running until this is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Supervisor {
    stop: Sender<()>,
    thread: JoinHandle<()>,
    last: Last,
}

/// The last thing of weight that the child said.
#[derive(Debug, Clone, Default)]
struct Last(Arc<Mutex<String>>);

impl Last {
    /// Notes it, unless the last one said already what to do.
    fn set(&self, text: String) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if remedy(&last).is_none() {
            *last = text;
        }
    }

    fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Supervisor {
    /// Starts the program with these flags.
    pub(crate) fn start(program: PathBuf, flags: Vec<String>) -> Supervisor {
        let (stop, stopped) = channel();
        let last = Last::default();
        let said = last.clone();
        let thread = thread::spawn(move || keep(&program, &flags, &stopped, &said));
        Supervisor { stop, thread, last }
    }

    /// The last error that it reported; empty: none.
    pub(crate) fn last(&self) -> String {
        self.last.get()
    }

    /// Ends the child, and waits for that. It takes `END_PATIENCE` at most, and a moment.
    pub(crate) fn stop(self) {
        drop(self.stop);
        let _ = self.thread.join(); // a panic was reported by its thread
    }
}

/// Keeps the child running until `stopped`.
fn keep(program: &Path, flags: &[String], stopped: &Receiver<()>, last: &Last) {
    let mut pause = PAUSE;
    loop {
        let begun = Instant::now();
        last.forget();
        match spawn(program, flags) {
            Ok(mut child) => {
                if let Some(log) = child.stderr.take() {
                    let last = last.clone();
                    thread::spawn(move || pass(log, &last));
                }
                match watch(&mut child, stopped) {
                    Some(status) => {
                        let why = last.get();
                        tracing::error!(%status, %why, "etcd has ended: it is started again");
                        if let Some(remedy) = remedy(&why) {
                            tracing::error!("{remedy}");
                        }
                    }
                    None => return end(&mut child),
                }
            }
            Err(error) => {
                last.set(error.to_string());
                tracing::error!(program = %program.display(), %error, "etcd cannot be started");
            }
        }
        pause = if begun.elapsed() >= STEADY { PAUSE } else { (pause * 2).min(PAUSE_MAX) };
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// The remedy for an end that no further start mends.
fn remedy(why: &str) -> Option<&'static str> {
    let table = [
        (
            "has been permanently removed",
            "this manager was taken out of the cluster (braid manager replace): stop it, and join with an empty directory",
        ),
        (
            "address already in use",
            "another program uses etcd's port: stop it, or join anew with another --etcd-port",
        ),
        (
            "cluster ID mismatch",
            "this directory is of another cluster than the managers that it calls, or of the one before a restore",
        ),
        ("no space left on device", "the disk of the manager's directory is full: make room"),
    ];
    table.iter().find(|(part, _)| why.contains(part)).map(|(_, remedy)| *remedy)
}

fn spawn(program: &Path, flags: &[String]) -> std::io::Result<Child> {
    let mut command = Command::new(program);
    // Of a group of its own: Ctrl-C goes to the manager, which then ends etcd after itself.
    command.args(flags).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    // Variables of etcd's would win over nothing here, and confuse.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ETCD_")) {
        command.env_remove(name);
    }
    let parent = rustix::process::getpid();
    let die_with_parent = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended just before.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(std::io::ErrorKind::Interrupted.into())
        }
    };
    #[expect(unsafe_code, reason = "only a child itself can ask for its end with its parent")]
    // SAFETY: the closure makes two system calls, and takes no lock and no memory.
    unsafe {
        command.pre_exec(die_with_parent);
    }
    command.spawn()
}

/// Waits until the child has ended, and returns how; `None`: it is to be stopped.
fn watch(child: &mut Child, stopped: &Receiver<()>) -> Option<String> {
    loop {
        match stopped.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return None,
        }
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.to_string()),
            Ok(None) => {}
            Err(error) => return Some(error.to_string()),
        }
    }
}

/// Ends the child: SIGTERM, and SIGKILL if that does not help in time.
fn end(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It was not waited for, so the number is still its own.
        let _ = kill_process(pid, Signal::TERM);
    }
    let until = Instant::now() + END_PATIENCE;
    while Instant::now() < until {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(LOOK);
    }
    tracing::warn!("etcd did not end in {} s: it is killed", END_PATIENCE.as_secs());
    let _ = child.kill();
    let _ = child.wait();
}

/// The weight of a line of etcd's log, as Braid's log has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    Error,
    Warn,
    Info,
    Debug,
}

/// Passes the lines of its log on: those that repeat themselves seldom.
fn pass(log: ChildStderr, last: &Last) {
    let mut said = Said::default();
    for line in BufReader::new(log).split(b'\n') {
        let Ok(line) = line else { return };
        let line = String::from_utf8_lossy(&line);
        let (weight, text) = understood(&line);
        match said.weigh(weight, &text, Instant::now()) {
            Weight::Error => tracing::error!(target: "etcd", "etcd: {text}"),
            Weight::Warn => tracing::warn!(target: "etcd", "etcd: {text}"),
            Weight::Info => tracing::info!(target: "etcd", "etcd: {text}"),
            Weight::Debug => tracing::debug!(target: "etcd", "etcd: {text}"),
        }
        if matches!(weight, Weight::Error | Weight::Warn) || remedy(&text).is_some() {
            last.set(text);
        }
    }
}

/// Lines that were passed on lately, and when.
#[derive(Default)]
struct Said(BTreeMap<String, Instant>);

impl Said {
    /// The weight of a line now: one that was passed on a minute ago or less is for those who look for
    /// details.
    fn weigh(&mut self, weight: Weight, text: &str, now: Instant) -> Weight {
        if weight == Weight::Debug {
            return weight;
        }
        self.0.retain(|_, when| now.saturating_duration_since(*when) < SEEN);
        if self.0.contains_key(text) {
            return Weight::Debug;
        }
        if self.0.len() < SEEN_MAX {
            self.0.insert(text.to_owned(), now);
        }
        weight
    }
}

/// A warning about etcd's own users, of which the managers' etcd has none: certificates are its only way in.
const HARMLESS: &str = "simple token is not cryptographically signed";

/// A line of etcd's log: its weight and its words. etcd reports one level above what it means for Braid's
/// operator: it warns of each connection that it makes, and its information is about its own works.
fn understood(line: &str) -> (Weight, String) {
    let Ok(entry) = serde_json::from_str::<serde_json::Value>(line) else {
        // A library's line, or what the language's runtime says when all else fails.
        let is_library = ["INFO: ", "WARNING: ", "ERROR: "].iter().any(|begin| line.starts_with(begin));
        let weight = if is_library { Weight::Debug } else { Weight::Info };
        return (weight, line.chars().take(LINE_MAX).collect());
    };
    let word = |key: &str| entry[key].as_str().unwrap_or_default();
    let weight = match word("level") {
        _ if word("msg") == HARMLESS => Weight::Debug,
        "fatal" | "panic" | "dpanic" => Weight::Error,
        "error" => Weight::Warn,
        "warn" => Weight::Info,
        _ => Weight::Debug,
    };
    let text = match word("error") {
        "" => word("msg").to_owned(),
        error => format!("{}: {error}", word("msg")),
    };
    (weight, text.chars().take(LINE_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_its_log_has_a_weight_and_words() {
        let line =
            r#"{"level":"fatal","ts":"x","caller":"y","msg":"discovery failed","error":"no such host"}"#;
        assert_eq!(understood(line), (Weight::Error, "discovery failed: no such host".to_owned()));
        assert_eq!(understood(r#"{"level":"info","msg":"m"}"#), (Weight::Debug, "m".to_owned()));
        let warning = format!(r#"{{"level":"warn","msg":"{HARMLESS}"}}"#);
        assert_eq!(understood(&warning).0, Weight::Debug);
        assert_eq!(understood("panic: x"), (Weight::Info, "panic: x".to_owned()));
        assert_eq!(understood("WARNING: 2026 [core] x").0, Weight::Debug);
    }

    #[test]
    fn a_line_that_repeats_itself_is_passed_on_once_a_minute() {
        let mut said = Said::default();
        let now = Instant::now();
        assert_eq!(said.weigh(Weight::Warn, "m", now), Weight::Warn);
        assert_eq!(said.weigh(Weight::Warn, "m", now + SEEN / 2), Weight::Debug);
        assert_eq!(said.weigh(Weight::Warn, "m", now + SEEN), Weight::Warn);
        for n in 0..2 * SEEN_MAX {
            said.weigh(Weight::Info, &n.to_string(), now);
        }
        assert!(said.0.len() <= SEEN_MAX);
    }

    #[test]
    fn an_end_that_repeats_has_a_remedy() {
        assert!(remedy("the member has been permanently removed from the cluster").is_some());
        assert_eq!(remedy("context canceled"), None);
        let last = Last::default();
        for text in ["first", "bind: address already in use", "stopped"] {
            last.set(text.to_owned());
        }
        assert_eq!(last.get(), "bind: address already in use");
    }

    #[test]
    fn a_child_that_ends_is_started_again_and_stopped_with_its_keeper() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("starts");
        // Ends at its first start, and stays at the second.
        let script = format!("echo >> {0}; [ $(wc -l < {0}) = 1 ] && exit 3; exec sleep 60", file.display());
        let kept = Supervisor::start("/bin/sh".into(), vec!["-c".into(), script]);
        let starts = || std::fs::read(&file).map_or(0, |bytes| bytes.len());
        braid_testing::until("it was started again", || starts() == 2);
        kept.stop();
        assert_eq!(starts(), 2);
    }

    #[test]
    fn what_cannot_be_started_is_said() {
        let kept = Supervisor::start("/nonexistent/etcd".into(), Vec::new());
        braid_testing::until("it has failed", || !kept.last().is_empty());
        kept.stop();
    }
}
