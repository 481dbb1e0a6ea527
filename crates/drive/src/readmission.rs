//! Objects of a drive that was marked out while it was away (PROTOCOL R8, section 7).
//!
//! The manager raises the drive's *epoch* when it marks it out. From then on an object is served only after
//! it was fenced again (or created, or joined), because its content may be older than writes that were
//! acknowledged without this drive. The epoch is stored before anything is served under it. Which objects
//! were fenced since is kept in memory only, so after a restart the manager must be asked again. On an empty
//! drive a new epoch is only a number: there is nothing old on it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use braid_layout::{ObjectId, PartitionId};
use braid_wire::{Reason, Refusal};

/// Maximum number of fenced objects that are remembered; beyond that, all must be fenced again.
const FENCED_MAX: usize = 1 << 20;

/// Decides which objects may be served after the drive was marked out.
#[derive(Debug)]
pub(crate) struct ReadmissionFence {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    epoch: u64,
    /// True if the drive was out with objects on it: then only objects in `fenced` are served.
    was_out: bool,
    fenced: BTreeSet<(PartitionId, ObjectId)>,
}

impl ReadmissionFence {
    /// Creates the fence of a drive that last heard `epoch` (0: none yet), and that was not out with objects
    /// on it.
    pub(crate) fn open(epoch: u64) -> ReadmissionFence {
        ReadmissionFence { state: Mutex::new(State { epoch, was_out: false, fenced: BTreeSet::new() }) }
    }

    /// Creates the fence of a drive that last heard `epoch`, and that was out with objects on it.
    pub(crate) fn closed(epoch: u64) -> ReadmissionFence {
        ReadmissionFence { state: Mutex::new(State { epoch, was_out: true, fenced: BTreeSet::new() }) }
    }

    /// The epoch last stored.
    pub(crate) fn epoch(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).epoch
    }

    /// The manager announced a higher epoch, and it is stored; the drive holds `objects` objects.
    pub(crate) fn handle_epoch(&self, epoch: u64, objects: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if epoch > state.epoch {
            let was_out = state.was_out || objects > 0;
            *state = State { epoch, was_out, fenced: BTreeSet::new() };
        }
    }

    /// The object was fenced or created: from now on it may be served.
    pub(crate) fn handle_fenced(&self, partition: PartitionId, object: ObjectId) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.was_out {
            if state.fenced.len() >= FENCED_MAX {
                state.fenced.clear();
            }
            state.fenced.insert((partition, object));
        }
    }

    /// Ok if the object may be served; a refusal if it must be fenced first.
    pub(crate) fn admit(&self, partition: PartitionId, object: ObjectId) -> Result<(), Refusal> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.was_out || state.fenced.contains(&(partition, object)) {
            return Ok(());
        }
        let detail =
            "the drive was marked out, and has not been told about this object since: ask the manager";
        Err(Refusal::new(Reason::StaleGeneration, detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_an_epoch_only_what_was_fenced_since_is_served() {
        let partition = PartitionId(1);
        let a = ObjectId(1);
        let b = ObjectId(2);
        let readmission = ReadmissionFence::open(0);
        assert!(readmission.admit(partition, a).is_ok());
        readmission.handle_epoch(1, 0);
        assert!(readmission.admit(partition, a).is_ok());
        readmission.handle_epoch(3, 2);
        assert_eq!(readmission.admit(partition, a).unwrap_err().reason, Reason::StaleGeneration);
        readmission.handle_fenced(partition, a);
        assert!(readmission.admit(partition, a).is_ok());
        assert!(readmission.admit(partition, b).is_err());
        readmission.handle_epoch(2, 2);
        assert!(readmission.admit(partition, a).is_ok());
        readmission.handle_epoch(4, 0);
        assert!(readmission.admit(partition, a).is_err());
        assert!(ReadmissionFence::closed(4).admit(partition, a).is_err());
    }
}
