//! What the tests of healing have in common.

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

/// Waits until the drive has written this many bytes for its heal.
pub(crate) async fn written(client: &Client, drive: &str, bytes: u64) {
    crate::common::wait_for(|| async {
        row(client, drive).await.is_some_and(|row| row.progress.written_bytes >= bytes)
    })
    .await;
}

/// Writes to a file at random places until it is told to stop. Gives what the file must hold then.
pub(crate) async fn write_on(
    client: Client,
    path: &'static str,
    mut model: Vec<u8>,
    mut stop: tokio::sync::oneshot::Receiver<()>,
) -> Vec<u8> {
    let file = client.open(&name(path), &OpenOptions::new().read(true).write(true)).await.expect("open");
    let mut random = Random(77);
    let size = u64::try_from(model.len()).expect("small");
    let mut writes = 0;
    while stop.try_recv().is_err() {
        let from = random.below(size - 30_000);
        let bytes = pattern(random.draw(), usize::try_from(1 + random.below(30_000)).expect("small"));
        file.write_at(&bytes, from).await.expect("the writer is not disturbed");
        let at = usize::try_from(from).expect("small");
        model[at..at + bytes.len()].copy_from_slice(&bytes);
        writes += 1;
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    assert!(writes > 20, "{writes} writes: it was held up");
    file.close().await.expect("close");
    model
}
