//! A drive and a heartbeat, for tests of this crate and of those above it.

use braid_wire::capability::Key;
use braid_wire::control::StateMark;

use super::*;

/// A drive on record.
pub fn record(id: u128, name: &str) -> DriveRecord {
    DriveRecord {
        drive: DriveId(id),
        name: name.to_owned(),
        master: Key::new([0; 32]),
        confirmed: false,
        replaced_by: DriveId(0),
        addresses: "a:1".into(),
        host: String::new(),
        rack: String::new(),
        directory: String::new(),
        capacity_bytes: 1,
        joined_ms: 0,
        instance: 1,
        stored: 1,
        start: 1,
        log: 0,
        behind: false,
    }
}

/// A heartbeat of a process from this address.
pub fn beat(address: &str) -> Heartbeat {
    Heartbeat {
        addresses: address.into(),
        host: String::new(),
        directory: String::new(),
        pid: 1,
        process: process(1),
        capacity_bytes: 1,
        used_bytes: 0,
        live_bytes: 0,
        free_bytes: 0,
        spare_bytes: 0,
        file_system: Default::default(),
        restarted: false,
        epoch: 0,
        io: String::new(),
        scrub: ScrubState::default(),
        start: 1,
        instance: 1,
        log: 0,
        seen: StateMark::default(),
        closing: false,
        manager_ms: 0,
        stalled_ms: 0,
        reads: Latency::default(),
        commits: Latency::default(),
        counts: Default::default(),
        parts: None,
        promises: Vec::new(),
        ended: Vec::new(),
        key: 1,
    }
}

pub(super) fn process(pid: u32) -> ProcessMark {
    ProcessMark { pid, ..ProcessMark::default() }
}
