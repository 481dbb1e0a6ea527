//! Several holders of one file's lease.

use std::time::Duration;

use braid_layout::{Column, HolderId, Lease, ReservationId};
use braid_wire::Reason;
use braid_wire::control::*;

use crate::failures::put_all;
use crate::fake::{CLIENT_LEASE_MS, Client, Cluster, ends_at, lost, no_shape, open, opened, raid5, release};

const ONE: HolderId = HolderId(7);
const OTHER: HolderId = HolderId(8);

/// Opens `f` for writing as this holder, as soon as no other has it for itself.
async fn by(client: &mut Client, holder: HolderId) -> Opened {
    opened(client.patient(Open { holder, ..open("f", Access::Write, false) }).await.unwrap())
}

fn refresh(file: &Opened, holder: HolderId, turn: Turn) -> Refresh {
    Refresh {
        file: file.stat.file,
        access: Access::Write,
        lease: file.lease,
        holder,
        turn,
        in_vain: 0,
        reservation: ReservationId::NONE,
        reach: 0,
        room: Room::Keep,
        snapshot: 0,
    }
}

fn commit(file: &Opened, holder: HolderId, size: u64, order: u64) -> Commit {
    Commit {
        file: file.stat.file,
        lease: file.lease,
        holder,
        size,
        order,
        cut: Cut::No,
        modified_ns: None,
        backing: Backing::NONE,
    }
}

#[tokio::test]
async fn a_second_writer_shares_the_lease_under_a_new_number_and_generation() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let first = client.create("f").await;
    assert!(!first.shared);
    for column in 0..4 {
        cluster.of(&first, column).put(&first, Column(column), &[]);
    }
    let second = by(&mut client, OTHER).await;
    assert!(second.shared && second.lease.0 == first.lease.0 + 1 && second.stat.g > first.stat.g);
    assert!((0..4).all(|column| cluster.of(&first, column).state().carried_out.contains(&"Fence")));
    // The first holder finds out when it asks; its requests under the old number change nothing.
    assert_eq!(client.refused(commit(&first, ONE, 5, 1)).await.reason, Reason::StaleGeneration);
    let first = client.opened(refresh(&first, ONE, Turn::Any)).await;
    assert_eq!((first.lease, first.stat.g, first.shared), (second.lease, second.stat.g, true));
    // Before a third holder comes, writes of others on their way are fenced: they may be gone, and it may
    // take their place.
    let third = by(&mut client, HolderId(9)).await;
    assert!(third.lease == second.lease && third.stat.g > second.stat.g);
    assert_eq!(client.opened(refresh(&first, ONE, Turn::Any)).await.stat.g, third.stat.g);
    // Sizes only grow, in any order.
    client.done(commit(&first, ONE, 50, 3)).await;
    client.done(commit(&second, OTHER, 40, 1)).await;
    client.done(commit(&second, OTHER, 60, 2)).await;
    assert_eq!(client.stat("f").await.unwrap().size(), 60);
    for holder in [ONE, OTHER, HolderId(9)] {
        let end = 60;
        client.done(Release { holder, ..ends_at(end, release(&first, true)) }).await;
        assert!(!client.renews(&first, holder).await);
    }
    // No holder is left: the next fences the shared lease, and has the file alone.
    let next = by(&mut client, HolderId(10)).await;
    assert!(!next.shared && next.stat.g > first.stat.g && next.lease > first.lease);
    client.done(Release { holder: HolderId(10), ..ends_at(0, release(&next, true)) }).await;
    let last = by(&mut client, HolderId(11)).await;
    assert_eq!(last.stat.g, next.stat.g, "a clean release of an exclusive lease needs no procedure");
}

#[tokio::test]
async fn one_fence_serves_all_that_wait_for_the_file() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let first = cluster.manager.client().await.create("f").await;
    let mut opens = tokio::task::JoinSet::new();
    for holder in 100..124 {
        let mut other = cluster.manager.client().await;
        opens.spawn(async move { by(&mut other, HolderId(holder)).await });
    }
    let joined = opens.join_all().await;
    let last = joined.iter().map(|one| one.stat.g).max().unwrap();
    assert!(last.0 < first.stat.g.0 + 12, "24 that came at once took {} fences", last.0 - first.stat.g.0);
    assert!(joined.iter().all(|one| one.shared && one.lease.0 == first.lease.0 + 1));
}

#[tokio::test]
async fn who_writes_alone_is_not_joined_and_joins_nobody() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let alone = |holder| Open { holder, alone: true, ..open("f", Access::Write, true) };
    let with_others = |holder| Open { holder, ..open("f", Access::Write, false) };
    let first = client.opened(alone(ONE)).await;
    for open in [alone(OTHER), with_others(OTHER)] {
        assert_eq!(client.refused(open).await.reason, Reason::Leased);
    }
    client.done(release(&first, true)).await;
    client.opened(with_others(ONE)).await;
    assert_eq!(client.refused(alone(OTHER)).await.reason, Reason::Leased);
    assert!(client.opened(with_others(OTHER)).await.shared);
}

#[tokio::test]
async fn who_is_no_holder_is_refused() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    for shared in [false, true] {
        let file = if shared { by(&mut client, OTHER).await } else { file.clone() };
        let requests: Vec<ControlRequest> = vec![
            refresh(&file, HolderId(99), Turn::Any).into(),
            refresh(&file, HolderId(99), Turn::Take).into(),
            commit(&file, HolderId(99), 5, 1).into(),
            Release { holder: HolderId(99), ..release(&file, true) }.into(),
            Release { holder: HolderId(99), ..release(&file, false) }.into(),
            ReportLost { holder: HolderId(99), ..lost(&file, &[0]) }.into(),
            ReserveEnd { file: file.stat.file, lease: file.lease, holder: HolderId(99), bytes: 5, from: 0 }
                .into(),
        ];
        for request in requests {
            let refusal = client.refused(request.clone()).await;
            assert_eq!(refusal.reason, Reason::LeaseLost, "shared: {shared}, {request:?}: {refusal}");
        }
        assert!(client.renews(&file, ONE).await);
        assert!(!client.renews(&file, HolderId(99)).await && !client.renews(&file, HolderId::NONE).await);
    }
}

#[tokio::test]
async fn a_turn_is_exclusive_and_others_have_the_file_back_after_it() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    by(&mut client, OTHER).await;
    let turn = client.opened(refresh(&file, ONE, Turn::Take)).await;
    assert!(!turn.shared && turn.lease.0 == file.lease.0 + 2);
    // The other keeps its place, and waits.
    assert!(client.renews(&file, OTHER).await);
    let refused = client.refused(refresh(&file, OTHER, Turn::Any)).await;
    assert!(refused.reason == Reason::Busy && refused.again_ms > 0, "{refused:?}");
    assert_eq!(
        client.refused(Open { holder: HolderId(9), ..open("f", Access::Write, false) }).await.reason,
        Reason::Busy
    );
    let again = client.opened(refresh(&turn, ONE, Turn::Take)).await;
    assert_eq!((again.lease, again.stat.g), (turn.lease, turn.stat.g));
    // If the turn is given back, the other has the file at once.
    client.opened(refresh(&turn, ONE, Turn::Give)).await;
    let shared = client.opened(refresh(&file, OTHER, Turn::Any)).await;
    assert!(shared.shared && shared.lease > turn.lease);
    // If it is not given back, the other has the file after a while; a cut that has begun is waited for.
    // (Holder 9 is next, as long as it may still ask.)
    let turn = opened(client.patient(refresh(&shared, OTHER, Turn::Take)).await.unwrap());
    let cut = |order, cut| Commit { order, cut, ..commit(&turn, OTHER, 10, 1) };
    client.done(cut(1, Cut::Begins)).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(client.refused(refresh(&file, ONE, Turn::Any)).await.reason, Reason::Busy);
    client.done(cut(2, Cut::Ends)).await;
    assert!(client.opened(refresh(&file, ONE, Turn::Any)).await.shared);
}

#[tokio::test]
async fn a_turn_after_vain_ones_is_longer_and_while_a_heal_has_calm_none_begins() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    by(&mut client, OTHER).await;
    let long = Refresh { in_vain: 9, ..refresh(&file, ONE, Turn::Take) };
    let turn = client.opened(long).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(client.refused(refresh(&file, OTHER, Turn::Any)).await.reason, Reason::Busy);
    client.opened(refresh(&turn, ONE, Turn::Give)).await;
    let shared = client.opened(refresh(&file, OTHER, Turn::Any)).await;
    assert!(shared.shared);
    let dead = cluster.of(&file, 0).clone();
    dead.kill();
    client.patient(ReportLost { holder: OTHER, ..lost(&shared, &[0]) }).await.unwrap();
    dead.start().await;
    client.until_up(&[&dead]).await;
    dead.begin_heal(file.stat.file).await.unwrap();
    let again = BeginHeal { file: file.stat.file, comparison: 2, filling: false, in_vain: 9 };
    let ControlReply::Opened(heal) = dead.ask(again).await.unwrap() else { panic!("no view") };
    for _ in 0..2 {
        assert_eq!(client.refused(refresh(&shared, OTHER, Turn::Take)).await.reason, Reason::Busy);
    }
    dead.end_heal(&heal).await.unwrap();
    assert!(!client.opened(refresh(&shared, OTHER, Turn::Take)).await.shared);
}

#[tokio::test]
async fn a_holder_that_lapses_is_fenced_and_the_size_settled_and_one_alone_has_it_exclusively() {
    let cluster = Cluster::lapsing(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    for column in 0..4 {
        cluster.of(&file, column).put(&file, Column(column), &[]);
    }
    let shared = by(&mut client, OTHER).await;
    let keep = async |client: &mut Client, mut until: Box<dyn FnMut(&Opened) -> bool + Send>| {
        let began = std::time::Instant::now();
        loop {
            let now = client.opened(refresh(&shared, OTHER, Turn::Any)).await;
            if until(&now) {
                return now;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "still {now:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let g = shared.stat.g;
    let after = keep(&mut client, Box::new(move |now| now.stat.g > g)).await;
    assert!(after.shared);
    assert!(!client.renews(&shared, ONE).await);
    let alone = keep(&mut client, Box::new(|now| !now.shared)).await;
    assert!(alone.lease > after.lease && alone.stat.g > after.stat.g);
    // The holder never renews again: the lease ends for good.
    tokio::time::sleep(Duration::from_millis(2 * u64::from(CLIENT_LEASE_MS))).await;
    let next = by(&mut client, HolderId(9)).await;
    assert!(!next.shared && next.stat.g > alone.stat.g);
}

#[tokio::test]
async fn after_a_restart_holders_go_on_by_what_they_know() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let first = client.create("f").await;
    let shared = by(&mut client, OTHER).await;
    let cluster = cluster.restart_manager().await;
    let mut client = cluster.manager.client().await;
    client.done(commit(&shared, OTHER, 30, 1)).await;
    // The first holder has never heard that the file is shared.
    assert!(client.renews(&first, ONE).await);
    let too_new = Opened { lease: Lease(shared.lease.0 + 1), ..shared.clone() };
    assert!(!client.renews(&too_new, ONE).await);
    // The release of a holder that may not be the last does not end the lease.
    client.done(Release { holder: OTHER, ..ends_at(30, release(&shared, true)) }).await;
    let now = client.opened(refresh(&first, ONE, Turn::Any)).await;
    assert_eq!((now.lease, now.shared, now.stat.size()), (shared.lease, true, 30));
}

#[tokio::test]
async fn what_is_reserved_is_given_once_also_when_the_answer_is_lost() {
    let mut cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    client.done(commit(&file, ONE, 100, 1)).await;
    let reserve =
        |bytes, from| ReserveEnd { file: file.stat.file, lease: file.lease, holder: ONE, bytes, from };
    let offset = |reply| match reply {
        ControlReply::EndReserved(reserved) => reserved.offset,
        other => panic!("{other:?}"),
    };
    let head = client.operation();
    for restarted in [false, true] {
        assert_eq!(offset(client.ask_as(&head, reserve(10, 0)).await.unwrap()), 100);
        if !restarted {
            cluster = cluster.restart_manager().await;
            client.0 = cluster.manager.client().await.0;
        }
    }
    // A reservation does not change the size: nothing is written there yet. And a commit of a size takes no
    // reservation back.
    assert_eq!(client.stat("f").await.unwrap().size(), 100);
    client.done(commit(&file, ONE, 100, 2)).await;
    assert_eq!(offset(client.ask(reserve(5, 0)).await.unwrap()), 110);
    assert_eq!(offset(client.ask(reserve(5, 200)).await.unwrap()), 200);
    client.done(commit(&file, ONE, 203, 3)).await;
    assert_eq!(client.stat("f").await.unwrap().size(), 203);
    assert_eq!(offset(client.ask(reserve(1, 0)).await.unwrap()), 205);
    assert_eq!(client.refused(reserve(u64::MAX, 0)).await.reason, Reason::Range);
    // When the last writer leaves, the reservations end.
    client.done(ends_at(203, release(&file, true))).await;
    let file = client.create("f").await;
    let reserve = ReserveEnd { file: file.stat.file, lease: file.lease, holder: ONE, bytes: 1, from: 0 };
    assert_eq!(offset(client.ask(reserve).await.unwrap()), 203);
}
