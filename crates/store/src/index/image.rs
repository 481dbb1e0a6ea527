//! Converts the index to a checkpoint's pages, and back.

use braid_layout::{ObjectId, PartitionId};

use crate::format::DecodeError;
use crate::format::dedup::{DedupEntry, OperationEntry};
use crate::format::entry::{
    Entries, Entry, HEAD_BYTES, LOST_BYTES, LostRange, ObjectEntry, PartitionEntry, PlainUnit,
};
use crate::format::page::{Key, TARGET_BYTES};
use crate::format::ready::ReadyEntry;
use crate::format::snapshots::SnapshotsEntry;
use crate::format::unit::UnitEntry;
use crate::index::apply::{note_pending, note_unsettled};
use crate::index::attributes::PackedAttributes;
use crate::index::lost::Lost;
use crate::index::slot::Slot;
use crate::index::unit_image::{unit, unit_entry};
use crate::index::{Index, Object, Partition, snapshots};
use crate::mutation::Base;

/// An object with more entry bytes than this gets pages of its own.
const BIG_BYTES: usize = 4 * TARGET_BYTES;

/// The expected number of objects of one partition on a page.
const RUN_LEN: usize = 256;

/// The most lost ranges of a page.
const LOST_MAX: usize = TARGET_BYTES / (HEAD_BYTES + LOST_BYTES);

/// The entries of one page, or of all parts of a large object.
#[derive(Debug)]
pub(crate) struct Image {
    /// The first key that the image does not cover.
    pub(crate) to: Key,
    /// The number of the last record that is counted in.
    pub(crate) as_of: u64,
    /// The entries of each page.
    pub(crate) parts: Vec<Vec<u8>>,
}

/// Entries that are being encoded.
#[derive(Debug, Default)]
pub(super) struct Sink {
    pub(super) bytes: Vec<u8>,
    /// Offset of the current run's body in `bytes`; `None`: the last entry is no run of plain units.
    run: Option<usize>,
}

impl Index {
    /// The page that begins at `from`. `None`: the object there needs pages of its own
    /// ([`crate::index::large_object::image`]).
    pub(crate) fn image(&self, from: Key) -> Option<Image> {
        let mut sink = Sink::default();
        // If there are many lost ranges, the page ends early.
        let limit = self.lost.within(from, Key::End).nth(LOST_MAX).map_or(Key::End, |range| range.from);
        let mut to = limit;
        for (key, item) in self.items(from).take_while(|&(key, _)| key < limit) {
            if sink.bytes.len() >= TARGET_BYTES {
                to = key;
                break;
            }
            let before = sink.bytes.len();
            let fits = match item {
                Item::Partition(partition, owner) => sink.partition(partition, owner),
                Item::Object(object) => sink.object(key, object, before + BIG_BYTES),
            };
            if !fits {
                if from == key {
                    return None;
                }
                sink.bytes.truncate(before);
                to = key;
                break;
            }
        }
        for range in self.lost.within(from, to) {
            range.put(&mut sink.bytes);
        }
        Some(Image { to, as_of: self.head.sequence - 1, parts: vec![sink.bytes] })
    }

    fn items(&self, from: Key) -> impl Iterator<Item = (Key, Item<'_>)> {
        let (first, object) = match from {
            Key::At(partition, object) => (partition, object),
            Key::End => (PartitionId(u64::MAX), Some(ObjectId(u64::MAX))),
        };
        self.partitions.range(first..).flat_map(move |(&partition, owner)| {
            let resumed = partition == first && object.is_some();
            let begin = object.filter(|_| resumed).unwrap_or(ObjectId(0));
            let itself = (!resumed).then_some((Key::At(partition, None), Item::Partition(partition, owner)));
            let objects = owner.objects.range(begin..);
            itself
                .into_iter()
                .chain(objects.map(move |(&id, object)| (Key::At(partition, Some(id)), Item::Object(object))))
        })
    }
}

/// The item that a key stands for.
#[derive(Clone, Copy)]
enum Item<'a> {
    Partition(PartitionId, &'a Partition),
    Object(&'a Object),
}

impl Sink {
    /// Appends a partition's values, which always fit.
    fn partition(&mut self, partition: PartitionId, owner: &Partition) -> bool {
        // A partition whose values are lost has no entry: loading its objects creates it again.
        if owner.known {
            let birth = owner.birth;
            let quota_bytes = owner.quota_bytes;
            let key_epoch = owner.key_epoch;
            PartitionEntry { partition, birth, quota_bytes, key_epoch }.put(&mut self.bytes);
        }
        true
    }

    /// Appends an object. Returns true if all of it fit. Encoding stops once the sink has more than about
    /// `most` bytes.
    fn object(&mut self, key: Key, object: &Object, most: usize) -> bool {
        self.own(key, object);
        for (unit, slot) in object.units.iter() {
            self.slot(unit, slot);
            if self.bytes.len() > most {
                return false;
            }
        }
        self.bytes.len() <= most
    }

    /// The object's own entries, without its units.
    pub(super) fn own(&mut self, key: Key, object: &Object) {
        let Key::At(partition, Some(id)) = key else { return };
        let attributes = &object.attributes;
        let entry = ObjectEntry {
            partition,
            object: id,
            birth: object.birth,
            set: attributes.set,
            joining: attributes.joining,
            created_ms: attributes.created_ms,
            modified_ms: attributes.modified_ms,
            reserve_bytes: attributes.reserve_bytes(),
            cluster: attributes.cluster(),
            unit_bytes: attributes.unit_bytes,
            g: attributes.g,
            column: attributes.column,
            known: object.known,
            lost: object.lost,
            husk: object.husk,
            map: attributes.map(),
            opaque: attributes.opaque(),
        };
        entry.put(&mut self.bytes);
        self.run = None;
        if let Some(base) = attributes.base() {
            base.put(&mut self.bytes);
        }
        for (client, watermark, done) in object.extra.iter().flat_map(|extra| extra.dedup.iter()) {
            let operations = done.iter().map(|(&(operation, unit, data), &version)| OperationEntry {
                operation,
                unit,
                version,
                data,
            });
            DedupEntry { client, watermark, operations: operations.collect() }.put(&mut self.bytes);
        }
        if let Some(extra) = object.extra.as_ref().filter(|extra| !extra.ready.is_empty()) {
            ReadyEntry { runs: extra.ready.iter().collect() }.put(&mut self.bytes);
        }
        if let Some(found) = object.snapshots().filter(|found| found.highest > 0) {
            let live = found.live.iter().copied().collect();
            SnapshotsEntry { highest: found.highest, live }.put(&mut self.bytes);
        }
    }

    /// Appends the next unit.
    pub(super) fn slot(&mut self, unit: u64, slot: &Slot) {
        match slot.as_plain() {
            Some((extent, version, columns)) if !extent.is_hole() => {
                let plain = PlainUnit { unit, version, columns, extent };
                self.run = Some(plain.put(&mut self.bytes, self.run));
            }
            _ => {
                self.run = None;
                unit_entry(unit, &slot.unit()).put(&mut self.bytes);
            }
        }
    }
}

/// The decoded entries of pages. A large object has the entries of all its parts.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    partitions: Vec<(PartitionId, Partition)>,
    objects: Vec<ObjectRun>,
    lost: Vec<LostRange>,
    /// Payload bytes per segment, one item for each run of consecutive charges to the same segment.
    charges: Vec<(u32, u64)>,
    /// Units with deltas or layers that wait to be folded.
    foldable: Vec<(PartitionId, ObjectId, u64)>,
    /// Objects without attributes.
    unknown: Vec<(PartitionId, ObjectId)>,
}

/// Consecutive objects of one partition, and their totals.
#[derive(Debug)]
struct ObjectRun {
    partition: PartitionId,
    objects: Vec<(ObjectId, Box<Object>)>,
    used: u64,
    reserved: u64,
}

impl Loaded {
    /// Decodes the entries of one page with the keys from `from` up to `to`. On an error, nothing of the page
    /// is used.
    pub(crate) fn page(&mut self, from: Key, to: Key, entries: &[u8]) -> Result<(), DecodeError> {
        let mut page = Loaded::default();
        page.entries(from, to, entries)?;
        self.append(page);
        Ok(())
    }

    fn entries(&mut self, from: Key, to: Key, entries: &[u8]) -> Result<(), DecodeError> {
        let mut current: Option<Box<Object>> = None;
        let mut owner = (PartitionId(0), ObjectId(0));
        let mut at_least = from;
        let mut follows = |key: Key| {
            let good = at_least <= key && key < to;
            at_least = key.next();
            if good { Ok(()) } else { Err(DecodeError::Malformed("an entry out of order")) }
        };
        for entry in Entries::new(entries) {
            match entry? {
                Entry::Partition(entry) => {
                    follows(Key::At(entry.partition, None))?;
                    self.partitions.push((
                        entry.partition,
                        Partition {
                            quota_bytes: entry.quota_bytes,
                            key_epoch: entry.key_epoch,
                            birth: entry.birth,
                            known: true,
                            ..Partition::default()
                        },
                    ));
                }
                Entry::Object(entry) => {
                    follows(Key::At(entry.partition, Some(entry.object)))?;
                    if let Some(object) = current.take() {
                        self.object(owner, object);
                    }
                    owner = (entry.partition, entry.object);
                    current = Some(Box::new(object(&entry)));
                }
                Entry::PlainUnits(units) => {
                    let object = current.as_mut().ok_or(NO_OBJECT)?;
                    object
                        .units
                        .append_sorted(units.iter().map(|unit| plain_slot(&unit)))
                        .map_err(|_| ORDER)?;
                    for unit in units.iter() {
                        object.bytes += unit.extent.bytes();
                        self.charge(unit.extent.segment, unit.extent.bytes());
                    }
                }
                Entry::Unit(body) => {
                    let object = current.as_mut().ok_or(NO_OBJECT)?;
                    let (number, unit) = unit(&UnitEntry::decode(body)?)?;
                    for extent in unit.pins() {
                        object.bytes += extent.stored_bytes();
                        self.charge(extent.segment, extent.stored_bytes());
                    }
                    note_unsettled(&mut object.extra, number, &unit);
                    snapshots::note(&mut object.extra, number, &unit);
                    if unit.is_foldable() {
                        self.foldable.push((owner.0, owner.1, number));
                    }
                    if let Some(pending) = &unit.pending {
                        note_pending(&mut object.pending, pending.version, number);
                    }
                    let slot = Slot::from(Box::new(unit));
                    object.units.append_sorted(std::iter::once((number, slot))).map_err(|_| ORDER)?;
                }
                Entry::Lost(range) => self.lost.push(range),
                Entry::Ready(body) => take_ready(current.as_mut(), body)?,
                Entry::Dedup(body) => {
                    take_dedup(current.as_mut().ok_or(NO_OBJECT)?, DedupEntry::decode(body)?);
                }
                Entry::Snapshots(body) => take_snapshots(current.as_mut(), body)?,
                Entry::Still(body) => {
                    current.as_mut().ok_or(NO_OBJECT)?.attributes.set_base(Base::decode(body)?);
                }
            }
        }
        if let Some(object) = current {
            self.object(owner, object);
        }
        Ok(())
    }

    /// Adds the next object, with all of its units.
    fn object(&mut self, place: (PartitionId, ObjectId), object: Box<Object>) {
        let (partition, id) = place;
        if !object.known {
            self.unknown.push((partition, id));
        }
        let run = self.run(partition);
        run.used += object.bytes;
        run.reserved += object.outstanding();
        run.objects.push((id, object));
    }

    /// The run to which the next objects of `partition` belong.
    fn run(&mut self, partition: PartitionId) -> &mut ObjectRun {
        if self.objects.last().is_none_or(|run| run.partition != partition) {
            // Most pages are of one partition.
            let objects = Vec::with_capacity(if self.objects.is_empty() { RUN_LEN } else { 0 });
            self.objects.push(ObjectRun { partition, objects, used: 0, reserved: 0 });
        }
        self.objects.last_mut().expect("there is one")
    }

    fn charge(&mut self, segment: u32, bytes: u64) {
        match self.charges.last_mut() {
            Some((last, sum)) if *last == segment => *sum += bytes,
            _ => self.charges.push((segment, bytes)),
        }
    }

    /// Appends the pages that follow these.
    pub(crate) fn append(&mut self, mut after: Loaded) {
        self.partitions.append(&mut after.partitions);
        for mut next in after.objects {
            match self.objects.last_mut() {
                Some(run) if run.partition == next.partition => {
                    run.used += next.used;
                    run.reserved += next.reserved;
                    run.objects.append(&mut next.objects);
                }
                _ => self.objects.push(next),
            }
        }
        self.lost.append(&mut after.lost);
        after.charges.into_iter().for_each(|(segment, bytes)| self.charge(segment, bytes));
        self.foldable.append(&mut after.foldable);
        self.unknown.append(&mut after.unknown);
    }

    /// Builds the index from all pages.
    pub(crate) fn into_index(self) -> Index {
        let mut index = Index { partitions: self.partitions.into_iter().collect(), ..Index::default() };
        index.foldable = self.foldable.into_iter().collect();
        index.unknown = self.unknown.into_iter().collect();
        for (segment, bytes) in self.charges {
            index.segments.charge_bytes(segment, bytes);
        }
        for ObjectRun { partition, objects, used, reserved } in self.objects {
            let owner = index.partitions.entry(partition).or_default();
            owner.used += used;
            owner.reserved += reserved;
            index.reserved += reserved;
            // Sorted, so the tree is built bottom-up, which is faster than inserting one by one.
            owner.objects = objects.into_iter().collect();
        }
        let mut lost = Lost::default();
        self.lost.into_iter().for_each(|range| lost.add(range));
        index.lost = lost;
        index
    }
}

const ORDER: DecodeError = DecodeError::Malformed("units out of order");
const NO_OBJECT: DecodeError = DecodeError::Malformed("units without an object");

fn take_ready(object: Option<&mut Box<Object>>, body: &[u8]) -> Result<(), DecodeError> {
    let ReadyEntry { runs } = ReadyEntry::decode(body)?;
    object.ok_or(NO_OBJECT)?.extra.get_or_insert_default().ready = runs.into_iter().collect();
    Ok(())
}

fn take_snapshots(object: Option<&mut Box<Object>>, body: &[u8]) -> Result<(), DecodeError> {
    let SnapshotsEntry { highest, live } = SnapshotsEntry::decode(body)?;
    let snapshots = &mut object.ok_or(NO_OBJECT)?.extra.get_or_insert_default().snapshots;
    (snapshots.highest, snapshots.live) = (highest, live.into_iter().collect());
    Ok(())
}

fn take_dedup(object: &mut Object, entry: DedupEntry) {
    let dedup = &mut object.extra.get_or_insert_default().dedup;
    for OperationEntry { operation, unit, version, data } in entry.operations {
        dedup.add(entry.client, (operation, unit, data), version);
    }
    dedup.retire(entry.client, entry.watermark);
}

fn object(entry: &ObjectEntry<'_>) -> Object {
    let attributes = PackedAttributes::from(entry);
    let known = entry.known;
    Object { attributes, known, lost: entry.lost, husk: entry.husk, ..Object::unknown(entry.birth) }
}

fn plain_slot(unit: &PlainUnit) -> (u64, Slot) {
    (unit.unit, Slot::plain(unit.extent, unit.version, unit.columns).unwrap_or_default())
}
