//! Reserved data rates: booked once, there after a restart, carried by the capabilities of what is opened
//! under them, and given back.

use std::collections::BTreeSet;

use braid_layout::{DriveId, ReservationId};
use braid_wire::Reason;
use braid_wire::capability::{DataDirection, Promise};
use braid_wire::control::*;

use crate::fake::{Client, Cluster, eventually, open, opened, raid5, release};
use crate::successors::moving;

const HOUR_MS: u64 = 3_600_000;

fn ask(path: &str, rate: u64) -> ReserveRate {
    ReserveRate {
        at: NamePlace::of("main", path),
        direction: DataDirection::Write,
        rate,
        streams: 1,
        period_ms: 100,
        survive: 1,
        duration_ms: HOUR_MS,
        claim_ms: 0,
        rail: 0,
        shape: ShapeSpec::DEFAULT,
        trial: false,
    }
}

fn told(reply: Result<ControlReply, braid_wire::Refusal>) -> RateReserved {
    match reply {
        Ok(ControlReply::RateReserved(reply)) => reply,
        other => panic!("{other:?}"),
    }
}

async fn reserve(client: &mut Client, request: ReserveRate) -> RateReserved {
    told(client.ask(request).await)
}

async fn page(client: &mut Client, after: ReservationId) -> ReservationReply {
    match client.ask(Reservations { after }).await {
        Ok(ControlReply::Reservations(reply)) => reply,
        other => panic!("{other:?}"),
    }
}

/// A list that fits one reply.
async fn list(client: &mut Client) -> ReservationReply {
    let listed = page(client, ReservationId::NONE).await;
    assert!(!listed.more, "{listed:?}");
    listed
}

/// The reservations that the capabilities of an open file carry, and the drives that they are for.
fn carried(opened: &Opened) -> (BTreeSet<ReservationId>, BTreeSet<DriveId>) {
    let grants = opened.grants.iter().flatten().flatten();
    let promised = grants.map(|grant| (grant.capability.promise.reservation, grant.capability.drive));
    promised.unzip()
}

/// Waits until all drives have told what they cost.
async fn calibrated(client: &mut Client) {
    client.until("calibrated", |status| status.drives.iter().all(|drive| drive.parts.is_some())).await;
}

#[tokio::test]
async fn a_repeated_request_books_once_and_a_restart_keeps_it() {
    let mut cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    let heads = client.operations(1);
    let first = told(client.ask_as(&heads[0], ask("cam", 50_000_000)).await).admitted.expect("it fits");
    let booked = list(&mut client).await.drives;
    for restarted in [false, true] {
        if restarted {
            cluster = cluster.restart_manager().await;
            client.0 = cluster.manager.client().await.0;
        }
        let again =
            told(client.ask_as(&heads[0], ask("cam", 50_000_000)).await).admitted.expect("it was booked");
        assert_eq!(again.reservation, first.reservation, "restarted: {restarted}");
        assert_eq!(list(&mut client).await.reservations.len(), 1, "restarted: {restarted}");
    }
    // The books are made again once the drives are back.
    eventually("it is in the books", || async {
        let mut client = cluster.manager.client().await;
        list(&mut client).await.drives == booked
    })
    .await;
}

#[tokio::test]
async fn what_is_opened_under_it_carries_it() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    let row = reserve(&mut client, ask("cam", 50_000_000)).await.admitted.expect("it fits");
    let planned: BTreeSet<DriveId> = row.plan.drives.iter().map(|drive| drive.drive).collect();
    assert_ne!(row.claim_until_ms, 0);
    let file = client.create("cam").await;
    assert_eq!(carried(&file), (BTreeSet::from([row.reservation]), planned.clone()), "in its layout");
    assert_eq!(file.stat.segments[0].shape, row.plan.shape);
    let handle = file.promise.expect("the client is told");
    assert_eq!((handle.reservation, handle.rate), (row.reservation, 50_000_000));
    assert_eq!(list(&mut client).await.reservations[0].claim_until_ms, 0, "it is claimed");
    client.done(release(&file, true)).await;
    let reader = opened(client.ask(open("cam", Access::Read, false)).await.unwrap());
    assert_eq!(carried(&reader).0, BTreeSet::from([ReservationId::NONE]), "not in the other direction");
    let other = client.create("other").await;
    assert_eq!((carried(&other).0, other.promise), (BTreeSet::from([ReservationId::NONE]), None));
    client.done(EndReservation { reservation: row.reservation }).await;
    let file = opened(client.patient(open("cam", Access::Write, false)).await.unwrap());
    assert_eq!(
        file.grants[0][0].as_ref().expect("granted").capability.promise,
        Promise::NONE,
        "it has ended"
    );
}

#[tokio::test]
async fn a_file_that_is_elsewhere_has_no_promise() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    let names: Vec<String> = (0..12).map(|number| format!("f{number}")).collect();
    for name in &names {
        let file = client.create(name).await;
        client.done(release(&file, true)).await;
    }
    let asked = ReserveRate { shape: raid5(2), ..ask("", 1_000_000) };
    let row = reserve(&mut client, asked).await.admitted.expect("it fits");
    let planned: BTreeSet<DriveId> = row.plan.drives.iter().map(|drive| drive.drive).collect();
    let mut elsewhere = 0;
    for name in &names {
        let file = opened(client.patient(open(name, Access::Write, false)).await.unwrap());
        let drives = file.stat.segments[0].columns.iter().map(|column| column.drive);
        let is_planned = drives.collect::<BTreeSet<_>>().is_subset(&planned);
        assert_eq!(file.promise.is_some(), is_planned, "{name}");
        elsewhere += usize::from(!is_planned);
    }
    assert!(elsewhere > 0, "all files are on the drives of the plan");
}

#[tokio::test]
async fn a_promise_follows_a_column_that_moves() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    let asked = ReserveRate { shape: raid5(2), ..ask("f", 1_000_000) };
    let row = reserve(&mut client, asked).await.admitted.expect("it fits");
    let (file, holder, spare) = moving(&cluster, &mut client).await;
    assert!(file.promise.is_some());
    let comparison = spare.begin_heal(file.stat.file).await.unwrap();
    spare.end_heal(&comparison).await.unwrap();
    let moved = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    let lies: BTreeSet<DriveId> = moved.stat.segments[0].columns.iter().map(|column| column.drive).collect();
    assert!(lies.contains(&spare.id) && !lies.contains(&holder.id), "{lies:?}");
    assert_eq!(carried(&moved), (BTreeSet::from([row.reservation]), lies), "at all of its drives");
    assert!(moved.promise.is_some(), "as a whole");
}

#[tokio::test]
async fn too_much_is_refused_with_offers_that_hold() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    let refused =
        reserve(&mut client, ask("cam", 5_000_000_000)).await.refused.expect("no five disks do that");
    assert!(!refused.resource.is_empty() && refused.needed_permille > refused.free_permille, "{refused:?}");
    let best = refused.offers.iter().find(|offer| offer.begins_ms == 0).expect("something is free").rate;
    let more = ReserveRate { trial: true, ..ask("cam", best + best / 20) };
    assert!(reserve(&mut client, more).await.admitted.is_none(), "it is the most");
    let trial = ReserveRate { trial: true, ..ask("cam", best) };
    assert_eq!(reserve(&mut client, trial).await.admitted.expect("it fits").reservation, ReservationId::NONE);
    assert!(list(&mut client).await.reservations.is_empty(), "a trial books nothing");
    assert!(reserve(&mut client, ask("cam", best)).await.admitted.is_some());
    let reply = list(&mut client).await;
    assert!(
        reply.drives.iter().all(|drive| drive.worst_permille <= reply.share_permille),
        "{:?}",
        reply.drives
    );
    assert_eq!(client.refused(ask("cam", 1)).await.reason, Reason::Exists, "one for a name and direction");
    assert_eq!(client.refused(ask("other", 0)).await.reason, Reason::Range);
}

#[tokio::test]
async fn it_is_given_back_when_its_time_is_over_or_nobody_comes() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    let before = list(&mut client).await.drives;
    let short = ReserveRate { duration_ms: 300, ..ask("a", 1_000_000) };
    let unclaimed = ReserveRate { claim_ms: 300, ..ask("b", 1_000_000) };
    for request in [short, unclaimed] {
        assert!(reserve(&mut client, request).await.admitted.is_some());
    }
    eventually("they are over", || async {
        let mut client = cluster.manager.client().await;
        let reply = list(&mut client).await;
        reply.reservations.is_empty() && reply.drives == before
    })
    .await;
}

#[tokio::test]
async fn what_has_ended_is_free_once_the_drives_know() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    let refused = reserve(&mut client, ask("cam", 1_000_000_000_000)).await.refused.expect("too much");
    let now = refused.offers.iter().filter(|offer| offer.begins_ms == 0 && offer.survive == 1);
    let most = now.map(|offer| offer.rate).max().expect("an offer");
    let row = reserve(&mut client, ask("cam", most)).await.admitted.expect("it was offered");
    let file = client.create("cam").await;
    client.done(release(&file, true)).await;
    client.done(EndReservation { reservation: row.reservation }).await;
    // Capabilities of the first are good for two minutes.
    eventually("the drives honour them no more", || async {
        let mut client = cluster.manager.client().await;
        reserve(&mut client, ask("other", most)).await.admitted.is_some()
    })
    .await;
}

async fn qualify(client: &mut Client, act: QualifyAct, whole: Option<WholeRate>) -> Qualified {
    match client.ask(Qualify { act, whole }).await {
        Ok(ControlReply::Qualified(reply)) => reply,
        other => panic!("{other:?}"),
    }
}

/// The rates of the whole of these drives.
fn whole(cluster: &Cluster, rate: u64) -> Option<WholeRate> {
    Some(WholeRate {
        read_bytes_per_second: rate,
        write_bytes_per_second: rate,
        measured_ms: 0,
        drives: cluster.drives.iter().map(|drive| drive.id).collect(),
        by: "here".to_owned(),
    })
}

#[tokio::test]
async fn the_whole_bounds_what_is_admitted_and_outlives_a_restart() {
    let mut cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    let trial = |rate| ReserveRate { trial: true, ..ask("cam", rate) };
    let rate = 50_000_000;
    assert!(reserve(&mut client, trial(rate)).await.admitted.is_some(), "the parts can do it");
    assert_eq!(qualify(&mut client, QualifyAct::Look, None).await.whole, None);
    let kept = qualify(&mut client, QualifyAct::Keep, whole(&cluster, 50_000_000)).await;
    assert_eq!(kept.refused, "");
    let kept = kept.whole.expect("it is kept");
    assert!(kept.measured_ms > 0 && kept.by == "here", "{kept:?}");
    for restarted in [false, true] {
        if restarted {
            cluster = cluster.restart_manager().await;
            client = cluster.manager.client().await;
            calibrated(&mut client).await;
            client
                .until("up", |status| status.drives.iter().all(|drive| drive.state == DriveState::Up))
                .await;
        }
        assert_eq!(qualify(&mut client, QualifyAct::Look, None).await.whole.as_ref(), Some(&kept));
        let refused = reserve(&mut client, trial(rate)).await.refused.expect("together they cannot");
        assert!(refused.resource.contains("qualified rate"), "restarted: {restarted}: {refused:?}");
        let best = refused.offers.iter().find(|offer| offer.begins_ms == 0).expect("something is free").rate;
        assert!(reserve(&mut client, trial(best)).await.admitted.is_some());
    }
    assert_eq!(qualify(&mut client, QualifyAct::Forget, None).await.whole, None);
    assert!(reserve(&mut client, trial(rate)).await.admitted.is_some(), "it is forgotten");
}

#[tokio::test]
async fn a_whole_that_is_far_off_is_refused_unless_it_is_insisted_on() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    // Each disk does 200 MB/s.
    let above = qualify(&mut client, QualifyAct::Keep, whole(&cluster, 1_300_000_000)).await;
    assert!(above.refused.contains("by their own parts") && above.whole.is_none(), "{above:?}");
    let good = qualify(&mut client, QualifyAct::Keep, whole(&cluster, 1_000_000_000)).await;
    assert_eq!(good.refused, "");
    let low = qualify(&mut client, QualifyAct::Keep, whole(&cluster, 90_000_000)).await;
    assert!(low.refused.contains("10 times"), "{low:?}");
    assert_eq!(low.whole, good.whole, "the last good one stays");
    let anyway = qualify(&mut client, QualifyAct::KeepAnyway, whole(&cluster, 90_000_000)).await;
    assert_eq!(anyway.whole.expect("kept").read_bytes_per_second, 90_000_000);
    let act = QualifyAct::KeepAnyway;
    let of = |drives: Vec<DriveId>| whole(&cluster, 1).map(|whole| WholeRate { drives, ..whole });
    let twice = cluster.drives[0].id;
    for whole in [None, whole(&cluster, 0), of(vec![]), of(vec![twice, twice])] {
        assert_eq!(client.refused(Qualify { act, whole }).await.reason, Reason::Malformed);
    }
    let stranger = of(vec![DriveId(99)]);
    assert_eq!(client.refused(Qualify { act, whole: stranger }).await.reason, Reason::NoDrive);
}

#[tokio::test]
async fn too_few_drives_are_told_by_number() {
    let cluster = Cluster::new(3, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    let asked = ReserveRate { shape: raid5(6), ..ask("cam", 1000) };
    let refused = reserve(&mut client, asked).await.refused.expect("there are three");
    assert_eq!(refused.detail, "3 drives are in service and calibrated, and the plan needs 7");
}

#[tokio::test]
async fn a_file_that_exists_is_priced_and_written_where_it_is() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    let file = client.create("cam").await;
    client.done(release(&file, true)).await;
    let lies: BTreeSet<DriveId> = file.stat.segments[0].columns.iter().map(|column| column.drive).collect();
    let row = reserve(&mut client, ask("cam", 1_000_000)).await.admitted.expect("it fits");
    let booked: BTreeSet<DriveId> = row.plan.drives.iter().map(|drive| drive.drive).collect();
    assert_eq!((row.plan.shape.k, booked), (2, lies.clone()), "in its own layout");
    let again = opened(client.patient(open("cam", Access::Write, false)).await.unwrap());
    assert_eq!(carried(&again), (BTreeSet::from([row.reservation]), lies), "the promise holds");
}

#[tokio::test]
async fn a_file_is_not_made_on_a_drive_of_the_plan_that_is_drained() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    let asked = ReserveRate { shape: raid5(2), ..ask("cam", 1_000_000) };
    let row = reserve(&mut client, asked).await.admitted.expect("it fits");
    let drained = &row.plan.drives[0];
    client.ask(DrainDrive { drive: drained.name.clone(), drain: true }).await.unwrap();
    let file = client.create("cam").await;
    let lies = file.stat.segments[0].columns.iter().map(|column| column.drive).collect::<Vec<_>>();
    assert!(!lies.contains(&drained.drive), "{lies:?}");
}

#[tokio::test]
async fn what_drives_promise_follows_the_layouts() {
    let cluster = Cluster::new(5, raid5(4)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    let wide = client.create("wide").await;
    client.done(release(&wide, true)).await;
    let asked = ReserveRate { direction: DataDirection::Read, ..ask("", 10_000_000) };
    let before = reserve(&mut client, asked).await.admitted.expect("it fits").plan.drives[0].rate;
    let narrow = Open { shape: raid5(2), ..open("narrow", Access::Write, true) };
    let narrow = opened(client.patient(narrow).await.unwrap());
    client.done(release(&narrow, true)).await;
    let columns = narrow.stat.segments[0].columns.iter().map(|column| column.drive);
    let on_narrow: BTreeSet<DriveId> = columns.collect();
    // With a drive lost, half of the file comes from each of two, where there was a fourth.
    eventually("the drives of the narrow file promise more, and only they", || async {
        let mut client = cluster.manager.client().await;
        let row = list(&mut client).await.reservations.remove(0);
        row.plan.drives.iter().all(|drive| (drive.rate > before) == on_narrow.contains(&drive.drive))
    })
    .await;
    let reader = opened(client.ask(open("narrow", Access::Read, false)).await.unwrap());
    let carried = reader.grants.iter().flatten().flatten().next().expect("granted").capability.promise;
    assert!(carried.rate > before, "{carried:?}");
}

#[tokio::test]
async fn files_of_different_shapes_promise_each_drive_its_own_rate() {
    let cluster = Cluster::new(7, raid5(4)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    let mirror = ShapeSpec { scheme: 1, k: 1, m: 1, ..raid5(4) };
    let written = reserve(&mut client, ReserveRate { shape: mirror, ..ask("narrow", 1_000_000) }).await;
    let mut drives = Vec::new();
    for name in ["narrow", "wide"] {
        let file = client.create(name).await;
        let columns = file.stat.segments[0].columns.iter().map(|column| column.drive);
        drives.push(columns.collect::<BTreeSet<DriveId>>());
        client.done(release(&file, true)).await;
    }
    let reservation = written.admitted.expect("it fits").reservation;
    client.done(EndReservation { reservation }).await;
    let asked = ReserveRate { direction: DataDirection::Read, ..ask("", 4_000_000) };
    let row = reserve(&mut client, asked).await.admitted.expect("it fits");
    let planned = |drive| row.plan.drives.iter().find(|of| of.drive == drive).expect("planned").rate;
    let [narrow, wide] = drives.as_slice() else { panic!("{drives:?}") };
    assert!(narrow.iter().all(|drive| planned(*drive) >= 4_000_000), "{row:?}");
    assert!(wide.difference(narrow).all(|drive| planned(*drive) < 3_000_000), "{row:?}");
    for name in ["narrow", "wide"] {
        let file = opened(client.patient(open(name, Access::Read, false)).await.unwrap());
        for grant in file.grants.iter().flatten().flatten() {
            let capability = &grant.capability;
            assert_eq!(capability.promise.rate, planned(capability.drive), "{name}");
        }
    }
}

#[tokio::test]
async fn a_clients_rail_is_booked_after_a_restart_too() {
    let mut cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    // With parity 90 MB/s go out for each; of the rail at most 160 MB/s are booked.
    let on_rail = |path| ReserveRate { rail: 200_000_000, ..ask(path, 60_000_000) };
    let first = reserve(&mut client, on_rail("one")).await.admitted.expect("the rail has room");
    for restarted in [false, true] {
        if restarted {
            cluster = cluster.restart_manager().await;
            client.0 = cluster.manager.client().await.0;
            let is_up = |drive: &DriveRow| drive.state == DriveState::Up;
            client.until("up", |status| status.drives.iter().all(is_up)).await;
        }
        let refused = reserve(&mut client, on_rail("two")).await.refused.expect("the rail is full");
        assert_eq!(refused.resource, "the client's rail", "restarted: {restarted}");
    }
    let mut other = cluster.manager.client().await;
    let trial = ReserveRate { trial: true, ..on_rail("two") };
    assert!(reserve(&mut other, trial).await.admitted.is_some(), "another client has a rail of its own");
    client.done(EndReservation { reservation: first.reservation }).await;
    assert!(reserve(&mut client, on_rail("two")).await.admitted.is_some(), "what has ended is free");
}

#[tokio::test]
async fn a_list_that_is_longer_than_a_reply_comes_in_pages() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    // Paths of almost 4 KiB: the rows are more than the 1 MiB of a reply.
    let deep = vec!["d".repeat(250); 16].join("/");
    let new = NewAttributes { mode: 0o755, uid: 0, gid: 0 };
    client.made(MakeDirectory { at: NamePlace::of("main", deep.clone()), new, parents: true }).await;
    let mut made = Vec::new();
    for number in 0..280 {
        let asked = ask(&format!("{deep}/{number}"), 10_000);
        made.push(reserve(&mut client, asked).await.admitted.expect("it fits").reservation);
    }
    let mut listed = Vec::new();
    let mut pages = 0;
    loop {
        let after = listed.last().copied().unwrap_or(ReservationId::NONE);
        let page = page(&mut client, after).await;
        pages += 1;
        assert_eq!(page.drives.len(), 5, "each page has the bookings of all drives");
        listed.extend(page.reservations.iter().map(|row| row.reservation));
        if !page.more {
            break;
        }
    }
    assert_eq!(listed, made, "each once, in order");
    assert!(pages > 1, "they were to be more than a reply takes");
}

#[tokio::test]
async fn the_bound_on_lateness_is_that_of_the_operations() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    calibrated(&mut client).await;
    let mut bounds = Vec::new();
    for unit_bytes in [1 << 16, 1 << 20, 1 << 23, 1 << 24] {
        let shape = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes };
        let asked = ReserveRate { trial: true, shape, ..ask("cam", 20_000_000) };
        let row = reserve(&mut client, asked).await.admitted.expect("it fits");
        assert_eq!(row.plan.drives[0].operation_bytes, unit_bytes);
        bounds.push(row.plan.lateness_us);
    }
    // Of 16 MiB instead of 8 the disk writes 42 ms longer: that is added for what is in flight, for the write
    // itself, and for the commit before, twice where it is the largest that anything may take.
    let [small, usual, large, larger] = bounds[..] else { panic!("{bounds:?}") };
    assert_eq!(small, usual);
    assert!(large > usual + 4 * 30_000, "{bounds:?}");
    assert!(larger > large + 4 * 42_000, "{bounds:?}");
}
