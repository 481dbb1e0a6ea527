//! One writer: it writes its own records of the shared file, several at a time, and reports on standard
//! output when each write begins and when it is acknowledged. It goes on through all failures, until its
//! standard input ends.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_client::Client;
use braid_client::Config;
use braid_client::File;
use braid_client::OpenOptions;
use tokio::task::JoinSet;

use super::NAME;
use super::record::{RECORD, content};

/// Number of writes in flight at once.
const AT_ONCE: u64 = 4;

struct Task {
    cluster: PathBuf,
    index: u64,
    of: u64,
    records: u64,
    next: u64,
}

/// Runs a writer. `task` holds the cluster's directory, the writer's number, the number of writers, the
/// number of records of each, and the number from which it counts its writes.
pub(super) fn run(task: &str) {
    let words: Vec<&str> = task.rsplitn(5, ' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let cluster = PathBuf::from(words[4]);
    let task = Task { cluster, index: number(3), of: number(2), records: number(1), next: number(0) };
    let stop = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&stop);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stops.store(true, Ordering::Relaxed);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(work(task, &stop));
}

async fn work(mut task: Task, stop: &AtomicBool) {
    let mut open: Option<Arc<File>> = None;
    let client = connect(&task.cluster, stop).await;
    while let (Some(client), false) = (&client, stop.load(Ordering::Relaxed)) {
        let file = match &open {
            Some(file) => Arc::clone(file),
            None => {
                match client.open(&NAME.parse().expect("a name"), &OpenOptions::new().write(true)).await {
                    Ok(file) => Arc::clone(open.insert(Arc::new(file))),
                    Err(_) => {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                }
            }
        };
        if !task.batch(&file).await {
            open = None;
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    if let Some(file) = open.and_then(Arc::into_inner) {
        let _ = file.close().await;
    }
}

impl Task {
    /// Writes some records at once. Returns false if one could not be written.
    async fn batch(&mut self, file: &Arc<File>) -> bool {
        let mut writes = JoinSet::new();
        for _ in 0..AT_ONCE {
            self.next += 1;
            let seq = self.next;
            let file = Arc::clone(file);
            // The writers' records alternate.
            let record = usize::try_from(seq % self.records * self.of + self.index).expect("few");
            say("begun", record, seq);
            writes.spawn(async move {
                let done = file.write_at(&content(record, seq), (record * RECORD) as u64).await;
                if done.is_ok() {
                    say("done", record, seq);
                }
                done.is_ok()
            });
        }
        writes.join_all().await.into_iter().all(|done| done)
    }
}

fn say(what: &str, record: usize, seq: u64) {
    let line = format!("{what} {record} {seq}\n");
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

async fn connect(cluster: &Path, stop: &AtomicBool) -> Option<Client> {
    while !stop.load(Ordering::Relaxed) {
        let text = std::fs::read_to_string(cluster.join("cluster.toml")).unwrap_or_default();
        if let Ok(known) = text.parse::<toml::Table>() {
            let value =
                |key: &str| known.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
            if let Ok(token) = value("token").parse()
                && let Ok(client) = Client::connect(Config::new(value("manager"), token)).await
            {
                return Some(client);
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    None
}
