//! Writers and readers that go on until they are stopped, and how long their requests took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braid_cli::output::exit::Failure;
use braid_client::{Client, Error, File, Name, OpenOptions};
use tokio::task::JoinSet;

const PIECE_BYTES: usize = 4096;
/// Pieces of a file that are written again and again.
const PIECES: u64 = 64;

/// Writers, each of a file of its own.
pub(in crate::bench) struct Writers {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Result<Written, Error>>,
}

/// Readers, each of a file of its own, which it writes first.
pub(in crate::bench) struct Readers(Writers);

/// Writes of one writer or of all; or reads.
#[derive(Debug, Default)]
pub(in crate::bench) struct Written {
    pub(in crate::bench) writes: u64,
    /// The longest write.
    pub(in crate::bench) longest: Duration,
    /// Writes that failed.
    pub(in crate::bench) failed: u64,
    pub(in crate::bench) error: Option<String>,
}

impl Writers {
    /// Starts a writer for each client, in a file of this name.
    pub(in crate::bench) async fn start(writers: Vec<(Client, Name)>) -> Result<Writers, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for (client, name) in writers {
            let file = client.open(&name, &OpenOptions::new().write(true).create(true)).await?;
            let stop = Arc::clone(&stop);
            tasks.spawn(async move {
                let written = until(&stop, &file, Request::Write).await;
                file.close().await?;
                drop(client);
                Ok(written)
            });
        }
        Ok(Writers { stop, tasks })
    }

    /// Stops the writers, and sums up what they did.
    pub(in crate::bench) async fn end(self) -> Result<Written, Failure> {
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

impl Readers {
    /// Starts a reader for each client, of a file of this name.
    pub(in crate::bench) async fn start(readers: Vec<(Client, Name)>) -> Result<Readers, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for (client, name) in readers {
            let file = client.open(&name, &OpenOptions::new().write(true).create(true)).await?;
            file.write_at(&vec![7; PIECE_BYTES * usize::try_from(PIECES).expect("small")], 0).await?;
            file.close().await?;
            let file = client.open(&name, &OpenOptions::new().read(true)).await?;
            let stop = Arc::clone(&stop);
            tasks.spawn(async move {
                let read = until(&stop, &file, Request::Read).await;
                file.close().await?;
                drop(client);
                Ok(read)
            });
        }
        Ok(Readers(Writers { stop, tasks }))
    }

    /// Stops the readers, and sums up what they did.
    pub(in crate::bench) async fn end(self) -> Result<Written, Failure> {
        self.0.end().await
    }
}

/// The request that is done again and again.
#[derive(Debug, Clone, Copy)]
enum Request {
    Write,
    Read,
}

/// Does requests, each of the next piece of a file, until it is to stop.
async fn until(stop: &AtomicBool, file: &File, request: Request) -> Written {
    let mut piece = vec![7; PIECE_BYTES];
    let mut done = Written::default();
    while !stop.load(Ordering::Relaxed) {
        let at = done.writes % PIECES * u64::try_from(PIECE_BYTES).expect("small");
        let began = Instant::now();
        let result = match request {
            Request::Write => file.write_at(&piece, at).await,
            Request::Read => file.read_at(&mut piece, at).await.map(drop),
        };
        if let Err(error) = result {
            done.failed += 1;
            done.error = Some(error.to_string());
        }
        done.longest = done.longest.max(began.elapsed());
        done.writes += 1;
    }
    done
}
