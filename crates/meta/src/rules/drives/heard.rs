//! What a heartbeat says of its drive that is to be stored.

use braid_wire::control::Heartbeat;

use crate::records::schema::DriveRecord;

/// A drive's capacity is stored anew when it has moved by more than this part (1/16).
const CAPACITY_PART: u64 = 16;

/// The drive's record with what it says of itself, if that is to be stored. Its capacity moves with what
/// others use of the disk: each heartbeat would be a durable write. Only much of that is one.
pub(super) fn heard(known: &DriveRecord, beat: &Heartbeat) -> Option<DriveRecord> {
    let heard = DriveRecord {
        confirmed: true,
        address: beat.address.clone(),
        host: beat.host.clone(),
        directory: beat.directory.clone(),
        ..known.clone()
    };
    let moved = known.capacity_bytes.abs_diff(beat.capacity_bytes) > known.capacity_bytes / CAPACITY_PART;
    let changed = heard != *known || moved;
    changed.then_some(DriveRecord { capacity_bytes: beat.capacity_bytes, ..heard })
}
