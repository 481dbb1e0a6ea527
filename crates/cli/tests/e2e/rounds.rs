//! Rounds of trouble under writers of one file: processes are killed with SIGKILL or stopped with SIGSTOP at
//! random (writers, drives, the manager), and started again as a service manager would. No acknowledged byte
//! is lost, nothing hangs, and in the end everything heals by itself.
//!
//! `BRAID_ROUNDS` sets the number of rounds, `BRAID_ROUNDS_SEED` the random sequence.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::support::{Cluster, run, runs, signal, until};
use record::{CHUNK, RECORD, seq_of};

mod record;
mod writer;

const WRITERS: u64 = 8;
const DRIVES: u64 = 6;
/// Number of records of each writer.
const RECORDS: u64 = 48;
const NAME: &str = "braid://shared/all";
const UNIT: usize = 64 << 10;
/// Number of rounds between two looks at the file.
const LOOK_EVERY: u64 = 20;

/// Knowledge about a record: the last write that was acknowledged, and the writes begun since.
#[derive(Debug, Clone, Default)]
struct Known {
    acknowledged: u64,
    begun: BTreeSet<u64>,
}

/// Reports of all writers.
#[derive(Debug, Default)]
struct Ledger {
    records: Vec<Known>,
    /// Number of acknowledged writes of each writer.
    counts: Vec<u64>,
    last: u64,
}

struct Writer {
    child: Child,
    listener: JoinHandle<()>,
}

struct Rounds {
    cluster: Cluster,
    ledger: Arc<Mutex<Ledger>>,
    writers: Vec<Writer>,
    state: u64,
    /// Number of times that a server was killed or stopped.
    harmed: Cell<u64>,
}

/// Not a test of its own: [`Rounds`] starts it in another process, as a writer.
#[test]
fn as_writer() {
    if let Ok(task) = std::env::var("BRAID_WRITER") {
        writer::run(&task);
    }
}

#[test]
fn no_acknowledged_byte_is_lost_whatever_is_killed_or_stopped() {
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |n| n.parse().expect("a number"));
    let count = number("BRAID_ROUNDS", 12);
    let seed = number("BRAID_ROUNDS_SEED", 1);
    let mut rounds = Rounds::start(seed);
    for round in 1..=count {
        rounds.trouble(round);
        if round % LOOK_EVERY == 0 || round == count {
            rounds.look(round);
        }
    }
    assert!(rounds.harmed.get() >= count / 4, "{} servers came to harm", rounds.harmed.get());
    rounds.end();
}

impl Rounds {
    fn start(seed: u64) -> Rounds {
        let cluster = Cluster::up(u32::try_from(DRIVES).expect("few"));
        cluster.line("volume create shared --scheme rs(3,2) --unit 64K").ok();
        let bytes = usize::try_from(WRITERS * RECORDS).expect("few") * RECORD;
        let empty = cluster.file("empty");
        std::fs::write(&empty, vec![0; bytes]).expect("written");
        cluster.put(&empty, NAME);
        let records = vec![Known::default(); usize::try_from(WRITERS * RECORDS).expect("few")];
        let counts = vec![0; usize::try_from(WRITERS).expect("few")];
        let ledger = Arc::new(Mutex::new(Ledger { records, counts, last: 0 }));
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut rounds = Rounds { cluster, ledger, writers: Vec::new(), state, harmed: Cell::new(0) };
        for index in 0..WRITERS {
            let writer = rounds.spawn(index);
            rounds.writers.push(writer);
        }
        rounds
    }

    fn below(&mut self, end: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end.max(1)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no listener panics")
    }

    /// Starts a writer, which numbers its writes on from those that were begun.
    fn spawn(&self, index: u64) -> Writer {
        let from = self.ledger().last + 1_000_000;
        let task = format!("{} {index} {WRITERS} {RECORDS} {from}", self.cluster.dir().display());
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "rounds::as_writer", "--nocapture", "--test-threads=1"])
            .env("BRAID_WRITER", task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a writer");
        let out = child.stdout.take().expect("piped");
        let ledger = Arc::clone(&self.ledger);
        let listener = std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                ledger.lock().expect("no listener panics").note(&line, index);
            }
        });
        Writer { child, listener }
    }

    /// Kills or stops one or two processes, for a moment or for longer than a lease.
    fn trouble(&mut self, round: u64) {
        let mut stopped = Vec::new();
        let mut killed = false;
        for _ in 0..1 + self.below(3) / 2 {
            let what = self.below(100);
            let victim = self.below(DRIVES);
            let stops = self.below(3) == 0;
            match what {
                0..40 => {
                    let index = self.below(WRITERS);
                    self.harm_writer(index, stops, &mut stopped);
                }
                40..85 => killed |= self.harm(&format!("drive-{}", victim + 1), stops, &mut stopped),
                _ => killed |= self.harm("manager", stops, &mut stopped),
            }
        }
        let long = self.below(25) == 0;
        let away = if long { self.below(14_000) } else { self.below(1200) };
        std::thread::sleep(Duration::from_millis(away));
        stopped.iter().for_each(|&pid| signal(pid, "CONT"));
        if killed {
            self.cluster.start(&["--drives", &DRIVES.to_string()]);
        }
        if round.is_multiple_of(100) {
            eprintln!("round {round}: {} writes acknowledged", self.ledger().counts.iter().sum::<u64>());
        }
    }

    fn harm_writer(&mut self, index: u64, stops: bool, stopped: &mut Vec<u32>) {
        let at = usize::try_from(index).expect("few");
        let pid = self.writers[at].child.id();
        if stops {
            signal(pid, "STOP");
            stopped.push(pid);
            return;
        }
        signal(pid, "KILL");
        // The writer's earlier reports are read first.
        let gone = self.writers.remove(at);
        gone.end();
        let writer = self.spawn(index);
        self.writers.insert(at, writer);
    }

    /// Stops or kills a server. Returns true if it was killed.
    fn harm(&self, name: &str, stops: bool, stopped: &mut Vec<u32>) -> bool {
        let pid = pid_in(&self.cluster.dir().join("pids").join(name));
        self.harmed.set(self.harmed.get() + 1);
        if stops {
            signal(pid, "STOP");
            stopped.push(pid);
            return false;
        }
        signal(pid, "KILL");
        until("it is dead", || !runs(pid));
        true
    }

    /// Checks, with all processes running, that every writer makes progress and that the file has what was
    /// acknowledged.
    fn look(&self, round: u64) {
        let before = self.ledger().counts.clone();
        until(&format!("every writer writes again, after round {round}"), || {
            self.ledger().counts.iter().zip(&before).all(|(now, before)| now > before)
        });
        let least: Vec<u64> = self.ledger().records.iter().map(|known| known.acknowledged).collect();
        let found = self.cluster.cat(NAME);
        for (record, least) in least.iter().enumerate() {
            for seq in seqs(&found, record) {
                assert!(seq >= *least, "record {record}: {seq} is there, {least} was acknowledged before");
            }
        }
    }

    /// Ends the writers, waits until the cluster has healed, and checks the whole file.
    fn end(mut self) {
        for writer in self.writers.drain(..) {
            writer.end();
        }
        until("the cluster is well", || run(self.cluster.command(["status"])).code == 0);
        let checked = self.cluster.braid(["check", NAME]);
        assert_eq!(checked.code, 0, "{}{}", checked.text(), checked.err);
        let found = self.cluster.cat(NAME);
        let ledger = self.ledger();
        for (record, known) in ledger.records.iter().enumerate() {
            for seq in seqs(&found, record) {
                let right = seq == known.acknowledged || known.begun.contains(&seq);
                assert!(right, "record {record}: {seq} is there, and this is known: {known:?}");
            }
        }
        eprintln!("{} times a server was killed or stopped", self.harmed.get());
        eprintln!("{} writes acknowledged", ledger.counts.iter().sum::<u64>());
    }
}

impl Ledger {
    fn note(&mut self, line: &str, writer: u64) {
        let mut words = line.split(' ');
        let what = words.next();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let (Some(record), Some(seq)) = (number(), number()) else { return };
        let Some(known) = self.records.get_mut(usize::try_from(record).unwrap_or(usize::MAX)) else { return };
        match what {
            Some("begun") => {
                known.begun.insert(seq);
                self.last = self.last.max(seq);
            }
            Some("done") => {
                known.acknowledged = seq;
                known.begun.retain(|begun| *begun > seq);
                self.counts[usize::try_from(writer).expect("few")] += 1;
            }
            _ => {}
        }
    }
}

impl Writer {
    /// Ends the writer, if it runs, and reads all of its reports.
    fn end(mut self) {
        drop(self.child.stdin.take());
        until("a writer ends", || self.child.try_wait().expect("waited for").is_some());
        self.listener.join().expect("it listens to the end");
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        for writer in &mut self.writers {
            let _ = writer.child.kill().and_then(|()| writer.child.wait());
        }
        // A stopped server would not end when it is told to.
        for entry in std::fs::read_dir(self.cluster.dir().join("pids")).into_iter().flatten().flatten() {
            signal(pid_in(&entry.path()), "CONT");
        }
    }
}

/// Reads the process id in a file of the cluster's directory `pids`.
fn pid_in(path: &Path) -> u32 {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mark: toml::Table = text.parse().expect("TOML");
    mark["pid"].as_integer().and_then(|pid| u32::try_from(pid).ok()).expect("a process id")
}

/// Numbers of the writes whose bytes a record holds. All parts of a record within one unit must come from one
/// write.
fn seqs(file: &[u8], record: usize) -> BTreeSet<u64> {
    let range = record * RECORD..(record + 1) * RECORD;
    let mut found = BTreeSet::new();
    let mut from = range.start;
    while from < range.end {
        let to = ((from / UNIT + 1) * UNIT).min(range.end);
        let parts = (from..to).step_by(CHUNK);
        let of: BTreeSet<u64> =
            parts.map(|at| seq_of(record, (at - range.start) / CHUNK, &file[at..at + CHUNK])).collect();
        assert_eq!(of.len(), 1, "record {record}: its part {from}..{to} is of several writes: {of:?}");
        found.extend(of);
        from = to;
    }
    found
}
