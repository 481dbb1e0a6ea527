//! Failures while drives heal: of the drive that heals, of another, of the manager.

use braid_client::Client;
use braid_client::OpenOptions;
use braid_layout::Scheme;

use crate::common::{Cluster, assert_same, name, pattern, put, read_all, shape, wait_for};
use crate::support::{all_healed, row, written};

const BYTES: usize = 12_000_000;
const UNIT: u32 = 8192;

/// Six drives; the file `f` of rs 4+2; drive 0 was away while all of the file was rewritten. Healing is slow.
async fn behind() -> (Cluster, Client, Vec<u8>) {
    let mut cluster = Cluster::start(6).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    client.heal_status(Some(1_000_000)).await.expect("the rate is set");
    let shape = shape(Scheme::Rs, 4, 2, UNIT);
    put(&client, &name("f"), shape, &pattern(1, BYTES)).await;
    cluster.kill(0);
    let bytes = pattern(2, BYTES);
    let file = client.open(&name("f"), &OpenOptions::new().write(true)).await.expect("open");
    file.write_at(&bytes, 0).await.expect("write");
    file.close().await.expect("close");
    cluster.restart(0).await;
    written(&client, "d0", 100_000).await;
    assert_eq!(row(&client, "d0").await.expect("its row").stale, 1, "it is under way");
    (cluster, client, bytes)
}

/// Reads all with two other drives dead, so that the healed column is needed for every stripe.
async fn check_all(mut cluster: Cluster, client: &Client, bytes: &[u8], others: [usize; 2]) {
    for other in others.into_iter().filter(|&other| cluster.drives[other].node.is_some()).collect::<Vec<_>>()
    {
        cluster.kill(other);
    }
    assert_same(&read_all(client, &name("f")).await.expect("read"), bytes, "from the healed column");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heal_goes_on_where_the_drive_died() {
    let (mut cluster, client, bytes) = behind().await;
    written(&client, "d0", 700_000).await;
    let first = row(&client, "d0").await.expect("its row").progress.written_bytes;
    cluster.kill(0);
    client.heal_status(Some(0)).await.expect("the rate is set");
    cluster.restart(0).await;
    wait_for(|| async { row(&client, "d0").await.is_some_and(|row| row.progress.files == 1) }).await;
    all_healed(&client).await;
    let second = row(&client, "d0").await.expect("its row").progress.written_bytes;
    let stripes = u64::try_from(BYTES).expect("small").div_ceil(4 * u64::from(UNIT));
    let column = stripes * u64::from(UNIT);
    println!("{first} bytes before it died, {second} after it, of {column}");
    assert!(second < column && first + second >= column, "{first} and {second} of {column}");
    assert!(client.check(&name("f"), |_| {}).await.expect("check").is_clean());
    check_all(cluster, &client, &bytes, [1, 5]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_drive_may_die_while_one_heals() {
    let (mut cluster, client, bytes) = behind().await;
    cluster.kill(3);
    client.heal_status(Some(0)).await.expect("the rate is set");
    wait_for(|| async { row(&client, "d0").await.is_some_and(|row| row.progress.files == 1) }).await;
    check_all(cluster, &client, &bytes, [3, 4]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manager_may_die_while_one_heals() {
    let (mut cluster, client, bytes) = behind().await;
    cluster.manager.take().expect("it runs").kill();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    cluster.start_manager().await;
    client.heal_status(Some(0)).await.expect("the rate is set");
    wait_for(|| async { row(&client, "d0").await.is_some_and(|row| row.progress.files == 1) }).await;
    all_healed(&client).await;
    assert!(client.check(&name("f"), |_| {}).await.expect("check").is_clean());
    check_all(cluster, &client, &bytes, [2, 5]).await;
}
