//! One client's part of a pass: four producers read its chunks, and one consumer counts them.
//!
//! Chunks go to the clients in turn. A producer reads one chunk with one request; over NFS it has a
//! connection of its own. The consumer is behind a queue of as many chunks as there are producers, so that
//! reading goes on while it counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use braid_client::{Client, Config, File, Name, OpenOptions};
use braid_methods::Program;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};

use super::nfs::Nfs;
use super::passes::{content, program};
use super::sales::CHUNK_BYTES;
use crate::error::{Doing, Error};

/// Producers of a client.
pub const PRODUCERS: usize = 4;

/// A job of one client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub source: Source,
    /// Number of this client, from 0.
    pub client: u64,
    /// Number of clients.
    pub clients: u64,
    /// Bytes of the file that all of them count.
    pub bytes: u64,
    /// The sets to count; none: all single items.
    pub candidates: Vec<Vec<u32>>,
}

/// The place of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A file of the cluster, by its full name.
    Braid(String),
    /// A file of an NFS server.
    Nfs(super::nfs::Place),
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Bytes that were counted.
    pub bytes: u64,
    /// Seconds from the first request until the last chunk was counted.
    pub seconds: f64,
    /// The counts, for [`super::combined`].
    pub partial: Vec<u8>,
}

/// The client of a client process.
#[derive(Debug)]
pub struct Worker {
    config: Config,
    client: Option<Client>,
}

/// A job that is ready to run.
#[derive(Debug)]
pub struct Prepared {
    job: Job,
    program: Arc<dyn Program>,
    opened: Opened,
}

#[derive(Debug)]
enum Opened {
    Braid(Arc<File>),
    Nfs(Vec<Nfs>),
}

/// A chunk with its offset, as producers hand it over.
type Handed = (u64, Vec<u8>);

impl Worker {
    /// A worker for the cluster that `config` names.
    pub fn new(config: Config) -> Worker {
        Worker { config, client: None }
    }

    /// Opens the job's file.
    pub async fn prepare(&mut self, job: &Job) -> Result<Prepared, Error> {
        let program = Arc::from(program(&job.candidates, job.bytes)?);
        let opened = match &job.source {
            Source::Braid(file) => {
                let name =
                    Name::parse(file.as_bytes()).map_err(|error| content(format!("{file}: {error}")))?;
                let client = match &self.client {
                    Some(client) => client.clone(),
                    None => Client::connect(self.config.clone()).await.doing("connect a client")?,
                };
                self.client = Some(client.clone());
                let options = OpenOptions::new().read(true);
                Opened::Braid(Arc::new(client.open(&name, &options).await.doing("open the job's file")?))
            }
            Source::Nfs(place) => {
                let place = place.clone();
                let open = move || (0..PRODUCERS).map(|_| Nfs::open(&place)).collect::<Result<Vec<_>, _>>();
                let opened = spawn_blocking(open).await.map_err(std::io::Error::other).flatten();
                Opened::Nfs(opened.doing("open the job's file by NFS")?)
            }
        };
        Ok(Prepared { job: job.clone(), program, opened })
    }
}

impl Prepared {
    /// Reads and counts, with the clock going.
    pub async fn run(self) -> Result<Done, Error> {
        let Prepared { job, program, opened } = self;
        let began = Instant::now();
        let (hand, mut handed) = mpsc::channel::<Handed>(PRODUCERS);
        let consumer = spawn_blocking(move || {
            let mut running = program.begin();
            let mut bytes = 0;
            while let Some((offset, chunk)) = handed.blocking_recv() {
                running.feed(offset, &chunk).map_err(content)?;
                bytes += u64::try_from(chunk.len()).unwrap_or_default();
            }
            Ok::<_, Error>((bytes, running.partial()))
        });
        let chunks = Arc::new(Chunks::of(&job));
        let mut producers = JoinSet::new();
        match opened {
            Opened::Braid(file) => {
                for _ in 0..PRODUCERS {
                    producers.spawn(from_braid(Arc::clone(&file), Arc::clone(&chunks), hand.clone()));
                }
            }
            Opened::Nfs(connections) => {
                for nfs in connections {
                    let chunks = Arc::clone(&chunks);
                    let hand = hand.clone();
                    producers.spawn_blocking(move || from_nfs(nfs, &chunks, &hand));
                }
            }
        }
        drop(hand);
        while let Some(ended) = producers.join_next().await {
            ended.map_err(std::io::Error::other).doing("run a producer")??;
        }
        let counted = consumer.await.map_err(std::io::Error::other).doing("run the consumer")?;
        let (bytes, partial) = counted?;
        Ok(Done { bytes, seconds: began.elapsed().as_secs_f64(), partial })
    }
}

async fn from_braid(file: Arc<File>, chunks: Arc<Chunks>, hand: mpsc::Sender<Handed>) -> Result<(), Error> {
    while let Some((offset, length)) = chunks.next() {
        let mut chunk = vec![0; length];
        let read = file.read_at(&mut chunk, offset).await.doing("read a chunk")?;
        if read < length {
            return Err(content(format!("{}: it ends {} bytes behind {offset}", file.subject(), read)));
        }
        if hand.send((offset, chunk)).await.is_err() {
            break;
        }
    }
    Ok(())
}

fn from_nfs(mut nfs: Nfs, chunks: &Chunks, hand: &mpsc::Sender<Handed>) -> Result<(), Error> {
    while let Some((offset, length)) = chunks.next() {
        let mut chunk = vec![0; length];
        nfs.read(offset, &mut chunk).doing("read a chunk by NFS")?;
        if hand.blocking_send((offset, chunk)).is_err() {
            break;
        }
    }
    Ok(())
}

/// The chunks of one client, which its producers take in turn.
#[derive(Debug)]
struct Chunks {
    next: AtomicU64,
    first: u64,
    step: u64,
    bytes: u64,
}

impl Chunks {
    fn of(job: &Job) -> Chunks {
        Chunks { next: AtomicU64::new(0), first: job.client, step: job.clients.max(1), bytes: job.bytes }
    }

    /// Offset and bytes of the next chunk.
    fn next(&self) -> Option<(u64, usize)> {
        let number = self.first + self.next.fetch_add(1, Ordering::Relaxed) * self.step;
        let offset = number.saturating_mul(CHUNK_BYTES);
        let length = self.bytes.checked_sub(offset).filter(|&left| left > 0)?.min(CHUNK_BYTES);
        Some((offset, usize::try_from(length).expect("a chunk fits memory")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_goes_to_one_client_in_turn() {
        let mut all = Vec::new();
        for client in 0..3 {
            let source = Source::Braid(String::new());
            let job = Job { source, client, clients: 3, bytes: 4 * CHUNK_BYTES + 5, candidates: Vec::new() };
            let chunks = Chunks::of(&job);
            let taken: Vec<(u64, usize)> = std::iter::from_fn(|| chunks.next()).collect();
            assert!(taken.iter().all(|(offset, _)| offset / CHUNK_BYTES % 3 == client), "{taken:?}");
            all.extend(taken);
        }
        all.sort_unstable();
        let whole = 2 << 20;
        let offset = |number| number * CHUNK_BYTES;
        let expected = [0, 1, 2, 3, 4].map(offset).into_iter().zip([whole, whole, whole, whole, 5]);
        assert_eq!(all, expected.collect::<Vec<_>>());
    }
}
