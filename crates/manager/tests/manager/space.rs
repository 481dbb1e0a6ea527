//! New files, and columns of replaced drives, go where there is space.

use std::collections::BTreeSet;

use braid_layout::{Column, DriveId, HolderId};
use braid_wire::Reason;
use braid_wire::control::*;

use crate::fake::{Client, Cluster, FakeDrive, NEW_FILE, ends_at, eventually, no_shape, raid5, release};

pub(crate) fn drives(opened: &Opened) -> BTreeSet<DriveId> {
    opened.stat.segments[0].columns.iter().map(|column| column.drive).collect()
}

fn unnamed(avoid: &BTreeSet<DriveId>) -> CreateUnnamed {
    let avoid = avoid.iter().copied().collect();
    CreateUnnamed {
        volume: "main".into(),
        shape: no_shape(),
        holder: HolderId(7),
        avoid,
        meant_for: None,
        takes_sealed: false,
        new: NEW_FILE,
    }
}

#[tokio::test]
async fn full_drives_are_passed_over_while_others_are_enough() {
    let cluster = Cluster::new(8, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let full: BTreeSet<DriveId> = cluster.drives[..4].iter().map(|drive| drive.id).collect();
    cluster.drives[..4].iter().for_each(|drive| drive.state().full = true);
    eventually("the manager knows", || async {
        let mut client = cluster.manager.client().await;
        let rows = client.status().await.drives;
        rows.iter().filter(|row| row.free_bytes == 0).count() == 4
    })
    .await;
    let rows = client.status().await.drives;
    assert!(rows.iter().all(|row| (row.free_bytes == 0) == full.contains(&row.drive)));
    for n in 0..20 {
        let file = client.create(&format!("f{n}")).await;
        assert!(drives(&file).is_disjoint(&full), "{n}");
    }
    // With one more full drive there are not enough others: then any drive is used.
    cluster.drives[4].state().full = true;
    eventually("it is full too", || async {
        let mut client = cluster.manager.client().await;
        client.status().await.drives.iter().filter(|row| row.free_bytes == 0).count() == 5
    })
    .await;
    assert_eq!(drives(&client.create("any").await).len(), 4);
}

#[tokio::test]
async fn a_file_that_met_full_drives_is_made_anew_on_others() {
    let cluster = Cluster::new(8, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let first = client.opened(unnamed(&BTreeSet::new())).await;
    let met: BTreeSet<DriveId> = drives(&first).into_iter().take(2).collect();
    for _ in 0..20 {
        let next = client.opened(unnamed(&met)).await;
        assert!(drives(&next).is_disjoint(&met));
    }
    // The request names too many drives to avoid: they are used again.
    let most: BTreeSet<DriveId> = cluster.drives[..5].iter().map(|drive| drive.id).collect();
    assert_eq!(drives(&client.opened(unnamed(&most)).await).len(), 4);
}

/// Makes a drive full or gives it space again, and waits until the manager knows.
async fn fill(client: &mut Client, drive: &FakeDrive, full: bool) {
    drive.state().full = full;
    let known = |row: &DriveRow| row.drive == drive.id && (row.free_bytes == 0) == full;
    client.until("the manager knows", |status| status.drives.iter().any(known)).await;
}

#[tokio::test]
async fn a_replaced_drives_column_moves_to_no_full_drive() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    (0..3).for_each(|column| cluster.of(&file, column).put(&file, Column(column), &[]));
    client.done(release(&file, true)).await;
    let holders = drives(&file);
    let others: Vec<&FakeDrive> =
        cluster.drives.iter().filter(|drive| !holders.contains(&drive.id)).collect();
    // The new drive has a column of the file already, so the old one's goes elsewhere.
    let old = cluster.of(&file, 0);
    let new = cluster.of(&file, 1);
    old.kill();
    client.patient(ReplaceDrive { old: old.name.clone(), new: new.name.clone() }).await.unwrap();
    for drive in &others {
        fill(&mut client, drive, true).await;
    }
    let refusal = new.begin_heal(file.stat.file).await.unwrap_err();
    assert_eq!(refusal.reason, Reason::TooFewDrives, "{refusal}");
    assert!(refusal.detail.contains("has room: add a drive"), "{refusal}");
    // The column is where it was, and moves once there is room.
    fill(&mut client, others[1], false).await;
    let heal = new.begin_heal(file.stat.file).await.unwrap();
    let expected = holders.into_iter().filter(|drive| *drive != old.id).chain([others[1].id]).collect();
    assert_eq!(drives(&heal), expected);
    others[1].end_heal(&heal).await.unwrap();
}

#[tokio::test]
async fn a_full_drive_does_not_take_the_place_of_another() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    (0..3).for_each(|column| cluster.of(&file, column).put(&file, Column(column), &[]));
    let commit = Commit {
        file: file.stat.file,
        lease: file.lease,
        holder: HolderId(7),
        size: 1000,
        order: 1,
        cut: Cut::No,
        modified_ns: None,
        backing: Backing::NONE,
    };
    client.done(commit).await;
    client.done(ends_at(1000, release(&file, true))).await;
    let old = cluster.of(&file, 0);
    let holders = drives(&file);
    let new = cluster.drives.iter().find(|drive| !holders.contains(&drive.id)).unwrap();
    fill(&mut client, new, true).await;
    old.kill();
    let replace = || ReplaceDrive { old: old.name.clone(), new: new.name.clone() };
    let refusal = client.patient(replace()).await.unwrap_err();
    assert_eq!(refusal.reason, Reason::Full, "{refusal}");
    assert!(refusal.detail.contains("name a drive with more"), "{refusal}");
    fill(&mut client, new, false).await;
    client.patient(replace()).await.unwrap();
}

#[tokio::test]
async fn pictures_of_the_names_that_drives_do_not_take_leave_nothing_there() {
    let cluster = Cluster::new(3, raid5(2)).await;
    cluster.drives.iter().for_each(|drive| drive.state().no_names = true);
    let mut client = cluster.manager.client().await;
    client.create("f").await;
    let drive = &cluster.drives[0];
    let before = drive.state().streams_made;
    eventually("it is tried again", || async { drive.state().streams_made >= before + 3 }).await;
    // Perhaps one was taken before the drives refused, and is still the newest.
    eventually("nothing is left", || async { drive.state().streams.len() <= 1 }).await;
}
