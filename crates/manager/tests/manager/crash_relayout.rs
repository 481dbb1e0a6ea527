//! Files that are laid out anew, at a manager that dies after any of its commits meanwhile.

use std::time::Duration;

use braid_layout::{FileId, HolderId, PartitionId, ReservationId};
use braid_meta::records::check::check;
use braid_meta::records::memory::MemoryKv;
use braid_transport::TransportError;
use braid_wire::Reason;
use braid_wire::capability::Protection;
use braid_wire::control::*;
use tokio::task::JoinSet;

use crate::crash::{successor, three_drives};
use crate::fake::{Client, FakeDrive, eventually, no_shape, open, release};

const MIRRORED: ShapeSpec = ShapeSpec { scheme: 1, k: 1, m: 2, unit_bytes: 4096 };

/// Makes a file that is to be laid out anew, and has the drives fill the new layout. After the manager has
/// died all requests are refused, which is ignored.
async fn workload(client: &mut Client, drives: &[FakeDrive]) {
    let main = || "main".to_owned();
    let _ = client
        .ask(VolumeCreate {
            name: main(),
            shape: no_shape(),
            quota_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        })
        .await;
    if let Ok(ControlReply::Opened(file)) = client.ask(open("f", Access::Write, true)).await {
        let _ = client.ask(release(&file, true)).await;
    }
    let _ = client.ask(Relayout { at: NamePlace::of(main(), "f"), shape: Some(MIRRORED) }).await;
    fill(client, drives).await;
}

/// Has drives fill new layouts until the list is empty, for a bounded time.
async fn fill(client: &mut Client, drives: &[FakeDrive]) {
    for _ in 0..600 {
        let Ok(ControlReply::Relayouts(left)) = client.ask(Relayouts { after: FileId(0), limit: 0 }).await
        else {
            return;
        };
        if left.files == 0 {
            return;
        }
        for row in left.rows {
            for drive in drives {
                let begin = BeginHeal { file: row.file, comparison: 0, filling: true, in_vain: 0 };
                if let Ok(ControlReply::Opened(opened)) = drive.ask(begin).await {
                    assert!(opened.filling.is_some() && opened.stat.segments.len() == 1);
                    let file = opened.stat.file;
                    let g = opened.stat.g;
                    let _ = drive.ask(EndHeal { file, g, left: 0, comparison: 0, filling: true }).await;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn run(die_after: Option<u64>) -> u64 {
    let kv = MemoryKv::new();
    let (manager, mut client, drives) = three_drives(&kv).await;
    let before = kv.commits();
    if let Some(commits) = die_after {
        kv.die_after(commits);
    }
    workload(&mut client, &drives).await;
    let commits = kv.commits() - before;
    drop(client);
    let (manager, mut client) = successor(&kv, manager, die_after).await;
    client.until("drives are up", |s| s.drives.iter().all(|drive| drive.state == DriveState::Up)).await;
    fill(&mut client, &drives).await;
    let left = client.ask(Relayouts { after: FileId(0), limit: 0 }).await;
    let Ok(ControlReply::Relayouts(left)) = left else { panic!("died after {die_after:?}: {left:?}") };
    assert_eq!(left.files, 0, "died after {die_after:?}: {:?}", left.rows);
    let status = client.status().await;
    if status.files == 1 {
        let stat = client.stat("f").await.unwrap();
        assert_eq!(stat.segments.len(), 1);
        let shape = &stat.segments[0].shape;
        // The relayout may have been among the last commits, or not.
        assert!(*shape == MIRRORED || die_after.is_some(), "{shape:?}");
        let objects: Vec<_> = stat.segments[0].columns.iter().map(|column| column.object).collect();
        let volume = PartitionId::from(stat.volume);
        eventually("what is of no layout is freed", || async {
            let holds =
                |drive: &&FakeDrive| drive.state().objects.keys().all(|at| *at == (volume, objects[0]));
            drives.iter().filter(holds).count() == 3
        })
        .await;
    }
    let whole = check(&manager.core.db).unwrap();
    assert!(whole.is_empty(), "finished after {die_after:?}: {whole:#?}");
    manager.die().await;
    commits
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_may_die_after_any_commit_of_a_relayout() {
    let commits = run(None).await;
    assert!(commits > 12, "{commits}");
    let mut runs = JoinSet::new();
    for after in 0..commits {
        runs.spawn(run(Some(after)));
        if runs.len() >= 12 {
            runs.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(done) = runs.join_next().await {
        done.unwrap();
    }
}

/// A drive reads a file only while it fills its columns.
#[tokio::test]
async fn a_drive_reads_no_file_that_it_does_not_fill() {
    let (manager, mut client, drives) = three_drives(&MemoryKv::new()).await;
    client
        .ask(VolumeCreate {
            name: "main".into(),
            shape: no_shape(),
            quota_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        })
        .await
        .unwrap();
    let Ok(ControlReply::Opened(file)) = client.ask(open("f", Access::Write, true)).await else { panic!() };
    client.ask(release(&file, true)).await.unwrap();
    let file = file.stat.file;
    for access in [Access::Read, Access::Write] {
        let read = Refresh {
            file,
            access,
            lease: Default::default(),
            holder: HolderId::NONE,
            turn: Turn::Any,
            in_vain: 0,
            reservation: ReservationId::NONE,
            reach: 0,
            room: Room::Keep,
            snapshot: 0,
        };
        match drives[0].ask(read).await {
            Err(TransportError::Refusal(refusal)) => {
                let wanted = if access == Access::Read { Reason::NotFound } else { Reason::NotAllowed };
                assert_eq!(refusal.reason, wanted, "{refusal}");
            }
            other => panic!("{other:?}"),
        }
    }
    manager.die().await;
}
