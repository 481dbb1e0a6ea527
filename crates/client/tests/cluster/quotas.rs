//! Writers under a quota.

use std::time::Duration;

use braid_client::{Client, Error, Kind, Name};
use braid_layout::Scheme;
use braid_wire::Reason;

use crate::common::{Cluster, assert_same, name, pattern, read_all, shape};
use crate::shared::{UNIT, both};

const MIB: u64 = 1 << 20;
/// Bytes of one write.
const WRITE: usize = 256 << 10;

/// A volume with this quota.
async fn cluster(bytes: u64) -> (Cluster, Client) {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let shape = shape(Scheme::Raid5, 2, 1, u32::try_from(UNIT).expect("small"));
    client.volume_create("main", Some(shape), bytes).await.expect("a volume");
    (cluster, client)
}

fn is_quota(error: &Error) -> bool {
    error.reason() == Some(Reason::Quota) && error.kind() == Kind::NoSpace
}

/// Writes to a file of its own until the quota is used up. Returns the acknowledged bytes.
async fn fill(client: Client, path: Name) -> u64 {
    let file = client.open(&path, &both().create(true)).await.expect("created");
    let mut written = 0;
    loop {
        match file.write_at(&vec![7; WRITE], written).await {
            Ok(()) => written += u64::try_from(WRITE).expect("small"),
            Err(error) => {
                assert!(is_quota(&error), "{error:?}");
                file.close().await.expect("what was written is kept");
                return written;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_writers_do_not_write_beyond_a_quota() {
    let quota = 24 * MIB;
    let (cluster, client) = cluster(quota).await;
    let mut tasks = Vec::new();
    for writer in 0..16 {
        let client = cluster.client().await;
        tasks.push(tokio::spawn(fill(client, name(&format!("f{writer}")))));
    }
    let mut written = 0;
    for task in tasks {
        written += task.await.expect("it ends");
    }
    let volume = client.volumes().await.expect("volumes").remove(0);
    assert_eq!(volume.file_bytes, written, "all that was acknowledged is there");
    assert!(written <= quota && written > quota / 2, "{written} of {quota}");
    let quotas = client.quotas(Some("main")).await.expect("quotas");
    assert_eq!((quotas.len(), quotas[0].bytes, quotas[0].limit_bytes), (1, written, quota));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_writer_gives_back_what_it_does_not_need() {
    let (cluster, client) = cluster(24 * MIB).await;
    let idle = client.open(&name("idle"), &both().create(true)).await.expect("created");
    let data = pattern(1, WRITE);
    idle.write_at(&data, 0).await.expect("written");
    assert!(client.quotas(None).await.expect("quotas")[0].bytes > MIB, "it holds more than it has written");
    let other = cluster.client().await;
    let file = other.open(&name("other"), &both().create(true)).await.expect("created");
    let most = 24 * MIB - u64::try_from(WRITE).expect("small");
    let last = vec![8; WRITE];
    file.write_at(&last, most - u64::try_from(WRITE).expect("small")).await.expect("all that is left");
    let refused = file.write_at(&last, most).await.expect_err("no more");
    assert!(is_quota(&refused), "{refused:?}");
    file.close().await.expect("closed");
    // The idle one goes on when there is room.
    let refused = idle.write_at(&data, u64::try_from(WRITE).expect("small")).await.expect_err("no room");
    assert!(is_quota(&refused), "{refused:?}");
    client.unlink(&name("other")).await.expect("removed");
    idle.write_at(&data, u64::try_from(WRITE).expect("small")).await.expect("there is room");
    idle.close().await.expect("closed");
    assert_same(
        &read_all(&client, &name("idle")).await.expect("read"),
        &[data.clone(), data].concat(),
        "idle",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_dies_gives_back_all() {
    let (cluster, client) = cluster(24 * MIB).await;
    let config = cluster.config();
    let dead = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let client = Client::connect(config).await.expect("a client");
            let file = client.open(&name("f"), &both().create(true)).await.expect("created");
            file.write_at(&pattern(1, WRITE), 0).await.expect("written");
            std::mem::forget(file);
        });
        // Its tasks end with the runtime: nothing renews or releases the lease.
        runtime.shutdown_background();
    });
    dead.join().expect("it ends");
    assert!(client.quotas(None).await.expect("quotas")[0].bytes > MIB);
    let began = tokio::time::Instant::now();
    let write = u64::try_from(WRITE).expect("small");
    while client.quotas(None).await.expect("quotas")[0].bytes > write {
        assert!(began.elapsed() < Duration::from_secs(60), "its lease ends");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_comes_or_goes_under_a_writer_is_met_by_it() {
    let (cluster, client) = cluster(0).await;
    let root = Name::parse(b"braid://main").expect("a name");
    let other = cluster.client().await;
    let file = other.open(&name("f"), &both().create(true)).await.expect("created");
    let write = u64::try_from(WRITE).expect("small");
    let data = pattern(1, WRITE);
    file.write_at(&data, 0).await.expect("no quota");
    client.set_quota(&root, None, 24 * MIB, 0).await.expect("set");
    // What its capabilities know of the quota it hears at the next refresh.
    file.stat().await.expect("refreshed");
    file.write_at(&data, write).await.expect("there is room");
    let refused = file.write_at(&data, 24 * MIB).await.expect_err("beyond it");
    assert!(is_quota(&refused), "{refused:?}");
    client.remove_quota(&root, None).await.expect("removed");
    file.write_at(&data, 24 * MIB).await.expect("there is none any more");
    file.close().await.expect("closed");
    assert!(client.quotas(None).await.expect("quotas").is_empty());
    assert_eq!(client.stat(&name("f")).await.expect("there").size(), 24 * MIB + write);
}
