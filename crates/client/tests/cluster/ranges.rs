//! Several handles write one file, each a range of its own.

use std::time::Duration;

use braid_client::Client;
use braid_client::Error;
use braid_client::File;
use braid_client::Kind;
use braid_client::Name;
use braid_client::OpenOptions;
use braid_layout::{HolderId, Scheme, Version};

use crate::common::{Cluster, assert_same, name, pattern, put, read_all, shape, wait_for};
use crate::raw::{Part, grants, write_one};

const STRIPE: u64 = 4 * 4096;
/// Bytes that each rank writes: its range of the file.
const SEGMENT: u64 = 8 * STRIPE;

fn both() -> OpenOptions {
    OpenOptions::new().read(true).write(true)
}

async fn cluster() -> (Cluster, Client, Name) {
    let cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    put(&client, &path, shape(Scheme::Raid5, 4, 1, 4096), &[]).await;
    (cluster, client, path)
}

/// Opens the range of rank `own` of `ranks`, as a client of its own; the last rank's range has no end.
async fn rank(cluster: &Cluster, path: &Name, own: u64, ranks: u64) -> File {
    let from = own * SEGMENT;
    let to = if own + 1 == ranks { u64::MAX } else { (own + 1) * SEGMENT };
    cluster.client().await.open(path, &both().range(from..to)).await.expect("open")
}

async fn ranks(cluster: &Cluster, path: &Name, count: u64) -> Vec<File> {
    let mut files = Vec::new();
    for own in 0..count {
        files.push(rank(cluster, path, own, count).await);
    }
    files
}

fn bytes_of(own: u64, round: u64) -> Vec<u8> {
    pattern(own * 100 + round + 1, usize::try_from(SEGMENT).expect("small"))
}

fn all(ranks: u64, round: u64) -> Vec<u8> {
    (0..ranks).flat_map(|own| bytes_of(own, round)).collect()
}

/// All ranks write their segments at once, two stripes at a time.
async fn write(files: Vec<File>, round: u64) -> Vec<File> {
    let mut tasks = Vec::new();
    for (own, file) in (0..).zip(files) {
        tasks.push(tokio::spawn(async move {
            let bytes = bytes_of(own, round);
            let pieces = bytes.chunks(usize::try_from(2 * STRIPE).expect("small"));
            for (at, piece) in (0..).map(|i| own * SEGMENT + i * 2 * STRIPE).zip(pieces) {
                file.write_at(piece, at).await.expect("write");
            }
            file
        }));
    }
    let mut files = Vec::new();
    for task in tasks {
        files.push(task.await.expect("it ends"));
    }
    files
}

async fn close(files: Vec<File>) {
    for file in files {
        file.close().await.expect("close");
    }
}

async fn is(client: &Client, path: &Name, model: &[u8], context: &str) {
    assert_same(&read_all(client, path).await.expect("read"), model, context);
    wait_for(|| async { client.check(path, |_| {}).await.is_ok_and(|report| report.is_clean()) }).await;
}

/// Waits until this handle has its range to itself; the handle finds out when it writes.
async fn has_its_own(file: &File, at: u64, byte: &[u8]) {
    wait_for(|| async {
        file.write_at(byte, at).await.expect("write");
        file.own_range().is_some()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_write_whole_stripes_and_nothing_else_is_read_or_sent() {
    let (mut cluster, client, path) = cluster().await;
    let files = write(ranks(&cluster, &path, 4).await, 0).await;
    for (file, own) in files.iter().zip(0..) {
        let range = file.own_range().expect("its own");
        assert_eq!(range.start, own * SEGMENT);
        assert!(!file.is_shared() && file.size() >= SEGMENT);
    }
    close(files).await;
    // A drive reports its bytes and its reads as of the same moment.
    wait_for(|| async {
        let rows = client.status().await.expect("status").drives;
        let told = rows.iter().all(|row| row.used_bytes >= SEGMENT);
        assert!(!told || rows.iter().all(|row| row.io.is_empty()), "something was read: {rows:?}");
        told
    })
    .await;
    is(&client, &path, &all(4, 0), "in the end").await;
    for drive in 0..5 {
        cluster.stop(drive).await;
        let mut kinds = std::collections::BTreeMap::<&str, usize>::new();
        let counted = braid_store::inspect::dump(&cluster.drives[drive].dir, |line| {
            *kinds.entry(line.kind).or_default() += 1;
            true
        });
        counted.expect("its store");
        let has = |what: &str| kinds.keys().any(|kind| kind.contains(what));
        assert!(has("stripe") || has("data"), "its units: {kinds:?}");
        assert!(!has("delta"), "nothing was sent from drive to drive: {kinds:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_outside_is_refused_by_the_client_and_by_drives() {
    let (cluster, client, path) = cluster().await;
    let files = ranks(&cluster, &path, 2).await;
    let outside = |result: Result<(), Error>| {
        let error = result.expect_err("outside");
        assert!(matches!(error, Error::OutOfRange { .. }) && error.kind() == Kind::Usage, "{error}");
        assert!(error.to_string().contains(&format!("bytes 0..{SEGMENT} only")), "{error}");
    };
    outside(files[0].write_at(b"x", SEGMENT).await);
    outside(files[0].write_at(&[1; 10], SEGMENT - 5).await);
    outside(files[0].set_len(0).await);
    outside(files[0].append(b"x").await.map(drop));
    for bad in [both().alone(true), both().append(true), both().truncate(true), OpenOptions::new().read(true)]
    {
        let error = client.open(&path, &bad.range(0..STRIPE)).await.expect_err("not by range");
        assert!(matches!(error, Error::Options { .. }), "{error}");
    }
    for bad in [0..STRIPE + 1, 5..STRIPE, 0..0] {
        let error = client.open(&path, &both().range(bad)).await.expect_err("not whole stripes");
        assert!(error.kind() == Kind::Usage && error.to_string().contains("16384 bytes"), "{error}");
    }
    // A writer that does not keep to its range.
    let stat = files[0].stat().await.expect("stat");
    let opened = client.open(&path, &OpenOptions::new().read(true)).await.expect("open");
    let lease = lease_of(&cluster, stat.file, files[0].holder()).await;
    let mut own = grants(&cluster, stat.file, lease, files[0].holder()).await;
    let stamp = Version { g: own.stat.g, lease, n: 1 << 40 };
    let part = |stripe| Part { stripe, column: 0, bytes: &[7; 4096], cover: &[] };
    let refused = write_one(&cluster, &own, stamp, Version::ZERO, &part(8)).await.expect_err("not its own");
    assert!(refused.to_string().contains("stripe 8 is outside the lease's stripes 0..8"), "{refused}");
    let grant = own.grants[0][0].as_mut().expect("a grant");
    (grant.capability.first_stripe, grant.capability.end_stripe) = (0, u64::MAX);
    let forged = write_one(&cluster, &own, stamp, Version::ZERO, &part(8)).await.expect_err("forged");
    assert!(forged.to_string().contains("MAC is wrong"), "{forged}");
    opened.close().await.expect("close");
    close(write(files, 0).await).await;
    is(&client, &path, &all(2, 0), "in the end").await;
}

/// A writer dies when one column has its stripe write and the others do not.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_dies_in_a_stripe_write_leaves_it_whole_and_the_others_go_on() {
    let (cluster, client, path) = cluster().await;
    let mut files = ranks(&cluster, &path, 2).await;
    let config = cluster.config();
    // A client with a runtime of its own, which ends as a process does.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let at = 2 * SEGMENT;
    let doomed_path = path.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    drop(files.pop().expect("two").close().await);
    files.push(cluster.client().await.open(&path, &both().range(SEGMENT..at)).await.expect("open"));
    runtime.spawn(async move {
        let client = Client::connect(config).await.expect("a client");
        let file = client.open(&doomed_path, &both().range(at..)).await.expect("open");
        file.write_at(&bytes_of(2, 0), at).await.expect("write");
        let stat = file.stat().await.expect("stat");
        let _ = tell.send((stat.file, file.holder(), file.own_range()));
        std::future::pending::<()>().await;
    });
    let (number, holder, range) = told.await.expect("it writes");
    assert_eq!(range, Some(at..u64::MAX));
    let first = grants(&cluster, number, lease_of(&cluster, number, holder).await, holder).await;
    let stamp = Version { g: first.stat.g, lease: first.lease, n: 1 << 40 };
    let part = Part { stripe: at / STRIPE, column: 0, bytes: &[7; 4096], cover: &[true; 4] };
    write_one(&cluster, &first, stamp, Version::ZERO, &part).await.expect("one column has it");
    runtime.shutdown_background();
    // Until another writer has the dead writer's range.
    let mut round = 0;
    let next = loop {
        round += 1;
        files = write(files, round).await;
        let next = cluster.client().await.open(&path, &both().range(at..)).await.expect("open");
        if next.own_range().is_some() {
            break next;
        }
        next.close().await.expect("close");
        assert!(round < 2000, "the dead one's range stays taken");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let mut found = vec![0; usize::try_from(SEGMENT).expect("small")];
    next.read_at(&mut found, at).await.expect("read");
    assert_same(&found, &bytes_of(2, 0), "what was not written everywhere is undone");
    next.write_at(&bytes_of(2, round), at).await.expect("write");
    files.push(next);
    close(files).await;
    is(&client, &path, &all(3, round), "in the end").await;
}

/// The lease that a holder works under.
async fn lease_of(cluster: &Cluster, file: braid_layout::FileId, holder: HolderId) -> braid_layout::Lease {
    grants(cluster, file, braid_layout::Lease(2), holder).await.lease
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_wants_all_makes_them_share_until_it_is_gone() {
    let (cluster, client, path) = cluster().await;
    let files = write(ranks(&cluster, &path, 2).await, 0).await;
    let wide = cluster.client().await.open(&path, &both()).await.expect("open");
    wide.write_at(&[9; 100], SEGMENT - 50).await.expect("write");
    assert!(wide.is_shared() && wide.own_range().is_none());
    let files = write(files, 1).await;
    assert!(files.iter().all(|file| file.is_shared() && file.own_range().is_none()));
    wide.close().await.expect("close");
    for (file, own) in files.iter().zip(0..) {
        has_its_own(file, own * SEGMENT, &bytes_of(own, 1)[..1]).await;
    }
    // A writer whose range overlaps a stripe of another's.
    let meets = cluster.client().await.open(&path, &both().range(SEGMENT - STRIPE..)).await.expect("open");
    let files = write(files, 2).await;
    assert!(files.iter().all(File::is_shared));
    meets.close().await.expect("close");
    for (file, own) in files.iter().zip(0..) {
        has_its_own(file, own * SEGMENT, &bytes_of(own, 2)[..1]).await;
    }
    close(write(files, 3).await).await;
    is(&client, &path, &all(2, 3), "in the end").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manager_restarts_and_each_keeps_its_range() {
    let (mut cluster, client, path) = cluster().await;
    let files = write(ranks(&cluster, &path, 3).await, 0).await;
    cluster.restart_manager().await;
    let files = write(files, 1).await;
    // Longer than a lease's term: each handle has renewed its own lease.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let files = write(files, 2).await;
    assert!(files.iter().all(|file| file.own_range().is_some()));
    // The manager knows the shared lease of a writer without a range after a restart too.
    let wide = cluster.client().await.open(&path, &both()).await.expect("open");
    cluster.restart_manager().await;
    wide.close().await.expect("close");
    for (file, own) in files.iter().zip(0..) {
        has_its_own(file, own * SEGMENT, &bytes_of(own, 2)[..1]).await;
    }
    close(write(files, 3).await).await;
    is(&client, &path, &all(3, 3), "in the end").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_goes_out_and_all_go_on_with_stripes() {
    let (mut cluster, client, path) = cluster().await;
    let files = write(ranks(&cluster, &path, 3).await, 0).await;
    cluster.kill(1);
    let files = write(files, 1).await;
    assert!(files.iter().all(|file| file.own_range().is_some() && !file.is_shared()));
    cluster.restart(1).await;
    cluster.all_up(&client).await;
    let files = write(files, 2).await;
    cluster.heal(1).await;
    let files = write(files, 3).await;
    close(files).await;
    is(&client, &path, &all(3, 3), "in the end").await;
    cluster.kill(0);
    assert_same(&read_all(&client, &path).await.expect("read"), &all(3, 3), "without a drive");
}
