//! Drives that die, return, or are replaced; writers that vanish; files removed meanwhile.

use std::collections::BTreeSet;

use braid_layout::{Column, ColumnMask, FileId, Generation, HolderId};
use braid_wire::control::*;
use braid_wire::{Reason, Rights};

use crate::fake::{
    Client, Cluster, FakeDrive, NEW_FILE, eventually, lost, no_shape, numbers, open, opened, raid5, release,
    version,
};

pub(crate) fn mask(columns: &[u8]) -> ColumnMask {
    columns.iter().copied().map(Column).collect()
}

/// Puts the file's objects on all its drives, with nothing pending.
pub(crate) fn put_all(cluster: &Cluster, file: &Opened) {
    for column in 0..u8::try_from(file.stat.segments[0].columns.len()).unwrap() {
        cluster.of(file, column).put(file, Column(column), &[]);
    }
}

pub(crate) async fn stale(client: &mut Client, drive: &str) -> Vec<u64> {
    let request = StaleFiles { drive: drive.into(), after: FileId(0), limit: 100 };
    match client.ask(request).await.unwrap() {
        ControlReply::StaleFiles(reply) => numbers(&reply.files),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn removed_files_are_freed_in_the_end_on_a_drive_that_was_away_and_over_restarts() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    client.done(release(&file, true)).await;
    let away = cluster.of(&file, 1).clone();
    away.kill();
    client.until("it is away", |s| s.drives.iter().any(|d| d.state == DriveState::Away)).await;
    client.done(Unlink { at: NamePlace::of("main", "f"), only: UnlinkOnly::Any, keep: false }).await;
    assert_eq!(client.stat("f").await.unwrap_err().reason, Reason::NotFound);
    eventually("the others are freed", || async { cluster.objects() == 1 }).await;
    assert_eq!(client.status().await.removing, 1);
    let cluster = cluster.restart_manager().await;
    let mut client = cluster.manager.client().await;
    let status = client.status().await;
    assert_eq!((status.removing, status.files), (1, 0));
    away.start().await;
    client.until("all is freed", |s| s.removing == 0).await;
    assert_eq!(cluster.objects(), 0);
    assert!(client.status().await.drives.iter().all(|drive| drive.components == 0));
}

#[tokio::test]
async fn an_open_file_outlives_its_name_until_its_lease_ends() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    client.done(Unlink { at: NamePlace::of("main", "f"), only: UnlinkOnly::Any, keep: false }).await;
    client
        .done(Commit {
            file: file.stat.file,
            lease: file.lease,
            holder: HolderId(7),
            size: 9,
            order: 1,
            cut: Cut::No,
            modified_ns: None,
            backing: Backing::NONE,
        })
        .await;
    assert_eq!((cluster.objects(), client.status().await.removing), (3, 0));
    client.done(release(&file, true)).await;
    client.until("all is freed", |s| s.removing == 0).await;
    assert_eq!(cluster.objects(), 0);
}

#[tokio::test]
async fn a_file_that_was_never_named_goes_with_its_lease() {
    let cluster = Cluster::lapsing(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let file = client
        .opened(CreateUnnamed {
            volume: "main".into(),
            shape: no_shape(),
            holder: HolderId(7),
            avoid: Vec::new(),
            meant_for: None,
            takes_sealed: false,
            new: NEW_FILE,
        })
        .await;
    put_all(&cluster, &file);
    eventually("its components are freed", || async { cluster.objects() == 0 }).await;
    assert!(!client.renews(&file, HolderId(7)).await);
    client.until("nothing is left to be freed", |s| s.removing == 0).await;
}

#[tokio::test]
async fn a_writer_that_vanished_is_recovered_from_before_the_next_gets_the_file() {
    let cluster = Cluster::new(5, raid5(4)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    let stamp = |n| version(1, 1, n);
    // Stripe 0 is on all columns: it may have been acknowledged. Stripe 1 misses column 3. Stripe 2 touches
    // only 0 and 4. Stripes 10 to 15 are on all: more than a fence lists at a time.
    let all = mask(&[0, 1, 2, 3, 4]);
    for column in 0..5u8 {
        let mut pending = vec![(0, stamp(1), all)];
        pending.extend((column != 3).then_some((1, stamp(2), all)));
        pending.extend([0, 4].contains(&column).then_some((2, stamp(3), mask(&[0, 4]))));
        pending.extend((10..16).map(|unit| (unit, stamp(unit), all)));
        cluster.of(&file, column).put(&file, Column(column), &pending);
    }
    client.done(release(&file, false)).await;
    let next = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    assert_eq!((next.stat.g, next.stat.size(), next.lease.0), (Generation(2), 0, 2));
    let object = file.stat.segments[0].columns[0].object;
    for column in 0..5u8 {
        let held = cluster.of(&file, column).object(file.stat.volume.0, object).unwrap();
        assert_eq!((held.g, held.set), (Generation(2), all));
        assert!(held.units.values().all(|unit| unit.pending.is_none()), "column {column}");
        assert_eq!(held.units[&0].settled, stamp(1));
        assert_eq!(held.units[&15].settled, stamp(15));
        assert!(held.units.get(&1).is_none_or(|unit| unit.settled.is_zero()), "taken back");
        if [0, 4].contains(&column) {
            assert_eq!(held.units[&2].settled, stamp(3), "untouched columns have no vote");
        }
    }
}

#[tokio::test]
async fn a_lease_that_lapses_is_recovered_from_without_anybody_asking() {
    let cluster = Cluster::lapsing(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    let object = file.stat.segments[0].columns[0].object;
    eventually("it is fenced", || async {
        (0..3).all(|c| cluster.of(&file, c).object(file.stat.volume.0, object).unwrap().g == Generation(2))
    })
    .await;
    let refusal = client
        .refused(Commit {
            file: file.stat.file,
            lease: file.lease,
            holder: HolderId(7),
            size: 1,
            order: 1,
            cut: Cut::No,
            modified_ns: None,
            backing: Backing::NONE,
        })
        .await;
    assert_eq!(refusal.reason, Reason::LeaseLost);
    assert_eq!(client.refused(release(&file, true)).await.reason, Reason::LeaseLost);
}

#[tokio::test]
async fn a_dead_drive_goes_out_returns_fenced_and_is_rebuilt() {
    let cluster = Cluster::new(5, raid5(4)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    let reader = client.opened(open("f", Access::Read, false)).await;
    // A drive that is up stays in, whatever a client says.
    let refusal = client.refused(lost(&file, &[2])).await;
    assert_eq!((refusal.reason, client.stat("f").await.unwrap().g), (Reason::Busy, Generation(1)));
    let dead = cluster.of(&file, 2).clone();
    dead.kill();
    let after = opened(client.patient(lost(&file, &[2])).await.unwrap());
    assert_eq!((after.stat.g, after.lease), (Generation(2), file.lease));
    assert_eq!(after.stat.segments[0].set, mask(&[0, 1, 3, 4]));
    assert_eq!(
        after.grants[0].iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, true, false, true, true]
    );
    let object = file.stat.segments[0].columns[0].object;
    let g_of = |drive: &FakeDrive| drive.object(file.stat.volume.0, object).unwrap().g;
    assert_eq!((g_of(cluster.of(&file, 0)), g_of(&dead)), (Generation(2), Generation(1)));
    // The same report again (its answer was lost) changes nothing.
    let again = client.opened(lost(&file, &[2])).await;
    assert_eq!(again.stat.g, Generation(2));
    client
        .done(Commit {
            file: file.stat.file,
            lease: file.lease,
            holder: HolderId(7),
            size: 3,
            order: 1,
            cut: Cut::No,
            modified_ns: None,
            backing: Backing::NONE,
        })
        .await;
    client.done(release(&file, true)).await;
    let status = client.status().await;
    let row = status.drives.iter().find(|row| row.drive == dead.id).unwrap();
    assert_eq!((row.stale, row.components, row.state), (1, 1, DriveState::Away));
    // The drive returns. It gets no lease before it was fenced for the columns that went out, so the old
    // reader's capability does not work there.
    let leases = dead.state().leases;
    dead.start().await;
    client.until_up(&[&dead]).await;
    eventually("it has a lease", || async { dead.state().leases > leases }).await;
    assert_eq!(g_of(&dead), Generation(2));
    assert_eq!(reader.grants[0][2].as_ref().unwrap().capability.g, Generation(1));
    assert_eq!(stale(&mut client, &dead.name).await, [file.stat.file.0]);
    assert_eq!(stale(&mut client, &cluster.of(&file, 0).name).await, [0u64; 0]);
    // Its column joins, takes writes, and is read only where too few others are left; then it is ready.
    let heal = dead.begin_heal(file.stat.file).await.unwrap();
    let segment = &heal.stat.segments[0];
    assert_eq!((segment.set, segment.joining), (mask(&[0, 1, 2, 3, 4]), mask(&[2])));
    assert!(heal.grants[0].iter().all(Option::is_some));
    let reader = client.opened(open("f", Access::Read, false)).await;
    let joining = reader.grants[0][2].as_ref().expect("its drive knows what may be read");
    assert!(!joining.capability.rights.include(Rights::WRITE));
    assert!(joining.capability.joining.contains(Column(2)));
    assert_eq!(g_of(&dead), heal.stat.g);
    dead.end_heal(&heal).await.unwrap();
    let row = client.stat("f").await.unwrap();
    assert_eq!((row.segments[0].set, row.segments[0].joining), (mask(&[0, 1, 2, 3, 4]), ColumnMask::EMPTY));
    assert!(stale(&mut client, &dead.name).await.is_empty());
    // A drive with ready columns only may make damaged units of its columns anew; that changes no record.
    let repair = dead.begin_comparison(file.stat.file, 0).await.unwrap();
    assert_eq!((repair.stat.g, repair.stat.segments[0].joining), (row.g, ColumnMask::EMPTY));
    assert!(client.status().await.drives.iter().all(|drive| drive.stale == 0));
}

#[tokio::test]
async fn a_mute_drive_goes_out_once_its_lease_has_lapsed() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    let stopped = cluster.of(&file, 1).clone();
    {
        let mut state = stopped.state();
        (state.mute, state.silent) = (true, true);
    }
    let after = opened(client.patient(lost(&file, &[1])).await.unwrap());
    assert!(!stopped.serves(), "it was taken out only after it had stopped by its own count");
    assert_eq!(after.stat.segments[0].set, mask(&[0, 2]));
}

#[tokio::test]
async fn a_drive_whose_address_refuses_goes_out_only_once_its_lease_has_lapsed() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    let behind = cluster.of(&file, 1).clone();
    behind.cut_off();
    let mut answer = client.ask(lost(&file, &[1])).await;
    while answer.as_ref().is_err_and(|refusal| refusal.reason == Reason::Busy) {
        assert_eq!(client.stat("f").await.unwrap().segments[0].set, mask(&[0, 1, 2]));
        answer = client.ask(lost(&file, &[1])).await;
    }
    assert!(!behind.serves(), "it still answered readers when it was taken out");
    assert_eq!(opened(answer.unwrap()).stat.segments[0].set, mask(&[0, 2]));
}

#[tokio::test]
async fn a_drive_whose_process_is_gone_from_our_host_goes_out_at_once() {
    // No test outlasts this lease, so only the host's word can end the wait.
    let cluster = Cluster::with_drive_lease(3, raid5(2), 300_000).await;
    let mut client = cluster.manager.client().await;
    let mut process = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let mark = braid_transport::process::mark_of(process.id()).expect("the host tells");
    let dead = FakeDrive::join_as(&cluster.manager.ready, 99, "", mark).await.unwrap();
    client.until_up(&[&dead]).await;
    let mut four = open("f", Access::Write, true);
    four.shape = raid5(3);
    let file = client.opened(four).await;
    let columns = &file.stat.segments[0].columns;
    let on = u8::try_from(columns.iter().position(|column| column.drive == dead.id).unwrap()).unwrap();
    for column in (0..4).filter(|&column| column != on) {
        cluster.of(&file, column).put(&file, Column(column), &[]);
    }
    assert_eq!(client.refused(lost(&file, &[on])).await.reason, Reason::Busy, "it lives");
    process.kill().unwrap();
    process.wait().unwrap();
    dead.kill();
    let after = client.opened(lost(&file, &[on])).await;
    assert_eq!(after.stat.segments[0].set, mask(&[0, 1, 2, 3]).without(Column(on)));
}

#[tokio::test]
async fn more_than_m_away_is_said_at_once_with_names() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    let a = cluster.of(&file, 0).clone();
    let b = cluster.of(&file, 1).clone();
    a.kill();
    b.kill();
    let refusal = client.refused(lost(&file, &[0, 1])).await;
    assert_eq!(refusal.reason, Reason::TooManyAway);
    assert!(refusal.detail.contains(&a.name) && refusal.detail.contains(&b.name), "{refusal}");
    client.done(release(&file, true)).await;
    client
        .until("both are away", |s| s.drives.iter().filter(|d| d.state == DriveState::Away).count() == 2)
        .await;
    // A reader gets what is left, and sees which drives are away.
    let reader = client.opened(open("f", Access::Read, false)).await;
    assert!(reader.grants[0].iter().all(Option::is_some));
    let away: BTreeSet<_> = reader.stat.segments[0]
        .columns
        .iter()
        .filter(|c| c.state == DriveState::Away)
        .collect::<Vec<_>>()
        .iter()
        .map(|c| c.drive)
        .collect();
    assert_eq!(away, BTreeSet::from([a.id, b.id]));
    eventually("they have surely lapsed, and a writer is refused with names", || {
        let ready = &cluster.manager.ready;
        async move {
            let mut client = Client::connect(ready).await;
            match client.ask(open("f", Access::Write, false)).await {
                Ok(reply) => client.done(release(&opened(reply), true)).await,
                Err(refusal) => return refusal.reason == Reason::TooManyAway,
            }
            false
        }
    })
    .await;
    let mut new = open("g", Access::Write, true);
    new.shape = raid5(2);
    assert_eq!(client.patient(new).await.unwrap_err().reason, Reason::TooManyAway);
}

#[tokio::test]
async fn no_column_goes_out_while_others_that_are_in_do_not_answer() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    cluster.of(&file, 0).kill();
    cluster.of(&file, 1).kill();
    // The writer has noticed one of the two. Nothing can be written, so nothing may become stale: if only
    // that drive returns, its content must count.
    let refusal = client.refused(lost(&file, &[1])).await;
    assert_eq!(refusal.reason, Reason::TooManyAway, "{refusal}");
    assert_eq!(client.stat("f").await.unwrap().segments[0].set, mask(&[0, 1, 2]));
    let returned = cluster.of(&file, 1);
    returned.start().await;
    client.until_up(&[returned]).await;
    let after = opened(client.patient(lost(&file, &[0])).await.unwrap());
    assert_eq!(after.stat.segments[0].set, mask(&[1, 2]));
}

#[tokio::test]
async fn a_new_file_is_written_degraded_when_too_few_drives_are_up() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    cluster.drives[3].kill();
    client.until("it is away", |s| s.drives.iter().any(|d| d.state == DriveState::Away)).await;
    let file = client.create("f").await;
    let segment = &file.stat.segments[0];
    assert_eq!((segment.set.count(), segment.columns.len()), (3, 4));
    client.done(release(&file, true)).await;
    cluster.drives[3].start().await;
    client.until_up(&[&cluster.drives[3]]).await;
    assert_eq!(stale(&mut client, &cluster.drives[3].name).await, [file.stat.file.0]);
    let heal = cluster.drives[3].begin_heal(file.stat.file).await.unwrap();
    cluster.drives[3].end_heal(&heal).await.unwrap();
    assert_eq!(client.stat("f").await.unwrap().segments[0].set.count(), 4);
}

#[tokio::test]
async fn an_open_for_writing_takes_dead_drives_out_first() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    client.done(release(&file, true)).await;
    cluster.of(&file, 2).kill();
    client.until("it is away", |s| s.drives.iter().any(|d| d.state == DriveState::Away)).await;
    eventually("it has surely lapsed, and goes out before the grant", || async {
        let mut client = cluster.manager.client().await;
        let next = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
        client.done(release(&next, true)).await;
        next.stat.segments[0].set == mask(&[0, 1])
    })
    .await;
}

#[tokio::test]
async fn a_fence_that_is_not_answered_takes_the_column_out_too() {
    let mut shape = raid5(3);
    (shape.scheme, shape.m) = (16, 2);
    let cluster = Cluster::new(5, shape).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    cluster.of(&file, 1).kill();
    cluster.of(&file, 4).kill();
    client.done(release(&file, false)).await;
    let next = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    assert_eq!(next.stat.segments[0].set, mask(&[0, 2, 3]));
    assert!(next.stat.g > Generation(1));
}

#[tokio::test]
async fn a_replaced_drives_columns_move_to_the_new_one_or_beside_it() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let mut files = Vec::new();
    for i in 0..12 {
        let file = client.create(&format!("f{i}")).await;
        put_all(&cluster, &file);
        client.done(release(&file, true)).await;
        files.push(file);
    }
    let old = &cluster.drives[0];
    let new = &cluster.drives[1];
    let replace = ReplaceDrive { old: old.name.clone(), new: new.name.clone() };
    assert_eq!(client.refused(replace.clone()).await.reason, Reason::DriveInUse);
    old.kill();
    client.until("it is away", |s| s.drives.iter().any(|d| d.state == DriveState::Away)).await;
    let on_old = |file: &&Opened| file.stat.segments[0].columns.iter().any(|column| column.drive == old.id);
    let moved: Vec<u64> = files.iter().filter(on_old).map(|file| file.stat.file.0).collect();
    assert!(moved.len() > 3);
    let mut components = 0;
    eventually("it has surely lapsed", || {
        let ready = &cluster.manager.ready;
        let replace = replace.clone();
        async move { Client::connect(ready).await.ask(replace).await.is_ok() }
    })
    .await;
    if let Ok(ControlReply::Replaced(reply)) = client.ask(replace).await {
        components = reply.components;
    }
    assert_eq!(components, u64::try_from(moved.len()).unwrap());
    let reader = client.opened(open("f0", Access::Read, false)).await;
    for (column, grant) in reader.stat.segments[0].columns.iter().zip(&reader.grants[0]) {
        assert_eq!(grant.is_none(), column.drive == old.id, "nothing is read from a replaced drive");
    }
    assert_eq!(stale(&mut client, &new.name).await, moved);
    for file in &moved {
        let heal = new.begin_heal(FileId(*file)).await.unwrap();
        let drives: BTreeSet<_> = heal.stat.segments[0].columns.iter().map(|column| column.drive).collect();
        assert!(drives.len() == 3 && !drives.contains(&old.id));
        // The column that did not go to the new drive is healed by the drive that has it now.
        let segment = &heal.stat.segments[0];
        let column = usize::from(segment.joining.iter().next().unwrap().0);
        cluster.drive(segment.columns[column].drive).end_heal(&heal).await.unwrap();
    }
    assert!(stale(&mut client, &new.name).await.is_empty());
    let status = client.status().await;
    let row = status.drives.iter().find(|row| row.drive == old.id).unwrap();
    assert_eq!((row.state, row.components, row.stale), (DriveState::Replaced, 0, 0));
    // While the new drive is away, a rebuild is refused under both names: that is not "nothing to do".
    new.kill();
    client.until("it is away", |s| s.drives.iter().any(|d| d.state == DriveState::Away)).await;
    for drive in [&old.name, &new.name] {
        let request = StaleFiles { drive: drive.clone(), after: FileId(0), limit: 100 };
        let refusal = client.refused(request).await;
        let why = format!("{} is away", new.name);
        assert!(refusal.reason == Reason::NoDrive && refusal.detail.contains(&why), "{refusal}");
    }
    new.start().await;
    client.until_up(&[new]).await;
    // The old one comes back, is told, and gets no lease. Its name can be taken by another.
    old.start().await;
    eventually("it is told", || async { old.state().replaced }).await;
    assert!(!old.serves());
    // Nor is it told of others: its disk may be in other hands.
    let refusal = old.begin_heal(files[0].stat.file).await.unwrap_err();
    assert!(refusal.reason == Reason::NotAllowed && refusal.detail.contains("was replaced"), "{refusal}");
    let again = FakeDrive::join(&cluster.manager.ready, 99, &old.name).await.unwrap();
    assert_eq!(again.name, old.name);
    let names: BTreeSet<String> = client.status().await.drives.into_iter().map(|row| row.name).collect();
    assert_eq!(names.len(), 5);
}

#[tokio::test]
async fn no_drive_is_judged_within_a_lease_of_the_managers_start() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    cluster.of(&file, 0).kill();
    let cluster = cluster.restart_manager().await;
    let mut client = cluster.manager.client().await;
    let after = opened(client.patient(lost(&file, &[0])).await.unwrap());
    assert!(client.status().await.uptime_ms >= u64::from(crate::fake::LEASE_MS));
    assert_eq!(after.stat.segments[0].set, mask(&[1, 2]));
}
