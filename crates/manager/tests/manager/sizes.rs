//! A file's size after its writer died or released uncleanly: the bytes on the drives decide, unless a cut
//! was in progress.

use braid_layout::{Column, HolderId};
use braid_wire::Reason;
use braid_wire::capability::Protection;
use braid_wire::control::*;
use braid_wire::data::UnitState;

use crate::fake::{Cluster, ends_at, open, opened, raid5, release, version};

const UNIT: u64 = 4096;

/// raid5 3+1: the column of a stripe's data unit. Parity is on column 3, 2, 1, 0, and so on.
fn column_of(stripe: u64, data: u8) -> u8 {
    u8::try_from((u64::from(data) + 4 - stripe % 4) % 4).unwrap()
}

/// Every column has stripe 0 in full. Of stripe 5 there is only data unit 1, up to `end`, and the parity.
fn put(cluster: &Cluster, file: &Opened, end: u32) {
    let place = (braid_layout::PartitionId(file.stat.volume.0), file.stat.segments[0].columns[0].object);
    for column in 0..4 {
        let drive = cluster.of(file, column);
        drive.put(file, Column(column), &[]);
        let mut state = drive.state();
        let units = &mut state.objects.get_mut(&place).unwrap().units;
        let mut insert = |unit, end, cover: &[u64]| {
            let lease = file.lease.0;
            let of = |&n: &u64| if n > 0 { version(1, lease, n) } else { version(0, 0, 0) };
            let cover: Vec<_> = cover.iter().map(of).collect();
            let ends = vec![end; cover.len()];
            let settled = version(1, lease, 7);
            // The parity unit is longer, as other data units were longer before.
            let end = if ends.is_empty() { end } else { 4096 };
            units.insert(unit, UnitState { settled, end, cover, ends, ..UnitState::unwritten(unit) });
        };
        insert(0, u32::try_from(UNIT).unwrap(), if column == 3 { &[7, 7, 7] } else { &[] });
        if column == column_of(5, 1) {
            insert(5, end, &[]);
        } else if column == column_of(5, 3) {
            insert(5, end, &[0, 7, 0]);
        }
        // A distant hole is no data.
        insert(9, 0, &[]);
    }
}

fn commit(file: &Opened, size: u64, order: u64, cut: Cut) -> Commit {
    Commit {
        file: file.stat.file,
        lease: file.lease,
        holder: HolderId(7),
        size,
        order,
        cut,
        modified_ns: None,
        backing: Backing::NONE,
    }
}

#[tokio::test]
async fn what_was_acknowledged_past_the_committed_size_counts_whatever_the_quota_says() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    client
        .done(VolumeCreate {
            name: "small".into(),
            shape: raid5(3),
            quota_bytes: 100,
            protection: Protection::Integrity,
            key: None,
        })
        .await;
    let mut request = open("f", Access::Write, true);
    request.at = NamePlace::of("small", "f");
    let file = client.opened(request.clone()).await;
    put(&cluster, &file, 1000);
    client.done(commit(&file, 60, 1, Cut::No)).await;
    client.done(release(&file, false)).await;
    request.create = false;
    let next = opened(client.patient(request).await.unwrap());
    let end = 5 * 3 * UNIT + UNIT + 1000;
    assert_eq!((next.stat.size(), next.cut), (end, false));
    let Ok(ControlReply::Volumes(volumes)) = client.ask(VolumeList {}).await else { panic!() };
    let small = volumes.volumes.iter().find(|volume| volume.name == "small").unwrap();
    assert_eq!((small.files, small.file_bytes), (1, end), "it is charged for");
    // A smaller commit is a cut. The quota forbids only growth.
    client.done(commit(&next, 60, 1, Cut::Begins)).await;
}

#[tokio::test]
async fn parity_tells_of_a_column_that_is_out() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put(&cluster, &file, 1000);
    cluster.of(&file, column_of(5, 1)).kill();
    client.done(release(&file, false)).await;
    let next = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    assert_eq!(next.stat.segments[0].set.count(), 3, "its column is out");
    assert_eq!(next.stat.size(), 5 * 3 * UNIT + UNIT + 1000);
}

/// A synced size stands though a drive dies with the writer, and though a manager put back from a backup has
/// heard nothing since: parity of writes that the size covers says nothing more about it. For a later write
/// parity tells where its bytes end.
#[tokio::test]
async fn a_size_is_not_guessed_where_it_was_committed() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put(&cluster, &file, 1000);
    let size = 5 * 3 * UNIT + UNIT + 1000;
    let end = 5 * 3 * UNIT + UNIT + 2000;
    let place = (braid_layout::PartitionId(file.stat.volume.0), file.stat.segments[0].columns[0].object);
    let parity = cluster.of(&file, column_of(5, 3));
    parity.state().objects.get_mut(&place).unwrap().units.get_mut(&5).unwrap().ends[1] = 2000;
    let backing = Backing { within: version(1, 1, 8), receipts: Vec::new() };
    client.done(Commit { backing, ..commit(&file, size, 1, Cut::No) }).await;
    cluster.of(&file, column_of(5, 1)).kill();
    client.done(release(&file, false)).await;
    let next = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    assert_eq!((next.stat.segments[0].set.count(), next.stat.size()), (3, size));
    // Written since.
    let unit = |units: &mut UnitState| units.cover[1] = version(u32::MAX, next.lease.0, 1);
    unit(parity.state().objects.get_mut(&place).unwrap().units.get_mut(&5).unwrap());
    client.done(release(&next, false)).await;
    let last = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    assert_eq!(last.stat.size(), end);
}

#[tokio::test]
async fn a_release_that_leaves_bytes_past_the_size_is_not_clean() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put(&cluster, &file, 1000);
    client.done(commit(&file, 60, 1, Cut::No)).await;
    client.done(ends_at(61, release(&file, true))).await;
    let next = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    assert!(next.stat.g > file.stat.g, "it was recovered from");
    assert_eq!(next.stat.size(), 5 * 3 * UNIT + UNIT + 1000);
    // A release that leaves no such bytes is clean.
    client.done(ends_at(next.stat.size(), release(&next, true))).await;
    let last = client.opened(open("f", Access::Write, false)).await;
    assert_eq!((last.stat.g, last.stat.size()), (next.stat.g, next.stat.size()));
}

/// A writer that lost its lease while it could not reach the manager, and gives it up now.
#[tokio::test]
async fn a_late_release_is_refused_and_leaves_the_next_writer_its_lease() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    client.done(release(&file, false)).await;
    let next = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    assert_ne!(next.lease, file.lease);
    for clean in [false, true] {
        assert_eq!(client.refused(release(&file, clean)).await.reason, Reason::LeaseLost, "clean: {clean}");
    }
    assert!(client.renews(&next, HolderId(7)).await);
    client.done(commit(&next, 10, 1, Cut::No)).await;
    client.done(ends_at(10, release(&next, true))).await;
}

#[tokio::test]
async fn while_a_file_is_being_cut_its_size_stands() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put(&cluster, &file, 1000);
    client.done(commit(&file, 10 * UNIT, 1, Cut::No)).await;
    client.done(commit(&file, 60, 2, Cut::Begins)).await;
    client.done(release(&file, false)).await;
    let mut next = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    for _ in 0..2 {
        assert_eq!((next.stat.size(), next.cut), (60, true));
        // Neither a release nor another size ends the cut.
        client.done(commit(&next, 60, 1, Cut::No)).await;
        client.done(release(&next, true)).await;
        next = client.opened(open("f", Access::Write, false)).await;
    }
    client.done(commit(&next, 60, 1, Cut::Ends)).await;
    put(&cluster, &next, 1000);
    client.done(release(&next, false)).await;
    let last = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    assert!(!last.cut && last.stat.size() > 60, "it is settled again: {}", last.stat.size());
}
