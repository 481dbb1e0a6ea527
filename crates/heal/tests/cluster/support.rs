//! What the tests of healing have in common.

use std::ops::Range;
use std::time::Duration;

use braid_client::{Client, OpenOptions};
use braid_wire::control::HealRow;

use crate::common::{Random, name, pattern};

/// A drive's row among the heals; a new one if it has none.
pub(crate) async fn row(client: &Client, drive: &str) -> Option<HealRow> {
    let status = client.heal_status(None).await.expect("the heals");
    status.drives.into_iter().find(|row| row.name == drive)
}

/// Waits until the manager knows that nothing is stale, and all drives have reported since, for 60 s at most.
pub(crate) async fn all_healed(client: &Client) {
    let healed = async {
        loop {
            let status = client.heal_status(None).await.expect("the heals");
            if status.drives.iter().all(|row| row.stale == 0) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_millis(1000)).await;
    };
    if tokio::time::timeout(Duration::from_secs(60), healed).await.is_err() {
        panic!("it does not heal: {:?}", client.heal_status(None).await.expect("the heals"));
    }
}

/// Waits for a condition, for 60 s at most.
pub(crate) async fn soon<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    let waited = tokio::time::timeout(Duration::from_secs(60), async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.expect("it comes about in time");
}

/// Waits until the drive has written this many bytes for its heal.
pub(crate) async fn written(client: &Client, drive: &str, bytes: u64) {
    crate::common::wait_for(|| async {
        row(client, drive).await.is_some_and(|row| row.progress.written_bytes >= bytes)
    })
    .await;
}

/// Writes to a part of a file at random places until it is told to stop. Gives what the file must hold there
/// then.
pub(crate) async fn write_on(
    client: Client,
    path: &'static str,
    part: Range<usize>,
    model: Vec<u8>,
    mut stop: tokio::sync::watch::Receiver<bool>,
) -> Vec<u8> {
    let mut model = model[part.clone()].to_vec();
    let file = client.open(&name(path), &OpenOptions::new().read(true).write(true)).await.expect("open");
    let mut random = Random(77 + part.start as u64);
    let mut writes = 0;
    // How many it gets done meanwhile is the machine's matter, and that of the writers whose turn it is.
    // But it gets on.
    let mut beside = None;
    while beside.is_none() || writes <= 20 {
        let at = usize::try_from(random.below(model.len() as u64 - 30_000)).expect("small");
        let bytes = pattern(random.draw(), usize::try_from(1 + random.below(30_000)).expect("small"));
        file.write_at(&bytes, (part.start + at) as u64).await.expect("the writer is not disturbed");
        model[at..at + bytes.len()].copy_from_slice(&bytes);
        writes += 1;
        tokio::time::sleep(Duration::from_millis(3)).await;
        if *stop.borrow_and_update() {
            beside.get_or_insert(writes);
        }
    }
    assert!(beside.is_some_and(|writes| writes > 1), "it was held up");
    file.close().await.expect("close");
    model
}
