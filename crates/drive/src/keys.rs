//! The drive's keys: its master key, the one before that while something may have been made with it, and the
//! working keys derived from them.

use std::sync::{Mutex, PoisonError, RwLock};

use braid_layout::{ClusterId, DriveId, PartitionId};
use braid_transport::Credentials;
use braid_wire::authorise::FormerKey;
use braid_wire::capability::Key;
use braid_wire::token::Pin;

/// Maximum number of cached working keys; a full cache is emptied.
const KEYS_KEPT: usize = 64;

/// The master key of a drive, as its directory has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MasterKey {
    /// The key's number, from 1. It rises when the key is turned.
    pub(crate) number: u32,
    pub(crate) key: Key,
    pub(crate) former: Option<Former>,
}

/// The master key before the last turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Former {
    pub(crate) key: Key,
    /// Manager time, in milliseconds, at which capabilities made with it end; `None`: the manager has not
    /// said yet that it makes no more of them.
    pub(crate) until_ms: Option<u64>,
}

impl MasterKey {
    /// A key that was never turned.
    pub(crate) fn first(key: Key) -> MasterKey {
        MasterKey { number: 1, key, former: None }
    }

    /// The key after the turn with this random number.
    pub(crate) fn turned(&self, random: &[u8; 32]) -> MasterKey {
        let number = self.number.saturating_add(1);
        let former = Some(Former { key: self.key.clone(), until_ms: None });
        MasterKey { number, key: self.key.turned(number, random), former }
    }

    /// The same key, after the manager has said when capabilities made with the former one end.
    pub(crate) fn until(&self, until_ms: u64) -> MasterKey {
        let former = self.former.clone().map(|former| Former { until_ms: Some(until_ms), ..former });
        MasterKey { former, ..self.clone() }
    }

    /// Credentials with which a drive of this key proves itself to the manager, whose CA has this pin.
    pub(crate) fn credentials(&self, cluster: ClusterId, pin: Pin, drive: DriveId) -> Credentials {
        Credentials::of_drive(cluster, pin, drive, self.number, &self.key)
    }

    /// True if the manager has yet to say when capabilities made with the former key end.
    pub(crate) fn is_open_ended(&self) -> bool {
        self.former.as_ref().is_some_and(|former| former.until_ms.is_none())
    }
}

/// The keys in force: working keys for requests, and the credentials for sessions with the manager.
pub(crate) struct Keys {
    credentials: Credentials,
    ring: RwLock<Ring>,
}

struct Ring {
    number: u32,
    present: Working,
    former: Option<(Working, Option<u64>)>,
}

/// The working keys under one drive key.
struct Working {
    drive_key: Key,
    derived: Mutex<Vec<(PartitionId, u32, Key)>>,
}

impl Keys {
    pub(crate) fn new(cluster: ClusterId, pin: Pin, drive: DriveId, master: &MasterKey) -> Keys {
        Keys {
            credentials: master.credentials(cluster, pin, drive),
            ring: RwLock::new(Ring::of(drive, master)),
        }
    }

    /// Credentials for sessions of this process. All copies are turned with the key.
    pub(crate) fn credentials(&self) -> Credentials {
        self.credentials.clone()
    }

    /// The master key was turned, or it is known when its former one ends.
    pub(crate) fn handle_turn(&self, master: &MasterKey) {
        let ring = Ring::of(self.credentials.drive, master);
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = ring;
        self.credentials.handle_turn(master.number, &master.key);
    }

    /// Runs `check` with the number of the master key, the working keys under it, and the former key.
    /// `in_force` tells the newer epoch of a partition that exists.
    pub(crate) fn with<T>(
        &self,
        now_ms: Option<u64>,
        in_force: &dyn Fn(PartitionId) -> Option<u32>,
        check: impl FnOnce(u32, &dyn Fn(PartitionId, u32) -> Key, Option<FormerKey<'_>>) -> T,
    ) -> T {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        let present = |partition, epoch| ring.present.key(partition, epoch, in_force);
        let Some((former, until_ms)) = &ring.former else { return check(ring.number, &present, None) };
        let working_key = |partition, epoch| former.key(partition, epoch, in_force);
        let is_in_force = until_ms.is_none_or(|until_ms| now_ms.is_some_and(|now_ms| now_ms < until_ms));
        check(ring.number, &present, Some(FormerKey { working_key: &working_key, is_in_force }))
    }
}

impl Ring {
    fn of(drive: DriveId, master: &MasterKey) -> Ring {
        let working = |key: &Key| Working { drive_key: key.drive_key(drive), derived: Mutex::default() };
        let former = master.former.as_ref().map(|former| (working(&former.key), former.until_ms));
        Ring { number: master.number, present: working(&master.key), former }
    }
}

impl Working {
    /// Working key of any partition and epoch. Only keys in force are cached, so that requests by strangers
    /// cannot fill the memory.
    fn key(&self, partition: PartitionId, epoch: u32, in_force: &dyn Fn(PartitionId) -> Option<u32>) -> Key {
        let find = |derived: &[(PartitionId, u32, Key)]| {
            derived.iter().find(|entry| (entry.0, entry.1) == (partition, epoch)).map(|entry| entry.2.clone())
        };
        if let Some(key) = find(&self.derived.lock().unwrap_or_else(PoisonError::into_inner)) {
            return key;
        }
        let key = self.drive_key.partition_key(partition).working_key(epoch);
        if in_force(partition) == Some(epoch) {
            let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
            if derived.len() >= KEYS_KEPT {
                derived.clear();
            }
            derived.push((partition, epoch, key.clone()));
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVE: DriveId = DriveId(9);
    const PARTITION: PartitionId = PartitionId(3);

    /// The number of the key, whether the former key is known, and whether it is in force, at this time.
    fn state(keys: &Keys, now_ms: Option<u64>) -> (u32, bool, bool) {
        keys.with(now_ms, &|_| Some(1), |number, _, former| {
            (number, former.is_some(), former.is_some_and(|former| former.is_in_force))
        })
    }

    #[test]
    fn the_former_key_holds_until_the_manager_has_said_when_it_ends_and_then_until_then() {
        let first = MasterKey::first(Key::new([1; 32]));
        let keys = Keys::new(ClusterId(1), [0; 32], DRIVE, &first);
        assert_eq!(state(&keys, Some(5)), (1, false, false));
        let turned = first.turned(&[7; 32]);
        assert!(turned.is_open_ended());
        keys.handle_turn(&turned);
        assert_eq!(state(&keys, None), (2, true, true), "not even the manager's word is needed");
        let ended = turned.until(100);
        assert!(!ended.is_open_ended());
        keys.handle_turn(&ended);
        assert_eq!(state(&keys, Some(99)), (2, true, true));
        assert_eq!(state(&keys, Some(100)), (2, true, false));
        assert_eq!(state(&keys, None), (2, true, false));
    }

    #[test]
    fn the_working_keys_are_those_of_each_master_key() {
        let first = MasterKey::first(Key::new([1; 32]));
        let turned = first.turned(&[7; 32]);
        let keys = Keys::new(ClusterId(1), [0; 32], DRIVE, &turned);
        let of = |master: &MasterKey| master.key.drive_key(DRIVE).partition_key(PARTITION).working_key(1);
        for _ in 0..2 {
            keys.with(Some(0), &|_| Some(1), |_, present, former| {
                assert_eq!(present(PARTITION, 1), of(&turned));
                assert_eq!((former.expect("known").working_key)(PARTITION, 1), of(&first));
            });
        }
        assert_ne!(of(&turned), of(&first));
    }
}
