//! The store under measurement, used as a drive uses it.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};

use braid_layout::{
    ClientId, ClusterId, Column, ColumnMask, DriveId, Generation, Lease, ObjectId, OperationNumber,
    PartitionId, Version,
};
use braid_store::Attributes;
use braid_store::Body;
use braid_store::Error as StoreError;
use braid_store::Identity;
use braid_store::Mutation;
use braid_store::MutationOutcome;
use braid_store::Options;
use braid_store::Standing;
use braid_store::Stat;
use braid_store::Store;
use braid_store::View;
use braid_store::Want;
use braid_store::Write;
use braid_store::WriteKind;
use braid_store::block_crcs;
use bytes::Bytes;

use crate::error::{Doing, Error};
use crate::load_threads::{Random, Work};
use crate::measure::{Limit, Meter, Sample};
use crate::raw::{forget, settle};

const PARTITION: PartitionId = PartitionId(1);
/// Unit size of the object that a used store held.
const USED_UNIT_BYTES: u32 = 1 << 20;
const G: Generation = Generation(1);
const IDENTITY: Identity = Identity { cluster: ClusterId(0xb), drive: DriveId(0xd) };

/// The bytes of a request with the checksums that the client sends along, made before the sample begins.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    pub(crate) bytes: Bytes,
    pub(crate) crcs: Vec<u32>,
}

impl Payload {
    pub(crate) fn new(bytes: Bytes) -> Payload {
        let crcs = block_crcs(0, &bytes);
        Payload { bytes, crcs }
    }
}

/// An object of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Object {
    id: ObjectId,
    /// Bytes of one of the object's units.
    pub(crate) unit_bytes: u32,
}

/// The position of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) unit: u64,
    pub(crate) from: u32,
}

/// A store in a directory of its own; both are removed on drop.
pub(crate) struct Subject {
    dir: PathBuf,
    store: Store,
    /// Number of the last stamp; `objects` is the number of the last object.
    stamps: u64,
    objects: u64,
}

impl Subject {
    /// Makes a new store in `dir/name`, as a drive opens it.
    pub(crate) fn make(dir: &Path, name: &str) -> Result<Subject, Error> {
        Subject::with(dir, name, Options::default())
    }

    /// Makes a new store in `dir/name` with these options.
    pub(crate) fn with(dir: &Path, name: &str, options: Options) -> Result<Subject, Error> {
        let dir = dir.join(name);
        Store::format(&dir, IDENTITY, &options).doing("format")?;
        let (store, _) = Store::open(&dir, Some(IDENTITY), options).doing("open")?;
        let subject = Subject { dir, store, stamps: 0, objects: 0 };
        let partition = Mutation::PartitionCreate { partition: PARTITION, quota_bytes: None, key_epoch: 1 };
        subject.store.commit(partition).doing("make a partition")?;
        Ok(subject)
    }

    /// Makes a store that has been in use: five quarters of `bytes` were written and removed, then three
    /// eighths, and their segments are free for reuse. The second filling goes from a new segment to a
    /// reused one. Segments vary a little in length, so where `bytes` is two of them, the filling does not
    /// end near the end of a segment.
    pub(crate) fn used(dir: &Path, bytes: u64, stop: &AtomicBool) -> Result<Subject, Error> {
        let mut subject = Subject::make(dir, "store")?;
        let payload = [Payload::new(Bytes::from(Random::new(bytes).bytes(USED_UNIT_BYTES)))];
        for bytes in [bytes / 4 * 5, bytes / 8 * 3] {
            let object = subject.filled(&payload, bytes / u64::from(USED_UNIT_BYTES), 16, stop)?;
            let remove = Mutation::Remove { partition: PARTITION, object: object.id, g: G };
            subject.store.commit(remove).doing("remove an object")?;
            // The store keeps two checkpoints, which keep their segments.
            subject.checkpoint()?;
            subject.checkpoint()?;
        }
        Ok(subject)
    }

    /// Makes a new object.
    pub(crate) fn object(&mut self, unit_bytes: u32) -> Result<Object, Error> {
        self.objects += 1;
        let id = ObjectId(self.objects);
        let attributes = Attributes {
            unit_bytes,
            column: Column(0),
            g: G,
            set: ColumnMask::all(1),
            ..Attributes::default()
        };
        let create = Mutation::Create { partition: PARTITION, object: id, attributes };
        self.store.commit(create).doing("make an object")?;
        Ok(Object { id, unit_bytes })
    }

    /// Makes a new object of `units` whole units.
    pub(crate) fn filled(
        &mut self,
        payloads: &[Payload],
        units: u64,
        depth: u32,
        stop: &AtomicBool,
    ) -> Result<Object, Error> {
        let unit_bytes =
            payloads.first().map_or(0, |payload| u32::try_from(payload.bytes.len()).unwrap_or(0));
        let object = self.object(unit_bytes)?;
        self.fill(object, payloads, 0..units, depth, stop)?;
        Ok(object)
    }

    /// Writes a range of whole units of an object.
    pub(crate) fn fill(
        &mut self,
        object: Object,
        payloads: &[Payload],
        mut units: Range<u64>,
        depth: u32,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let limit = Limit::operations(units.end - units.start);
        let place = || At { unit: units.next().unwrap_or(0), from: 0 };
        self.writes(object, payloads, depth, limit, stop, place).map(drop)
    }

    /// Writes with `depth` in flight, each durable when it is answered; `place` chooses the position of
    /// each.
    pub(crate) fn writes(
        &mut self,
        object: Object,
        payloads: &[Payload],
        depth: u32,
        limit: Limit,
        stop: &AtomicBool,
        mut place: impl FnMut() -> At,
    ) -> Result<Sample, Error> {
        let answers = Arc::new(Answers { came: Mutex::default(), asker: thread::current() });
        let request = payloads.first().map_or(0, |payload| u32::try_from(payload.bytes.len()).unwrap_or(0));
        let mut payloads = payloads.iter().cycle();
        let mut running = limit.begin(stop);
        let mut flying = 0;
        let mut done = 0;
        let meter = Meter::begin();
        loop {
            while flying < depth && running.next(1)? == 1 {
                let payload = payloads.next().expect("some payloads");
                let write = self.write(object, place(), payload, u64::from(flying));
                let answers = Arc::clone(&answers);
                let reply = Box::new(move |answer| answers.put(answer));
                self.store.submit(Mutation::Write(write), reply);
                flying += 1;
            }
            if flying == 0 {
                return Ok(meter.end(done, request));
            }
            for answer in answers.take() {
                answer.doing("write")?;
                (flying, done) = (flying - 1, done + 1);
            }
        }
    }

    /// A write with the next stamp. Its `settled_below` says that all stamps before it but `flying` are
    /// settled.
    fn write(&mut self, object: Object, at: At, payload: &Payload, flying: u64) -> Write {
        self.stamps += 1;
        let stamp = |n| Version { g: G, lease: Lease(1), n };
        let length = u32::try_from(payload.bytes.len()).expect("a request");
        Write {
            partition: PARTITION,
            object: object.id,
            unit: at.unit,
            from: at.from,
            to: at.from + length,
            kind: WriteKind::Data,
            standing: Standing::Pending,
            stamp: stamp(self.stamps),
            columns: ColumnMask::all(1),
            cover: Vec::new(),
            ends: Vec::new(),
            client: ClientId(1),
            operation: OperationNumber(self.stamps),
            g: G,
            settled_below: stamp(self.stamps - flying),
            body: Body::Bytes { payload: payload.bytes.clone(), crcs: payload.crcs.clone() },
        }
    }

    /// Reads at random multiples of the request's size, in the object's first `units` units.
    pub(crate) fn random_reads(
        &self,
        object: Object,
        units: u64,
        plan: Work,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<Sample, Error> {
        let slots = u64::from(object.unit_bytes / plan.request_bytes);
        let hire = |index| {
            let mut random = Random::new(seed * 1000 + u64::from(index));
            let mut buffer = vec![0; usize::try_from(plan.request_bytes).expect("memory")];
            move || {
                let slot = random.below(units * slots);
                let from = u32::try_from(slot % slots).expect("below a unit") * plan.request_bytes;
                self.read(object, slot / slots, from, &mut buffer)
            }
        };
        crate::load_threads::run(plan, stop, hire)
    }

    /// Measures one pass over whole units, starting at `first`.
    pub(crate) fn sequential_reads(
        &self,
        object: Object,
        first: u64,
        plan: Work,
        stop: &AtomicBool,
    ) -> Result<Sample, Error> {
        let hire = |_| {
            let mut buffer = vec![0; usize::try_from(plan.request_bytes).expect("memory")];
            let mut unit = first;
            move || {
                self.read(object, unit, 0, &mut buffer)?;
                unit += 1;
                Ok(())
            }
        };
        crate::load_threads::run(plan, stop, hire)
    }

    /// Statistics of the store.
    pub(crate) fn stat(&self) -> Result<Stat, Error> {
        self.store.stat().doing("count")
    }

    /// Writes a checkpoint.
    pub(crate) fn checkpoint(&self) -> Result<(), Error> {
        self.store.checkpoint().doing("write a checkpoint")
    }

    /// The work of a drive before it sends bytes from the file: looks up the unit and its checksums.
    pub(crate) fn view(&self, object: Object, unit: u64, range: Range<u32>) -> Result<View, Error> {
        self.store.read(PARTITION, object.id, unit, range, Want::Newest).doing("read")
    }

    /// The work of a drive for a read that is not sent from the file: looks up the unit, checksums and
    /// bytes.
    pub(crate) fn read(&self, object: Object, unit: u64, from: u32, buffer: &mut [u8]) -> Result<(), Error> {
        let to = from + u32::try_from(buffer.len()).expect("a request");
        let view = self.view(object, unit, from..to)?;
        std::hint::black_box(view.blocks().iter().fold(0, |all, crc| all ^ crc));
        view.read_exact_into(buffer).doing("read")
    }

    /// Drops all cached pages of the store's files.
    pub(crate) fn forget(&self) -> Result<(), Error> {
        forget(&self.dir).doing("drop a file's cached pages")
    }
}

/// The answer to a write.
type Answer = Result<MutationOutcome, StoreError>;

/// Answers on their way to the thread that waits for them. Only the first of them wakes the thread, which
/// takes all that have arrived, as when many tasks of one thread are woken by one call.
struct Answers {
    came: Mutex<Vec<Answer>>,
    asker: Thread,
}

impl Answers {
    fn put(&self, answer: Answer) {
        let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        came.push(answer);
        let is_first = came.len() == 1;
        drop(came);
        if is_first {
            self.asker.unpark();
        }
    }

    /// Waits for at least one answer, and takes all that have arrived.
    fn take(&self) -> Vec<Answer> {
        loop {
            let came = std::mem::take(&mut *self.came.lock().unwrap_or_else(PoisonError::into_inner));
            if !came.is_empty() {
                return came;
            }
            thread::park();
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.store.close();
        let _ = fs::remove_dir_all(&self.dir);
        settle(self.dir.parent());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_is_left() {
        let dir = tempfile::tempdir().expect("a directory");
        let stop = AtomicBool::new(false);
        let mut subject = Subject::make(dir.path(), "store").expect("made");
        let bytes = Bytes::from(Random::new(1).bytes(64 << 10));
        let payload = Payload::new(bytes.clone());
        let object = subject.filled(std::slice::from_ref(&payload), 3, 2, &stop).expect("filled");
        subject.forget().expect("forgotten");
        let mut buffer = vec![0; 4096];
        subject.read(object, 2, 8192, &mut buffer).expect("read");
        assert_eq!(buffer, bytes[8192..12_288]);
        // Writes over the same bytes: the stamps continue.
        let sample =
            subject.writes(object, &[payload], 2, Limit::operations(5), &stop, || At { unit: 1, from: 0 });
        assert_eq!(sample.expect("written").operations, 5);
        assert!(subject.read(object, 9, 0, &mut buffer).is_err(), "a hole has no bytes to fill a buffer");
        drop(subject);
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 0);
    }
}
