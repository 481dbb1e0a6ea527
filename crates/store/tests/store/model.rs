//! Random operations and reopenings with small segments (so that segments are freed all the time), against a
//! plain model that keeps every version's bytes in an array.

use std::collections::BTreeMap;

use braid_layout::{ClientId, ColumnMask, Generation, Lease, ObjectId, OperationNumber, Version};
use braid_store::*;
use proptest::prelude::*;

use crate::common::*;

const OBJECTS: u64 = 3;
const UNITS: u64 = 3;

#[derive(Debug, Clone)]
enum Step {
    Create { object: u64 },
    Remove { object: u64 },
    Write { object: u64, unit: u64, from: u32, length: u32, lease: u32, hole: bool, install: bool },
    Retire { object: u64, lease: u32 },
    Verdict { object: u64, unit: u64, forward: bool },
    Fence { object: u64 },
    SetAttributes { object: u64, opaque: u8 },
    Partition { key_epoch: u32 },
    Reopen { killed: bool },
    Clean,
}

fn step() -> impl Strategy<Value = Step> {
    let object = 0..OBJECTS;
    let range = (0..UNIT, prop_oneof![1..200_u32, 4000..UNIT]);
    let write = (object.clone(), 0..UNITS, range, 1..3_u32, 0..6_u8, 0..8_u8);
    prop_oneof![
        3 => object.clone().prop_map(|object| Step::Create { object }),
        1 => object.clone().prop_map(|object| Step::Remove { object }),
        12 => write.prop_map(|(object, unit, (from, length), lease, hole, install)| Step::Write {
            object, unit, from, length, lease, hole: hole == 0, install: install == 0,
        }),
        2 => (object.clone(), 1..3_u32).prop_map(|(object, lease)| Step::Retire { object, lease }),
        3 => (object.clone(), 0..UNITS, any::<bool>())
            .prop_map(|(object, unit, forward)| Step::Verdict { object, unit, forward }),
        1 => object.clone().prop_map(|object| Step::Fence { object }),
        1 => (object, any::<u8>()).prop_map(|(object, opaque)| Step::SetAttributes { object, opaque }),
        1 => any::<u32>().prop_map(|key_epoch| Step::Partition { key_epoch }),
        2 => any::<bool>().prop_map(|killed| Step::Reopen { killed }),
        1 => Just(Step::Clean),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct Copy {
    version: Version,
    /// The whole unit.
    bytes: Vec<u8>,
    /// First byte of the version's own write, and the bytes written.
    own: (u32, Vec<u8>),
}

#[derive(Debug, Default, Clone)]
struct ModelUnit {
    settled: Option<Copy>,
    pending: Option<Copy>,
}

#[derive(Debug)]
struct ModelObject {
    attributes: Attributes,
    units: BTreeMap<u64, ModelUnit>,
}

struct Run {
    dir: tempfile::TempDir,
    store: Store,
    model: BTreeMap<u64, ModelObject>,
    key_epoch: u32,
    n: u64,
}

impl ModelUnit {
    fn settle(&mut self) {
        if let Some(copy) = self.pending.take() {
            self.settled = Some(copy);
        }
    }
}

fn overlaid(under: Option<&Copy>, from: u32, own: &[u8], version: Version) -> Copy {
    let mut bytes =
        under.map_or_else(|| vec![0; usize::try_from(UNIT).expect("small")], |copy| copy.bytes.clone());
    let begin = usize::try_from(from).expect("small");
    bytes[begin..begin + own.len()].copy_from_slice(own);
    Copy { version, bytes, own: (from, own.to_vec()) }
}

impl Run {
    fn new() -> Run {
        let dir = tempfile::tempdir().expect("a directory");
        let store = fresh(dir.path(), small());
        Run { dir, store, model: BTreeMap::new(), key_epoch: 1, n: 0 }
    }

    fn step(&mut self, step: &Step) {
        self.n += 1;
        match *step {
            Step::Create { object } => {
                let answer = self.store.commit(create(object)).expect("create");
                assert_eq!(answer == MutationOutcome::Already, self.model.contains_key(&object));
                let new = || ModelObject { attributes: attributes(), units: BTreeMap::new() };
                self.model.entry(object).or_insert_with(new);
            }
            Step::Remove { object } => {
                let g = self.model.get(&object).map_or(Generation(0), |model| model.attributes.g);
                let remove = Mutation::Remove { partition: P, object: ObjectId(object), g };
                let answer = self.store.commit(remove).expect("remove");
                assert_eq!(answer == MutationOutcome::Applied, self.model.remove(&object).is_some());
            }
            Step::Write { object, unit, from, length, lease, hole, install } => {
                let mut write = write(object, unit, from, (from + length).min(UNIT), version(lease, self.n));
                if hole {
                    write.body = Body::Hole;
                }
                if install {
                    let standings = [Standing::Installed, Standing::Whole];
                    write.standing = standings[usize::try_from(from % 2).expect("small")];
                }
                self.write(write);
            }
            Step::Retire { object, lease } => self.retire(object, lease),
            Step::Verdict { object, unit, forward } => self.verdict(object, unit, forward),
            Step::Fence { object } => {
                let Some(model) = self.model.get_mut(&object) else { return };
                let attributes = &mut model.attributes;
                attributes.g = Generation(attributes.g.0 + 1);
                attributes.set = ColumnMask(self.n);
                let g = attributes.g;
                let set = attributes.set;
                let joining = attributes.joining;
                let fence = Mutation::Fence { partition: P, object: ObjectId(object), g, set, joining };
                assert_eq!(self.store.commit(fence).expect("fence"), MutationOutcome::Applied);
            }
            Step::SetAttributes { object, opaque } => {
                let Some(model) = self.model.get_mut(&object) else { return };
                model.attributes.opaque = vec![opaque; usize::from(opaque) * 9];
                model.attributes.modified_ms = self.n;
                let opaque = Some(model.attributes.opaque.clone());
                let modified_ms = Some(self.n);
                let g = model.attributes.g;
                let object = ObjectId(object);
                let change = Change { opaque, modified_ms, ..Change::default() };
                let set = Mutation::SetAttributes { partition: P, object, g, change };
                self.store.commit(set).expect("set attributes");
            }
            Step::Partition { key_epoch } => {
                let set = Mutation::PartitionSet { partition: P, quota_bytes: None, key_epoch };
                let falls = key_epoch < self.key_epoch;
                assert_eq!(self.store.commit(set).is_err(), falls, "set the partition");
                self.key_epoch = self.key_epoch.max(key_epoch);
            }
            Step::Reopen { killed } => self.reopen(killed),
            Step::Clean => {
                self.store.clean().expect("clean");
            }
        }
    }

    fn write(&mut self, mut write: Write) {
        let Some(model) = self.model.get_mut(&write.object.0) else {
            assert!(matches!(self.store.commit(Mutation::Write(write)), Err(Error::NoObject(..))));
            return;
        };
        write.g = model.attributes.g;
        let own = match &write.body {
            Body::Bytes { payload, .. } => payload.to_vec(),
            Body::Hole => vec![0; write.range().len()],
        };
        let unit = model.units.entry(write.unit).or_default();
        let tip = unit.pending.as_ref().or(unit.settled.as_ref());
        let tip = tip.map_or(Version::ZERO, |copy| copy.version);
        let settled = unit.settled.as_ref().map_or(Version::ZERO, |copy| copy.version);
        let expected = match write.standing {
            Standing::Pending | Standing::Whole if write.stamp < tip => MutationOutcome::Older { tip },
            Standing::Installed if write.stamp < settled => MutationOutcome::Older { tip },
            _ => MutationOutcome::Applied,
        };
        let from = write.from;
        let version = write.stamp;
        let standing = write.standing;
        assert_eq!(self.store.commit(Mutation::Write(write)).expect("write"), expected);
        if expected != MutationOutcome::Applied {
            return;
        }
        match standing {
            Standing::Pending => {
                unit.settle();
                unit.pending = Some(overlaid(unit.settled.as_ref(), from, &own, version));
            }
            Standing::Whole => {
                unit.settle();
                let Copy { bytes, .. } = overlaid(None, from, &own, version);
                unit.pending = Some(overlaid(None, 0, &bytes, version));
            }
            Standing::Installed | Standing::Repaired => {
                let installed = overlaid(None, from, &own, version);
                if unit.pending.as_ref().is_some_and(|copy| copy.version <= version) {
                    unit.pending = None;
                }
                if let Some(copy) = &mut unit.pending {
                    *copy = overlaid(Some(&installed), copy.own.0, &copy.own.1, copy.version);
                }
                unit.settled = Some(installed);
            }
        }
    }

    fn retire(&mut self, object: u64, lease: u32) {
        let Some(model) = self.model.get_mut(&object) else { return };
        let below = Version { g: Generation(1), lease: Lease(lease), n: self.n };
        for unit in model.units.values_mut() {
            if unit.pending.as_ref().is_some_and(|copy| copy.version.lease == below.lease) {
                unit.settle();
            }
        }
        let retire = Mutation::Retire {
            partition: P,
            object: ObjectId(object),
            g: model.attributes.g,
            settled_below: below,
            client: ClientId::NONE,
            watermark: OperationNumber::NONE,
        };
        self.store.commit(retire).expect("retire");
    }

    fn verdict(&mut self, object: u64, unit: u64, forward: bool) {
        let Some(model) = self.model.get_mut(&object) else { return };
        let g = model.attributes.g;
        let Some(state) = model.units.get_mut(&unit) else { return };
        let Some(stamp) = state.pending.as_ref().map(|copy| copy.version) else { return };
        if forward {
            state.settle();
        } else {
            state.pending = None;
        }
        let (yes, no) = if forward { (vec![stamp], vec![]) } else { (vec![], vec![stamp]) };
        let units = vec![UnitVerdict { unit, forward: yes, back: no, cut_offs: Vec::new() }];
        let verdict = Mutation::Verdict { partition: P, object: ObjectId(object), g, units };
        assert_eq!(self.store.commit(verdict).expect("verdict"), MutationOutcome::Applied);
    }

    /// Reopens the store from a copy as a killed process leaves it, or after a clean close.
    fn reopen(&mut self, killed: bool) {
        if killed {
            // A flush ensures that nothing is being freed while the files are copied.
            self.store.commit(Mutation::Flush).expect("flush");
            let dir = tempfile::tempdir().expect("a directory");
            self.store.close().expect("close");
            copy(self.dir.path(), dir.path());
            self.dir = dir;
        } else {
            self.store.close().expect("close");
        }
        let spare = tempfile::tempdir().expect("a directory");
        let _ = std::mem::replace(&mut self.store, fresh(spare.path(), small()));
        let (store, recovery) = open_with(self.dir.path(), small());
        assert_eq!((recovery.torn_bytes, recovery.damaged_count), (0, 0), "{:?}", recovery.damaged);
        self.store = store;
        self.adopt_doubts();
    }

    /// Settlement is soft state (PROTOCOL section 2): after opening, a settled tip may be pending again. The
    /// version below it must then be one that really existed. Only the tip is compared.
    fn adopt_doubts(&mut self) {
        for (&object, model) in &mut self.model {
            for chain in self.store.versions(P, ObjectId(object), 0..UNITS).expect("versions") {
                let state = model.units.entry(chain.unit).or_default();
                let tip = chain.entries.last().expect("a version");
                if state.pending.is_none()
                    && !tip.settled
                    && let Some(settled) = state.settled.take()
                {
                    assert_eq!(settled.version, tip.version);
                    let below =
                        content(&self.store, object, chain.unit, 0, UNIT, Want::Settled).expect("below");
                    let version = chain.entries.iter().find(|entry| entry.settled).map(|entry| entry.version);
                    state.settled = version.map(|version| overlaid(None, 0, &below, version));
                    state.pending = Some(settled);
                }
            }
        }
    }

    fn check(&self) {
        let listed = self.store.objects(P, None, 100).expect("list");
        assert_eq!(listed, self.model.keys().map(|&object| ObjectId(object)).collect::<Vec<_>>());
        assert_eq!(self.store.partition(P).expect("partition").key_epoch, self.key_epoch);
        let mut pending = 0;
        for (&object, model) in &self.model {
            assert_eq!(self.store.object(P, ObjectId(object)).expect("object"), model.attributes);
            for (&unit, state) in &model.units {
                let zeros = overlaid(None, 0, &[], Version::ZERO);
                let settled = state.settled.as_ref().unwrap_or(&zeros);
                let tip = state.pending.as_ref().unwrap_or(settled);
                let view = self.store.read(P, ObjectId(object), unit, 0..UNIT, Want::Newest).expect("view");
                assert_eq!((view.version, view.pending), (tip.version, state.pending.is_some()));
                let read = |want| content(&self.store, object, unit, 0, UNIT, want).expect("read");
                assert!(read(Want::Newest) == tip.bytes, "object {object}, unit {unit}, newest");
                assert!(read(Want::Settled) == settled.bytes, "object {object}, unit {unit}, settled");
                let part = content(&self.store, object, unit, 4000, 9001, Want::Newest).expect("read");
                assert!(part == tip.bytes[4000..9001], "object {object}, unit {unit}, a part");
                pending += usize::from(state.pending.is_some());
            }
        }
        let unsettled = |object: &u64| self.store.unsettled(P, ObjectId(*object)).expect("list").len();
        assert_eq!(self.model.keys().map(unsettled).sum::<usize>(), pending);
        let stat = self.store.stat().expect("stat");
        let used: u64 = self.store.partitions().iter().map(|partition| partition.used).sum();
        assert_eq!(stat.live, used, "the accounts agree");
    }
}

fn small() -> Options {
    // Little more than the bytes that can be live, so that cleaning is always needed.
    Options { segment_bytes: 64 << 10, capacity: Some(2 << 20), ..options() }
}

/// `PROPTEST_CASES` overrides the number of cases.
fn cases() -> ProptestConfig {
    let default = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() {
        default
    } else {
        ProptestConfig { cases: 48, ..default }
    }
}

proptest! {
    #![proptest_config(cases())]
    #[test]
    fn behaves_like_the_model(steps in prop::collection::vec(step(), 1..120)) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
        }
        run.check();
        run.reopen(false);
        run.check();
    }
}
