//! Several threads fill a file system until the store refuses, empty it and fill it again. Then another user
//! of the file system takes the rest of it under load, so that the file system itself refuses. Every
//! acknowledged byte is compared. `tests/store-full.sh` runs it on small ext4 and xfs file systems.
//!
//!     cargo run --release -p braid-lab --example fill_disk -- DIR
//!
//! `DIR` is on a separate file system of a few hundred megabytes. Exit 0 only if nothing was lost, nothing
//! hung and the space was freed.

mod shared;

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_layout::{
    ClientId, ClusterId, Column, ColumnMask, DriveId, Generation, Lease, ObjectId, OperationNumber,
    PartitionId, Version,
};
use braid_store::Attributes;
use braid_store::Body;
use braid_store::Error;
use braid_store::Identity;
use braid_store::Mutation;
use braid_store::Options;
use braid_store::Standing;
use braid_store::Store;
use braid_store::Want;
use braid_store::Write;
use braid_store::WriteKind;
use braid_store::block_crcs;
use braid_store::disk::Directory;
use braid_store::format::checkpoint::Appended;
use shared::{ALL, At, Other, Shared};

const PARTITION: PartitionId = PartitionId(1);
const THREADS: u64 = 4;
const UNIT: u32 = 128 << 10;
/// Bytes of an overwrite.
const PART: u32 = 16 << 10;
/// Units of an object.
const UNITS: u64 = 16;
/// A thread has filled the disk after this many refusals.
const REFUSALS: u64 = 20;
/// Number of times that the space is taken before each kind of work. Sometimes there is still space in blocks
/// that the file has.
const TAKEN: u64 = 20;
/// Number of refusals that each thread waits for while the space is gone.
const SQUEEZED: u64 = 5;
/// The most live bytes when the space is taken.
const LIVE_MAX: u64 = 100 << 20;
/// Nothing may take longer than this.
const PATIENCE: Duration = Duration::from_secs(900);

type Outcome<T> = Result<T, Box<dyn StdError + Send + Sync>>;

/// State of one thread: the seeds of the parts of the units that it wrote.
#[derive(Default)]
struct Worker {
    thread: u64,
    random: u64,
    n: u64,
    parts: BTreeMap<(u64, u64), Vec<u64>>,
    objects: u64,
    refused: u64,
}

fn main() -> Outcome<()> {
    let Some(dir) = std::env::args().nth(1) else { return Err("usage: fill_disk DIR".into()) };
    std::thread::spawn(|| {
        std::thread::sleep(PATIENCE);
        eprintln!("nothing has come of it in {PATIENCE:?}: it hangs");
        std::process::exit(3);
    });
    let other = Arc::new(Other::new(Path::new(&dir).join("other")));
    let dir = Path::new(&dir).join("store");
    Store::format(&dir, Identity { cluster: ClusterId(1), drive: DriveId(1) }, &Options::default())?;
    let open = || open(&dir, &other);
    let store = open()?;
    let create = Mutation::PartitionCreate { partition: PARTITION, quota_bytes: None, key_epoch: 1 };
    store.commit(create)?;
    let empty = free(&store)?;
    let mut workers: Vec<Worker> =
        (0..THREADS).map(|thread| Worker { thread, random: thread + 1, ..Worker::default() }).collect();

    let first = fill(&store, &mut workers, "filled")?;
    overwrite_full(&store, &mut workers)?;
    let store = reopen(store, open)?;
    check(&store, &workers)?;
    empty_out(&store, &mut workers, empty)?;
    let second = fill(&store, &mut workers, "filled again")?;
    if second < first / 10 * 9 {
        return Err(format!("only {second} bytes fit the second time, {first} did the first time").into());
    }
    let store = reopen(store, open)?;
    check(&store, &workers)?;
    empty_out(&store, &mut workers, empty)?;
    squeeze(&store, &mut workers, &other)?;
    let store = reopen(store, open)?;
    check(&store, &workers)?;
    empty_out(&store, &mut workers, empty)?;
    store.close()?;
    Ok(())
}

fn open(dir: &Path, other: &Arc<Other>) -> Outcome<Store> {
    let disk = Shared { inner: Directory::lock(dir)?, other: Arc::clone(other) };
    let (store, recovery) = Store::open_on(Arc::new(disk), None, Options::default())?;
    if recovery.damaged_count > 0 {
        return Err(format!("damage: {:?}", recovery.damaged).into());
    }
    Ok(store)
}

fn reopen(store: Store, open: impl Fn() -> Outcome<Store>) -> Outcome<Store> {
    store.close()?;
    drop(store);
    open()
}

fn free(store: &Store) -> Outcome<u64> {
    let stat = store.stat()?;
    Ok(stat.capacity - stat.used)
}

/// Run `act` in all workers in parallel, repeatedly until it returns true.
fn together(
    store: &Store,
    workers: &mut [Worker],
    act: impl Fn(&mut Worker, &Store) -> Outcome<bool> + Sync,
) -> Outcome<()> {
    std::thread::scope(|scope| {
        let running: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let act = &act;
                scope.spawn(move || {
                    while !act(worker, store)? {}
                    Ok(())
                })
            })
            .collect();
        running.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })
}

/// Write until each thread was refused often; returns the live bytes.
fn fill(store: &Store, workers: &mut [Worker], what: &str) -> Outcome<u64> {
    let began = Instant::now();
    together(store, workers, |worker, store| {
        // Mostly new units, some overwrites.
        if worker.below(4) == 0 && !worker.parts.is_empty() {
            worker.overwrite(store)?;
        } else {
            worker.write_unit(store)?;
        }
        Ok(worker.refused >= REFUSALS)
    })?;
    report(store, what, began)?;
    check(store, workers)?;
    workers.iter_mut().for_each(|worker| worker.refused = 0);
    Ok(store.stat()?.live)
}

/// Remove a twentieth, then overwrite everything about once, at random. No write may be refused.
fn overwrite_full(store: &Store, workers: &mut [Worker]) -> Outcome<()> {
    let full = store.stat()?.live;
    together(store, workers, |worker, store| {
        worker.remove_unit_object(store)?;
        Ok(store.stat()?.live <= full / 20 * 19)
    })?;
    let began = Instant::now();
    let written = AtomicU64::new(0);
    together(store, workers, |worker, store| {
        if !worker.overwrite(store)? {
            return Err("an overwrite was refused although 95 % are live".into());
        }
        Ok(written.fetch_add(u64::from(PART), Ordering::Relaxed) > full)
    })?;
    report(store, "overwritten at 95 %", began)?;
    check(store, workers)
}

/// Another user takes all space just before the store writes a commit, makes a segment, writes a checkpoint
/// or syncs, and later frees it. This may cause refusals only, and the store must continue when there is
/// space.
fn squeeze(store: &Store, workers: &mut [Worker], other: &Other) -> Outcome<()> {
    let began = Instant::now();
    let mut refused = 0;
    for (at, _) in (0..TAKEN).flat_map(|_| ALL) {
        other.take_before(at);
        let asked = AtomicU64::new(0);
        together(store, workers, |worker, store| {
            worker.write_unit(store)?;
            if at == At::Checkpoint && asked.fetch_add(1, Ordering::Relaxed) == 0 {
                // This checkpoint cannot be written; the next can.
                let _ = store.checkpoint();
            }
            Ok(worker.refused >= SQUEEZED || asked.load(Ordering::Relaxed) > 0)
        })?;
        check(store, workers)?;
        other.give_back()?;
        refused += workers.iter_mut().map(|worker| std::mem::take(&mut worker.refused)).sum::<u64>();
        store.checkpoint()?;
        // Some more for the next round, and space for it.
        together(store, workers, |worker, store| {
            if store.stat()?.live > LIVE_MAX {
                worker.remove_unit_object(store)?;
            }
            (0..4).try_for_each(|_| worker.write_unit(store))?;
            Ok(true)
        })?;
        if workers.iter().any(|worker| worker.refused > 0) {
            return Err("a write was refused although there is space again".into());
        }
    }
    report(store, "squeezed", began)?;
    let met: Vec<(&str, u64)> = ALL.iter().map(|&(at, name)| (name, other.refused(at))).collect();
    let said: Vec<String> = met.iter().map(|(name, count)| format!("{name} {count} times")).collect();
    println!("the file system had no space when {}; {refused} writes were refused", said.join(", "));
    if [At::Write, At::Segment, At::Checkpoint].into_iter().any(|at| other.refused(at) == 0) || refused == 0 {
        return Err("the file system's end was not met in each kind of work".into());
    }
    check(store, workers)
}

/// Remove everything, and check that the space is freed.
fn empty_out(store: &Store, workers: &mut [Worker], empty: u64) -> Outcome<()> {
    let began = Instant::now();
    together(store, workers, |worker, store| {
        worker.remove_unit_object(store)?;
        Ok(worker.objects_left().is_empty())
    })?;
    store.clean()?;
    let now = free(store)?;
    report(store, "emptied", began)?;
    if now < empty / 10 * 9 {
        return Err(format!("{now} bytes are free, of {empty} at the begin").into());
    }
    Ok(())
}

fn report(store: &Store, what: &str, began: Instant) -> Outcome<()> {
    let stat = store.stat()?;
    println!(
        "{what}: {} of {} MiB used, {} live, {} segments, written {:.2} times, {:.1} s",
        stat.used >> 20,
        stat.capacity >> 20,
        stat.live >> 20,
        stat.segments,
        Appended { written: stat.written, moved: stat.moved }.amplification().unwrap_or(1.0),
        began.elapsed().as_secs_f64(),
    );
    Ok(())
}

fn check(store: &Store, workers: &[Worker]) -> Outcome<()> {
    workers.iter().try_for_each(|worker| worker.check(store))
}

impl Worker {
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 29)) % bound
    }

    fn pick(&mut self) -> Option<(u64, u64)> {
        let at = self.below(u64::try_from(self.parts.len()).ok()?.max(1));
        self.parts.keys().nth(usize::try_from(at).ok()?).copied()
    }

    fn objects_left(&self) -> Vec<u64> {
        let mut objects: Vec<u64> = self.parts.keys().map(|&(object, _)| object).collect();
        objects.dedup();
        objects
    }

    /// Write a new unit, sometimes in a new object.
    fn write_unit(&mut self, store: &Store) -> Outcome<()> {
        let unit = self.n % UNITS;
        if unit == 0 || self.objects == 0 {
            self.objects += 1;
        }
        let object = self.thread << 32 | self.objects;
        let parts = usize::try_from(UNIT / PART)?;
        match self.write(store, object, unit, 0, UNIT) {
            Ok(seed) => {
                let seeds = (0..u64::try_from(parts)?).map(|part| seed + part).collect();
                self.parts.insert((object, unit), seeds);
            }
            Err(error) => self.refuse(error)?,
        }
        Ok(())
    }

    /// Overwrite one part of a unit; returns whether there was space.
    fn overwrite(&mut self, store: &Store) -> Outcome<bool> {
        let Some((object, unit)) = self.pick() else { return Err("there is nothing to overwrite".into()) };
        let part = u32::try_from(self.below(u64::from(UNIT / PART)))?;
        match self.write(store, object, unit, part * PART, (part + 1) * PART) {
            Ok(seed) => {
                let seeds = self.parts.get_mut(&(object, unit)).ok_or("a unit")?;
                seeds[usize::try_from(part)?] = seed;
                Ok(true)
            }
            Err(error) => {
                self.refuse(error)?;
                Ok(false)
            }
        }
    }

    fn refuse(&mut self, error: Error) -> Outcome<()> {
        self.refused += 1;
        if matches!(error, Error::Full { .. }) { Ok(()) } else { Err(error.into()) }
    }

    /// Write parts of a unit; returns the first one's seed.
    fn write(&mut self, store: &Store, object: u64, unit: u64, from: u32, to: u32) -> Result<u64, Error> {
        self.n += 1;
        let seed = self.n * 64;
        let mut bytes = Vec::new();
        for part in 0..u64::from((to - from) / PART) {
            bytes.extend(pattern(self.thread, seed + part));
        }
        store.commit(Mutation::Create {
            partition: PARTITION,
            object: ObjectId(object),
            attributes: attributes(),
        })?;
        let stamp = Version {
            g: Generation(1),
            lease: Lease(u32::try_from(self.thread).unwrap_or(0) + 1),
            n: self.n,
        };
        store.commit(Mutation::Write(Write {
            partition: PARTITION,
            object: ObjectId(object),
            unit,
            from,
            to,
            kind: WriteKind::Data,
            standing: Standing::Pending,
            stamp,
            columns: ColumnMask::all(3),
            cover: Vec::new(),
            ends: Vec::new(),
            client: ClientId(1),
            operation: OperationNumber(self.n),
            g: Generation(1),
            settled_below: stamp,
            body: Body::Bytes { crcs: block_crcs(from, &bytes), payload: bytes.into() },
        }))?;
        Ok(seed)
    }

    /// Remove one object with all its units, if there is one.
    fn remove_unit_object(&mut self, store: &Store) -> Outcome<()> {
        let Some((object, _)) = self.pick() else { return Ok(()) };
        let object_id = ObjectId(object);
        let g = Generation(1);
        store.commit(Mutation::Remove { partition: PARTITION, object: object_id, g })?;
        self.parts.retain(|&(of, _), _| of != object);
        Ok(())
    }

    /// Compare everything that was acknowledged.
    fn check(&self, store: &Store) -> Outcome<()> {
        for (&(object, unit), seeds) in &self.parts {
            let view = store.read(PARTITION, ObjectId(object), unit, 0..UNIT, Want::Newest)?;
            let mut bytes = vec![0; usize::try_from(view.stored_bytes())?];
            view.read_exact_into(&mut bytes)?;
            let expected: Vec<u8> = seeds.iter().flat_map(|&seed| pattern(self.thread, seed)).collect();
            if bytes != expected {
                return Err(
                    format!("object {object}, unit {unit}: other bytes than were acknowledged").into()
                );
            }
        }
        Ok(())
    }
}

fn attributes() -> Attributes {
    Attributes {
        unit_bytes: UNIT,
        column: Column(0),
        g: Generation(1),
        set: ColumnMask::all(3),
        created_ms: 1,
        modified_ms: 1,
        ..Attributes::default()
    }
}

/// Bytes that identify their source.
fn pattern(thread: u64, seed: u64) -> Vec<u8> {
    let mut state = (seed << 8 | thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..PART / 8).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.collect()
}
