//! Keys that turn while files are used, and rights that end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_client::{Client, Kind, Name};
use braid_layout::{PartitionId, Scheme};
use braid_transport::{ControlSession, Limits, TransportError};
use braid_wire::Reason;
use braid_wire::control::{ControlRequest, DriveState, KeyTurning, Sisters};

use crate::common::{Cluster, name, pattern, put, read_all, shape, wait_for};
use crate::shared::{UNIT, both};

async fn cluster() -> (Cluster, Client) {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", Some(raid5()), 0).await.expect("a volume");
    (cluster, client)
}

fn raid5() -> braid_layout::Shape {
    shape(Scheme::Raid5, 2, 1, u32::try_from(UNIT).expect("small"))
}

/// Waits until no drive is left that has not heard of a turn.
async fn all_heard(client: &Client) {
    wait_for(|| async {
        let keys = client.keys().await.expect("keys");
        keys.volumes.iter().all(|row| row.behind.is_empty()) && keys.drives.iter().all(|row| !row.is_turning)
    })
    .await;
}

/// Writes and reads a file of its own until told to stop. Returns the number of rounds: each succeeded.
async fn work(client: Client, path: Name, stop: Arc<AtomicBool>) -> u64 {
    let file = client.open(&path, &both().create(true)).await.expect("created");
    let mut rounds = 0;
    while !stop.load(Ordering::Acquire) {
        let data = pattern(rounds, 3 * UNIT);
        file.write_at(&data, 1000).await.expect("written");
        let mut back = vec![0; data.len()];
        file.read_at(&mut back, 1000).await.expect("read");
        assert!(back == data, "round {rounds}");
        file.flush().await.expect("synced");
        rounds += 1;
    }
    file.close().await.expect("closed");
    rounds
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_all_keys_are_turned() {
    let (mut cluster, client) = cluster().await;
    let data = pattern(9, 300_000);
    put(&client, &name("idle"), raid5(), &data).await;
    let read = braid_client::OpenOptions::new().read(true);
    let idle = cluster.client().await.open(&name("idle"), &read).await.expect("opened");
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for worker in 0..3 {
        let client = cluster.client().await;
        workers.push(tokio::spawn(work(client, name(&format!("f{worker}")), Arc::clone(&stop))));
    }
    for at_once in [false, true, true] {
        client.rotate_keys(KeyTurning::Volume, "main", at_once).await.expect("turned");
        for drive in ["d0", "d1", "d2"] {
            client.rotate_keys(KeyTurning::Drive, drive, at_once).await.expect("turned");
        }
        all_heard(&client).await;
    }
    let early = client.rotate_keys(KeyTurning::Volume, "main", false).await.expect_err("too early");
    assert_eq!(early.reason(), Some(Reason::NotAllowed));
    stop.store(true, Ordering::Release);
    for worker in workers {
        assert!(worker.await.expect("it ends") > 0);
    }
    // Its capabilities are of keys that no drive knows any more.
    let mut back = vec![0; data.len()];
    idle.read_at(&mut back, 0).await.expect("it asks for new ones");
    assert!(back == data);
    let keys = client.keys().await.expect("keys");
    assert_eq!(keys.volumes[0].epoch, 6);
    assert!(keys.drives.iter().all(|row| row.number == 4), "{:?}", keys.drives);
    // All of it is there after the parts start again: their keys, their records and their credentials.
    for drive in 0..3 {
        cluster.stop(drive).await;
        cluster.restart(drive).await;
    }
    cluster.restart_manager().await;
    cluster.all_up(&client).await;
    let old = client.keys().await.expect("keys");
    assert_eq!((old.volumes, old.drives), (keys.volumes, keys.drives));
    for worker in 0..3 {
        let path = name(&format!("f{worker}"));
        assert!(!read_all(&client, &path).await.expect("read").is_empty());
        wait_for(|| async { client.check(&path, |_| {}).await.is_ok_and(|report| report.is_clean()) }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_was_away_hears_of_turns_when_it_is_back() {
    let (mut cluster, client) = cluster().await;
    let data = pattern(1, 300_000);
    put(&client, &name("a"), raid5(), &data).await;
    cluster.kill(0);
    wait_for(|| async {
        let rows = client.status().await.expect("status").drives;
        rows.iter().any(|row| row.name == "d0" && row.state != DriveState::Up)
    })
    .await;
    client.rotate_keys(KeyTurning::Volume, "main", true).await.expect("turned");
    client.rotate_keys(KeyTurning::Drive, "d0", true).await.expect("asked for");
    let keys = client.keys().await.expect("keys");
    assert_eq!(keys.volumes[0].behind, ["d0"]);
    assert!(keys.drives.iter().any(|row| row.name == "d0" && row.is_turning && row.number == 1));
    assert!(read_all(&client, &name("a")).await.expect("read") == data);
    cluster.restart(0).await;
    cluster.all_up(&client).await;
    all_heard(&client).await;
    cluster.heal(0).await;
    assert!(read_all(&client, &name("a")).await.expect("read") == data);
    wait_for(|| async { client.check(&name("a"), |_| {}).await.is_ok_and(|report| report.is_clean()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_shut_out_reads_and_writes_nothing_more() {
    let (mut cluster, client) = cluster().await;
    let data = pattern(1, 300_000);
    put(&client, &name("a"), raid5(), &data).await;
    let other = cluster.client().await;
    let reads = other.open(&name("a"), &braid_client::OpenOptions::new().read(true)).await.expect("opened");
    let writes = other.open(&name("b"), &both().create(true)).await.expect("created");
    writes.write_at(&data, 0).await.expect("written");
    let mut back = vec![0; 1000];
    reads.read_at(&mut back, 0).await.expect("read");
    let row = client.keys().await.expect("keys").clients;
    let row = row.iter().find(|row| row.client == other.number()).expect("it was heard");
    assert_eq!(row.writes, 1);

    client.revoke_client(other.number()).await.expect("shut out");
    let refused = reads.read_at(&mut back, 100_000).await.expect_err("shut out");
    assert_eq!(refused.reason(), Some(Reason::NotAllowed), "{refused}");
    let refused = writes.write_at(&data, 0).await.expect_err("shut out");
    assert_eq!(refused.reason(), Some(Reason::NotAllowed), "{refused}");
    assert!(other.stat(&name("a")).await.is_err());
    // What it had written is there, and others go on at once.
    let next = client.open(&name("b"), &both()).await.expect("its lease is over");
    next.write_at(&data, 0).await.expect("written");
    next.close().await.expect("closed");
    assert!(read_all(&client, &name("a")).await.expect("read") == data);
    // Nothing of that is forgotten.
    cluster.restart_manager().await;
    cluster.all_up(&client).await;
    assert_eq!(other.stat(&name("a")).await.expect_err("shut out").reason(), Some(Reason::NotAllowed));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_and_the_capabilities_of_a_file_end_when_they_are_revoked() {
    let (cluster, client) = cluster().await;
    let data = pattern(1, 300_000);
    let other = cluster.client().await;
    let file = other.open(&name("a"), &both().create(true)).await.expect("created");
    file.write_at(&data, 0).await.expect("written");
    file.flush().await.expect("synced");
    client.revoke_file(&name("a")).await.expect("revoked");
    let refused = file.write_at(&pattern(2, 300_000), 0).await.expect_err("its lease is over");
    assert_eq!(refused.kind(), Kind::Busy, "{refused}");
    let next = client.open(&name("a"), &both()).await.expect("free");
    next.close().await.expect("closed");
    assert!(read_all(&client, &name("a")).await.expect("read") == data);
    let none = client.revoke_file(&name("b")).await.expect_err("there is none");
    assert_eq!(none.kind(), Kind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_put_back_from_before_a_turn_joins_anew_when_it_may() {
    let (mut cluster, client) = cluster().await;
    let data = pattern(1, 300_000);
    put(&client, &name("a"), raid5(), &data).await;
    let identity = cluster.drives[0].dir.join("drive.toml");
    let before = std::fs::read(&identity).expect("its identity");
    client.rotate_keys(KeyTurning::Drive, "d0", false).await.expect("asked for");
    all_heard(&client).await;
    cluster.stop(0).await;
    std::fs::write(&identity, &before).expect("put back");
    assert!(!cluster.starts_again(0).await, "its key is not the one on record");
    assert_eq!(std::fs::read(&identity).expect("its identity"), before, "nothing was lost by trying");
    client.rotate_keys(KeyTurning::Rejoin, "d0", false).await.expect("allowed");
    cluster.restart(0).await;
    cluster.all_up(&client).await;
    cluster.heal(0).await;
    assert!(read_all(&client, &name("a")).await.expect("read") == data);
    wait_for(|| async { client.check(&name("a"), |_| {}).await.is_ok_and(|report| report.is_clean()) }).await;
    let keys = client.keys().await.expect("keys");
    let row = keys.drives.iter().find(|row| row.name == "d0").expect("there");
    assert_eq!((row.number, row.may_rejoin), (3, false));
    // Once: the key that it has now cannot be taken from it.
    cluster.stop(0).await;
    std::fs::write(&identity, &before).expect("put back");
    assert!(!cluster.starts_again(0).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_drive_is_nobody_at_once_and_may_come_back_when_it_is_let() {
    let (mut cluster, client) = cluster().await;
    let data = pattern(1, 300_000);
    put(&client, &name("a"), raid5(), &data).await;
    let thief = cluster.drives[0].credentials.clone();
    let address = cluster.ready.address.clone();
    let limits = Limits::default();
    let mut session = ControlSession::connect(&address, thief.clone(), &limits).await.expect("a session");
    let asked = ControlRequest::from(Sisters { partition: PartitionId(1), drives: Vec::new() });
    session.call(&asked).await.expect("the drive may ask");
    client.rotate_keys(KeyTurning::Revoke, "d0", true).await.expect("revoked");
    session.call(&asked).await.expect_err("its key has ended");
    let refused = ControlSession::connect(&address, thief.clone(), &limits).await.expect_err("it is nobody");
    let TransportError::Refusal(refused) = refused else { panic!("{refused}") };
    assert!(
        refused.reason == Reason::BadToken && refused.detail.contains("braid key rejoin d0"),
        "{refused}"
    );
    // Others go on without it.
    assert!(read_all(&client, &name("a")).await.expect("read") == data);
    let data = pattern(2, 300_000);
    put(&client, &name("a"), raid5(), &data).await;
    cluster.stop(0).await;
    assert!(!cluster.starts_again(0).await, "its token does not help it");
    // It was found again.
    client.rotate_keys(KeyTurning::Rejoin, "d0", false).await.expect("allowed");
    cluster.restart(0).await;
    cluster.all_up(&client).await;
    cluster.heal(0).await;
    assert!(read_all(&client, &name("a")).await.expect("read") == data);
    wait_for(|| async { client.check(&name("a"), |_| {}).await.is_ok_and(|report| report.is_clean()) }).await;
    ControlSession::connect(&address, thief, &limits).await.expect_err("the key from before is no more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_under_a_key_that_ended_is_over() {
    let (cluster, client) = cluster().await;
    let drive = &cluster.drives[0];
    let limits = Limits::default();
    let connected = ControlSession::connect(&cluster.ready.address, drive.credentials.clone(), &limits).await;
    let mut session = connected.expect("a session of the drive");
    let asked = ControlRequest::from(Sisters { partition: PartitionId(1), drives: Vec::new() });
    session.call(&asked).await.expect("the drive may ask");
    client.rotate_keys(KeyTurning::Drive, "d0", false).await.expect("asked for");
    all_heard(&client).await;
    session.call(&asked).await.expect("what was proved before lasts a while");
    client.rotate_keys(KeyTurning::Drive, "d0", true).await.expect("asked for");
    all_heard(&client).await;
    let over = session.call(&asked).await.expect_err("the key has ended");
    assert!(!matches!(over, TransportError::Refusal(_)), "{over}");
}
