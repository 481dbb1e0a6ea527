//! One store, its faults, and the checks of its contents.

mod misled;

use std::sync::Arc;

use braid_layout::ObjectId;
use braid_store::disk::memory::{Fault, Memory, On};
use braid_store::*;

use super::chains::Model;
use super::script::{OBJECTS, STILLS, UNITS, mutation};
use super::{Random, steps};
use crate::common::*;
use crate::enumerate::observe::{differences, observe_partition};

/// Counts of the events of all lives.
#[derive(Debug, Default)]
pub(super) struct Counts {
    lives: u64,
    mutations: u64,
    steps: u64,
    folded_units: u64,
    full: u64,
    unknown: u64,
    cuts: u64,
    kills: u64,
    closes: u64,
    cleanings: u64,
    faults: u64,
    flips: u64,
    damaged_units: u64,
    starts: u64,
    flipped_writes: u64,
    misdirected_writes: u64,
    misled_units: u64,
    misled_reported: u64,
    moved_bytes: u64,
    freed_segments: u64,
}

impl Counts {
    /// Checks that every kind of event happened: after a minute or more it must have.
    pub(super) fn judge(&self) {
        let met = [
            self.mutations,
            self.steps,
            self.folded_units,
            self.full,
            self.unknown,
            self.cuts,
            self.kills,
            self.closes,
            self.cleanings,
            self.faults,
            self.flips,
            self.damaged_units,
            self.starts,
            self.flipped_writes,
            self.misdirected_writes,
            self.misled_units,
            self.misled_reported,
            self.moved_bytes,
            self.freed_segments,
        ];
        assert!(met.iter().all(|&count| count > 0), "something was never tried: {self:?}");
    }
}

pub(super) struct Life {
    seed: u64,
    random: Random,
    options: Options,
    /// The disk's size.
    budget: u64,
    disk: Memory,
    store: Store,
    /// A second store without faults, which gets the same mutations.
    reference: Store,
    reference_disk: Memory,
    /// Unit writes and deltas are compared with this model.
    model: Model,
    n: u64,
    /// Mutations with an unknown outcome since the last one that is known to be done.
    unknown: Vec<Mutation>,
}

fn open_at(disk: &Memory, options: &Options) -> Result<(Store, Recovery), Error> {
    Store::open_on(Arc::new(disk.clone()), Some(identity()), options.clone())
}

fn make(disk: &Memory, options: &Options) -> Store {
    Store::format_on(disk, identity(), options).expect("format");
    let (store, _) = open_at(disk, options).expect("open");
    store
        .commit(Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 })
        .expect("make the partition");
    store
}

fn plain() -> Options {
    Options { sync: false, ..Options::default() }
}

/// Returns true if the model covers this mutation.
fn is_step(mutation: &Mutation) -> bool {
    matches!(
        mutation,
        Mutation::UnitWrite(UnitWrite { partition: steps::Q, .. })
            | Mutation::Delta(Delta { partition: steps::Q, .. })
            | Mutation::Write(Write { partition: steps::Q, .. })
            | Mutation::OwedSettled { partition: steps::Q, .. }
            | Mutation::Verdict { partition: steps::Q, .. }
            | Mutation::Retire { partition: steps::Q, .. }
            | Mutation::Fence { partition: steps::Q, .. }
            | Mutation::Ready { partition: steps::Q, .. }
    )
}

/// Returns true if a mutation that failed with this error may have been done.
fn leaves_doubt(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::Failed | Error::Resting | Error::Closed | Error::ReadOnly)
}

impl Life {
    pub(super) fn new(seed: u64) -> Life {
        let mut random = Random::new(seed);
        let capacity = (1 << 20) + random.below(3 << 20);
        let options = Options {
            segment_bytes: 64 << 10,
            capacity: if random.once_in(2) { Some(capacity) } else { None },
            clean_share_percent: u32::try_from(random.below(200)).expect("small"),
            ..Options::default()
        };
        let disk = Memory::new(seed);
        let reference_disk = Memory::new(seed);
        // Somewhat more than the capacity, which includes checkpoints and the reserve.
        let budget = if options.capacity.is_some() { capacity + (1 << 20) } else { capacity };
        disk.set_budget(Some(budget));
        let store = make(&disk, &options);
        let model = steps::make(&store);
        let reference = make(&reference_disk, &plain());
        let n = 0;
        let unknown = Vec::new();
        Life { seed, random, options, budget, disk, store, reference, reference_disk, model, n, unknown }
    }

    pub(super) fn live(mut self, counts: &mut Counts) {
        counts.lives += 1;
        for _ in 0..self.random.below(400) {
            self.step(counts);
        }
        self.recover(counts);
        self.count_cleaning(counts);
        // Unlike freed segments, moved bytes are counted over the store's life.
        counts.moved_bytes += self.store.stat().map_or(0, |stat| stat.moved);
        if self.random.once_in(2) { self.mislead(counts) } else { self.damage(counts) }
    }

    fn step(&mut self, counts: &mut Counts) {
        match self.random.below(100) {
            0 => {
                // If cleaning gave up, the next opening finds out why.
                counts.cleanings += 1;
                let _ = self.store.clean();
            }
            1 => self.trouble(counts),
            2 => {
                let after = self.disk.operations(On::Change) + self.random.below(60);
                self.disk.cut_after(after);
            }
            3 if self.random.once_in(2) => self.recover(counts),
            _ if self.random.once_in(3) => {
                // Several steps, so that chains grow.
                for _ in 0..1 + self.random.below(6) {
                    self.n += 1;
                    counts.steps += 1;
                    let mutation = steps::mutation(&mut self.random, self.n, &self.model);
                    self.mutate(mutation, counts);
                }
            }
            _ => {
                self.n += 1;
                let mutation = mutation(&mut self.random, self.n, &self.reference);
                self.mutate(mutation, counts);
            }
        }
    }

    fn mutate(&mut self, mutation: Mutation, counts: &mut Counts) {
        counts.mutations += 1;
        match self.store.commit(mutation.clone()) {
            Err(error) if leaves_doubt(&error) => {
                counts.unknown += 1;
                self.unknown.push(mutation);
                if self.random.once_in(3) || self.disk.is_cut() {
                    self.recover(counts);
                }
            }
            Err(Error::Full { used, capacity }) => {
                counts.full += 1;
                assert!(used <= capacity, "seed {}: {used} of {capacity}", self.seed);
                // A commit that found no space half-way was cut off; a power cut may undo that.
                self.unknown.push(mutation);
            }
            // The number of deltas depends on when they were folded.
            Err(Error::Backlog(DELTAS_MAX)) => {}
            answer => {
                let (expected, is_record) = self.expected_for(&mutation, &answer);
                // Mutations that failed before are not there, as something was acknowledged since.
                if is_record {
                    self.unknown.clear();
                }
                let same = format!("{answer:?}") == format!("{expected:?}");
                assert!(same, "seed {}: {answer:?}, not {expected:?} to {mutation:?}", self.seed);
            }
        }
    }

    /// Like [`Life::expected`], but also accepts that an installed base is there already: that depends on the
    /// time at which deltas were folded.
    fn expected_for(
        &mut self,
        mutation: &Mutation,
        answer: &Result<MutationOutcome, Error>,
    ) -> (Result<MutationOutcome, Error>, bool) {
        let expected = self.expected(mutation);
        let is_there = is_install(mutation) && matches!(answer, Ok(MutationOutcome::Already));
        if is_there { (Ok(MutationOutcome::Already), false) } else { expected }
    }

    /// The expected answer to a mutation, which the reference then applies; and true if that took a record.
    fn expected(&mut self, mutation: &Mutation) -> (Result<MutationOutcome, Error>, bool) {
        if is_step(mutation) {
            return self.model.commit(mutation);
        }
        let expected = self.reference.commit(mutation.clone());
        let is_record = expected.as_ref().is_ok_and(|&outcome| outcome == MutationOutcome::Applied);
        (expected, is_record)
    }

    /// Makes some of the next operations fail.
    fn trouble(&mut self, counts: &mut Counts) {
        counts.faults += 1;
        let on = [On::Write, On::Write, On::Sync, On::Name, On::Read, On::Start];
        let on = on[usize::try_from(self.random.below(6)).expect("small")];
        let fault = [Fault::Io, Fault::NoSpace, Fault::Short];
        let fault = fault[usize::try_from(self.random.below(3)).expect("small")];
        // Few commits are long enough to be started before their sync.
        let soon = if on == On::Start { 3 } else { 20 };
        let begin = self.disk.operations(on) + self.random.below(soon);
        self.disk.inject(on, begin..begin + 1 + self.random.below(3), fault);
    }

    /// Close, kill or cut the power; open, and compare.
    fn recover(&mut self, counts: &mut Counts) {
        self.count_cleaning(counts);
        let how = if self.disk.is_cut() { 0 } else { self.random.below(3) };
        let seed = self.random.below(1 << 30);
        if how == 2 {
            let _ = self.store.close();
        }
        let mut disk = match how {
            0 => self.disk.after_power_cut(seed),
            _ => self.disk.after_kill(seed),
        };
        *[&mut counts.cuts, &mut counts.kills, &mut counts.closes][usize::try_from(how).expect("small")] += 1;
        // Opening is interrupted too.
        while self.random.once_in(3) {
            disk.cut_after(self.random.below(20));
            let opened = open_at(&disk, &self.options);
            disk = if self.random.once_in(2) { disk.after_power_cut(seed) } else { disk.after_kill(seed) };
            drop(opened);
        }
        let (store, recovery) =
            open_at(&disk, &self.options).unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        assert_eq!(recovery.damaged_count, 0, "seed {}: {:?}", self.seed, recovery.damaged);
        (self.store, self.disk) = (store, disk);
        self.model.doubt();
        let unseen = self.unknown.iter().filter(|unknown| matches!(unknown, Mutation::Retire { .. }));
        let unseen: Vec<Mutation> = unseen.filter(|unknown| is_step(unknown)).cloned().collect();
        self.compare(counts);
        // It cannot be observed if these were done: repeat them now, with unlimited space.
        self.disk.set_budget(None);
        for mut retire in unseen {
            if let Mutation::Retire { object, g, .. } = &mut retire {
                *g = self.model.objects[object].g;
            }
            self.store.commit(retire.clone()).unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
            let _ = self.model.commit(&retire);
        }
        self.disk.set_budget(Some(self.budget));
    }

    /// Checks that the store holds everything acknowledged and at most one mutation with an unknown outcome.
    fn compare(&mut self, counts: &mut Counts) {
        let failed = |error: Error| -> ! { panic!("seed {}: {error}", self.seed) };
        let found = observe_partition(&self.store, P).unwrap_or_else(|error| failed(error));
        let expected = observe_partition(&self.reference, P).expect("read");
        let in_steps =
            |model: &Model| steps::differences(&self.store, model).unwrap_or_else(|error| failed(error));
        let stat = self.store.stat().unwrap_or_else(|error| failed(error));
        let used: u64 = self.store.partitions().iter().map(|partition| partition.used).sum();
        assert_eq!(stat.live, used, "seed {}: the accounts agree", self.seed);
        let unknown = std::mem::take(&mut self.unknown);
        let differences = differences(&expected, &found);
        let (steps, folded) = in_steps(&self.model);
        counts.folded_units += folded;
        if differences.is_empty() && steps.is_empty() {
            return;
        }
        for mutation in unknown {
            if is_step(&mutation) {
                let mut candidate = self.model.clone();
                let _ = candidate.commit(&mutation);
                candidate.doubt();
                if differences.is_empty() && in_steps(&candidate).0.is_empty() {
                    self.model = candidate;
                    return;
                }
                continue;
            }
            let disk = self.reference_disk.after_kill(0);
            let (candidate, _) = open_at(&disk, &plain()).expect("open");
            let _ = candidate.commit(mutation);
            if steps.is_empty() && observe_partition(&candidate, P).expect("read") == found {
                (self.reference, self.reference_disk) = (candidate, disk);
                return;
            }
        }
        panic!("seed {}:\n{differences}{steps}", self.seed);
    }

    fn count_cleaning(&self, counts: &mut Counts) {
        counts.starts += self.disk.operations(On::Start);
        if let Ok(stat) = self.store.stat() {
            counts.freed_segments += stat.freed;
        }
    }

    /// Ends a life: bits are flipped in the files of a cleanly closed store. Everything read is right or
    /// reported as damaged, also after cleaning.
    fn damage(mut self, counts: &mut Counts) {
        self.store.close().unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        let disk = self.disk.after_kill(0);
        disk.set_budget(None);
        for _ in 0..self.random.below(4) {
            let files = disk.files();
            let of_the_store = |name: &&String| name.starts_with("log/") || name.starts_with("checkpoint/");
            let files: Vec<&String> = files.iter().filter(of_the_store).collect();
            let name = files[usize::try_from(self.random.below(u64::try_from(files.len()).expect("small")))
                .expect("small")];
            let bits = 8 * u64::try_from(disk.content(name).expect("there").len()).expect("small");
            counts.flips += u64::from(disk.flip(name, self.random.below(bits)));
        }
        let (store, _) = match open_at(&disk, &self.options) {
            Ok(opened) => opened,
            // If nothing can be known, nothing is made up.
            Err(Error::Damaged { .. }) => return,
            Err(error) => panic!("seed {}: {error}", self.seed),
        };
        counts.damaged_units += self.compare_damaged(&store);
        store.clean().unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        self.compare_damaged(&store);
    }

    /// Checks that every unit reads as it should, or as damaged; returns the number of damaged ones.
    fn compare_damaged(&self, store: &Store) -> u64 {
        let mut damaged = steps::compare_damaged(store, &self.model);
        let objects = (0..OBJECTS).chain(STILLS);
        for (object, unit) in objects.flat_map(|object| (0..UNITS).map(move |unit| (object, unit))) {
            let bytes = self.reference.object(P, ObjectId(object)).map_or(UNIT, |found| found.unit_bytes);
            let read = |store: &Store| content(store, object, unit, 0, bytes, Want::Newest);
            match (read(store), read(&self.reference)) {
                (Err(Error::Damaged { .. } | Error::Checksum { .. }), _) => damaged += 1,
                (Ok(found), Ok(expected)) => {
                    assert!(found == expected, "seed {}: object {object}, unit {unit}", self.seed);
                }
                (Err(Error::NoObject(..)), Err(Error::NoObject(..))) => {}
                (found, expected) => {
                    let found = found.map(drop);
                    let expected = expected.map(drop);
                    panic!("seed {}: object {object}, unit {unit}: {found:?}, not {expected:?}", self.seed);
                }
            }
        }
        let listed = store.objects(P, None, 100).unwrap_or_default();
        assert!(listed.iter().all(|object| object.0 < OBJECTS || STILLS.contains(&object.0)));
        damaged
    }
}

fn is_install(mutation: &Mutation) -> bool {
    matches!(mutation, Mutation::Write(write) if write.kind == WriteKind::ParityBase)
}
