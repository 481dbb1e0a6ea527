//! A user who makes, reads and removes snapshots during the trouble: of the volume, and of a directory that
//! has some of the files. At the end each shows what the model says, is whole, and leaves nothing behind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_client::{Buffered, Client, Error, Kind, Name, OpenOptions, Parents};
use braid_meta::records::check;
use braid_meta::records::db::Db;
use braid_meta::records::memory::MemoryKv;
use braid_meta::records::schema::{key, table};
use tokio::time::{sleep, timeout};

use crate::cluster::Contact;
use crate::model::{Model, PastId};
use crate::operator::connected;
use crate::random::Random;
use crate::trace::Trace;
use crate::workload::Target;

/// Longest pause between two actions.
const PAUSE_MS: u64 = 2_500;
/// Longest time of an action.
const ACTION_BOUND: Duration = Duration::from_secs(180);
/// Maximum number of snapshots at a time.
const SNAPSHOTS_MAX: usize = 5;
/// Number of tries, a second apart, for what must succeed at the end.
const TRIES: usize = 90;

/// Snapshots that are there.
pub(crate) type Taken = Arc<Mutex<Vec<TakenOne>>>;

/// A snapshot that is there.
#[derive(Debug, Clone)]
pub(crate) struct TakenOne {
    id: PastId,
    of: Of,
    name: String,
}

/// A directory of which snapshots are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Volume,
    Directory,
}

impl Of {
    fn root(self) -> Name {
        let root = if self == Of::Volume { "braid://main" } else { "braid://main/d" };
        root.parse().expect("a good name")
    }

    fn has(self, target: &Target) -> bool {
        self == Of::Volume || is_in_directory(target)
    }
}

fn is_in_directory(target: &Target) -> bool {
    target.number % 2 == 1
}

/// Places every second file in the directory.
pub(crate) fn place(targets: &mut [Target]) {
    for target in targets.iter_mut().filter(|target| is_in_directory(target)) {
        target.name = format!("braid://main/d/f{}", target.number).parse().expect("a good name");
    }
}

/// Makes the directory.
pub(crate) async fn make_directory(client: &Client) -> braid_client::Result<()> {
    client.mkdir(&Of::Directory.root(), Parents::Make).await
}

pub(crate) struct Snapper {
    pub(crate) contact: Contact,
    pub(crate) targets: Vec<Target>,
    pub(crate) model: Model,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) taken: Taken,
}

impl Snapper {
    /// Makes, reads and removes snapshots, until told to stop.
    pub(crate) async fn operate(mut self) {
        let client = connected(&self.contact).await;
        let mut made = 0;
        loop {
            sleep(Duration::from_millis(100 + self.random.below(PAUSE_MS))).await;
            // What a state that was put back shows is not known.
            if self.stop.load(Ordering::Relaxed) || !self.model.knows_past() {
                return;
            }
            let there = lock(&self.taken).len();
            let what = self.random.below(100);
            let number = usize::try_from(self.random.below(there.max(1) as u64)).unwrap_or(0);
            let one = lock(&self.taken).get(number).cloned();
            let action = async {
                match one {
                    Some(one) if what < 15 || there >= SNAPSHOTS_MAX => self.remove(&client, &one).await,
                    Some(one) if what < 60 => self.read_some(&client, &one).await,
                    _ => {
                        made += 1;
                        self.make(&client, made).await;
                    }
                }
            };
            if timeout(ACTION_BOUND, action).await.is_err() {
                let seconds = ACTION_BOUND.as_secs();
                self.model.fail(format!("snapper: an action ({what}) hangs for {seconds} s"));
                return;
            }
        }
    }

    async fn make(&mut self, client: &Client, number: u64) {
        let of = if self.random.percent(50) { Of::Volume } else { Of::Directory };
        let name = format!("s{number}");
        let files = self.targets.iter().filter(|target| of.has(target)).map(|target| target.number);
        let id = self.model.begin_past(&name, files);
        match client.make_snapshot(&of.root(), &name, Buffered::LeftOut).await {
            Ok(made) => {
                self.model.end_past(id, made.late > 0);
                self.trace.event(format!("snapshot {name} of {}: {} late", of.root(), made.late));
                self.trace.count("snapshots");
                lock(&self.taken).push(TakenOne { id, of, name });
            }
            Err(error) => {
                self.model.drop_past(id);
                self.trace.event(format!("snapshot {name} of {}, or not: {error}", of.root()));
            }
        }
    }

    async fn remove(&self, client: &Client, one: &TakenOne) {
        self.model.drop_past(one.id);
        lock(&self.taken).retain(|other| other.id != one.id);
        let name = &one.name;
        match client.remove_snapshot(&one.of.root(), name).await {
            Ok(()) => {
                self.trace.event(format!("snapshot {name} is removed"));
                self.trace.count("snapshots removed");
            }
            Err(error) => self.trace.event(format!("snapshot {name} is removed, or not: {error}")),
        }
    }

    async fn read_some(&mut self, client: &Client, one: &TakenOne) {
        let covered: Vec<usize> =
            (0..self.targets.len()).filter(|&at| one.of.has(&self.targets[at])).collect();
        let Some(at) = self.random.one(&covered) else { return };
        let target = &self.targets[at];
        match read(client, target, one).await {
            Ok(found) => {
                self.model.judge_past(one.id, target.number, &found, "snapper");
                self.trace.event(format!("read {} bytes of {}@{}", found.len(), target.name, one.name));
                self.trace.count("reads of snapshots");
            }
            Err(error) => {
                lacks(&self.model, target, one, &error);
                self.trace.event(format!("did not read {}@{}: {error}", target.name, one.name));
            }
        }
    }
}

fn lock(taken: &Taken) -> std::sync::MutexGuard<'_, Vec<TakenOne>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a whole file in a snapshot.
async fn read(client: &Client, target: &Target, one: &TakenOne) -> Result<Vec<u8>, Error> {
    let name = inside(target, one);
    let file = client.open(&name, &OpenOptions::new().read(true)).await?;
    let mut found = vec![0; usize::try_from(file.size()).unwrap_or(0)];
    let count = file.read_at(&mut found, 0).await?;
    found.truncate(count);
    Ok(found)
}

fn inside(target: &Target, one: &TakenOne) -> Name {
    target.name.in_snapshot(&one.name).expect("a good name")
}

/// Notes it if a file is not in a snapshot and must be.
fn lacks(model: &Model, target: &Target, one: &TakenOne, error: &Error) {
    if error.kind() == Kind::NotFound && model.knows_past() && model.must_be_past(one.id, target.number) {
        model.fail(format!("{} is not in snapshot {}: {error}", target.name, one.name));
    }
}

/// Removes what the user has removed already, in a state that was put back: it has such snapshots again, and
/// the drives have freed what only these show, which nothing brings back.
pub(crate) async fn remove_again(client: &Client, taken: &Taken, trace: &Trace) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..TRIES {
        match try_to_remove_again(client, taken, trace).await {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
        sleep(Duration::from_secs(1)).await;
    }
    Err(format!("a snapshot cannot be removed again: {last}"))
}

async fn try_to_remove_again(client: &Client, taken: &Taken, trace: &Trace) -> Result<(), String> {
    for row in client.snapshots(&Of::Volume.root()).await.map_err(|error| error.to_string())? {
        if lock(taken).iter().all(|one| one.name != row.name) {
            let root: Name = row.place.parse().map_err(|error| format!("{}: {error}", row.place))?;
            client.remove_snapshot(&root, &row.name).await.map_err(|error| error.to_string())?;
            trace.event(format!("snapshot {} is removed again", row.name));
        }
    }
    Ok(())
}

/// Checks what the snapshots that are left show, and that nothing is left once they are removed.
pub(crate) async fn end(
    client: &Client,
    targets: &[Target],
    model: &Model,
    taken: &Taken,
    state: &MemoryKv,
    trace: &Trace,
) -> Result<(), String> {
    check(client, targets, model, taken).await?;
    check_state(state)?;
    remove_all(client, state, trace).await
}

/// Checks that each file in each snapshot is as the model says, and whole.
async fn check(client: &Client, targets: &[Target], model: &Model, taken: &Taken) -> Result<(), String> {
    let all = lock(taken).clone();
    for one in all {
        for target in targets.iter().filter(|target| one.of.has(target)) {
            let name = inside(target, &one);
            let mut last = String::new();
            let mut is_done = false;
            for _ in 0..TRIES {
                match checked(client, target, &one, model).await {
                    Ok(()) => {
                        is_done = true;
                        break;
                    }
                    Err(why) => last = why,
                }
                sleep(Duration::from_secs(1)).await;
            }
            if let Some(failure) = model.failure() {
                return Err(failure);
            }
            if !is_done {
                return Err(format!("{name} stays as it is: {last}"));
            }
        }
    }
    Ok(())
}

async fn checked(client: &Client, target: &Target, one: &TakenOne, model: &Model) -> Result<(), String> {
    let found = match read(client, target, one).await {
        Ok(found) => found,
        Err(error) if error.kind() == Kind::NotFound => {
            lacks(model, target, one, &error);
            return Ok(());
        }
        Err(error) => return Err(error.to_string()),
    };
    model.judge_past(one.id, target.number, &found, "the administrator");
    let report = client.check(&inside(target, one), |_| {}).await.map_err(|error| error.to_string())?;
    if report.is_clean() {
        return Ok(());
    }
    Err(format!("it is not whole: {:?} {:?}", report.findings, report.unchecked))
}

/// Checks that the manager's state agrees with itself.
fn check_state(state: &MemoryKv) -> Result<(), String> {
    let db = Db::new(Arc::new(state.clone()));
    match check::check(&db) {
        Ok(found) if found.is_empty() => Ok(()),
        Ok(found) => Err(format!("the manager's state does not agree with itself: {found:?}")),
        Err(refusal) => Err(refusal.to_string()),
    }
}

/// Removes all snapshots, and waits until nothing is left of them.
async fn remove_all(client: &Client, state: &MemoryKv, trace: &Trace) -> Result<(), String> {
    let mut last = String::new();
    for second in 0..TRIES {
        match client.snapshots(&Of::Volume.root()).await {
            Ok(rows) => {
                for row in rows {
                    let root: Name = row.place.parse().map_err(|error| format!("{}: {error}", row.place))?;
                    if let Err(error) = client.remove_snapshot(&root, &row.name).await {
                        last = error.to_string();
                    }
                }
            }
            Err(error) => last = error.to_string(),
        }
        let left = left(state)?;
        let removing = client.status().await.map_or(1, |status| status.removing);
        if left.is_empty() && removing == 0 {
            trace.event(format!("nothing is left of snapshots after {second} s"));
            return check_state(state);
        }
        last = format!("{last}; rows {left:?}, {removing} files to be freed");
        if last.len() > 1000 {
            last.clear();
        }
        sleep(Duration::from_secs(1)).await;
    }
    Err(format!("something is left of removed snapshots: {last}"))
}

/// Number of rows of each table that only snapshots have.
fn left(state: &MemoryKv) -> Result<BTreeMap<char, usize>, String> {
    let tables = [
        table::SNAPSHOT,
        table::SNAPSHOT_NAME,
        table::PAST_INODE,
        table::PAST_BYTES,
        table::PAST_ENTRY,
        table::KEPT_FOR,
        table::FREEZING,
    ];
    let db = Db::new(Arc::new(state.clone()));
    db.read(|tx| {
        let mut left = BTreeMap::new();
        for of in tables {
            let count = tx.scan_all(&key::all(of))?.len();
            if count > 0 {
                left.insert(char::from(of), count);
            }
        }
        Ok(left)
    })
    .map_err(|refusal: braid_wire::Refusal| refusal.to_string())
}
