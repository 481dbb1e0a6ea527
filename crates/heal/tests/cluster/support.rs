//! Helpers that the tests of healing share.

use std::ops::Range;
use std::time::Duration;

use braid_client::Client;
use braid_client::OpenOptions;
use braid_wire::control::HealRow;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::common::{Random, name, pattern};

/// A drive's row among the heals; `None` if it has none.
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

/// A writer to a part of a file, at random places until it is told to stop.
pub(crate) struct Writer {
    task: JoinHandle<Vec<u8>>,
    stop: watch::Sender<bool>,
    /// Number of writes that are done.
    done: watch::Receiver<u64>,
}

impl Writer {
    /// Begins to write; `model` is the content of the whole file.
    pub(crate) fn begin(client: Client, path: &'static str, part: Range<usize>, model: &[u8]) -> Self {
        let model = model[part.clone()].to_vec();
        let (stop, stopped) = watch::channel(false);
        let (writes, done) = watch::channel(0);
        let task = tokio::spawn(write_on(client, path, part.start, model, stopped, writes));
        Self { task, stop, done }
    }

    /// Waits until some more writes are done than at the call, for 60 s at most. Their speed depends on the
    /// machine, and on other writers whose turn it is, but the writer must make progress.
    pub(crate) async fn gets_on(&self) {
        let mut done = self.done.clone();
        let before = *done.borrow_and_update();
        let waited = tokio::time::timeout(Duration::from_secs(60), done.wait_for(|done| *done >= before + 3));
        waited.await.expect("the writer is not held up").expect("the writer runs");
    }

    /// Ends the writer after some more writes. Returns the content that the file must have in that part then.
    pub(crate) async fn end(self) -> Vec<u8> {
        self.gets_on().await;
        self.stop.send(true).expect("the writer runs");
        self.task.await.expect("the writer ends")
    }
}

async fn write_on(
    client: Client,
    path: &'static str,
    start: usize,
    mut model: Vec<u8>,
    stop: watch::Receiver<bool>,
    done: watch::Sender<u64>,
) -> Vec<u8> {
    let file = client.open(&name(path), &OpenOptions::new().read(true).write(true)).await.expect("open");
    let mut random = Random(77 + start as u64);
    while !*stop.borrow() {
        let at = usize::try_from(random.below(model.len() as u64 - 30_000)).expect("small");
        let bytes = pattern(random.draw(), usize::try_from(1 + random.below(30_000)).expect("small"));
        file.write_at(&bytes, (start + at) as u64).await.expect("the writer is not disturbed");
        model[at..at + bytes.len()].copy_from_slice(&bytes);
        done.send_modify(|done| *done += 1);
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    file.close().await.expect("close");
    model
}
