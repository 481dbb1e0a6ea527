//! Drives that new files and moved columns may go to: their free space, as placement sees it.

use braid_layout::placement::Candidate;

use crate::rules::drives::Drive;

/// A drive with less free space than this takes no new files while others can...
const ROOM_BYTES_MIN: u64 = 64 << 20;
/// ... or with less than this fraction (1/64) of its capacity, if that is smaller.
const ROOM_PART: u64 = 64;

/// Returns true if new files, and columns of a replaced drive, may go to a drive: with too little space most
/// of their writes would find it full.
pub fn has_room(drive: &Drive) -> bool {
    drive.free_bytes > 0 && drive.free_bytes >= ROOM_BYTES_MIN.min(drive.capacity_bytes / ROOM_PART)
}

/// A drive as placement sees it: weighted by its free space in MiB, so that all drives fill up at about the
/// same time.
pub fn candidate(drive: &Drive) -> Candidate {
    let weight = u32::try_from(drive.free_bytes >> 20).unwrap_or(u32::MAX).max(1);
    let domain = vec![drive.record.rack.clone(), drive.record.host.clone()];
    Candidate { drive: drive.record.drive, weight, domain }
}

/// Returns true if columns may move to a drive. A drive that has lost ranges of keys cannot tell that an
/// object is new.
pub fn takes_columns(drive: &Drive) -> bool {
    has_room(drive) && !drive.draining && drive.scrub.lost == 0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_layout::DriveId;
    use braid_wire::control::Heartbeat;

    use super::*;
    use crate::rules::drives::{DriveTable, examples};
    use crate::rules::pauses::Pauses;

    const D: DriveId = DriveId(1);

    fn table() -> DriveTable {
        let mut table = DriveTable::new(1000, 0, Arc::new(Pauses::new(1300, 0)));
        let record = examples::record(1, "one");
        table.insert(record);
        table
    }

    fn says(table: &mut DriveTable, capacity_bytes: u64, free_bytes: u64) -> (bool, u32) {
        let beat = Heartbeat { capacity_bytes, free_bytes, ..examples::beat("a:1") };
        table.heartbeat(D, &beat, 5000).unwrap();
        let drive = table.drive(D).unwrap();
        (has_room(drive), candidate(drive).weight)
    }

    #[test]
    fn a_drive_has_room_until_it_says_or_a_client_meets_that_it_is_full() {
        let mut table = table();
        assert!(
            !says(&mut table, 1 << 40, ROOM_BYTES_MIN - 1).0 && says(&mut table, 1 << 40, ROOM_BYTES_MIN).0
        );
        assert!(!says(&mut table, 1 << 30, (16 << 20) - 1).0, "a small one");
        assert!(says(&mut table, 1 << 30, 16 << 20).0 && !says(&mut table, 1, 0).0);
        assert_eq!(says(&mut table, 1 << 40, 1 << 39), (true, 1 << 19), "in MiB");
        table.met_full(D);
        let drive = table.drive(D).unwrap();
        assert_eq!((has_room(drive), candidate(drive).weight), (false, 1));
    }
}
