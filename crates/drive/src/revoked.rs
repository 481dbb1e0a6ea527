//! Capabilities that end before they expire, because their lease was given back or their object was removed.
//! Pure: manager time is a parameter.
//!
//! The manager signs no new capabilities for such a lease or object, and every earlier one expires within
//! [`CAPABILITY_MS`], so an object need be remembered only for that long. A restart forgets all revocations.
//! Capabilities from before the restart may then change nothing; their holders ask the manager for new ones,
//! which it gives only if the lease lives. The manager's own capabilities are never refused here, as the
//! manager decides what ends.

use std::collections::BTreeMap;

use braid_layout::version::Lease;
use braid_layout::{Generation, ObjectId, PartitionId};
use braid_wire::capability::{CAPABILITY_MS, Rights};
use braid_wire::{Capability, Reason, Refusal};

/// Maximum number of objects that are remembered. Beyond that, all capabilities signed before now are
/// refused, as after a restart.
const OBJECTS_MAX: usize = 1 << 20;
/// Longest lag of the drive's view of manager time, in milliseconds: revocations are remembered that much
/// longer.
const LAG_MS: u64 = 60_000;
/// The rights by which a client changes an object.
const CHANGES: Rights = Rights::WRITE.and(Rights::CREATE).and(Rights::REMOVE).and(Rights::SET_ATTRIBUTES);

/// Leases that were given back, and objects that were removed.
#[derive(Debug, Default)]
pub(crate) struct Revoked {
    /// Capabilities that expire at this time or before are refused, as their revocation may have been
    /// forgotten. `None`: manager time is not known yet, and nothing is served.
    floor_ms: Option<u64>,
    objects: BTreeMap<(PartitionId, ObjectId), Revocation>,
}

#[derive(Debug, Clone, Copy)]
struct Revocation {
    /// Leases up to this one, in generations up to this one, are over; `None`: the object was removed. (A
    /// manager restored from a backup may reuse a lease number, but under a generation above all that the
    /// object has had.)
    to: Option<(Generation, Lease)>,
    /// Manager time, in milliseconds, by which every capability revoked here has expired.
    until_ms: u64,
}

impl Revoked {
    /// Manager time is known. Only the first call, at the first answer to a heartbeat, has an effect.
    pub(crate) fn handle_time(&mut self, now_ms: u64) {
        self.floor_ms.get_or_insert(now_ms + CAPABILITY_MS);
    }

    /// A lease on the object was given back.
    pub(crate) fn handle_lease_end(
        &mut self,
        place: (PartitionId, ObjectId),
        lease: (Generation, Lease),
        now_ms: u64,
    ) {
        let before = self.objects.get(&place).map(|known| known.to);
        let to = match before {
            Some(None) => None,
            Some(Some(before)) => Some(before.max(lease)),
            None => Some(lease),
        };
        self.remember(place, to, now_ms);
    }

    /// The object was removed.
    pub(crate) fn handle_removal(&mut self, place: (PartitionId, ObjectId), now_ms: u64) {
        self.remember(place, None, now_ms);
    }

    /// The manager has made a removed object again, because a column of its file is to be here once more.
    /// Capabilities that were signed in earlier generations stay void.
    pub(crate) fn handle_made(&mut self, place: (PartitionId, ObjectId), g: Generation) {
        if let Some(known) = self.objects.get_mut(&place)
            && known.to.is_none()
        {
            known.to = Some((Generation(g.0.saturating_sub(1)), Lease(u32::MAX)));
        }
    }

    /// Returns true if revocations concern requests that need these `rights`.
    pub(crate) fn concerns(rights: Rights) -> bool {
        rights.0 & CHANGES.0 != 0
    }

    /// Ok if a request that needs these `rights` may be carried out under the capability; otherwise the
    /// refusal says why not.
    pub(crate) fn check(&self, capability: &Capability, rights: Rights) -> Result<(), Refusal> {
        if !Revoked::concerns(rights) || capability.rights.include(Rights::MANAGE) {
            return Ok(());
        }
        if self.floor_ms.is_none_or(|floor_ms| capability.expires_ms <= floor_ms) {
            let detail = "the capability is from before the drive's start: ask the manager";
            return Err(Refusal::new(Reason::Expired, detail));
        }
        let detail = match self.objects.get(&(capability.partition, capability.object)) {
            Some(Revocation { to: None, .. }) => "the object was removed: ask the manager".to_owned(),
            Some(Revocation { to: Some(to), .. }) if (capability.g, capability.lease) <= *to => {
                format!("lease {} was given back: ask the manager", capability.lease)
            }
            _ => return Ok(()),
        };
        Err(Refusal::new(Reason::StaleGeneration, detail))
    }

    /// Ok if some request may be carried out under the capability, as far as revocations go; otherwise the
    /// refusal of all of them.
    pub(crate) fn check_any(&self, capability: &Capability) -> Result<(), Refusal> {
        let leaves_some = capability.rights.0 & !CHANGES.0 != 0;
        if leaves_some { Ok(()) } else { self.check(capability, capability.rights) }
    }

    fn remember(&mut self, place: (PartitionId, ObjectId), to: Option<(Generation, Lease)>, now_ms: u64) {
        if self.objects.len() >= OBJECTS_MAX && !self.objects.contains_key(&place) {
            self.objects.retain(|_, known| known.until_ms > now_ms);
            if self.objects.len() >= OBJECTS_MAX {
                self.objects.clear();
                self.floor_ms = Some(now_ms + CAPABILITY_MS + LAG_MS);
            }
        }
        self.objects.insert(place, Revocation { to, until_ms: now_ms + CAPABILITY_MS + LAG_MS });
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::{ClientId, ColumnMask, DriveId, FileId};
    use braid_wire::capability::{LeaseKind, Promise, Protection};

    use super::*;

    const PLACE: (PartitionId, ObjectId) = (PartitionId(1), ObjectId(2));

    fn capability(lease: u32, signed_ms: u64) -> Capability {
        Capability {
            drive: DriveId(1),
            partition: PLACE.0,
            object: PLACE.1,
            rights: Rights::READ.and(Rights::WRITE).and(Rights::CREATE),
            expires_ms: signed_ms + CAPABILITY_MS,
            promise: Promise::NONE,
            client: ClientId::NONE,
            key_epoch: 1,
            g: Generation(1),
            set: ColumnMask::all(1),
            joining: ColumnMask::EMPTY,
            lease: Lease(lease),
            kind: LeaseKind::Exclusive,
            first_stripe: 0,
            end_stripe: u64::MAX,
            reach: u64::MAX,
            protection: Protection::Integrity,
            holder: DriveId(0),
            map: [0; 16],
            file: FileId(2),
        }
    }

    fn reason(revoked: &Revoked, capability: &Capability) -> Option<Reason> {
        revoked.check(capability, Rights::WRITE).err().map(|refusal| refusal.reason)
    }

    #[test]
    fn a_lease_that_was_given_back_writes_no_more_and_the_next_one_does() {
        let mut revoked = Revoked::default();
        revoked.handle_time(1000);
        assert_eq!(reason(&revoked, &capability(3, 2000)), None);
        revoked.handle_lease_end(PLACE, (Generation(1), Lease(3)), 3000);
        assert_eq!(reason(&revoked, &capability(3, 2000)), Some(Reason::StaleGeneration));
        assert_eq!(reason(&revoked, &capability(2, 2000)), Some(Reason::StaleGeneration));
        assert_eq!(reason(&revoked, &capability(4, 2000)), None);
        revoked.handle_lease_end(PLACE, (Generation(1), Lease(1)), 3000);
        assert_eq!(reason(&revoked, &capability(3, 2000)), Some(Reason::StaleGeneration));
        assert!(revoked.check(&capability(3, 2000), Rights::READ).is_ok());
        // It may still be read under it, as long as it is a capability to read.
        assert!(revoked.check_any(&capability(3, 2000)).is_ok());
        let changes = Capability { rights: Rights::WRITE.and(Rights::CREATE), ..capability(3, 2000) };
        assert_eq!(revoked.check_any(&changes).unwrap_err().reason, Reason::StaleGeneration);
        assert!(revoked.check_any(&Capability { lease: Lease(4), ..changes }).is_ok());
        // A restored manager uses the number again.
        let again = Capability { g: Generation(2), ..capability(3, 2000) };
        assert_eq!(reason(&revoked, &again), None);
    }

    #[test]
    fn what_was_removed_is_not_made_again_but_by_the_manager() {
        let mut revoked = Revoked::default();
        revoked.handle_time(1000);
        revoked.handle_removal(PLACE, 3000);
        let client = capability(9, 2000);
        assert!(revoked.check(&client, Rights::CREATE).is_err());
        let manager = Capability { rights: client.rights.and(Rights::MANAGE), ..client.clone() };
        assert!(revoked.check(&manager, Rights::CREATE).is_ok());
        revoked.handle_lease_end(PLACE, (Generation(1), Lease(3)), 3000);
        assert!(revoked.check(&client, Rights::CREATE).is_err(), "it stays removed");
        // The object is made again for a column, in a later generation.
        revoked.handle_made(PLACE, Generation(2));
        assert!(revoked.check(&client, Rights::CREATE).is_err());
        assert!(revoked.check(&Capability { g: Generation(2), ..client.clone() }, Rights::CREATE).is_ok());
        let other = Capability { object: ObjectId(3), ..client };
        assert!(revoked.check(&other, Rights::CREATE).is_ok());
    }

    #[test]
    fn after_a_restart_no_older_capability_changes_anything() {
        let mut revoked = Revoked::default();
        assert_eq!(reason(&revoked, &capability(1, 500)), Some(Reason::Expired));
        revoked.handle_time(1000);
        revoked.handle_time(5000);
        assert_eq!(reason(&revoked, &capability(1, 1000)), Some(Reason::Expired));
        assert_eq!(reason(&revoked, &capability(1, 1001)), None);
    }
}
