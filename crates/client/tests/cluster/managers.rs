//! Another manager leads: the client and the drives find it, and no request is lost or done twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use braid_client::{Client, Config, Kind, OpenOptions};
use braid_layout::Scheme;
use braid_manager::EtcdConfig;
use braid_processes::etcd::Etcd;
use braid_transport::{Capacity, Limits, Listener};
use braid_wire::data::HELLO_REFUSED;
use braid_wire::{Refusal, Wire};
use tokio::task::JoinHandle;

use crate::common::{Cluster, Times, assert_same, name, pattern, read_all, shape, wait_for};

/// A manager at this address that stands by, and names this leader.
async fn stand_by(address: &str, leader: &str) -> (String, JoinHandle<()>) {
    let listener =
        Listener::bind_with(address, Limits::default(), Capacity::default()).await.expect("a port");
    let address = listener.local_address().to_string();
    let body = Refusal::standing_by(leader).to_bytes();
    let task = tokio::spawn(async move {
        while let Ok(stream) = listener.accept().await {
            let (mut sender, _receiver) = stream.into_halves();
            let _ = sender.send(HELLO_REFUSED, 0, &body, &[]).await;
            let _ = sender.shutdown().await;
        }
    });
    (address, task)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_another_manager_leads_a_writer_goes_on_and_each_request_is_done_once() {
    const BLOCK: usize = 16 << 10;
    let mut cluster = Cluster::start(4).await;
    let first = cluster.ready.address.clone();
    let (second, standby) = stand_by("127.0.0.1:0", &first).await;
    let managers = format!("{second},{first}").parse().expect("a list");
    let client =
        Client::connect(Config { managers, ..cluster.config() }).await.expect("by the standby's word");
    client.volume_create("main", None, 0).await.expect("a volume");
    let ends = Arc::new(AtomicBool::new(false));
    let made = Arc::new(AtomicUsize::new(0));
    let shape = shape(Scheme::Raid5, 3, 1, 4096);
    let writing = {
        let client = client.clone();
        let ends = Arc::clone(&ends);
        tokio::spawn(async move {
            let options = OpenOptions::new().write(true).create_new(true).shape(shape);
            let file = client.open(&name("long"), &options).await.expect("it is made");
            let mut blocks = 0;
            while !ends.load(Ordering::SeqCst) {
                let block = pattern(blocks + 1, BLOCK);
                file.write_at(&block, blocks * BLOCK as u64).await.expect("written");
                blocks += 1;
            }
            file.close().await.expect("closed");
            blocks
        })
    };
    let making = {
        let client = client.clone();
        let ends = Arc::clone(&ends);
        let made = Arc::clone(&made);
        tokio::spawn(async move {
            while !ends.load(Ordering::SeqCst) {
                let path = name(&format!("f{}", made.load(Ordering::SeqCst)));
                let options = OpenOptions::new().write(true).create_new(true).shape(shape);
                // Done twice, it would say that the file exists.
                let file = client.open(&path, &options).await.expect("made once");
                file.write_at(b"x", 0).await.expect("written");
                file.close().await.expect("closed");
                made.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let more = async |count: usize| {
        let wanted = made.load(Ordering::SeqCst) + count;
        wait_for(|| async { made.load(Ordering::SeqCst) >= wanted }).await;
    };
    more(5).await;
    standby.abort();
    let _ = standby.await;
    cluster.manager.take().expect("it runs").stop().await;
    cluster.ready.address.clone_from(&second);
    cluster.start_manager().await;
    let (_, _standby) = stand_by(&first, &second).await;
    more(20).await;
    ends.store(true, Ordering::SeqCst);
    making.await.expect("no panic");
    let blocks = writing.await.expect("no panic");
    let expected: Vec<u8> = (0..blocks).flat_map(|block| pattern(block + 1, BLOCK)).collect();
    assert_same(&read_all(&client, &name("long")).await.expect("read"), &expected, "what was written");
    // A client that knows only the manager that stands by, and the drives, found the new one too.
    let late = Client::connect(Config::new(first.clone(), cluster.ready.client_token.clone()));
    let late = late.await.expect("by the word of the one that stands by");
    cluster.all_up(&late).await;
    for n in 0..made.load(Ordering::SeqCst) {
        assert_eq!(read_all(&late, &name(&format!("f{n}"))).await.expect("it is there"), b"x");
    }
    let error = late.open(&name("f0"), &OpenOptions::new().write(true).create_new(true)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Exists);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_etcd_what_is_open_goes_on_and_all_else_is_told_why() {
    let mut etcd = Etcd::start(1);
    let state = EtcdConfig::of_state(&etcd.state()).expect("a state");
    // Leases outlast the test.
    let times = Times { client_lease_ms: 300_000, drive_lease_ms: 300_000, ..Times::default() };
    let cluster = Cluster::start_on(Some(state), 3, |_| None, times).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = client.open(&name("open"), &options.shape(shape(Scheme::Raid5, 2, 1, 4096))).await;
    let file = file.expect("it is made");
    file.write_at(&pattern(1, 50_000), 0).await.expect("written");
    let hasty = Config { patience: Duration::from_secs(1), ..cluster.config() };
    let hasty = Client::connect(hasty).await.expect("a client");
    etcd.kill(0);
    wait_for(|| async {
        let opened = hasty.open(&name("open"), &OpenOptions::new().read(true)).await;
        opened.is_err_and(|error| error.to_string().contains("see that most of its members run"))
    })
    .await;
    let again = pattern(2, 50_000);
    file.write_at(&again, 10_000).await.expect("its lease has not ended");
    let mut back = vec![0; again.len()];
    file.read_at(&mut back, 10_000).await.expect("read");
    assert_same(&back, &again, "what was written without etcd");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_manager_of_another_cluster_in_the_list_is_passed_over() {
    let cluster = Cluster::start(0).await;
    let other = Cluster::start(0).await;
    let list = |addresses: &[&str]| addresses.join(",").parse().expect("a list");
    let managers = list(&[&other.ready.address, &cluster.ready.address]);
    let client = Client::connect(Config { managers, ..cluster.config() }).await.expect("its own is found");
    assert_eq!(client.status().await.expect("status").cluster, cluster.ready.cluster);
    let managers = list(&[&other.ready.address]);
    let error = Client::connect(Config { managers, ..cluster.config() }).await.unwrap_err().to_string();
    assert!(error.contains("another cluster's manager") && error.contains(&other.ready.address), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_read_over_the_session() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let made = client.backup().await.expect("made");
    let mut read = Vec::new();
    loop {
        let part = client.backup_part(&made, read.len() as u64).await.expect("a part");
        if part.is_empty() {
            break;
        }
        read.extend(part);
    }
    assert_same(&read, &std::fs::read(&made.path).expect("the manager's own"), "the backup");
    client.volume_create("other", None, 0).await.expect("a change");
    client.backup().await.expect("made again");
    let error = client.backup_part(&made, 0).await.unwrap_err();
    assert!(error.to_string().contains("make it again"), "{error}");
}
