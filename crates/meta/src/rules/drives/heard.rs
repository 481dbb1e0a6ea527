//! The facts in a heartbeat that are to be stored in the drive's record.

use braid_wire::control::Heartbeat;

use crate::records::schema::DriveRecord;

/// A drive's capacity is stored anew when it has changed by more than this part of it (1/16).
const CAPACITY_PART: u64 = 16;

/// The drive's record as the heartbeat says it, if it is to be stored; else `None`. The capacity changes with
/// the space that others use on the disk, and to store each change would make each heartbeat a durable write.
/// So only a large change is stored.
pub(super) fn heard(known: &DriveRecord, beat: &Heartbeat) -> Option<DriveRecord> {
    let heard = DriveRecord {
        confirmed: true,
        addresses: beat.addresses.clone(),
        host: beat.host.clone(),
        directory: beat.directory.clone(),
        ..known.clone()
    };
    let moved = known.capacity_bytes.abs_diff(beat.capacity_bytes) > known.capacity_bytes / CAPACITY_PART;
    let changed = heard != *known || moved;
    changed.then_some(DriveRecord { capacity_bytes: beat.capacity_bytes, ..heard })
}
