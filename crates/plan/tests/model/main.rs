//! Plan sets against a flat file: random writes, reads, punches, losses and rebuilds, every set verified, run
//! in random order on columns in memory, and compared with a vector of bytes.

mod columns;

use braid_layout::{
    Column, ColumnMask, Component, DriveId, Generation, Lease, ObjectId, OperationNumber, Role, Scheme,
    Segment, Shape, Stripe, Version,
};

use braid_plan::{
    Body, Health, PlanError, PlanSet, Stamped, Target, Want, Write, check, read, rebuild, unit_write, verify,
    write, write_cheapest,
};
use proptest::prelude::*;

use crate::columns::{Columns, Execution};

const UNIT: u32 = 4096;
const STRIPES: u64 = 4;

/// One file: the columns, their state, and the bytes that it should hold.
struct File {
    segment: Segment,
    columns: Columns,
    health: Health,
    bytes: Vec<u8>,
    reach: u64,
    stamp: u64,
    seed: u64,
}

#[derive(Debug, Clone)]
enum Act {
    Write {
        at: u16,
        len: u16,
        known: bool,
    },
    Punch {
        at: u16,
        len: u16,
    },
    Truncate {
        to: u16,
    },
    UnitWrite {
        at: u16,
        len: u16,
    },
    Read {
        at: u16,
        len: u16,
    },
    /// A write during which a column is lost.
    Interrupted {
        at: u16,
        len: u16,
        after: u8,
        column: u8,
    },
    Lose {
        column: u8,
    },
    Away {
        column: u8,
    },
    Join {
        column: u8,
    },
    Rebuild,
    Check,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let of = |scheme: Scheme| {
        let (k, m) = match scheme {
            Scheme::Raid0 => (1..5_u8, 0..1_u8),
            Scheme::Raid1 => (1..2, 1..4),
            Scheme::Raid4 | Scheme::Raid5 => (2..5, 1..2),
            Scheme::Rs => (1..6, 1..5),
        };
        (Just(scheme), k, m)
    };
    prop::sample::select(Scheme::ALL.to_vec())
        .prop_flat_map(of)
        .prop_map(|(scheme, k, m)| Shape::new(scheme, k, m, UNIT).unwrap())
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let range = || (any::<u16>(), any::<u16>());
    let act = prop_oneof![
        4 => (range(), any::<bool>()).prop_map(|((at, len), known)| Act::Write { at, len, known }),
        4 => (any::<u16>(), 0..2000_u16, any::<bool>())
            .prop_map(|(at, len, known)| Act::Write { at, len, known }),
        1 => range().prop_map(|(at, len)| Act::Punch { at, len }),
        1 => any::<u16>().prop_map(|to| Act::Truncate { to }),
        1 => range().prop_map(|(at, len)| Act::UnitWrite { at, len }),
        3 => range().prop_map(|(at, len)| Act::Read { at, len }),
        2 => (range(), any::<u8>(), any::<u8>())
            .prop_map(|((at, len), after, column)| Act::Interrupted { at, len, after, column }),
        2 => any::<u8>().prop_map(|column| Act::Lose { column }),
        1 => any::<u8>().prop_map(|column| Act::Away { column }),
        2 => any::<u8>().prop_map(|column| Act::Join { column }),
        2 => Just(Act::Rebuild),
        1 => Just(Act::Check),
    ];
    prop::collection::vec(act, 1..24)
}

impl File {
    fn new(shape: Shape, seed: u64) -> File {
        let component =
            |column: u8| Component { drive: DriveId(u128::from(column) << 96), object: ObjectId(9) };
        let segment = Segment {
            start: 0,
            end: u64::MAX,
            shape,
            components: (0..shape.width()).map(component).collect(),
        };
        File {
            columns: Columns::new(segment.clone()),
            health: Health::whole(&shape, Generation(1)),
            segment,
            bytes: Vec::new(),
            reach: 0,
            stamp: 1,
            seed,
        }
    }

    fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    fn capacity(&self) -> u64 {
        self.segment.shape.stripe_bytes() * STRIPES
    }

    /// A range in the file's first stripes, often aligned to a unit.
    fn range(&mut self, at: u16, len: u16) -> std::ops::Range<u64> {
        let align = |value: u64, random: u64| {
            if random.is_multiple_of(3) { value - value % u64::from(UNIT) } else { value }
        };
        let capacity = self.capacity();
        let a = self.random();
        let b = self.random();
        let from = align(u64::from(at) * capacity / 65536, a).min(capacity - 1);
        let to = align(from + 1 + u64::from(len) * (capacity - from) / 65536, b).min(capacity);
        from..to.max(from + 1)
    }

    fn target(&self) -> Target<'_> {
        Target { segment: &self.segment, index: 0, health: self.health }
    }

    fn run(&mut self, set: &PlanSet, buffer: &mut [u8]) {
        assert_eq!(verify(set, &self.segment), Ok(()), "{set}");
        let mut seed = self.random() | 1;
        let pick = |n: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed % u64::try_from(n).unwrap()).unwrap()
        };
        let found = Execution::new(set, &self.segment).finish(&mut self.columns, buffer, pick);
        assert_eq!(found, Ok(Vec::new()), "{set}");
    }

    fn request(&mut self, range: std::ops::Range<u64>, body: Body, known: bool) -> Write {
        let stamp = Version { g: self.health.g, lease: Lease(1), n: self.stamp };
        self.stamp += STRIPES + 1;
        let reach = if known { self.reach } else { u64::MAX };
        self.reach = if known { self.reach.max(range.end) } else { u64::MAX };
        Write { range, body, size: u64::try_from(self.bytes.len()).unwrap(), reach, stamp }
    }

    fn new_bytes(&mut self, range: &std::ops::Range<u64>) -> Vec<u8> {
        let mut seed = self.random() | 1;
        (range.start..range.end)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                seed.to_be_bytes()[0]
            })
            .collect()
    }

    fn overlay(&mut self, range: &std::ops::Range<u64>, bytes: &[u8]) {
        let from = usize::try_from(range.start).unwrap();
        let to = usize::try_from(range.end).unwrap();
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
        }
        self.bytes[from..to].copy_from_slice(bytes);
    }

    fn act(&mut self, act: &Act) {
        let column = |column: u8, file: &File| Column(column % file.segment.shape.width());
        match *act {
            Act::Write { at, len, known } => {
                let range = self.range(at, len);
                let mut bytes = self.new_bytes(&range);
                let request = self.request(range.clone(), Body::Buffer { offset: 0 }, known);
                if let Some(set) =
                    self.planned(write_cheapest(&self.target(), request, OperationNumber::FIRST))
                {
                    self.run(&set, &mut bytes);
                    self.overlay(&range, &bytes);
                }
            }
            Act::Interrupted { at, len, after, column: lost } => {
                let lost = column(lost, self);
                self.interrupted(at, len, after, lost);
            }
            Act::Punch { at, len } => {
                let range = self.range(at, len);
                self.punch(range);
            }
            Act::Truncate { to } => {
                let to = usize::from(to) * self.bytes.len() / 65536;
                let range = u64::try_from(to).unwrap()..u64::try_from(self.bytes.len()).unwrap();
                if !range.is_empty() && self.punch(range) {
                    self.bytes.truncate(to);
                }
            }
            Act::UnitWrite { at, len } => {
                let range = self.range(at, len);
                let mut bytes = self.new_bytes(&range);
                let request = self.request(range.clone(), Body::Buffer { offset: 0 }, false);
                if !self.health.joining.is_empty() {
                    return; // The model's joining columns do not catch up on demand.
                }
                match unit_write(&self.target(), request, OperationNumber(7), Stamped::ByClient) {
                    Ok(set) => {
                        self.run(&set, &mut bytes);
                        self.overlay(&range, &bytes);
                    }
                    Err(PlanError::ColumnOut { column }) => assert!(!self.health.set.contains(column)),
                    Err(error) => panic!("{error}"),
                }
            }
            Act::Read { at, len } => {
                let range = self.range(at, len);
                self.read(range);
            }
            Act::Lose { column: lost } => self.lose(column(lost, self)),
            Act::Away { column: away } => {
                let away = column(away, self);
                self.health.away = match self.health.away.contains(away) {
                    true => self.health.away.without(away),
                    false => self.health.away.with(away).and(self.health.set),
                };
            }
            Act::Join { column: joins } => {
                let width = self.segment.shape.width();
                let out: Vec<Column> = ColumnMask::all(width).minus(self.health.set).iter().collect();
                if !out.is_empty() {
                    let joins = out[usize::from(joins) % out.len()];
                    self.columns.lose(joins);
                    self.health.set = self.health.set.with(joins);
                    self.health.joining = self.health.joining.with(joins);
                    self.health.g = self.health.g.next().unwrap();
                }
            }
            Act::Rebuild => self.rebuild(),
            Act::Check => {
                if let Some(set) = self.planned(check(&self.target(), 0..STRIPES)) {
                    self.run(&set, &mut []);
                }
            }
        }
    }

    fn punch(&mut self, range: std::ops::Range<u64>) -> bool {
        let request = self.request(range.clone(), Body::Zeros, true);
        let Some(set) = self.planned(write_cheapest(&self.target(), request, OperationNumber::FIRST)) else {
            return false;
        };
        self.run(&set, &mut []);
        let zeros = vec![0; usize::try_from(range.end - range.start).unwrap()];
        self.overlay(&range, &zeros);
        true
    }

    /// Runs part of a write, then loses a column, and resends the writes to the others.
    fn interrupted(&mut self, at: u16, len: u16, after: u8, lost: Column) {
        let range = self.range(at, len);
        let mut bytes = self.new_bytes(&range);
        let request = self.request(range.clone(), Body::Buffer { offset: 0 }, false);
        let Some(set) = self.planned(write(&self.target(), request)) else { return };
        assert_eq!(verify(&set, &self.segment), Ok(()), "{set}");
        let segment = self.segment.clone();
        let mut execution = Execution::new(&set, &segment);
        let mut left = usize::from(after);
        while left > 0 || !execution.has_read() {
            let choice = usize::try_from(self.random() % 1000).unwrap();
            if !execution.step(&mut self.columns, &mut bytes, |_| choice).unwrap() {
                break;
            }
            left = left.saturating_sub(1);
        }
        self.lose(lost);
        let Health { g, set: now, joining, .. } = self.health;
        execution.resend(&mut self.columns, &mut bytes, g, now, joining).unwrap();
        self.overlay(&range, &bytes);
    }

    fn lose(&mut self, column: Column) {
        let left = self.health.ready().without(column);
        if left.count() < u32::from(self.segment.shape.k()) {
            return; // The manager takes no column out below k ready ones.
        }
        self.columns.lose(column);
        self.health.set = self.health.set.without(column);
        self.health.joining = self.health.joining.without(column);
        self.health.away = self.health.away.without(column);
        self.health.g = self.health.g.next().unwrap();
    }

    fn rebuild(&mut self) {
        let columns = self.health.joining;
        if columns.is_empty() {
            return;
        }
        for _ in 0..2 {
            if let Some(set) = self.planned(rebuild(&self.target(), 0..STRIPES, columns)) {
                self.run(&set, &mut []);
            } else {
                return;
            }
        }
        self.health.joining = ColumnMask::EMPTY;
    }

    fn read(&mut self, range: std::ops::Range<u64>) {
        let Some(set) = self.planned(read(&self.target(), range.clone(), 5, Want::Newest)) else { return };
        let mut buffer = vec![0xaa; usize::try_from(range.end - range.start).unwrap() + 10];
        self.run(&set, &mut buffer);
        let mut expected = vec![0xaa; 5];
        let byte =
            |at| usize::try_from(at).ok().and_then(|at: usize| self.bytes.get(at)).copied().unwrap_or(0);
        expected.extend(range.map(byte));
        expected.extend([0xaa; 5]);
        assert!(buffer == expected, "wrong bytes by {set}");
    }

    /// The plan set; `None` if the request was refused and had to be.
    fn planned(&self, result: Result<PlanSet, PlanError>) -> Option<PlanSet> {
        match result {
            Ok(set) => Some(set),
            Err(PlanError::TooFewReady { missing, .. }) => {
                let k = u32::from(self.segment.shape.k());
                assert!(self.health.readable().count() < k, "refused, but enough can be read: {missing:?}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Checks that all covers of a stripe agree, and name the versions of its ready data units.
    fn check_all(&self) {
        let ready = self.health.ready();
        for stripe in (0..STRIPES).map(Stripe) {
            let covers: Vec<Vec<Version>> = (0..self.segment.shape.m())
                .map(|parity| self.segment.column(stripe, Role::Parity(parity)))
                .filter(|&column| ready.contains(column))
                .map(|column| self.columns.unit(column, stripe).cover)
                .collect();
            assert!(covers.windows(2).all(|pair| pair[0] == pair[1]), "stripe {}: {covers:?}", stripe.0);
            for data in 0..self.segment.shape.k() {
                let column = self.segment.column(stripe, Role::Data(data));
                if ready.contains(column) {
                    let unit = self.columns.unit(column, stripe);
                    assert!(covers.iter().all(|cover| cover[usize::from(data)] == unit.version));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn plans_do_what_a_flat_file_would(shape in shapes(), acts in acts(), seed in 1..u64::MAX) {
        let mut file = File::new(shape, seed);
        for act in &acts {
            file.act(act);
            file.check_all();
        }
        let end = file.capacity();
        file.read(0..end);
        file.health.away = ColumnMask::EMPTY;
        file.read(0..end);
        let set = check(&file.target(), 0..STRIPES).expect("k columns are ready");
        file.run(&set, &mut []);
    }
}

#[test]
fn a_check_finds_a_damaged_unit() {
    let shape = Shape::new(Scheme::Rs, 3, 2, UNIT).unwrap();
    let mut file = File::new(shape, 99);
    file.act(&Act::Write { at: 0, len: u16::MAX, known: true });
    let set = check(&file.target(), 0..STRIPES).unwrap();
    for column in (0..5).map(Column) {
        let good = file.columns.unit(column, Stripe(2));
        let mut bad = good.clone();
        bad.bytes[77] ^= 1;
        file.columns.put(column, Stripe(2), bad);
        let found = Execution::new(&set, &file.segment).finish(&mut file.columns, &mut [], |_| 0).unwrap();
        let expected = match file.segment.role(Stripe(2), column) {
            Role::Data(_) => 2,
            Role::Parity(_) => 1,
        };
        assert_eq!(found.len(), expected, "column {column}");
        assert!(found.iter().all(|mismatch| mismatch.stripe == Stripe(2)));
        file.columns.put(column, Stripe(2), good);
    }
}
