//! More drives are lost than the parity can replace, while a column is only partly rebuilt: its rebuilt part
//! can be read, and the rest is reported as lost.

use std::time::Duration;

use braid_client::Client;
use braid_client::Error;
use braid_client::OpenOptions;
use braid_layout::{Scheme, Shape};

use crate::common::{Cluster, Random, assert_same, name, pattern, put, read_all, shape, wait_for};
use crate::support::{all_healed, row, written};

/// Size of the file: several plan sets of a heal, so that some are done and some are not.
const BYTES: usize = 48 << 20;
const UNIT: u32 = 16 << 10;
/// One stripe of so many is read: a read waits for each lost stripe.
const SAMPLE: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn raid5_with_a_column_partly_made_anew_and_another_lost() {
    partly(shape(Scheme::Raid5, 4, 1, UNIT), &[2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rs_with_a_column_partly_made_anew_and_two_others_lost() {
    partly(shape(Scheme::Rs, 4, 2, UNIT), &[2, 5]).await;
}

async fn partly(shape: Shape, others: &[usize]) {
    let mut cluster = Cluster::start(usize::from(shape.width())).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let mut model = pattern(3, BYTES);
    put(&client, &name("f"), shape, &model).await;
    client.heal_status(Some(1_000_000)).await.expect("the rate is set");
    cluster.kill(0);
    cluster.restart_anew(0).await;
    cluster.all_up(&client).await;
    wait_for(|| async { client.replace_drive("d0", "d0-new").await.is_ok() }).await;
    written(&client, "d0-new", 1).await;
    write_beside(&client, &mut model).await;
    let heal = row(&client, "d0-new").await.expect("its row");
    assert_eq!(heal.stale, 1, "the heal is under way");
    others.iter().for_each(|&other| cluster.kill(other));
    let (read, lost) = read_by_stripes(&cluster, shape, &model, others).await;
    println!("{read} stripes read by way of the joining column, {lost} lost");
    assert!(read > 0 && lost > 0, "{read} stripes read and {lost} lost");
    // A range that no remaining drive lists may hold data all the same.
    let file = client.open(&name("f"), &OpenOptions::new().read(true)).await.expect("it opens");
    assert_eq!(file.data_after(0).await.expect("all counts"), Some(0..BYTES as u64));
    let checked = client.check(&name("f"), |_| {}).await;
    assert!(matches!(checked, Err(Error::TooManyAway { .. })), "{checked:?}");
    // The killed drives come back, and all goes on as if they had never been away.
    for &other in others {
        cluster.restart(other).await;
    }
    cluster.all_up(&client).await;
    client.heal_status(Some(0)).await.expect("the rate is set");
    all_healed(&client).await;
    assert!(client.check(&name("f"), |_| {}).await.expect("check").is_clean());
    assert_same(&read_all(&client, &name("f")).await.expect("read"), &model, "all are back");
    others.iter().for_each(|&other| cluster.kill(other));
    assert_same(&read_all(&client, &name("f")).await.expect("read"), &model, "from the healed column");
}

/// Writes all over the file, in parts that are rebuilt already and in parts that are not.
async fn write_beside(client: &Client, model: &mut [u8]) {
    let file = client.open(&name("f"), &OpenOptions::new().read(true).write(true)).await.expect("open");
    let mut random = Random(91);
    for _ in 0..40 {
        let at = usize::try_from(random.below(BYTES as u64 - 100_000)).expect("small");
        let bytes = pattern(random.draw(), usize::try_from(1 + random.below(100_000)).expect("small"));
        file.write_at(&bytes, at as u64).await.expect("write beside the heal");
        model[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    file.close().await.expect("close");
}

/// Reads some of the stripes, each by itself. Every one of them needs a unit of the joining column. Returns
/// the numbers of stripes that were read, and that are lost.
async fn read_by_stripes(cluster: &Cluster, shape: Shape, model: &[u8], others: &[usize]) -> (u32, u32) {
    let mut config = cluster.config();
    config.grace = Duration::from_millis(20);
    let client = Client::connect(config).await.expect("a client");
    let file = client.open(&name("f"), &OpenOptions::new().read(true)).await.expect("it opens");
    let stripe = usize::try_from(shape.stripe_bytes()).expect("small");
    let mut read = 0;
    let mut lost = 0;
    for from in (0..BYTES).step_by(stripe * SAMPLE) {
        let expected = &model[from..BYTES.min(from + stripe)];
        let mut bytes = vec![0xee; expected.len()];
        match file.read_at(&mut bytes, from as u64).await {
            Ok(_) => {
                assert_same(&bytes, expected, &format!("the stripe at byte {from}"));
                read += 1;
            }
            Err(error @ Error::TooManyAway { .. }) => {
                let words = error.to_string();
                let bytes = format!("bytes {from} to {}", from + expected.len());
                assert!(words.contains("main/f") && words.contains(&bytes), "{words}");
                for drive in others.iter().map(|&other| format!("d{other}")).chain(["d0-new".to_owned()]) {
                    assert!(words.contains(&format!("{drive}: ")), "{drive} is not named: {words}");
                }
                lost += 1;
            }
            Err(other) => panic!("the stripe at byte {from}: {other}"),
        }
    }
    (read, lost)
}
