//! A write that fails silently while the store runs: one bit is flipped, or it goes to another offset of its
//! file.
//!
//! This tests the promise of the document (`docs/format-store.md`, "What the medium is assumed to
//! guarantee"): the fault is found by a checksum, or because a record knows its position. Reads are right or
//! report damage, in the running store and after any end. Only the very last commit may look torn, so another
//! follows the bad one.

use braid_store::disk::memory::{Fault, Memory, On};
use braid_store::*;

use super::{Counts, Life, open_at, steps};
use crate::storm::script;

/// The bad write is among this many next writes.
const SOON: u64 = 12;
/// Within this many mutations the bad write and another commit after it should have happened.
const MUTATIONS_MAX: u64 = 60;

impl Life {
    /// One of the next writes fails silently. Some mutations later the store ends and is reopened.
    pub(super) fn mislead(&mut self, counts: &mut Counts) {
        self.disk.set_budget(None);
        let fault = if self.random.once_in(2) { Fault::Flip } else { Fault::Misdirect };
        let bad = self.disk.operations(On::Write) + self.random.below(SOON);
        self.disk.inject(On::Write, bad..bad + 1, fault);
        let mut vouched = false;
        for _ in 0..MUTATIONS_MAX {
            if self.random.once_in(16) {
                let _ = self.store.checkpoint();
            }
            let came = self.disk.operations(On::Write) > bad;
            vouched |= self.mutate_misled(counts) && came;
            if vouched && self.random.once_in(4) {
                break;
            }
        }
        // The write did not happen, or no later commit proves yet that it should have.
        if !vouched {
            return;
        }
        *if fault == Fault::Flip { &mut counts.flipped_writes } else { &mut counts.misdirected_writes } += 1;
        self.compare_damaged(&self.store);
        self.end_misled(counts);
    }

    /// Does one mutation. Returns true if a record was acknowledged.
    fn mutate_misled(&mut self, counts: &mut Counts) -> bool {
        self.n += 1;
        let mutation = if self.random.once_in(3) {
            steps::mutation(&mut self.random, self.n, &self.model)
        } else {
            script::mutation(&mut self.random, self.n, &self.reference)
        };
        counts.mutations += 1;
        match self.store.commit(mutation.clone()) {
            // Refused without effect: its subject is damaged, or there is no space.
            Err(Error::Damaged { .. } | Error::Full { .. } | Error::Backlog(DELTAS_MAX)) => false,
            answer => {
                let (expected, is_record) = self.expected_for(&mutation, &answer);
                let same = format!("{answer:?}") == format!("{expected:?}");
                assert!(same, "seed {}: {answer:?}, not {expected:?} to {mutation:?}", self.seed);
                is_record
            }
        }
    }

    /// Close, kill or cut the power; reopen twice, and compare.
    fn end_misled(&mut self, counts: &mut Counts) {
        self.count_cleaning(counts);
        let how = self.random.below(3);
        let seed = self.random.below(1 << 30);
        if how == 2 {
            let _ = self.store.close();
        }
        let mut disk = if how == 0 { self.disk.after_power_cut(seed) } else { self.disk.after_kill(seed) };
        for _ in 0..2 {
            let (store, recovery) = match open_at(&disk, &self.options) {
                Ok(opened) => opened,
                Err(Error::Damaged { .. }) if checkpoints(&disk) < 2 => return,
                Err(error) => panic!("seed {}: {error}", self.seed),
            };
            self.model.doubt();
            let damaged = self.compare_damaged(&store);
            counts.misled_units += damaged;
            counts.misled_reported += u64::from(recovery.damaged_count > 0);
            store.clean().unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
            self.compare_damaged(&store);
            disk = disk.after_kill(seed);
        }
    }
}

fn checkpoints(disk: &Memory) -> usize {
    disk.files().iter().filter(|name| name.ends_with(".ckp")).count()
}
