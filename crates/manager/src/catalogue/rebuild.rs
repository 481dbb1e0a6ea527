//! Makes a manager's state of what drives hold, for a cluster whose manager is lost.
//!
//! The drives' copies of the catalogue are read and compared; what is believed is replayed into a new store;
//! keys are the drives' own, and the cluster's secrets are new. The state is marked as one to be compared: so
//! the manager that starts on it compares every file with what the drives hold, and gives a name in
//! `lost+found` to those that have none ([`crate::restore`]).
//!
//! Nothing at the drives is changed. The state appears under its name when all of it is there.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_layout::{ClusterId, DriveId, FileId, ObjectId};
pub use braid_meta::catalogue::compose::Known;
use braid_meta::catalogue::compose::{self, Apart, Names};
use braid_meta::catalogue::frame::{self, FrameError};
pub use braid_meta::catalogue::frame::{Age, PARTITION};
use braid_meta::catalogue::judge::{Fault, Seen, Trust, Undecided, Verdict, Word, judge};
use braid_meta::catalogue::rows::carried;
use braid_meta::records::check::check;
use braid_meta::records::db::Db;
use braid_meta::records::kv::{Batch, Kv, KvError};
use braid_meta::records::schema::{DriveRecord, ReservationRecord, key, table};
use braid_meta::tree::volumes;
use braid_wire::Refusal;
use braid_wire::capability::Key;

use crate::disk::directory::{LOCK_FILE, ManagerError, STATE_FILE, lock};
use crate::disk::embedded::EmbeddedKv;
use crate::restore::terms::random;

/// Name of the state until it is whole.
const FRESH: &str = "manager.redb.new";
/// Directory that the root of a new file system contains.
const LOST_AND_FOUND: &str = "lost+found";
/// Number of rows of one commit, and of files whose rows are made in one transaction.
const ROWS_PER_COMMIT: usize = 4096;
/// Terms, counts of changes, times in milliseconds, and instances are below this.
const NUMBER_MAX: u64 = 1 << 62;
/// Maximum number of faults of the state that are named.
const VIOLATIONS_MAX: usize = 20;

/// A component that a drive holds, of this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Component {
    pub file: FileId,
}

/// One drive's testimony.
pub trait Witness {
    fn cluster(&self) -> ClusterId;
    fn known(&self) -> &Known;
    /// The streams of the catalogue that the drive has.
    fn streams(&self) -> Result<Vec<ObjectId>, String>;
    /// Number of frames of a stream, up to the last that is there. Some may be missing.
    fn frames(&self, stream: ObjectId) -> Result<u64, String>;
    /// A frame of a stream, which may be followed by zeros; `None`: there is none of this number.
    fn frame(&self, stream: ObjectId, number: u64) -> Result<Option<Vec<u8>>, String>;
    /// Calls for each component of a file that the drive holds.
    fn components(&self, each: &mut dyn FnMut(Component)) -> Result<(), String>;
}

/// Reason for which no state is made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RebuildError {
    #[error("no drive is given: name the directory of each with --from-drives")]
    NoDrives,
    #[error(
        "the drives are of different clusters: {one} of {of_one}, and {other} of {of_other}. Give those of one only"
    )]
    TwoClusters { one: String, of_one: ClusterId, other: String, of_other: ClusterId },
    #[error("{0} is given twice, or is a copy of another: give each drive once")]
    Twice(String),
    #[error("{drive} cannot be read: {why}")]
    Unreadable { drive: String, why: String },
    #[error(
        "none of these drives has a whole catalogue of names ({heard} were read). Give more of the cluster's drives; with \
         --without-names the files come back without their names, in lost+found"
    )]
    NoNames { heard: usize },
    #[error(
        "the drives contradict each other from frame {frame} of stream {stream} on: {one} say one thing, and {other} \
         another, and there are as many of each. Give more drives, or name the one to believe: --believe NAME"
    )]
    Split { stream: ObjectId, frame: u64, one: String, other: String },
    #[error(
        "{drive} alone says what is {ahead} s newer than all that {others} agree on: they may be old copies, or it may lie. Name \
         the one to believe with --believe NAME, or take what two agree on with --agreed"
    )]
    Alone { drive: String, ahead: u64, others: String },
    #[error("no drive is named {name:?}; there are {known}")]
    NoSuchDrive { name: String, known: String },
    #[error("what the drives say is no state of a manager: {0}. If one of them may lie, leave it out")]
    NoState(String),
    #[error("{dir} holds {holds:?}: give a directory that is empty or does not exist")]
    NotEmpty { dir: PathBuf, holds: String },
    #[error(transparent)]
    Manager(#[from] ManagerError),
}

impl From<KvError> for RebuildError {
    fn from(error: KvError) -> RebuildError {
        RebuildError::NoState(error.to_string())
    }
}

impl From<Refusal> for RebuildError {
    fn from(refusal: Refusal) -> RebuildError {
        RebuildError::NoState(refusal.detail)
    }
}

/// Choices of the operator.
#[derive(Debug, Clone, Default)]
pub struct How {
    /// Name of the drive to believe alone.
    pub believe: Option<String>,
    /// Leave out what only one drive says.
    pub agreed_only: bool,
    /// Make a state without names, if no drive has a catalogue.
    pub without_names: bool,
    /// Keep the state; else it is made only to be counted.
    pub keep: bool,
}

/// Findings of a rebuild, and the contents of the state.
#[derive(Debug, Clone)]
pub struct Rebuilt {
    pub cluster: ClusterId,
    /// The words that are believed; `None`: there are no names.
    pub verdict: Option<Verdict>,
    pub names: Names,
    /// Files that have components on these drives and a name.
    pub found: u64,
    /// Files with components on these drives that no name leads to.
    pub nameless: u64,
    /// Names of all drives that are known, by identity.
    pub drives: BTreeMap<DriveId, String>,
    /// Drives that do not come back as they were.
    pub apart: Apart,
    /// Contradictions within the state, for people.
    pub violations: Vec<String>,
}

/// Makes the state in the directory, which must be empty. `progress` is called with the number of rows so
/// far.
pub fn rebuild(
    witnesses: &[&dyn Witness],
    dir: &Path,
    how: &How,
    progress: &mut dyn FnMut(u64),
) -> Result<Rebuilt, RebuildError> {
    let cluster = one_cluster(witnesses)?;
    let trust = Trust { believe: believed(witnesses, how)?, agreed_only: how.agreed_only };
    let words = words(witnesses, cluster)?;
    let verdict = decide(witnesses, &words, &trust, how)?;
    let was_there = dir.exists();
    refuse_used(dir)?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ManagerError::File { path, source }
    };
    crate::disk::private::make_dir_all(dir).map_err(failed(dir))?;
    let held = lock(dir)?;
    let fresh = dir.join(FRESH);
    let made = make(witnesses, cluster, verdict, &words, &fresh, progress);
    let finish = || -> std::io::Result<()> {
        File::open(&fresh)?.sync_all()?;
        fs::rename(&fresh, dir.join(STATE_FILE))?;
        File::open(dir)?.sync_all()
    };
    match (&made, how.keep) {
        (Ok(_), true) => finish().map_err(failed(&fresh))?,
        _ => {
            let _ = fs::remove_file(&fresh);
            let _ = fs::remove_file(dir.join(LOCK_FILE));
            if !was_there {
                let _ = fs::remove_dir(dir);
            }
        }
    }
    drop(held);
    made
}

fn one_cluster(witnesses: &[&dyn Witness]) -> Result<ClusterId, RebuildError> {
    let first = witnesses.first().ok_or(RebuildError::NoDrives)?;
    let mut drives = BTreeSet::new();
    for witness in witnesses {
        if witness.cluster() != first.cluster() {
            return Err(RebuildError::TwoClusters {
                one: first.known().name.clone(),
                of_one: first.cluster(),
                other: witness.known().name.clone(),
                of_other: witness.cluster(),
            });
        }
        if !drives.insert(witness.known().drive) {
            return Err(RebuildError::Twice(witness.known().name.clone()));
        }
    }
    Ok(first.cluster())
}

fn believed(witnesses: &[&dyn Witness], how: &How) -> Result<Option<DriveId>, RebuildError> {
    let Some(name) = &how.believe else { return Ok(None) };
    let found = witnesses.iter().find(|witness| witness.known().name == *name);
    let known = || join(witnesses.iter().map(|witness| witness.known().name.clone()));
    let found = found.ok_or_else(|| RebuildError::NoSuchDrive { name: name.clone(), known: known() })?;
    Ok(Some(found.known().drive))
}

/// Reads all streams of all drives.
fn words(witnesses: &[&dyn Witness], cluster: ClusterId) -> Result<Vec<Word>, RebuildError> {
    let mut words = Vec::new();
    for witness in witnesses {
        let drive = witness.known().drive;
        let unreadable = |why| RebuildError::Unreadable { drive: witness.known().name.clone(), why };
        for stream in witness.streams().map_err(unreadable)? {
            words.push(word(*witness, cluster, drive, stream));
        }
    }
    Ok(words)
}

fn word(witness: &dyn Witness, cluster: ClusterId, drive: DriveId, stream: ObjectId) -> Word {
    let mut frames: Vec<Seen> = Vec::new();
    let mut before = frame::Digest::default();
    let broken = loop {
        let number = u64::try_from(frames.len()).unwrap_or(u64::MAX);
        let bytes = match witness.frame(stream, number) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => break missing(witness, stream, number),
            Err(why) => break Some(why),
        };
        let (head, digest) = match frame::check(&bytes) {
            Ok(found) => found,
            Err(FrameError::Empty) => break missing(witness, stream, number),
            Err(error) => break Some(error.to_string()),
        };
        let is_next = head.cluster == cluster
            && head.stream == stream
            && head.number == number
            && head.before == before;
        if !is_next {
            break Some("it does not follow the one before: it was put there from elsewhere".to_owned());
        }
        let frame::Head { age, time_ms, cut, whole, .. } = head;
        if frames.last().is_some_and(|last| age < last.age || time_ms < last.time_ms) {
            break Some("it says that it is older than the one before: no manager wrote it".to_owned());
        }
        frames.push(Seen { digest, age, time_ms, cut, whole });
        before = digest;
    };
    Word { drive, stream, frames, broken }
}

/// Reason for which a frame that is not there is missing; `None`: the stream ends before it.
fn missing(witness: &dyn Witness, stream: ObjectId, number: u64) -> Option<String> {
    match witness.frames(stream) {
        Ok(frames) if frames > number => Some("it is missing, and something was there".to_owned()),
        Ok(_) => None,
        Err(why) => Some(why),
    }
}

fn decide(
    witnesses: &[&dyn Witness],
    words: &[Word],
    trust: &Trust,
    how: &How,
) -> Result<Option<Verdict>, RebuildError> {
    let names = |drives: Vec<DriveId>| join(drives.into_iter().map(|drive| name_of(witnesses, drive)));
    match judge(words, trust) {
        Ok(verdict) => Ok(Some(verdict)),
        Err(Undecided::Nothing) if how.without_names => Ok(None),
        Err(Undecided::Nothing) => Err(RebuildError::NoNames { heard: witnesses.len() }),
        Err(Undecided::Split { stream, frame, one, other }) => {
            Err(RebuildError::Split { stream, frame, one: names(one), other: names(other) })
        }
        Err(Undecided::Alone { drive, ahead_ms, others }) => {
            let drive = name_of(witnesses, drive);
            Err(RebuildError::Alone { drive, ahead: ahead_ms.div_ceil(1000), others: names(others) })
        }
    }
}

fn name_of(witnesses: &[&dyn Witness], drive: DriveId) -> String {
    let found = witnesses.iter().find(|witness| witness.known().drive == drive);
    found.map_or_else(|| drive.to_string(), |witness| witness.known().name.clone())
}

fn join(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// A directory that holds anything is not for a new state.
fn refuse_used(dir: &Path) -> Result<(), RebuildError> {
    let failed = |source| ManagerError::File { path: dir.to_owned(), source };
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(failed)?,
    };
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        if name != LOCK_FILE && name != LOST_AND_FOUND && name != FRESH {
            let holds = name.to_string_lossy().into_owned();
            return Err(RebuildError::NotEmpty { dir: dir.to_owned(), holds });
        }
    }
    Ok(())
}

/// Makes the state in a file, and counts it.
fn make(
    witnesses: &[&dyn Witness],
    cluster: ClusterId,
    verdict: Option<Verdict>,
    words: &[Word],
    fresh: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<Rebuilt, RebuildError> {
    match fs::remove_file(fresh) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            return Err(ManagerError::File { path: fresh.to_owned(), source }.into());
        }
        _ => {}
    }
    let kv: Arc<dyn Kv> = Arc::new(EmbeddedKv::open(fresh)?);
    if let Some(verdict) = &verdict {
        replay(witnesses, verdict, words, kv.as_ref(), progress)?;
    }
    let db = Db::new(kv);
    let known: Vec<Known> = witnesses.iter().map(|witness| witness.known().clone()).collect();
    let now_ms = verdict.as_ref().map_or(0, |verdict| verdict.time_ms);
    let age = verdict.as_ref().map_or(Age::default(), |verdict| verdict.age);
    for known in &known {
        let numbers = [known.seen.term, known.seen.changes, known.instance];
        refuse_large(&known.name, numbers)?;
    }
    if let Some(verdict) = &verdict {
        let numbers = [verdict.age.term, verdict.age.changes, verdict.time_ms];
        refuse_large(&name_of(witnesses, verdict.drive), numbers)?;
        let term = db.read(|tx| Ok([tx.number("term")?, tx.number("restored_term")?]))?;
        let records = db.read(|tx| Ok(tx.records::<DriveRecord>(&key::all(table::DRIVE), usize::MAX)?))?;
        let instances = records.iter().flat_map(|(_, record)| [record.instance, record.stored]);
        refuse_large(&name_of(witnesses, verdict.drive), term.into_iter().chain(instances))?;
    }
    let seen = Age {
        term: known.iter().map(|known| known.seen.term).fold(age.term, u64::max),
        changes: known.iter().map(|known| known.seen.changes).fold(age.changes, u64::max),
    };
    let apart = db.write(move |tx| {
        let new_key = || Key::new(random());
        compose::cluster(tx, cluster, new_key(), new_key(), now_ms)?;
        compose::mark(tx, seen, now_ms)?;
        // What was promised ended with the manager that knew who kept it.
        for (row, _) in tx.records::<ReservationRecord>(&key::all(table::RESERVATION), usize::MAX)? {
            tx.delete(row);
        }
        Ok(compose::drives(tx, &known, new_key, now_ms)?)
    })?;
    let mut after = None;
    loop {
        after = db.write(move |tx| compose::follow(tx, after, ROWS_PER_COMMIT))?;
        if after.is_none() {
            break;
        }
    }
    db.write(|tx| Ok(compose::count_stale(tx)?))?;
    let violations = check(&db)?;
    let violations = violations.iter().take(VIOLATIONS_MAX).map(|found| format!("{found:?}")).collect();
    let names = db.read(|tx| {
        volumes::all(tx)?;
        Ok(compose::names(tx)?)
    })?;
    let (found, nameless) = components(witnesses, &db)?;
    let drives = db.read(|tx| {
        let all = tx.records::<DriveRecord>(&key::all(table::DRIVE), usize::MAX)?;
        Ok(all.into_iter().map(|(_, record)| (record.drive, record.name)).collect())
    })?;
    Ok(Rebuilt { cluster, verdict, names, found, nameless, drives, apart, violations })
}

/// Replays the frames that are believed.
fn replay(
    witnesses: &[&dyn Witness],
    verdict: &Verdict,
    words: &[Word],
    kv: &dyn Kv,
    progress: &mut dyn FnMut(u64),
) -> Result<(), RebuildError> {
    let Verdict { stream, drive, .. } = *verdict;
    let witness = witnesses.iter().find(|witness| witness.known().drive == drive);
    let witness = witness.ok_or(RebuildError::NoDrives)?;
    let unreadable = |why| RebuildError::Unreadable { drive: name_of(witnesses, drive), why };
    let word = words.iter().find(|word| word.drive == drive && word.stream == stream);
    let seen = word.map_or(&[][..], |word| &word.frames);
    let mut batch = Batch::new();
    let mut rows = 0u64;
    for (number, seen) in (0..verdict.frames).zip(seen) {
        let bytes = witness.frame(stream, number).map_err(unreadable)?;
        let gone = || unreadable(format!("frame {number} of stream {stream} is not there any more"));
        let read = frame::decode(&bytes.ok_or_else(gone)?);
        let read = read.map_err(|error| unreadable(format!("frame {number} of stream {stream}: {error}")))?;
        let (_, some, digest) = read;
        if digest != seen.digest {
            return Err(unreadable(format!("frame {number} of stream {stream} has just changed")));
        }
        rows += u64::try_from(some.len()).unwrap_or(u64::MAX);
        // A row that is not carried is none of a manager's.
        let form = |(row, value): frame::Row| carried(&row, value.as_deref()).map(|form| (row, form));
        batch.extend(some.into_iter().filter_map(form));
        if batch.len() >= ROWS_PER_COMMIT {
            kv.commit(&std::mem::take(&mut batch))?;
        }
        progress(rows);
    }
    Ok(kv.commit(&batch)?)
}

/// Refuses a drive's numbers that no manager gave: the next ones could not be told from those before.
fn refuse_large(drive: &str, numbers: impl IntoIterator<Item = u64>) -> Result<(), RebuildError> {
    match numbers.into_iter().find(|number| *number >= NUMBER_MAX) {
        None => Ok(()),
        Some(number) => Err(RebuildError::NoState(format!(
            "{drive} says {number} for a term, a count, a time or an instance"
        ))),
    }
}

/// Counts the files that drives hold: those with a record, and those without.
fn components(witnesses: &[&dyn Witness], db: &Db) -> Result<(u64, u64), RebuildError> {
    let mut known = HashSet::new();
    let mut after = None;
    loop {
        let some = db.read(|tx| Ok(tx.inodes(after, ROWS_PER_COMMIT)?))?;
        let Some((last, _)) = some.last() else { break };
        after = Some(*last);
        known.extend(some.iter().map(|(file, _)| *file));
    }
    let removed: HashSet<FileId> = db.read(|tx| {
        let rows = tx.scan_all(&key::all(table::REMOVAL))?;
        Ok(rows.iter().map(|(row, _)| FileId(key::number(row, 1))).collect())
    })?;
    let mut found = HashSet::new();
    let mut nameless = HashSet::new();
    for witness in witnesses {
        let unreadable = |why| RebuildError::Unreadable { drive: witness.known().name.clone(), why };
        let mut each = |component: Component| {
            if known.contains(&component.file) {
                found.insert(component.file);
            } else if !removed.contains(&component.file) && component.file != FileId(0) {
                nameless.insert(component.file);
            }
        };
        witness.components(&mut each).map_err(unreadable)?;
    }
    let count = |files: HashSet<FileId>| u64::try_from(files.len()).unwrap_or(u64::MAX);
    Ok((count(found), count(nameless)))
}

/// A fault of a drive's word, for people.
pub fn describe(fault: &Fault) -> String {
    match fault {
        Fault::Altered { frame } => format!(
            "says something else than the others from frame {frame} on: it lies, or was altered; it is not believed"
        ),
        Fault::Damaged { frame, why } => {
            format!("frame {frame} is none, and nothing after it counts: {why}")
        }
        Fault::Stale { behind_ms } => {
            format!("is {} s behind: it was away, or is an old copy", behind_ms.div_ceil(1000))
        }
        Fault::Alone { ahead_ms } => {
            format!(
                "says what is {} s newer and nobody else knows: that is left out",
                ahead_ms.div_ceil(1000)
            )
        }
    }
}

#[cfg(test)]
mod tests;
