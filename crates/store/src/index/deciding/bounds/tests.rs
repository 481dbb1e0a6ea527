//! Tests with low bounds: a change that would exceed them is refused, and one that makes an entry shorter is
//! not.

use braid_layout::{
    ClientId, Column, ColumnMask, Generation, Lease, ObjectId, OperationNumber, PartitionId, Version,
};
use bytes::Bytes;

use crate::error::Error;
use crate::format::extent::LogPosition;
use crate::index::Index;
use crate::index::deciding::check::check;
use crate::index::deciding::decision::Decision;
use crate::index::deciding::growth::Growth;
use crate::mutation::{Attributes, Mutation, Standing, Write, WriteKind};
use crate::payload::Body;
use crate::step::{Delta, UnitWrite};

const P: PartitionId = PartitionId(1);
const O: ObjectId = ObjectId(2);
const G: Generation = Generation(1);
const UNIT: u32 = 1 << 16;

struct Driver {
    index: Index,
    n: u64,
}

fn version(n: u64) -> Version {
    Version { g: G, lease: Lease(1), n }
}

impl Driver {
    fn new(joining: ColumnMask) -> Driver {
        let mut run = Driver { index: Index::default(), n: 0 };
        let quota_bytes = None;
        run.ask(Mutation::PartitionCreate { partition: P, quota_bytes, key_epoch: 1 }).expect("a partition");
        let attributes = Attributes { unit_bytes: UNIT, g: G, joining, ..Attributes::default() };
        run.ask(Mutation::Create { partition: P, object: O, attributes }).expect("an object");
        run.index.serving = true;
        run
    }

    /// Decides on `mutation`, and applies the resulting record.
    fn ask(&mut self, mutation: Mutation) -> Result<(), Error> {
        let records = match check(&self.index, &mut Growth::default(), &mutation)? {
            Decision::Append(record, _) => vec![record],
            Decision::AppendBoth(first, second) => vec![first, second],
            Decision::Answer(_) | Decision::Barrier => Vec::new(),
        };
        for mut record in records {
            self.n += 1;
            (record.sequence, record.segment) = (self.n, 1);
            record.block = u32::try_from(self.n).expect("small");
            if record.birth == 0 {
                record.birth = self.n;
            }
            self.index.apply(&record);
        }
        Ok(())
    }

    fn write(&mut self, range: std::ops::Range<u32>, standing: Standing) -> Result<(), Error> {
        let version = version(self.n);
        self.ask(Mutation::Write(Write {
            partition: P,
            object: O,
            unit: 0,
            from: range.start,
            to: range.end,
            kind: WriteKind::Data,
            standing,
            stamp: version,
            columns: ColumnMask::EMPTY,
            cover: Vec::new(),
            ends: Vec::new(),
            client: ClientId::NONE,
            operation: OperationNumber::NONE,
            g: G,
            settled_below: Version::ZERO,
            body: Body::Bytes { payload: Bytes::new(), crcs: Vec::new() },
        }))
    }

    /// Writes pieces with gaps between them until no more are admitted.
    fn fill(&mut self) -> u32 {
        (0..8000).find(|&n| is_refused(&self.write(8 * n..8 * n + 1, Standing::Pending))).expect("a bound")
    }

    fn settle(&mut self) {
        let settled_below = version(self.n + 1);
        let retire = Mutation::Retire {
            partition: P,
            object: O,
            g: G,
            settled_below,
            client: ClientId::NONE,
            watermark: OperationNumber::NONE,
        };
        self.ask(retire).expect("settle");
    }

    fn entry_bytes(&self) -> usize {
        self.index.find_object(P, O).expect("the object").unit(0).entry_bytes()
    }

    fn unit_write(&mut self, client: ClientId, operation: u64, watermark: u64) -> Result<(), Error> {
        let version = version(self.n);
        self.ask(Mutation::UnitWrite(UnitWrite {
            partition: P,
            object: O,
            unit: operation,
            from: 0,
            to: 10,
            client,
            operation: OperationNumber(operation),
            watermark: OperationNumber(watermark),
            g: G,
            lease: Lease(1),
            stamp: Some(version),
            settled_below: Version::ZERO,
            body: Body::Hole,
        }))
    }

    fn delta(&mut self, client: ClientId, operation: u64) -> Result<(), Error> {
        self.ask(Mutation::Delta(Delta {
            partition: P,
            object: O,
            unit: 100 + operation,
            from: 0,
            to: 10,
            column: Column(0),
            data: 0,
            from_version: Version::ZERO,
            to_version: version(self.n),
            end: 0,
            client,
            operation: OperationNumber(operation),
            watermark: OperationNumber::NONE,
            g: G,
            settled_to: Version::ZERO,
            body: Body::Hole,
        }))
    }

    fn retire(&mut self, client: ClientId, watermark: u64) -> Result<(), Error> {
        let settled_below = Version::ZERO;
        self.ask(Mutation::Retire {
            partition: P,
            object: O,
            g: G,
            settled_below,
            client,
            watermark: OperationNumber(watermark),
        })
    }

    fn known(&self) -> usize {
        self.index.find_object(P, O).expect("it").extra.as_ref().map_or(0, |extra| extra.dedup.len())
    }
}

fn is_refused(result: &Result<(), Error>) -> bool {
    matches!(result, Err(Error::Pieces { partition: P, object: O, unit: 0 }))
}

#[test]
fn a_unit_in_too_many_pieces_is_to_be_written_as_a_whole() {
    for standing in [Standing::Pending, Standing::Installed] {
        let mut run = Driver::new(ColumnMask::EMPTY);
        run.index.bounds.unit_entry_bytes = 6000;
        let pieces = run.fill();
        assert!(pieces > 100, "{pieces}");
        assert!(is_refused(&run.write(1..UNIT, Standing::Pending)), "all but a byte");
        run.settle();
        assert!(run.entry_bytes() <= 6000);
        let range = if standing == Standing::Pending { 0..UNIT } else { 5..6 };
        run.write(range, standing).expect("all of it");
        run.write(1..2, Standing::Pending).expect("it settles what is pending");
        run.settle();
        assert!(run.entry_bytes() < 300, "{}", run.entry_bytes());
        assert!(run.fill() > 100, "each cuts what is there");
    }
}

#[test]
fn stills_that_keep_too_many_pieces_are_to_be_removed() {
    let (mut run, number) = kept_too_much();
    assert!(is_refused(&run.write(0..UNIT, Standing::Pending)), "what is there would be kept");
    for dropped in 1..number {
        run.ask(Mutation::Remove { partition: P, object: still(dropped), g: G }).expect("remove");
    }
    run.write(0..10, Standing::Pending).expect("there is room");
}

fn still(number: u32) -> ObjectId {
    ObjectId(1000 + u64::from(number))
}

/// A unit of which stills keep so much that no more versions are admitted, and the number of these stills.
fn kept_too_much() -> (Driver, u32) {
    let mut run = Driver::new(ColumnMask::EMPTY);
    run.index.bounds.unit_entry_bytes = 6000;
    let mut number = 0;
    let refused = loop {
        number += 1;
        let attributes = Attributes { unit_bytes: UNIT, g: G, ..Attributes::default() };
        let still = still(number);
        run.ask(Mutation::Take { partition: P, object: O, g: G, still, attributes }).expect("always");
        let at = 8 * number;
        if let Err(error) = run.write(at..at + 1, Standing::Pending) {
            break error;
        }
        run.settle();
        assert!(run.entry_bytes() <= 6000);
    };
    assert!((5..100).contains(&number), "{number}");
    assert!(is_refused(&Err(refused)));
    (run, number)
}

#[test]
fn a_lost_unit_is_mended_however_much_stills_keep() {
    let (mut run, _) = kept_too_much();
    assert!(is_refused(&run.write(0..UNIT, Standing::Installed)), "what is there would be kept");
    run.index.mark_lost(P, O, Some(0), LogPosition { segment: 1, block: 1 });
    assert!(matches!(run.write(0..UNIT - 1, Standing::Pending), Err(Error::Damaged { .. })));
    assert!(is_refused(&run.write(0..UNIT, Standing::Pending)), "what is kept goes only when it is settled");
    run.write(0..UNIT, Standing::Installed).expect("it is mended");
    assert!(run.entry_bytes() < 300, "{}", run.entry_bytes());
    run.write(0..10, Standing::Pending).expect("there is room");
}

#[test]
fn clients_that_retire_nothing_are_refused_and_others_help() {
    let mut run = Driver::new(ColumnMask::EMPTY);
    run.index.bounds.operations = 20;
    for operation in 0..9 {
        run.unit_write(ClientId(1), operation, 0).expect("remembered");
        run.delta(ClientId(2), operation).expect("remembered");
    }
    assert_eq!(run.known(), 20, "with the clients");
    assert!(matches!(run.unit_write(ClientId(1), 9, 0), Err(Error::Operations(20))));
    assert!(matches!(run.delta(ClientId(2), 9), Err(Error::Operations(20))));
    run.write(0..10, Standing::Pending).expect("a stripe write");
    let settled_below = version(run.n + 1);
    let of_another = Mutation::Retire {
        partition: P,
        object: O,
        g: G,
        settled_below,
        client: ClientId(3),
        watermark: OperationNumber(1),
    };
    run.ask(of_another).expect("nothing is known of it");
    assert_eq!(run.known(), 20, "nor remembered");
    run.retire(ClientId(3), u64::MAX).expect("nor is there anything to remember");
    let unit = run.index.find_object(P, O).expect("the object").unit(0);
    assert!(unit.pending.is_none() && unit.settled.is_some(), "settled all the same");
    run.unit_write(ClientId(1), 4, 0).expect("it is known");
    run.unit_write(ClientId(1), 9, 3).expect("its own watermark makes room");
    assert_eq!(run.known(), 18);
    run.unit_write(ClientId(3), 10, 0).expect("a client and an operation");
    assert!(matches!(run.unit_write(ClientId(3), 11, 0), Err(Error::Operations(20))));
    run.retire(ClientId(1), 5).expect("one that is known");
    run.unit_write(ClientId(3), 11, 0).expect("there is room");
    run.retire(ClientId(2), u64::MAX).expect("one that is gone");
    assert_eq!(run.known(), 9);
}

#[test]
fn a_column_catches_up_without_too_many_gaps() {
    let mut run = Driver::new(ColumnMask(1));
    run.index.bounds.ready_runs = 10;
    let ready = |unit| Mutation::Ready { partition: P, object: O, g: G, unit, units: 1 };
    (0..10).for_each(|n| run.ask(ready(10 * n)).expect("a run"));
    for unit in [5, 1000] {
        assert!(matches!(run.ask(ready(unit)), Err(Error::Runs(10))));
    }
    for unit in [10, 11, 9, 1] {
        run.ask(ready(unit)).expect("there, or a neighbour");
    }
    (2..9).for_each(|unit| run.ask(ready(unit)).expect("a gap is filled"));
    run.ask(ready(1000)).expect("there is room");
}
