//! A large object that changes while its pages are made: the pages show it at one moment.

use braid_layout::{ColumnMask, Generation, Lease, ObjectId, PartitionId, Version};

use super::*;
use crate::format::body;
use crate::format::record::{Kind, Record, flags};
use crate::index::image::Loaded;
use crate::mutation::Attributes;

const P: PartitionId = PartitionId(1);
const O: ObjectId = ObjectId(2);
const PLACE: (PartitionId, ObjectId) = (P, O);
const KEY: Key = Key::At(P, Some(O));
const BIRTH: u64 = 1;
/// Three slices of plain units.
const UNITS: u64 = 10_000;

struct Driver {
    index: Index,
    records: Vec<Record>,
    random: u64,
}

impl Driver {
    fn new() -> Driver {
        let mut run = Driver { index: Index::default(), records: Vec::new(), random: 7 };
        run.create();
        (0..UNITS).for_each(|unit| run.write(2 * unit, flags::INSTALLED));
        run
    }

    fn take(&mut self, mut record: Record) {
        record.sequence = u64::try_from(self.records.len()).expect("few") + 1;
        (record.partition, record.object) = PLACE;
        if record.birth == 0 {
            record.birth = record.sequence;
        }
        (record.segment, record.block) = (1, u32::try_from(record.sequence).expect("few"));
        apply(&mut self.index, &record);
        self.records.push(record);
    }

    fn create(&mut self) {
        let mut record = Record::new(Kind::ObjectCreate);
        body::put_attributes(&mut record, &Attributes { unit_bytes: 65_536, ..Attributes::default() });
        self.take(record);
    }

    fn remove(&mut self) {
        self.take(Record { birth: BIRTH, ..Record::new(Kind::ObjectRemove) });
    }

    /// A write that is settled at once makes a plain unit.
    fn write(&mut self, unit: u64, flags: u8) {
        let n = u64::try_from(self.records.len()).expect("few") + 1;
        let version = Version { g: Generation(1), lease: Lease(1), n };
        let previous = object(&self.index).unit(unit).tip_version();
        let settled_below = if n % 3 == 0 { version } else { Version::ZERO };
        let columns = ColumnMask(1);
        let birth = BIRTH;
        let from = 0;
        let to = 4096;
        let record = Record::new(Kind::Data);
        self.take(Record {
            birth,
            unit,
            from,
            to,
            flags,
            version,
            previous,
            settled_below,
            columns,
            ..record
        });
    }

    /// Makes a random change to `unit` or next to it, or to the object itself.
    fn change(&mut self, unit: u64) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        match self.random >> 61 {
            0 => {
                let mut record = Record { birth: BIRTH, ..Record::new(Kind::ObjectAttributes) };
                let attributes =
                    Attributes { unit_bytes: 65_536, modified_ms: self.random, ..Attributes::default() };
                body::put_attributes(&mut record, &attributes);
                self.take(record);
            }
            1 => self.write(unit | 1, flags::INSTALLED),
            2 | 3 => self.write(unit, 0),
            _ => self.write(unit, flags::INSTALLED),
        }
    }

    /// Checks that loading `image` gives the same state as the records that it counts in.
    fn check(&self, image: &Image) {
        let mut expected = Index::default();
        let counted = usize::try_from(image.as_of).expect("few");
        self.records[..counted].iter().for_each(|record| apply(&mut expected, record));
        let mut loaded = Loaded::default();
        loaded.page(KEY, image.to, &image.parts.concat()).expect("good pages");
        let loaded = loaded.into_index();
        let expected = object(&expected);
        let loaded = object(&loaded);
        assert_eq!(loaded.attributes, expected.attributes);
        assert_eq!((loaded.bytes, loaded.units.len()), (expected.bytes, expected.units.len()));
        for ((unit, found), (other, wanted)) in loaded.units.iter().zip(expected.units.iter()) {
            assert_eq!((unit, found.unit()), (other, wanted.unit()));
        }
        assert_eq!(loaded.pending, expected.pending);
    }
}

fn object(index: &Index) -> &Object {
    &index.partitions[&P].objects[&O]
}

fn apply(index: &mut Index, record: &Record) {
    index.apply(record);
    index.head.sequence = record.sequence + 1;
}

#[test]
fn what_changes_between_slices_is_made_again() {
    // The number of units over which changes are spread, and the number of changes after each slice: none,
    // few in one place, many everywhere, more than the rounds can catch up with.
    for (spread, changes) in [(1, 0), (100, 3), (2 * UNITS, 200), (4 * UNITS, 500)] {
        let mut run = Driver::new();
        let mut making = Making::begin(&mut run.index, PLACE);
        let mut slices = 0;
        loop {
            let goes_on = making.slice(&run.index);
            slices += 1;
            for n in 0..changes {
                run.change((n * 7919 + slices * 104_729) % spread);
            }
            if !goes_on && !making.again(&mut run.index) {
                break;
            }
        }
        assert!(slices >= 3, "{slices}");
        // Changes until the last step.
        (0..changes.min(5)).for_each(|n| run.change(n * 1000));
        let image = making.finish(&run.index).expect("it is there");
        assert_eq!(image.as_of, u64::try_from(run.records.len()).expect("few"));
        assert!(image.parts.len() > 8);
        run.check(&image);
    }
}

#[test]
fn an_object_that_goes_has_no_pages() {
    for slices in 0..3 {
        let mut run = Driver::new();
        let mut making = Making::begin(&mut run.index, PLACE);
        (0..slices).for_each(|_| assert!(making.slice(&run.index)));
        run.remove();
        run.create();
        while making.slice(&run.index) || making.again(&mut run.index) {}
        assert!(making.finish(&run.index).is_none());
    }
}

#[test]
fn writers_go_on_meanwhile() {
    let run = Driver::new();
    let locked = Locked::new(run.index);
    let mut run = Driver { index: Index::default(), ..run };
    let image = std::thread::scope(|scope| {
        let making = scope.spawn(|| image(&locked, KEY));
        while !making.is_finished() {
            // The records are made here and applied to the shared index, whose pages are being made.
            let unit = 2 * (u64::try_from(run.records.len()).expect("few") % UNITS);
            let sequence = u64::try_from(run.records.len()).expect("few") + 1;
            let version = Version { g: Generation(1), lease: Lease(1), n: sequence };
            let record = Record {
                partition: P,
                object: O,
                birth: BIRTH,
                sequence,
                segment: 1,
                block: u32::try_from(sequence).expect("few"),
                unit,
                to: 4096,
                flags: flags::INSTALLED,
                version,
                ..Record::new(Kind::Data)
            };
            apply(&mut locked.write(), &record);
            run.records.push(record);
        }
        making.join().expect("it ends").expect("it is there")
    });
    assert!(locked.read().watched.is_none());
    run.check(&image);
}
