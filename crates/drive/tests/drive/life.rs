//! A drive's life: joining, restarting, losing its lease, being replaced, and the ways not to start.

use std::time::Duration;

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, config, fails, reason, settings, within};
use braid_drive::DriveError;
use braid_drive::run_all;
use braid_layout::{ClientId, ClusterId, Generation, ObjectId, OperationNumber, PartitionId, Version};
use braid_store::Body;
use braid_store::Mutation;
use braid_store::MutationOutcome;
use braid_store::Store;
use braid_store::UnitWrite;
use braid_testing::answer;
use braid_transport::{DriveSession, Limits, TransportError};
use braid_wire::control::Admission;
use braid_wire::data::{Address, Create, DriveReply, Expect, Fence, PartitionSet, Retire};
use braid_wire::token::{Token, TokenRole};
use braid_wire::{Capability, Reason, Rights};
use tokio::sync::oneshot;

#[tokio::test]
async fn a_restart_keeps_identity_and_data() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let payload = bytes(7, UNIT);
    drive.write(3, &payload, 1).await;
    let id = drive.id;
    let name = drive.name.clone();
    assert!(manager.state().last.as_ref().is_some_and(|last| last.pid == std::process::id()));
    drive.stop().await;
    // The token and the manager's address are not needed again.
    let (settings, clock) = settings();
    let mut again = config(dir.path(), &manager, settings);
    (again.token, again.manager) = (None, None);
    let drive = Drive::start_with(again, clock, &manager).await;
    assert_eq!((drive.id, &drive.name), (id, &name));
    assert_eq!(drive.read(3, 0, UNIT).await.1, payload);
    assert_eq!(manager.state().joins, 1);
    drive.stop().await;
}

#[tokio::test]
async fn what_was_acknowledged_before_a_shutdown_is_there_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    let payload = bytes(5, UNIT);
    let stopping = {
        let (asker, answers) = session.halves();
        for unit in 0..100 {
            asker.ask(unit, &grant, &write(unit, 0, &payload, unit + 1), &[&payload]).await.unwrap();
        }
        let mut acknowledged = 0;
        let first = answers.next().await.unwrap();
        assert!(matches!(first.reply, DriveReply::Written(_)));
        acknowledged += 1;
        let stopping = tokio::spawn(drive.stop());
        while let Ok(answer) = answers.next().await {
            acknowledged += u64::from(matches!(answer.reply, DriveReply::Written(_)));
        }
        (stopping, acknowledged)
    };
    within(stopping.0).await.unwrap();
    let drive = Drive::start(dir.path(), &manager).await;
    for unit in 0..stopping.1 {
        assert_eq!(drive.read(unit, 0, UNIT).await.1, payload);
    }
    drive.stop().await;
}

#[tokio::test]
async fn without_its_lease_it_serves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let payload = bytes(1, 100);
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    manager.state().answers = false;
    drive.advance_ms(5999);
    assert!(session.call(&grant, &write(0, 0, &payload, 1), &[&payload]).await.is_ok());
    drive.advance_ms(1);
    assert_eq!(reason(session.call(&grant, &read(0, 0, 10), &[]).await), Reason::NotServing);
    assert_eq!(
        reason(session.call(&grant, &write(0, 0, &payload, 2), &[&payload]).await),
        Reason::NotServing
    );
    // The manager's fence is still served: the manager may have to fence before it grants a lease again.
    let next = drive.grant(Capability { g: Generation(3), ..object_level() });
    let fence = Fence { at: AT, term: 1, units_from: 0, drives: Vec::new(), reserve_bytes: 0 }.into();
    assert!(session.call(&next, &fence, &[]).await.is_ok());
    let client = drive.grant(Capability { g: Generation(3), rights: Rights(0x7f), ..object_level() });
    assert_eq!(reason(session.call(&client, &create(), &[]).await), Reason::NotServing);
    {
        // An answer without a lease changes nothing.
        let mut state = manager.state();
        (state.answers, state.lease_ms, state.last) = (true, 0, None);
    }
    within(async {
        while manager.state().last.take().is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(reason(session.call(&next, &read(0, 0, 10), &[]).await), Reason::NotServing);
    manager.state().lease_ms = 6000;
    drive.until_serving().await;
    let DriveReply::Read(reply) = session.call(&next, &read(0, 0, 10), &[]).await.unwrap().0 else {
        panic!()
    };
    assert_eq!(reply.version, stamp(1));
    drive.stop().await;
}

/// Records stored before that would count for those that its log has lost.
#[tokio::test]
async fn before_the_manager_has_judged_its_log_it_stores_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    drive.write(0, &bytes(1, 100), 1).await;
    drive.stop().await;
    {
        // Another process of the drive is on record, and may still serve.
        let mut state = manager.state();
        (state.admission, state.lease_ms, state.last) = (Admission::Wait, 0, None);
    }
    let (settings, clock) = settings();
    let drive = Drive::listening(config(dir.path(), &manager, settings), clock, &manager).await;
    let next_log = || async {
        manager.state().last = None;
        let log = || manager.state().last.as_ref().map(|beat| beat.log);
        within(async {
            while log().is_none() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        log()
    };
    let found = next_log().await;
    let mut session = drive.session().await;
    let next = drive.grant(Capability { g: Generation(3), ..object_level() });
    let fence = Fence { at: AT, term: 1, units_from: 0, drives: Vec::new(), reserve_bytes: 0 }.into();
    assert_eq!(reason(session.call(&next, &fence, &[]).await), Reason::NotServing);
    let new = drive.grant(Capability { object: ObjectId(9), ..object_level() });
    let create = Create { at: Address { object: ObjectId(9), ..AT }, attributes: attributes_of(map()) };
    assert_eq!(reason(session.call(&new, &create.into(), &[]).await), Reason::NotServing);
    let partition = PartitionSet {
        partition: PartitionId(77),
        expect: Expect::Absent,
        quota_bytes: 0,
        key_epoch: 1,
        term: 1,
    };
    let all = drive.grant(drive_level());
    assert_eq!(reason(session.call(&all, &partition.into(), &[]).await), Reason::NotServing);
    assert_eq!(next_log().await, found);
    // The manager gives the process its number. It is fenced before it gets its lease.
    manager.state().instance += 1;
    answer("the fence is stored", async || session.call(&next, &fence, &[]).await.ok()).await;
    assert!(next_log().await > found);
    assert_eq!(reason(session.call(&next, &read(0, 0, 10), &[]).await), Reason::NotServing);
    drive.stop().await;
}

#[tokio::test]
async fn a_replaced_drive_serves_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    manager.state().lease_ms = 400;
    let drive = Drive::start(dir.path(), &manager).await;
    manager.state().replaced = true;
    drive.until_refused(Reason::NotServing).await;
    manager.state().replaced = false;
    // A later lease does not undo the replacement: it is final, until the drive is restarted and told
    // otherwise.
    let beats = || manager.state().last.take().is_some();
    assert!(beats());
    within(async {
        while !beats() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drive.until_refused(Reason::NotServing).await;
    drive.stop().await;
}

#[tokio::test]
async fn after_it_was_out_an_object_is_served_once_it_was_fenced() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    drive.write(0, &bytes(1, 100), 1).await;
    drive.stop().await;
    manager.state().epoch = 4;
    let drive = Drive::start(dir.path(), &manager).await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    assert_eq!(reason(session.call(&grant, &read(0, 0, 10), &[]).await), Reason::StaleGeneration);
    let take = take_of(ObjectId(43)).into();
    assert_eq!(reason(session.call(&grant, &take, &[]).await), Reason::StaleGeneration);
    let next = drive.grant(Capability { g: Generation(3), ..object_level() });
    session
        .call(
            &next,
            &Fence { at: AT, term: 1, units_from: 0, drives: Vec::new(), reserve_bytes: 0 }.into(),
            &[],
        )
        .await
        .unwrap();
    assert!(session.call(&next, &read(0, 0, 10), &[]).await.is_ok());
    drive.stop().await;
    // After a restart the drive still knows, without being told again: only a repeated fence opens the
    // object.
    let drive = Drive::start(dir.path(), &manager).await;
    let mut session = drive.session().await;
    let next = drive.grant(Capability { g: Generation(3), ..object_level() });
    assert_eq!(reason(session.call(&next, &read(0, 0, 10), &[]).await), Reason::StaleGeneration);
    session
        .call(
            &next,
            &Fence { at: AT, term: 1, units_from: 0, drives: Vec::new(), reserve_bytes: 0 }.into(),
            &[],
        )
        .await
        .unwrap();
    assert!(session.call(&next, &read(0, 0, 10), &[]).await.is_ok());
    assert_eq!(manager.state().last.as_ref().map(|last| last.epoch), Some(4));
    drive.stop().await;
}

#[tokio::test]
async fn a_join_that_broke_off_is_taken_up_again() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    manager.state().breaks_at_join = true;
    // The manager has stored the drive, but the drive does not learn of it; its next try finds out.
    let drive = Drive::start(dir.path(), &manager).await;
    assert_eq!(manager.state().joins, 1);
    let id = drive.id;
    drive.stop().await;
    // Stopped before the manager heard of it: the next start joins as the same drive.
    let other = tempfile::tempdir().unwrap();
    let (mut settings, clock) = settings();
    settings.join_wait = Duration::ZERO;
    let mut cut = config(other.path(), &manager, settings);
    cut.manager = Some("127.0.0.1:1".to_owned());
    let error = fails(cut.clone()).await;
    assert!(matches!(error, DriveError::Join(TransportError::Refused { .. })), "{error}");
    manager.state().breaks_at_join = false;
    cut.manager = Some(manager.address.clone());
    let drive = Drive::start_with(cut, clock, &manager).await;
    assert_eq!(manager.state().joins, 2);
    assert_ne!(drive.id, id);
    drive.stop().await;
}

#[tokio::test]
async fn a_manager_that_is_away_at_a_restart_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    Drive::start(dir.path(), &manager).await.stop().await;
    manager.state().answers = false;
    let (settings, _clock) = settings();
    let (ready, when_ready) = oneshot::channel();
    let (shutdown, when_shut) = oneshot::channel::<()>();
    let running = tokio::spawn(braid_drive::run(config(dir.path(), &manager, settings), ready, async {
        let _ = when_shut.await;
    }));
    let ready = within(when_ready).await.unwrap();
    let mut session = DriveSession::connect(
        &ready.address.to_string(),
        ready.drive,
        crate::support::CLUSTER,
        &Limits::default(),
    )
    .await
    .unwrap();
    let master = manager.master(ready.drive).unwrap();
    let mut capability = drive_level();
    capability.drive = ready.drive;
    let key = master.drive_key(ready.drive).partition_key(capability.partition).working_key(1);
    let grant = braid_wire::control::Grant { private: key.private_part(&capability), capability };
    let stat = braid_wire::data::GetAttributes { at: Address::DRIVE }.into();
    assert_eq!(reason(session.call(&grant, &stat, &[]).await), Reason::NotServing);
    manager.state().answers = true;
    within(async {
        while session.call(&grant, &stat, &[]).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(shutdown);
    within(running).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let configure = |dir: &std::path::Path| config(dir, &manager, settings().0);
    let drive = Drive::start(dir.path(), &manager).await;
    let other = tempfile::tempdir().unwrap();

    let error = fails(configure(dir.path())).await;
    assert!(matches!(&error, DriveError::InUse(path) if path == dir.path()), "{error}");
    let mut taken = configure(other.path());
    taken.listen = vec![drive.address.to_string()];
    let error = fails(taken).await;
    assert!(matches!(&error, DriveError::Transport(TransportError::InUse { .. })), "{error}");
    assert!(error.to_string().contains(&drive.address.to_string()), "{error}");
    drive.stop().await;

    let mut tokenless = configure(tempfile::tempdir().unwrap().path());
    tokenless.token = None;
    let error = fails(tokenless).await;
    assert!(matches!(error, DriveError::NoToken(_)), "{error}");
    let mut client = configure(other.path());
    client.token = Some(Token { role: TokenRole::Client, ..manager.join_token() });
    assert!(matches!(fails(client).await, DriveError::NotAJoinToken));
    let empty = tempfile::tempdir().unwrap();
    let mut homeless = configure(empty.path());
    homeless.manager = None;
    assert!(matches!(fails(homeless).await, DriveError::NoManager));
    let mut wrong = configure(empty.path());
    wrong.token = Some(Token { secret: braid_wire::Key::new([1; 32]), ..manager.join_token() });
    let error = fails(wrong).await;
    assert!(
        matches!(&error, DriveError::Join(TransportError::Refusal(no)) if no.reason == Reason::BadToken),
        "{error}"
    );
    // The store is lost but the identity is not: the drive must not come back empty.
    std::fs::remove_dir_all(dir.path().join("store")).unwrap();
    let error = fails(configure(dir.path())).await;
    assert!(matches!(error, DriveError::StoreGone(_)), "{error}");
}

#[tokio::test]
async fn a_directory_of_another_cluster_is_told_with_both_names() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let other = Manager::start_for(ClusterId(0xbeef)).await;
    Drive::start(dir.path(), &manager).await.stop().await;
    let names = |error: &DriveError| {
        let text = error.to_string();
        [crate::support::CLUSTER, ClusterId(0xbeef)].iter().all(|cluster| text.contains(&cluster.to_string()))
    };
    // Another cluster by its token.
    let error = fails(config(dir.path(), &other, settings().0)).await;
    assert!(matches!(error, DriveError::OtherCluster { .. }) && names(&error), "{error}");
    // Another cluster by its manager.
    let mut moved = config(dir.path(), &other, settings().0);
    moved.token = None;
    let error = fails(moved).await;
    assert!(matches!(error, DriveError::OtherCluster { .. }) && names(&error), "{error}");
    // Another cluster by its store, which belongs to another cluster's drive.
    let foreign = tempfile::tempdir().unwrap();
    Drive::start(foreign.path(), &other).await.stop().await;
    std::fs::remove_dir_all(dir.path().join("store")).unwrap();
    std::fs::rename(foreign.path().join("store"), dir.path().join("store")).unwrap();
    let error = fails(config(dir.path(), &manager, settings().0)).await;
    assert!(matches!(error, DriveError::OtherCluster { .. }) && names(&error), "{error}");
}

#[tokio::test]
async fn a_process_may_run_several() {
    let manager = Manager::start().await;
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut configs = Vec::new();
    let mut readies = Vec::new();
    for dir in &dirs {
        let (ready, when_ready) = oneshot::channel();
        configs.push((config(dir.path(), &manager, settings().0), ready));
        readies.push(when_ready);
    }
    let (shutdown, when_shut) = oneshot::channel::<()>();
    let running = tokio::spawn(run_all(configs, async {
        let _ = when_shut.await;
    }));
    let mut ids = Vec::new();
    for ready in readies {
        ids.push(within(ready).await.unwrap().drive);
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
    drop(shutdown);
    within(running).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_a_client_retires_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    drive.stop().await;
    // The test makes the unit writes in the store itself, so that it needs no parity drives.
    let store = || {
        let options = braid_store::Options { sync: false, ..Default::default() };
        Store::open(&dir.path().join("store"), None, options).unwrap().0
    };
    let unit_write = |operation| {
        Mutation::UnitWrite(UnitWrite {
            partition: PARTITION,
            object: OBJECT,
            unit: 0,
            from: 0,
            to: 100,
            client: ClientId(11),
            operation: OperationNumber(operation),
            watermark: OperationNumber::NONE,
            g: G,
            lease: LEASE,
            stamp: None,
            settled_below: Version::ZERO,
            body: Body::Hole,
        })
    };
    let before = store();
    for operation in 1..=4 {
        before.commit(unit_write(operation)).unwrap();
    }
    before.close().unwrap();
    drop(before);
    let drive = Drive::start(dir.path(), &manager).await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    for (client, watermark) in [(11, 3), (0, u64::MAX), (12, 5)] {
        let retire = Retire {
            at: AT,
            settled_to: stamp(1),
            durable: true,
            client: ClientId(client),
            watermark: OperationNumber(watermark),
            ends_lease: false,
        };
        session.call(&grant, &retire.into(), &[]).await.unwrap();
    }
    drive.stop().await;
    let after = store();
    let again = |operation| after.commit(unit_write(operation)).unwrap();
    for retired in 1..3 {
        assert_eq!(again(retired), MutationOutcome::Already, "{retired}: the client has its answer");
    }
    for known in 3..5 {
        assert!(matches!(again(known), MutationOutcome::Known { .. }), "{known}");
    }
}
