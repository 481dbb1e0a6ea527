//! Objects of a drive that was marked out while it was away (PROTOCOL R8, section 7).
//!
//! The manager raises the drive's *epoch* when it marks it out. From then on an object is served only once it was fenced
//! anew (or created, or joined): what it holds may be older than what was acknowledged without it. The epoch is stored
//! before anything is served under it; which objects were fenced since is kept in memory only, so that after a restart of such a
//! drive the manager is asked again. An epoch that is told to an empty drive is just its number: there is nothing old on it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use braid_layout::{ObjectId, PartitionId};
use braid_wire::{Reason, Refusal};

/// The most fenced objects that are remembered; past it all must be fenced again.
const FENCED_MAX: usize = 1 << 20;

/// Which objects may be served.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    epoch: u64,
    /// Whether the drive was out with objects on it: then only `fenced` is served.
    was_out: bool,
    fenced: BTreeSet<(PartitionId, ObjectId)>,
}

impl Gate {
    /// For a drive that was last told `epoch` (0: none yet), and was or was not out with objects on it.
    pub(crate) fn new(epoch: u64, was_out: bool) -> Gate {
        Gate { state: Mutex::new(State { epoch, was_out, fenced: BTreeSet::new() }) }
    }

    /// The epoch last stored.
    pub(crate) fn epoch(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).epoch
    }

    /// A higher epoch was told, and is stored; `objects` are on the drive.
    pub(crate) fn handle_epoch(&self, epoch: u64, objects: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if epoch > state.epoch {
            let was_out = state.was_out || objects > 0;
            *state = State { epoch, was_out, fenced: BTreeSet::new() };
        }
    }

    /// The manager has told the object's generation anew.
    pub(crate) fn handle_fenced(&self, partition: PartitionId, object: ObjectId) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.was_out {
            if state.fenced.len() >= FENCED_MAX {
                state.fenced.clear();
            }
            state.fenced.insert((partition, object));
        }
    }

    /// Whether the object may be served.
    pub(crate) fn admit(&self, partition: PartitionId, object: ObjectId) -> Result<(), Refusal> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.was_out || state.fenced.contains(&(partition, object)) {
            return Ok(());
        }
        let detail = "the drive was out, and the object was not fenced since: ask the manager";
        Err(Refusal::new(Reason::StaleGeneration, detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_an_epoch_only_what_was_fenced_since_is_served() {
        let (partition, a, b) = (PartitionId(1), ObjectId(1), ObjectId(2));
        let gate = Gate::new(0, false);
        assert!(gate.admit(partition, a).is_ok());
        gate.handle_epoch(1, 0);
        assert!(gate.admit(partition, a).is_ok());
        gate.handle_epoch(3, 2);
        assert_eq!(gate.admit(partition, a).unwrap_err().reason, Reason::StaleGeneration);
        gate.handle_fenced(partition, a);
        assert!(gate.admit(partition, a).is_ok());
        assert!(gate.admit(partition, b).is_err());
        gate.handle_epoch(2, 2);
        assert!(gate.admit(partition, a).is_ok());
        gate.handle_epoch(4, 0);
        assert!(gate.admit(partition, a).is_err());
        assert!(Gate::new(4, true).admit(partition, a).is_err());
    }
}
