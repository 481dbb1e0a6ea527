//! Tests the index without a disk: random mutations become records, which are applied. After each step every
//! still must show what was there when it was taken, or was installed since, and the live bytes must be the
//! referenced ones.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{
    ClientId, Column, ColumnMask, EndBound, Generation, Lease, ObjectId, OperationNumber, PartitionId,
    Version,
};
use bytes::Bytes;
use proptest::prelude::*;

use crate::error::Error;
use crate::format::body;
use crate::format::extent::{EXTENT_BYTES, Extent, LogPosition};
use crate::format::page::Key;
use crate::format::record::{Kind, Record, flags};
use crate::format::unit::{CONTENT_BYTES, STEP_BYTES};
use crate::index::Index;
use crate::index::deciding::check::check;
use crate::index::deciding::decision::{Decision, object_record};
use crate::index::deciding::growth::Growth;
use crate::index::extent::union;
use crate::index::image::Loaded;
use crate::index::owed::Doubt;
use crate::index::query::Want;
use crate::index::unit::{Content, Unit};
use crate::index::unit_image::unit_entry;
use crate::mutation::{Attributes, Mutation, MutationOutcome, Standing, UnitVerdict, Write, WriteKind};
use crate::payload::Body;
use crate::step::{Delta, UnitWrite};

mod rules;

const P: PartitionId = PartitionId(1);
const O: ObjectId = ObjectId(2);
/// Bytes of a unit in these tests. The index accepts any length.
const UNIT: u32 = 16;
/// Units 0 and 1 are data, 2 is parity.
const UNITS: u64 = 3;
const PARITY: u64 = 2;

fn attributes() -> Attributes {
    Attributes { unit_bytes: UNIT, g: Generation(1), ..Attributes::default() }
}

fn take(still: ObjectId) -> Mutation {
    Mutation::Take { partition: P, object: O, g: Generation(1), still, attributes: attributes() }
}

fn owed_settled(unit: u64, up_to: Version) -> Mutation {
    Mutation::OwedSettled { partition: P, object: O, g: Generation(1), unit, up_to }
}

/// A unit's bytes, as values wide enough that no two records have the same.
type Cells = [u64; 16];

/// A unit's version, the versions that it counts in, and its bytes.
type Shows = (Version, Vec<Version>, Cells);

#[derive(Debug, Clone)]
enum Step {
    Write {
        unit: u64,
        from: u32,
        length: u32,
        hole: bool,
        install: bool,
    },
    Owe {
        unit: u64,
        from: u32,
        length: u32,
    },
    SettleOwed {
        unit: u64,
    },
    Delta {
        data: u8,
        from: u32,
        length: u32,
        settled: bool,
    },
    Stripe {
        touched: u8,
        from: u32,
        length: u32,
        base: bool,
    },
    Fold,
    Verdict {
        unit: u64,
        forward: bool,
    },
    Retire,
    Take,
    Remove {
        which: usize,
    },
    /// Makes a unit of a still anew, as a repair does.
    Repair {
        which: usize,
        unit: u64,
    },
    Move {
        unit: u64,
        from: usize,
        count: usize,
    },
    Lose {
        unit: u64,
    },
    Reload,
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..UNIT, prop_oneof![1..5_u32, Just(UNIT)]);
    let write = (0..2_u64, range(), 0..5_u8, 0..5_u8);
    prop_oneof![
        8 => write.prop_map(|(unit, (from, length), hole, install)| Step::Write {
            unit, from: if length == UNIT { 0 } else { from }, length, hole: hole == 0, install: install == 0,
        }),
        3 => (0..2_u64, range()).prop_map(|(unit, (from, length))| Step::Owe { unit, from, length }),
        3 => (0..2_u64).prop_map(|unit| Step::SettleOwed { unit }),
        6 => (0..2_u8, range(), 0..4_u8)
            .prop_map(|(data, (from, length), open)| Step::Delta { data, from, length, settled: open > 0 }),
        2 => (1..4_u8, range(), any::<bool>())
            .prop_map(|(touched, (from, length), base)| Step::Stripe { touched, from, length, base }),
        2 => Just(Step::Fold),
        3 => (0..UNITS, any::<bool>()).prop_map(|(unit, forward)| Step::Verdict { unit, forward }),
        3 => Just(Step::Retire),
        5 => Just(Step::Take),
        2 => (0..4_usize).prop_map(|which| Step::Remove { which }),
        2 => (0..4_usize, 0..UNITS).prop_map(|(which, unit)| Step::Repair { which, unit }),
        3 => (0..UNITS, 0..4_usize, 1..4_usize).prop_map(|(unit, from, count)| Step::Move { unit, from, count }),
        1 => (0..UNITS).prop_map(|unit| Step::Lose { unit }),
        1 => Just(Step::Reload),
    ]
}

struct Driver {
    index: Index,
    n: u64,
    /// The bytes of each record, by its position.
    log: BTreeMap<(u32, u32), Cells>,
    /// Expected content of each unit of each still; `None`: damaged.
    taken: BTreeMap<ObjectId, Vec<Option<Shows>>>,
}

fn range(from: u32, length: u32) -> std::ops::Range<u32> {
    from..(from + length).min(UNIT)
}

fn at(byte: u32) -> usize {
    usize::try_from(byte).expect("small")
}

impl Driver {
    fn new() -> Driver {
        let log = BTreeMap::new();
        let taken = BTreeMap::new();
        let mut run = Driver { index: Index::default(), n: 0, log, taken };
        run.ask(&Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 });
        run.ask(&Mutation::Create { partition: P, object: O, attributes: attributes() });
        run.index.serving = true;
        run
    }

    fn version(&self) -> Version {
        Version { g: Generation(1), lease: Lease(1), n: self.n }
    }

    fn unit(&self, unit: u64) -> Unit {
        self.index.find_object(P, O).expect("the object").unit(unit).into_owned()
    }

    /// Decides, and applies the record. Returns true if there was one.
    fn ask(&mut self, mutation: &Mutation) -> bool {
        match check(&self.index, &mut Growth::default(), mutation) {
            Ok(Decision::Append(record, _)) => {
                let mut cells = Cells::default();
                for byte in record.from..record.to {
                    cells[at(byte)] = (self.n << 8) + u64::from(byte) + 1;
                }
                self.append(*record, cells);
                true
            }
            Ok(Decision::AppendBoth(first, second)) => {
                self.append(*first, Cells::default());
                self.append(*second, Cells::default());
                true
            }
            Ok(_) => false,
            Err(
                Error::Unsettled { .. }
                | Error::Damaged { .. }
                | Error::Malformed(_)
                | Error::Chain { .. }
                | Error::Pieces { .. },
            ) => false,
            Err(error) => panic!("{mutation:?}: {error}"),
        }
    }

    /// Appends a record and applies it; several records lie in one segment.
    fn append(&mut self, mut record: Record, cells: Cells) {
        self.n += 1;
        (record.sequence, record.segment) = (self.n, u32::try_from(self.n / 7).expect("small") + 1);
        record.block = u32::try_from(self.n).expect("small");
        if record.birth == 0 {
            record.birth = self.n;
        }
        self.log.insert((record.segment, record.block), cells);
        self.index.apply(&record);
        self.index.head.sequence = self.n + 1;
    }

    fn record(&self, kind: Kind, unit: u64) -> Record {
        let owner = self.index.find_object(P, O).expect("the object");
        let mut record = object_record(kind, P, O, owner);
        (record.unit, record.units) = (unit, 1);
        record
    }

    /// The bytes that extents and layers read as.
    fn read(&self, extents: &[Extent], layers: &[Extent]) -> Cells {
        let mut out = Cells::default();
        for extent in extents.iter().filter(|extent| !extent.is_hole()) {
            for byte in extent.from..extent.to {
                out[at(byte)] = self.log[&(extent.segment, extent.block)][at(byte)];
            }
        }
        for layer in layers.iter().filter(|layer| !layer.is_hole()) {
            for byte in layer.from..layer.to {
                out[at(byte)] ^= self.log[&(layer.segment, layer.block)][at(byte)];
            }
        }
        out
    }

    fn shown(&self, object: ObjectId, unit: u64) -> Option<Shows> {
        let found = self.index.shown(P, object).expect("the object").unit(unit);
        match found.wanted(Want::Newest, &(0..UNIT), UNIT) {
            Ok(Some(found)) => {
                let cells = self.read(&found.extents, &found.layers);
                Some((found.version, found.cover, cells))
            }
            Ok(None) => Some((Version::ZERO, Vec::new(), Cells::default())),
            Err(_) => None,
        }
    }

    fn step(&mut self, step: &Step) {
        let version = Version { n: self.n + 1, ..self.version() };
        match *step {
            Step::Write { unit, from, length, hole, install } => {
                self.write(WriteKind::Data, unit, range(from, length), hole, install, Vec::new());
            }
            Step::Owe { unit, from, length } => self.owe(unit, range(from, length)),
            Step::SettleOwed { unit } => {
                if let Some(up_to) = self.unit(unit).owed.first().map(|owed| owed.version) {
                    assert!(self.ask(&owed_settled(unit, up_to)));
                }
            }
            Step::Delta { data, from, length, settled } => {
                self.delta(data, range(from, length), settled);
            }
            Step::Stripe { touched, from, length, base } => {
                let unit = self.unit(PARITY);
                let counted = |data| if touched >> data & 1 == 1 { version } else { unit.chain_tip(data) };
                let cover = vec![counted(0), counted(1)];
                let (kind, range) = if base {
                    (WriteKind::ParityBase, 0..UNIT)
                } else {
                    (WriteKind::StripeParity, range(from, length))
                };
                self.write(kind, PARITY, range, false, base, cover);
            }
            Step::Fold => self.fold(),
            Step::Verdict { unit, forward } => {
                let found = self.unit(unit);
                let owed = found.owed.first().map(|owed| owed.version);
                let Some(named) = found.pending.map(|pending| pending.version).or(owed) else { return };
                let (yes, no) = if forward { (vec![named], vec![]) } else { (vec![], vec![named]) };
                let units = vec![UnitVerdict { unit, forward: yes, back: no, cut_offs: Vec::new() }];
                self.ask(&Mutation::Verdict { partition: P, object: O, g: Generation(1), units });
            }
            Step::Retire => {
                let settled_below = version;
                self.ask(&Mutation::Retire {
                    partition: P,
                    object: O,
                    g: Generation(1),
                    settled_below,
                    client: ClientId::NONE,
                    watermark: OperationNumber::NONE,
                });
            }
            Step::Take => self.take(),
            Step::Remove { which } => {
                let Some(&object) = self.taken.keys().nth(which) else { return };
                assert!(self.ask(&Mutation::Remove { partition: P, object, g: Generation(1) }));
                self.taken.remove(&object);
            }
            Step::Repair { which, unit } => self.repair(which, unit),
            Step::Move { unit, from, count } => self.relocate(unit, from, count),
            Step::Lose { unit } => {
                let place = LogPosition { segment: 1, block: 1 };
                self.index.mark_lost(P, O, Some(unit), place);
                let number = at(u32::try_from(unit).expect("small"));
                for (&still, seen) in &mut self.taken {
                    let own = self.index.find_object(P, still).expect("the still");
                    if own.units.get(unit).is_none() {
                        seen[number] = None;
                    }
                }
            }
            Step::Reload => self.reload(),
        }
    }

    fn owe(&mut self, unit: u64, range: std::ops::Range<u32>) {
        let version = Version { n: self.n + 1, ..self.version() };
        self.ask(&Mutation::UnitWrite(UnitWrite {
            partition: P,
            object: O,
            unit,
            from: range.start,
            to: range.end,
            client: ClientId(1),
            operation: OperationNumber(self.n),
            watermark: OperationNumber(self.n),
            g: Generation(1),
            lease: Lease(1),
            stamp: Some(version),
            settled_below: Version::ZERO,
            body: Body::Bytes { payload: Bytes::new(), crcs: Vec::new() },
        }));
    }

    fn delta(&mut self, data: u8, range: std::ops::Range<u32>, settled: bool) {
        let version = Version { n: self.n + 1, ..self.version() };
        let tip = self.unit(PARITY).chain_tip(data);
        self.ask(&Mutation::Delta(Delta {
            partition: P,
            object: O,
            unit: PARITY,
            from: range.start,
            to: range.end,
            column: Column(data),
            data,
            from_version: tip,
            to_version: version,
            end: 0,
            client: ClientId(1),
            operation: OperationNumber(self.n),
            watermark: OperationNumber(self.n),
            g: Generation(1),
            settled_to: if settled { version } else { Version::ZERO },
            body: Body::Bytes { payload: Bytes::new(), crcs: Vec::new() },
        }));
    }

    fn write(
        &mut self,
        kind: WriteKind,
        unit: u64,
        range: std::ops::Range<u32>,
        hole: bool,
        install: bool,
        cover: Vec<Version>,
    ) {
        let body = Body::Bytes { payload: Bytes::new(), crcs: Vec::new() };
        self.ask(&Mutation::Write(Write {
            partition: P,
            object: O,
            unit,
            from: range.start,
            to: range.end,
            kind,
            standing: if install { Standing::Installed } else { Standing::Pending },
            stamp: Version { n: self.n + 1, ..self.version() },
            columns: ColumnMask::EMPTY,
            ends: vec![EndBound::NONE; cover.len()],
            cover,
            client: ClientId(1),
            operation: OperationNumber(self.n),
            g: Generation(1),
            settled_below: Version::ZERO,
            body: if hole { Body::Hole } else { body },
        }));
    }

    fn fold(&mut self) {
        let Some(fold) = self.unit(PARITY).fold() else { return };
        let cells = self.read(&fold.extents, &fold.layers);
        let mut record = Record { flags: flags::FOLDED, ..self.record(Kind::ParityBase, PARITY) };
        (record.from, record.to) = (fold.range.start, fold.range.end);
        (record.version, record.previous, record.cover) = (fold.version, fold.previous, fold.cover);
        record.ends = vec![EndBound::exactly(0); record.cover.len()];
        self.append(record, cells);
    }

    fn take(&mut self) {
        let decided = |unit: Unit| unit.pending.is_none() && unit.owed.is_empty();
        let expected = (0..UNITS).all(|unit| decided(self.unit(unit)));
        let all: Vec<_> = (0..UNITS).map(|unit| self.shown(O, unit)).collect();
        let still = ObjectId(1000 + self.n);
        let done = self.ask(&take(still));
        assert_eq!(done, expected, "a still is taken of what is not pending or owed, and only of that");
        if done {
            self.taken.insert(still, all);
        }
    }

    fn repair(&mut self, which: usize, unit: u64) {
        let Some(&still) = self.taken.keys().nth(which) else { return };
        let number = at(u32::try_from(unit).expect("small"));
        let known = self.taken[&still][number].clone();
        let version = known.map_or(Version::ZERO, |known| known.0);
        let cover = if unit == PARITY { vec![version; 2] } else { Vec::new() };
        let hole = version.is_zero();
        let body = if hole { Body::Hole } else { Body::Bytes { payload: Bytes::new(), crcs: Vec::new() } };
        let n = self.n;
        let done = self.ask(&Mutation::Write(Write {
            partition: P,
            object: still,
            unit,
            from: 0,
            to: UNIT,
            kind: if unit == PARITY { WriteKind::ParityBase } else { WriteKind::Data },
            standing: Standing::Repaired,
            stamp: version,
            columns: ColumnMask::EMPTY,
            ends: vec![EndBound::exactly(0); cover.len()],
            cover: cover.clone(),
            client: ClientId(1),
            operation: OperationNumber(n),
            g: Generation(1),
            settled_below: Version::ZERO,
            body,
        }));
        assert!(done, "a repair is never refused");
        let mut cells = Cells::default();
        if !hole {
            (0..UNIT).for_each(|byte| cells[at(byte)] = (n << 8) + u64::from(byte) + 1);
        }
        let cover = if hole { Vec::new() } else { cover };
        self.taken.get_mut(&still).expect("it is there")[number] = Some((version, cover, cells));
    }

    /// Acts as the cleaner: merges adjacent pieces of a unit into one record.
    fn relocate(&mut self, unit: u64, from: usize, count: usize) {
        let all = union(self.unit(unit).pins().into_vec());
        let mut pieces: Vec<Extent> = Vec::new();
        for place in all.iter().skip(from) {
            if pieces.len() < count && pieces.last().is_none_or(|last| last.to == place.from) {
                pieces.push(*place);
            }
        }
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return };
        let cells = self.read(&pieces, &[]);
        let mut record = self.record(Kind::Move, unit);
        (record.from, record.to) = (first.from, last.to);
        record.inline = body::move_body(&pieces);
        self.append(record, cells);
    }

    /// Saves and loads the index like a checkpoint. Owed versions are in doubt afterwards.
    fn reload(&mut self) {
        let image = self.index.image(Key::FIRST).expect("it is not big");
        let mut loaded = Loaded::default();
        loaded.page(Key::FIRST, image.to, &image.parts[0]).expect("a page");
        let mut index = loaded.into_index();
        index.head = self.index.head;
        (index.serving, index.bounds) = (true, self.index.bounds);
        for &object in self.index.partitions[&P].objects.keys() {
            let old = &self.index.partitions[&P].objects[&object];
            let new = &index.partitions[&P].objects[&object];
            for unit in 0..UNITS {
                let mut unit_old = old.unit(unit).into_owned();
                unit_old.owed.iter_mut().for_each(|owed| owed.doubt = Doubt::Reopened);
                assert_eq!(unit_old, new.unit(unit).into_owned());
            }
            assert_eq!(old.snapshots().map_or(0, |s| s.highest), new.snapshots().map_or(0, |s| s.highest));
            assert_eq!((&old.attributes, old.husk), (&new.attributes, new.husk));
        }
        self.index = index;
        let unnamed = self.index.head.sequence;
        self.index.drop_unnamed_snapshots();
        assert_eq!(self.index.head.sequence, unnamed, "every snapshot has its still");
        self.check();
        for unit in 0..UNITS {
            if let Some(up_to) = self.unit(unit).owed.last().map(|owed| owed.version) {
                self.ask(&owed_settled(unit, up_to));
            }
        }
    }

    fn check(&self) {
        for (&still, units) in &self.taken {
            for (unit, expected) in (0..).zip(units) {
                assert_eq!(&self.shown(still, unit), expected, "still {still}, unit {unit}");
            }
        }
        let mut live: BTreeMap<u32, BTreeSet<(u32, u32)>> = BTreeMap::new();
        let mut note = |extent: &Extent| {
            let bytes = live.entry(extent.segment).or_default();
            bytes.extend((extent.from..extent.to).map(|byte| (extent.block, byte)));
        };
        let objects = &self.index.partitions[&P].objects;
        for unit in objects.values().flat_map(|object| (0..UNITS).map(|unit| object.unit(unit))) {
            let content = |content: &Content| [&content.extents[..], &content.layers].concat();
            let kept = unit.kept.iter().filter_map(|kept| kept.content.as_ref().ok());
            let all = unit.settled.iter().chain(kept).flat_map(content);
            let own = unit.pending.iter().map(|pending| pending.own);
            let steps = unit.owed.iter().map(|o| o.own).chain(unit.deltas.iter().map(|d| d.own));
            all.chain(own).chain(steps).filter(|extent| !extent.is_hole()).for_each(|e| note(&e));
        }
        let counted = self.index.segments.all.iter().filter(|(_, segment)| segment.payload > 0);
        let counted: BTreeMap<u32, u64> =
            counted.map(|(&number, segment)| (number, segment.payload)).collect();
        let expected: BTreeMap<u32, u64> = live
            .iter()
            .map(|(&segment, bytes)| (segment, u64::try_from(bytes.len()).expect("few")))
            .collect();
        assert_eq!(counted, expected, "live bytes per segment");
        let object = self.index.find_object(P, O).expect("the object");
        let used = self.index.find_partition(P).expect("the partition").used;
        let bytes: u64 = objects.values().map(|object| object.bytes).sum();
        assert_eq!((bytes, used), (expected.values().sum(), expected.values().sum()));
        let listed = object.snapshots().map(|s| s.units.iter().map(|(unit, ())| unit).collect::<Vec<_>>());
        let marked = |unit: &u64| self.unit(*unit).epoch > 0 || !self.unit(*unit).kept.is_empty();
        assert_eq!(listed.unwrap_or_default(), (0..UNITS).filter(marked).collect::<Vec<_>>());
        if self.taken.is_empty() {
            assert!((0..UNITS).all(|unit| !marked(&unit)), "nothing is held back for no snapshot");
        }
        for (number, unit) in (0..UNITS).map(|number| (number, self.unit(number))) {
            let mut entry = Vec::new();
            unit_entry(number, &unit).put(&mut entry);
            assert_eq!(entry.len(), unit.entry_bytes());
            // Steps and layers are limited by separate bounds, or settling cuts them in two.
            let steps = (CONTENT_BYTES + STEP_BYTES) * (unit.owed.len() + unit.deltas.len());
            let kept = unit.kept.iter().filter_map(|kept| kept.content.as_ref().ok());
            let layers: usize = unit.settled.iter().chain(kept).map(|content| content.layers.len()).sum();
            let others = entry.len() - steps - (CONTENT_BYTES + EXTENT_BYTES) * layers;
            assert!(others <= self.index.bounds.unit_entry_bytes, "{others} bytes");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn a_still_shows_what_was_there(steps in prop::collection::vec(step(), 1..80)) {
        let mut run = Driver::new();
        for step in &steps {
            run.step(step);
            run.check();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn no_unit_outgrows_its_page(steps in prop::collection::vec(step(), 1..100)) {
        let mut run = Driver::new();
        run.index.bounds.unit_entry_bytes = 1500;
        for mut step in steps {
            if let Step::Delta { settled, .. } = &mut step {
                *settled = true;
            }
            run.step(&step);
            run.check();
            // Everything is settled, so that a snapshot keeps what the next step replaces.
            for unit in 0..UNITS {
                run.step(&Step::SettleOwed { unit });
                run.step(&Step::Verdict { unit, forward: true });
            }
            run.step(&Step::Take);
            run.check();
        }
    }
}
