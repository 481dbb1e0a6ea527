//! A drive that verifies what it stores, on a clock that is set by hand.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, config, reason, settings};
use braid_drive::Settings;
use braid_layout::{ObjectId, PartitionId};
use braid_store::decode_record;
use braid_store::format::record::{Kind, Record};
use braid_testing::answer;
use braid_wire::Reason;
use braid_wire::data::{DriveReply, LostKeys, Scrub, ScrubAct, ScrubPhase, ScrubReply};

/// Settings without passes of the drive's own.
fn quiet() -> (Settings, std::sync::Arc<std::sync::atomic::AtomicU64>) {
    let (settings, clock) = settings();
    (Settings { scrub_rate: 0, ..settings }, clock)
}

async fn start(dir: &Path, manager: &Manager) -> Drive {
    let (settings, clock) = quiet();
    Drive::start_with(config(dir, manager, settings), clock, manager).await
}

async fn ask(drive: &Drive, act: ScrubAct, rate: u64) -> ScrubReply {
    let mut session = drive.session().await;
    let request = Scrub { act, rate, term: 1 }.into();
    match session.call(&drive.grant(drive_level()), &request, &[]).await.unwrap().0 {
        DriveReply::Scrub(reply) => reply,
        other => panic!("{other:?}"),
    }
}

async fn look(drive: &Drive) -> ScrubReply {
    ask(drive, ScrubAct::Look, 0).await
}

/// Waits for a state of the scrub, advancing the clock by `each_ms` between two checks.
async fn until(drive: &Drive, each_ms: u64, wanted: impl Fn(&ScrubReply) -> bool) -> ScrubReply {
    answer("the scrub is there", async || {
        let reply = Some(look(drive).await).filter(&wanted);
        if reply.is_none() {
            drive.advance_ms(each_ms);
        }
        reply
    })
    .await
}

/// Changes one byte of the stored bytes that were made from this seed.
fn damage(dir: &Path, seed: u8) {
    // Longer than the period of the bytes, so they are found in one place only.
    let wanted = bytes(seed, 300);
    for entry in fs::read_dir(dir.join("store/log")).unwrap().map(|entry| entry.unwrap().path()) {
        let content = fs::read(&entry).unwrap();
        if let Some(at) = content.windows(wanted.len()).position(|window| window == wanted) {
            let file = fs::File::options().write(true).open(&entry).unwrap();
            return file.write_all_at(&[!wanted[0]], u64::try_from(at).unwrap()).unwrap();
        }
    }
    panic!("the bytes are nowhere");
}

#[tokio::test]
async fn who_starts_a_pass_of_little_is_told_that_it_began() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = start(dir.path(), &manager).await;
    drive.prepare().await;
    for passes in 1..=100 {
        let begun = ask(&drive, ScrubAct::Start, u64::MAX).await.state;
        assert!(begun.phase != ScrubPhase::Idle && begun.passes == passes - 1, "{begun:?}");
        until(&drive, 10, |reply| reply.state.passes == passes).await;
    }
}

#[tokio::test]
async fn a_pass_verifies_everything_and_names_what_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = start(dir.path(), &manager).await;
    drive.prepare().await;
    for unit in 0..20_u8 {
        drive.write(u64::from(unit), &bytes(unit * 11, UNIT), u64::from(unit) + 1).await;
    }
    let before = look(&drive).await;
    assert_eq!((before.state.phase, before.state.passes, before.state.rate), (ScrubPhase::Idle, 0, 0));
    ask(&drive, ScrubAct::Start, u64::MAX).await;
    let clean = until(&drive, 10, |reply| reply.state.passes == 1).await.state;
    assert_eq!((clean.units, clean.bytes, clean.damaged), (20, 20 * u64::from(UNIT), 0));
    assert!(clean.began_ms > 0 && clean.ended_ms >= clean.began_ms);

    damage(dir.path(), 7 * 11);
    ask(&drive, ScrubAct::Start, u64::MAX).await;
    let found = until(&drive, 10, |reply| reply.state.passes == 2).await;
    assert_eq!((found.state.damaged, found.state.units), (1, 20));
    let unit = &found.damaged[0];
    assert_eq!((unit.partition, unit.object, unit.unit), (PARTITION, OBJECT, Some(7)));
    assert_eq!(unit.file, map().file);
    assert!(unit.what.contains("checksum"), "{}", unit.what);
    // A restart keeps the list; writing the unit again repairs it.
    drive.stop().await;
    let drive = start(dir.path(), &manager).await;
    let still = look(&drive).await;
    assert_eq!((still.state.passes, still.damaged), (2, found.damaged));
    for n in [101, 102] {
        // The second write settles the first, so that the damaged content is dropped.
        drive.write(7, &bytes(3, UNIT), n).await;
    }
    ask(&drive, ScrubAct::Start, u64::MAX).await;
    assert_eq!(until(&drive, 10, |reply| reply.state.passes == 3).await.state.damaged, 0);
    drive.stop().await;
}

/// Damages the headers of those records of a stopped drive that `hit` selects, and removes its checkpoints,
/// so that the next opening reads the log.
fn damage_records(dir: &Path, hit: impl Fn(&Record) -> bool) {
    for entry in fs::read_dir(dir.join("store/checkpoint")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let path = dir.join("store/log/00000001.seg");
    let mut content = fs::read(&path).unwrap();
    for at in (0..content.len()).step_by(512) {
        if decode_record(&content[at..]).is_ok_and(|record| hit(&record)) {
            content[at + 100] ^= 1;
        }
    }
    fs::write(path, content).unwrap();
}

/// The range of keys that is lost.
fn lost(keys: &LostKeys) -> (PartitionId, Option<ObjectId>, Option<PartitionId>, Option<ObjectId>) {
    (keys.partition, keys.object, keys.to_partition, keys.to_object)
}

const VALUES: (PartitionId, Option<ObjectId>, Option<PartitionId>, Option<ObjectId>) =
    (PARTITION, None, Some(PARTITION), Some(ObjectId(0)));

#[tokio::test]
async fn a_partition_whose_values_are_lost_is_named_until_it_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = start(dir.path(), &manager).await;
    drive.prepare().await;
    drive.write(0, &bytes(1, UNIT), 1).await;
    assert_eq!((look(&drive).await.state.lost, look(&drive).await.lost), (0, Vec::new()));
    drive.stop().await;
    damage_records(dir.path(), |record| record.kind == Kind::PartitionCreate);
    for _ in 0..2 {
        // The loss is known without a pass, and the next opening knows it from the checkpoint.
        let drive = start(dir.path(), &manager).await;
        let found = look(&drive).await;
        assert_eq!((found.state.lost, found.lost.iter().map(lost).collect()), (1, vec![VALUES]));
        assert!(found.lost[0].what.contains("segment 1"), "{}", found.lost[0].what);
        drive.stop().await;
    }
    let drive = start(dir.path(), &manager).await;
    drive.prepare().await;
    assert_eq!((look(&drive).await.state.lost, look(&drive).await.lost), (0, Vec::new()));
    drive.stop().await;
}

#[tokio::test]
async fn lost_ranges_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = start(dir.path(), &manager).await;
    drive.prepare().await;
    for unit in 0..4 {
        drive.write(unit, &bytes(1, UNIT), unit + 1).await;
    }
    drive.stop().await;
    // Two in a row: the record after them reveals only the second.
    damage_records(dir.path(), |record| record.kind == Kind::Data && (1..3).contains(&record.unit));
    let drive = start(dir.path(), &manager).await;
    let found = look(&drive).await;
    // All but the object that later records mention.
    let below = (PartitionId(0), None, Some(PARTITION), Some(OBJECT));
    let above = (PARTITION, Some(ObjectId(OBJECT.0 + 1)), None, None);
    assert_eq!((found.state.lost, found.lost.iter().map(lost).collect()), (3, vec![VALUES, below, above]));
    assert!(found.lost[0].what.contains("values"), "{}", found.lost[0].what);
    assert!(found.lost[1].what.contains("segment 1"), "{}", found.lost[1].what);
    drive.stop().await;
}

#[tokio::test]
async fn a_pass_waits_for_its_rate_and_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = start(dir.path(), &manager).await;
    drive.prepare().await;
    for unit in 0..40 {
        drive.write(unit, &bytes(1, UNIT), unit + 1).await;
    }
    ask(&drive, ScrubAct::Start, 1 << 20).await;
    // The clock stands still: there is one step of 1 MiB, and no more.
    let first = until(&drive, 0, |reply| reply.state.bytes > 0).await.state;
    assert_eq!(first.bytes, 1 << 20);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(look(&drive).await.state.bytes, 1 << 20);
    // The step ran beside the writes, so it costs four times as much.
    drive.advance_ms(3999);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(look(&drive).await.state.bytes, 1 << 20);
    drive.advance_ms(1);
    let second = until(&drive, 0, |reply| reply.state.bytes > 1 << 20).await.state;
    assert_eq!((second.bytes, second.phase), (2 << 20, ScrubPhase::Running));
    drive.stop().await;
    let drive = start(dir.path(), &manager).await;
    let ended = until(&drive, 10, |reply| reply.state.passes == 1).await.state;
    assert_eq!((ended.units, ended.bytes), (40, 40 * u64::from(UNIT)));
    drive.stop().await;
}

#[tokio::test]
async fn the_drive_scrubs_by_itself_and_only_for_the_manager_on_demand() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    // The drive's first own pass, with nothing stored.
    let own = until(&drive, 10, |reply| reply.state.passes == 1).await.state;
    assert_eq!((own.asked, own.units, own.rate), (false, 0, braid_drive::SCRUB_RATE));
    drive.prepare().await;
    let mut session = drive.session().await;
    let start = Scrub { act: ScrubAct::Start, rate: 1, term: 1 }.into();
    let client = drive.grant(object_level());
    assert_eq!(reason(session.call(&client, &start, &[]).await), Reason::Scope);
    drive.advance_ms(60_000);
    drive.until_refused(Reason::NotServing).await;
    assert_eq!(reason(session.call(&drive.grant(drive_level()), &start, &[]).await), Reason::NotServing);
    drive.stop().await;
}
