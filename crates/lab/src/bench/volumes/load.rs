//! Writers that go on until they are stopped, and how long their writes took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braid_cli::output::exit::Failure;
use braid_client::{Client, Error, Name, OpenOptions};
use tokio::task::JoinSet;

const PIECE_BYTES: usize = 4096;
/// Pieces of a file that are written again and again.
const PIECES: u64 = 64;

/// Writers, each of a file of its own.
pub(super) struct Writers {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Result<Written, Error>>,
}

/// Writes of one writer or of all.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) writes: u64,
    /// The longest write.
    pub(super) longest: Duration,
    /// Writes that failed.
    pub(super) failed: u64,
    pub(super) error: Option<String>,
}

impl Writers {
    /// Starts a writer for each client, in a file of this name.
    pub(super) async fn start(writers: Vec<(Client, Name)>) -> Result<Writers, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for (client, name) in writers {
            let file = client.open(&name, &OpenOptions::new().write(true).create(true)).await?;
            let stop = Arc::clone(&stop);
            tasks.spawn(async move {
                let piece = vec![7; PIECE_BYTES];
                let mut written = Written::default();
                while !stop.load(Ordering::Relaxed) {
                    let at = written.writes % PIECES * u64::try_from(PIECE_BYTES).expect("small");
                    let began = Instant::now();
                    if let Err(error) = file.write_at(&piece, at).await {
                        written.failed += 1;
                        written.error = Some(error.to_string());
                    }
                    written.longest = written.longest.max(began.elapsed());
                    written.writes += 1;
                }
                file.close().await?;
                drop(client);
                Ok(written)
            });
        }
        Ok(Writers { stop, tasks })
    }

    /// Stops the writers, and sums up what they did.
    pub(super) async fn end(self) -> Result<Written, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Written::default();
        for written in self.tasks.join_all().await {
            let written = written?;
            all.writes += written.writes;
            all.failed += written.failed;
            all.longest = all.longest.max(written.longest);
            all.error = all.error.or(written.error);
        }
        Ok(all)
    }
}
