//! Admission of processes as drives, and of a state as the current one, where several claim it at once or
//! after a restore.

use braid_layout::DriveId;
use braid_manager::core::Core;
use braid_manager::sessions::members::heartbeat;
use braid_meta::records::memory::MemoryKv;
use braid_meta::records::schema::{DriveRecord, key};
use braid_meta::rules::grants::CAPABILITY_MS;
use braid_meta::rules::leadership::Leadership;
use braid_wire::control::*;

use crate::crash::InMemory;
use crate::fake::{Client, FakeDrive};

/// A heartbeat of a process that has just started.
pub(crate) fn beat(start: u64, instance: u64) -> Heartbeat {
    Heartbeat {
        addresses: "127.0.0.1:1".into(),
        host: "h".to_owned(),
        directory: "/d".to_owned(),
        pid: 1,
        process: ProcessMark::default(),
        capacity_bytes: 1 << 40,
        used_bytes: 0,
        live_bytes: 0,
        free_bytes: 1 << 39,
        spare_bytes: 0,
        file_system: Default::default(),
        restarted: true,
        epoch: 0,
        io: String::new(),
        scrub: Default::default(),
        start,
        instance,
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

/// A manager in memory, and a drive that joined and no longer runs.
async fn with_drive() -> (InMemory, DriveId) {
    with_drive_on(&MemoryKv::new()).await
}

pub(crate) async fn with_drive_on(kv: &MemoryKv) -> (InMemory, DriveId) {
    let manager = InMemory::start(kv, "127.0.0.1:0").await;
    let drive = FakeDrive::join(&manager.ready, 1, "a").await.unwrap();
    Client::connect(&manager.ready).await.until_up(&[&drive]).await;
    drive.state().silent = true;
    drive.kill();
    (manager, drive.id)
}

/// Sends heartbeats until the last process of the drive has surely ended.
pub(crate) async fn admitted(
    core: &std::sync::Arc<Core>,
    drive: DriveId,
    beat: &Heartbeat,
) -> HeartbeatReply {
    loop {
        let reply = heartbeat(core, drive, beat.clone()).await.unwrap();
        if reply.instance != beat.instance {
            return reply;
        }
        assert_eq!(reply.admission, Admission::Wait, "{reply:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn of_two_processes_that_speak_at_once_one_is_the_drive() {
    let (manager, drive) = with_drive().await;
    let core = &manager.core;
    // The last process has ended: the lease of the one before has lapsed, and this one stops in good order.
    let first = admitted(core, drive, &beat(50, 1)).await;
    heartbeat(core, drive, beat(50, first.instance)).await.unwrap();
    let closing = Heartbeat { closing: true, restarted: false, ..beat(50, first.instance) };
    heartbeat(core, drive, closing).await.unwrap();
    let own = beat(60, first.instance);
    let copy = beat(70, first.instance);
    let (one, two) = tokio::join!(heartbeat(core, drive, own), heartbeat(core, drive, copy));
    let one = one.unwrap();
    let two = two.unwrap();
    assert_eq!((one.lease_ms, two.lease_ms), (0, 0), "nobody serves before its number is stored");
    let numbered = [&one, &two].iter().filter(|reply| reply.instance > first.instance).count();
    assert_eq!(numbered, 1, "{one:?} {two:?}");
}

#[tokio::test]
async fn a_process_that_died_before_it_stored_its_number_costs_its_drive_nothing() {
    let (manager, drive) = with_drive().await;
    let core = &manager.core;
    let first = admitted(core, drive, &beat(50, 1)).await;
    assert_eq!((first.instance, first.lease_ms), (2, 0));
    // Its successor uses the same directory, which still has the old number. It need not wait, as no lease
    // was given.
    let next = admitted(core, drive, &beat(51, 1)).await;
    assert_eq!(next.instance, 3);
    let serves = heartbeat(core, drive, beat(51, 3)).await.unwrap();
    assert_eq!(serves.admission, Admission::Serve, "{serves:?}");
}

/// The table has an older process than the state: a transaction that took too long was carried out after all,
/// or two reported out of order.
#[tokio::test]
async fn a_table_behind_the_state_is_brought_up_by_the_next_heartbeat() {
    let (manager, drive) = with_drive().await;
    let core = &manager.core;
    let first = admitted(core, drive, &beat(50, 1)).await;
    core.write(move |_, tx| {
        let record: DriveRecord = tx.record(&key::drive(drive))?.expect("it has joined");
        tx.set(
            key::drive(drive),
            &DriveRecord { instance: first.instance + 1, stored: first.instance, ..record },
        );
        Ok(())
    })
    .await
    .unwrap();
    let late = heartbeat(core, drive, beat(50, first.instance)).await.unwrap();
    assert_eq!((late.admission, late.lease_ms), (Admission::Wait, 0));
    let told = heartbeat(core, drive, beat(50, first.instance)).await.unwrap();
    assert_eq!(told.instance, first.instance + 1);
    let serves = heartbeat(core, drive, beat(50, told.instance)).await.unwrap();
    assert_eq!(serves.admission, Admission::Serve, "{serves:?}");
    // A later change, made from a copy of the record with an older process, does not undo that.
    let now = core.drives().drive(drive).expect("known").record.clone();
    core.drives().set_record(DriveRecord { start: 1, instance: 1, stored: 1, log: 9, ..now.clone() });
    assert_eq!(core.drives().drive(drive).expect("known").record, DriveRecord { log: 9, ..now });
}

/// The time of the manager that was lost may have been far ahead of the wall clock.
#[tokio::test]
async fn a_restored_state_goes_on_after_every_time_that_drives_were_told() {
    let (manager, drive) = with_drive().await;
    let core = &manager.core;
    let hour_ms = 3_600_000;
    let told = Heartbeat { manager_ms: core.now_ms() + hour_ms, ..beat(50, 1) };
    admitted(core, drive, &told).await;
    assert!(core.clock.running_ms() < told.manager_ms, "a state that was not restored knows its time");
    *core.leadership() = Leadership::Comparing(String::new());
    core.write(|_, tx| {
        tx.set(key::meta("restored_term"), &501u64);
        Ok(())
    })
    .await
    .unwrap();
    let seen = StateMark { term: 500, mark: 7, changes: 1 };
    heartbeat(core, drive, Heartbeat { seen, ..told.clone() }).await.unwrap();
    let raised_ms = core.clock.running_ms();
    assert!(raised_ms > told.manager_ms + CAPABILITY_MS);
    // A time that this manager has told itself comes back, and changes nothing.
    let own = Heartbeat { seen: core.mark(), manager_ms: raised_ms, ..beat(50, 2) };
    heartbeat(core, drive, own).await.unwrap();
    assert!(core.clock.running_ms() < raised_ms + CAPABILITY_MS);
}

#[tokio::test]
async fn a_drive_that_was_away_while_a_restored_state_was_compared_does_not_stop_it() {
    let (manager, drive) = with_drive().await;
    let core = &manager.core;
    let lost = StateMark { term: 500, mark: 7, changes: 1 << 40 };
    core.write(|_, tx| {
        tx.set(key::meta("restored_term"), &501u64);
        Ok(())
    })
    .await
    .unwrap();
    let seen = Heartbeat { seen: lost.clone(), ..beat(50, 1) };
    admitted(core, drive, &seen).await;
    // A term from after the restore belongs to a newer state.
    let newer = Heartbeat { seen: StateMark { term: 501, ..lost }, ..beat(50, 2) };
    let reply = heartbeat(core, drive, newer).await.unwrap();
    assert_eq!(reply.admission, Admission::ManagerOlder);
}

#[tokio::test]
async fn a_manager_that_still_asks_its_drives_leaves_no_mark_on_them() {
    let kv = MemoryKv::new();
    let manager = InMemory::start(&kv, "127.0.0.1:0").await;
    let mut drives = Vec::new();
    for id in 1..=3 {
        let drive = FakeDrive::join(&manager.ready, id, &format!("d{id}")).await.unwrap();
        Client::connect(&manager.ready).await.until_up(&[&drive]).await;
        drive.state().silent = true;
        drive.kill();
        drives.push(drive.id);
    }
    manager.die().await;
    let manager = InMemory::start(&kv, "127.0.0.1:0").await;
    let first = heartbeat(&manager.core, drives[0], beat(1, 1)).await.unwrap();
    assert_eq!(first.state, StateMark::default(), "it may be an older copy");
    heartbeat(&manager.core, drives[1], beat(1, 1)).await.unwrap();
    // It leads: more than half of its drives were heard.
    let now = heartbeat(&manager.core, drives[0], beat(1, 1)).await.unwrap();
    assert_ne!(now.state, StateMark::default());
}
