//! Reading ahead, on a modelled disk whose time stands still but for what the disk does: so it tells the
//! number of reads. Nothing is in its page cache but what was read ahead.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, config, reason, settings, within};
use braid_drive::READ_AHEAD_BYTES;
use braid_layout::ObjectId;
use braid_schedule::{Charge, DeviceCost, DirectionCost};
use braid_store::disk::modelled::{Device, Time};
use braid_transport::DriveSession;
use braid_wire::Reason;
use braid_wire::capability::{Capability, Rights};
use braid_wire::data::{Address, Attributes, Create, DriveReply, Read, Remove, StripeWrite, Want};

/// Time of a read, in nanoseconds.
const READ_NS: u64 = 1_000_000;
/// Reads of the disk for a unit that was not read ahead: its record's header, and the bytes.
const READS_OF_A_UNIT: u64 = 2;

#[derive(Debug, Clone, Default)]
struct DiskTime(Arc<AtomicU64>);

impl DiskTime {
    /// Reads that the disk has done.
    fn reads(&self) -> u64 {
        self.0.load(Ordering::SeqCst) / READ_NS
    }
}

impl Time for DiskTime {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep_until(&self, ns: u64) {
        self.0.fetch_max(ns, Ordering::SeqCst);
    }
}

async fn start(dir: &Path, manager: &Manager, read_ahead_bytes: u64) -> (Drive, DiskTime) {
    let (mut settings, clock) = settings();
    let time = DiskTime::default();
    let free = DirectionCost { operation_ns: 0, bytes_per_second: u64::MAX };
    let read = DirectionCost { operation_ns: READ_NS, ..free };
    let cost = DeviceCost { charge: Charge::Sum, read, write: free, sync_ns: 0 };
    settings.disk_model = Some(Arc::new(Device::in_time(cost, Box::new(time.clone()))));
    settings.read_ahead_bytes = read_ahead_bytes;
    settings.scrub_rate = 0;
    (Drive::start_with(config(dir, manager, settings), clock, manager).await, time)
}

fn content(unit: u64) -> Vec<u8> {
    bytes(u8::try_from(unit % 251).unwrap(), UNIT)
}

/// Makes the object and writes these units.
async fn write_units(drive: &Drive, units: impl Iterator<Item = u64>) {
    drive.prepare().await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    for unit in units {
        let payload = content(unit);
        within(session.call(&grant, &write(unit, 0, &payload, unit + 1), &[&payload])).await.unwrap();
    }
}

async fn read_unit(drive: &Drive, session: &mut DriveSession, unit: u64) -> Vec<u8> {
    // With all rights it would be the system's.
    let grant = drive.grant(Capability { rights: Rights::READ, ..object_level() });
    match within(session.call(&grant, &read(unit, 0, UNIT), &[])).await {
        Ok((DriveReply::Read(_), bytes)) => bytes,
        other => panic!("unit {unit}: {other:?}"),
    }
}

/// Reads of the disk for reading these units, one after the other.
async fn reads_for(drive: &Drive, time: &DiskTime, units: &[u64]) -> u64 {
    let before = time.reads();
    let mut session = drive.session().await;
    for &unit in units {
        assert!(read_unit(drive, &mut session, unit).await == content(unit), "unit {unit}");
    }
    time.reads() - before
}

#[tokio::test]
async fn interleaved_streams_are_read_ahead_and_reads_at_random_are_not() {
    let streams: Vec<u64> = (0..24).flat_map(|unit| (0..4).map(move |stream| stream * 100 + unit)).collect();
    // Never two units side by side, nor one apart, as over parity.
    let random: Vec<u64> =
        (0..32).map(|i| (i * 13 % 32) * 3).map(|unit| unit / 24 * 100 + unit % 24).collect();
    let mut found = Vec::new();
    for bytes_max in [0, READ_AHEAD_BYTES] {
        let dir = tempfile::tempdir().unwrap();
        let manager = Manager::start().await;
        let (drive, _) = start(dir.path(), &manager, bytes_max).await;
        let mut units = streams.clone();
        units.sort_unstable();
        write_units(&drive, units.into_iter()).await;
        drive.stop().await;
        // What was read before the restart is not in memory.
        let (drive, time) = start(dir.path(), &manager, bytes_max).await;
        found.push((reads_for(&drive, &time, &random).await, reads_for(&drive, &time, &streams).await));
        drive.stop().await;
    }
    let count = |units: &[u64]| u64::try_from(units.len()).unwrap();
    let [(random_off, streams_off), (random_on, streams_on)] = found[..] else { unreachable!() };
    assert_eq!(random_off, count(&random) * READS_OF_A_UNIT);
    assert_eq!(random_on, random_off);
    // Headers that the first reads brought are remembered.
    assert_eq!(streams_off, count(&streams) * READS_OF_A_UNIT - count(&random));
    assert!(streams_on < streams_off / 2, "{streams_on} of {streams_off}");
}

#[tokio::test]
async fn small_objects_of_a_cluster_are_read_in_one_sweep() {
    const OBJECTS: u64 = 16;
    const SMALL: u32 = 4096;
    let at = |object| Address { object: ObjectId(object), ..AT };
    let of = |object| Capability { object: ObjectId(object), ..object_level() };
    let mut found = Vec::new();
    for (bytes_max, cluster) in [(READ_AHEAD_BYTES, 0), (0, 7), (READ_AHEAD_BYTES, 7)] {
        let dir = tempfile::tempdir().unwrap();
        let manager = Manager::start().await;
        let (drive, _) = start(dir.path(), &manager, bytes_max).await;
        drive.prepare().await;
        let mut session = drive.session().await;
        for object in 100..100 + OBJECTS {
            let grant = drive.grant(of(object));
            let create =
                Create { at: at(object), attributes: Attributes { cluster, ..attributes_of(map()) } };
            within(session.call(&grant, &create.into(), &[])).await.unwrap();
            let payload = bytes(u8::try_from(object).unwrap(), SMALL);
            let request = StripeWrite { at: at(object), ..write_of(0, 0, &payload, object) }.into();
            within(session.call(&grant, &request, &[&payload])).await.unwrap();
        }
        drive.stop().await;
        let (drive, time) = start(dir.path(), &manager, bytes_max).await;
        let mut session = drive.session().await;
        let before = time.reads();
        for object in 100..100 + OBJECTS {
            let grant = drive.grant(Capability { rights: Rights::READ, ..of(object) });
            let want = Want::Newest;
            let request =
                Read { at: at(object), unit: 0, from: 0, to: SMALL, want, exactly: vec![], timed: false };
            let answer = within(session.call(&grant, &request.into(), &[])).await.unwrap();
            assert!(answer.1 == bytes(u8::try_from(object).unwrap(), SMALL), "object {object}");
        }
        found.push(time.reads() - before);
        drive.stop().await;
    }
    let [no_cluster, off, swept] = found[..] else { unreachable!() };
    assert_eq!(no_cluster, off, "nothing is read that was not asked for");
    assert!(swept * 3 < off, "{swept} of {off}");
}

#[tokio::test]
async fn what_was_written_over_after_it_was_read_ahead_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let (drive, time) = start(dir.path(), &manager, READ_AHEAD_BYTES).await;
    write_units(&drive, 0..24).await;
    let units: Vec<u64> = (0..4).collect();
    reads_for(&drive, &time, &units).await;
    let mut session = drive.session().await;
    for unit in 4..24 {
        // Every other one is new.
        if unit % 2 == 0 {
            let payload = content(unit + 100);
            drive.write(unit, &payload, unit + 1000).await;
            assert!(read_unit(&drive, &mut session, unit).await == payload, "unit {unit}");
        } else {
            assert!(read_unit(&drive, &mut session, unit).await == content(unit), "unit {unit}");
        }
    }
    drive.stop().await;
}

#[tokio::test]
async fn an_object_that_is_removed_while_it_is_read_ahead_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let (drive, time) = start(dir.path(), &manager, READ_AHEAD_BYTES).await;
    write_units(&drive, 0..24).await;
    let units: Vec<u64> = (0..4).collect();
    reads_for(&drive, &time, &units).await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    within(session.call(&grant, &Remove { at: AT, term: 1 }.into(), &[])).await.unwrap();
    assert_eq!(reason(within(session.call(&grant, &read(4, 0, UNIT), &[])).await), Reason::NoObject);
    // Nor are its bytes those of a new one.
    within(session.call(&grant, &create(), &[])).await.unwrap();
    assert!(read_unit(&drive, &mut session, 5).await.is_empty());
    drive.stop().await;
}
