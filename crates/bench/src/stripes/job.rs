//! The work of a client process. Preparing opens the file and makes the bytes; only running is timed. A
//! write counts when it is durable, and a job that writes ends with the commit of the file's size.

use std::sync::Arc;
use std::time::Instant;

use braid_client::Client;
use braid_client::Config;
use braid_client::File;
use braid_client::Name;
use braid_client::OpenOptions;
use braid_client::PartWrites;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::content::{Random, fill, is_filled};
use crate::error::{Doing, Error};

/// Bytes of a record of the shared file, as in IO500.
pub const RECORD_BYTES: u64 = 47_008;
/// Records of one client in flight; the next ones follow when all are answered.
pub const RECORDS_AT_ONCE: u32 = 16;
/// Bytes of memory that a job writes from, again and again, unless its data are verified.
const WINDOW_BYTES: u64 = 64 << 20;

/// A job of one client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Full name of the file, which exists.
    pub file: String,
    /// True if the client computes the parity of every write itself.
    pub by_stripe: bool,
    /// Work on the file.
    pub work: Work,
}

/// Kinds of work on the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Writes the file from the beginning.
    Write {
        /// Bytes to write in all.
        bytes: u64,
        /// Bytes of a request.
        request_bytes: u64,
        /// Requests in flight.
        depth: u32,
    },
    /// Writes only these bytes, and declares them when it opens the file: [`OpenOptions::range`].
    Range {
        /// Offset of the first byte, which is a stripe's first byte.
        from: u64,
        /// Bytes to write in all, whole stripes.
        bytes: u64,
        /// Bytes of a request.
        request_bytes: u64,
        /// Requests in flight.
        depth: u32,
    },
    /// Reads the file from the beginning.
    Read {
        /// Bytes to read in all.
        bytes: u64,
        /// Bytes of a request.
        request_bytes: u64,
        /// Requests in flight.
        depth: u32,
    },
    /// Writes every `clients`th record of a file that all clients write, from record `client` on.
    Records {
        /// Number of this client, from 0.
        client: u64,
        /// Number of clients.
        clients: u64,
        /// Records of this client.
        records: u64,
    },
    /// Reads all records, and fails if one is not as it was written.
    Verify {
        /// Records of all clients.
        records: u64,
    },
    /// Overwrites pieces at random offsets, aligned to their length.
    Updates {
        /// Bytes of the file.
        within: u64,
        /// Bytes of a piece.
        piece_bytes: u64,
        /// Number of pieces.
        pieces: u64,
        /// Pieces in flight.
        depth: u32,
        seed: u64,
    },
    /// Reads pieces at random offsets, aligned to their length.
    Pieces {
        /// Bytes of the file.
        within: u64,
        /// Bytes of a piece.
        piece_bytes: u64,
        /// Number of pieces.
        pieces: u64,
        /// Pieces in flight.
        depth: u32,
        seed: u64,
    },
    /// Overwrites a piece at every multiple of `every_bytes`.
    Spread {
        /// Bytes of the file.
        within: u64,
        /// Bytes of a piece.
        piece_bytes: u64,
        /// Bytes from one piece to the next.
        every_bytes: u64,
    },
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Bytes that the job wrote or read.
    pub bytes: u64,
    /// Seconds that the job took.
    pub seconds: f64,
    /// Bytes that the job's sessions sent to drives.
    pub sent_bytes: u64,
    /// Bytes that came through on each rail: on the first of all drives, on the second, and so on.
    pub rail_bytes: Vec<u64>,
}

/// One request: its offset in the file, and that of its bytes in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    offset: u64,
    bytes: u64,
    memory: u64,
}

/// The time at which further requests follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// As soon as one request is answered.
    Rolling,
    /// All at once, after all requests in flight are answered.
    Batches,
}

/// The clients of a client process.
#[derive(Debug)]
pub struct Worker {
    config: Config,
    /// Clients by the way they write parts of units ([`PartWrites`]): the usual one, and by stripe.
    clients: [Option<Client>; 2],
}

/// A job that is ready to run.
#[derive(Debug)]
pub struct Prepared {
    client: Client,
    file: Arc<File>,
    requests: Vec<Request>,
    memory: Arc<Vec<u8>>,
    way: Way,
    depth: usize,
    pace: Pace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Writes,
    Reads,
    Verifies,
}

impl Worker {
    /// A worker for the cluster that `config` names.
    pub fn new(config: Config) -> Worker {
        Worker { config, clients: [None, None] }
    }

    /// Opens the job's file, and makes the bytes that it will write.
    pub async fn prepare(&mut self, job: &Job) -> Result<Prepared, Error> {
        let client = self.client(job.by_stripe).await?;
        let name = Name::parse(job.file.as_bytes())
            .map_err(|error| Error::Content { what: format!("{}: {error}", job.file) })?;
        let plan = plan(&job.work);
        let mut options = OpenOptions::new().read(plan.way != Way::Writes).write(plan.way == Way::Writes);
        if let Work::Range { from, bytes, .. } = job.work {
            options = options.range(from..from + bytes);
        }
        let file = Arc::new(client.open(&name, &options).await.doing("open the job's file")?);
        let memory = Arc::new(plan.memory);
        let requests = plan.requests;
        let depth = usize::try_from(plan.depth.max(1)).unwrap_or(1);
        Ok(Prepared { client, file, requests, memory, way: plan.way, depth, pace: plan.pace })
    }

    async fn client(&mut self, by_stripe: bool) -> Result<Client, Error> {
        let slot = &mut self.clients[usize::from(by_stripe)];
        if let Some(client) = slot {
            return Ok(client.clone());
        }
        let part_writes = if by_stripe { PartWrites::ByStripe } else { PartWrites::Cheapest };
        let config = Config { part_writes, ..self.config.clone() };
        let client = Client::connect(config).await.doing("connect a client")?;
        Ok(slot.insert(client).clone())
    }
}

/// Bytes that each rail has carried so far, over all drives.
fn rail_bytes(client: &Client) -> Vec<u64> {
    let mut all = Vec::new();
    let mut at = 0;
    let mut before = None;
    for rail in client.rails() {
        at = if before == Some(rail.drive) { at + 1 } else { 0 };
        before = Some(rail.drive);
        if all.len() <= at {
            all.resize(at + 1, 0);
        }
        all[at] += rail.bytes;
    }
    all
}

impl Prepared {
    /// Runs the job, with the clock going.
    pub async fn run(&self) -> Result<Done, Error> {
        let sent = self.client.sent_bytes();
        let before = rail_bytes(&self.client);
        let began = Instant::now();
        match self.way {
            Way::Writes => {
                self.write().await?;
                self.file.flush().await.doing("commit the file's size")?;
            }
            Way::Reads | Way::Verifies => self.read().await?,
        }
        let seconds = began.elapsed().as_secs_f64();
        let bytes = self.requests.iter().map(|request| request.bytes).sum();
        let sent_bytes = self.client.sent_bytes() - sent;
        let mut rails = rail_bytes(&self.client);
        rails.iter_mut().zip(before).for_each(|(rail, before)| *rail = rail.saturating_sub(before));
        Ok(Done { bytes, seconds, sent_bytes, rail_bytes: rails })
    }

    /// Closes the job's file.
    pub async fn close(self) -> Result<(), Error> {
        match Arc::into_inner(self.file) {
            Some(file) => file.close().await.doing("close the job's file"),
            None => Ok(()),
        }
    }

    async fn write(&self) -> Result<(), Error> {
        let mut tasks = JoinSet::new();
        for &request in &self.requests {
            if tasks.len() >= self.depth {
                self.wait(&mut tasks).await?;
            }
            let file = Arc::clone(&self.file);
            let memory = Arc::clone(&self.memory);
            tasks.spawn(async move {
                let from = usize::try_from(request.memory).unwrap_or(usize::MAX);
                let to = from + usize::try_from(request.bytes).unwrap_or(usize::MAX);
                file.write_at(&memory[from..to], request.offset).await.doing("write")
            });
        }
        while let Some(ended) = tasks.join_next().await {
            joined(ended)?;
        }
        Ok(())
    }

    async fn wait(&self, tasks: &mut JoinSet<Result<(), Error>>) -> Result<(), Error> {
        while let Some(ended) = tasks.join_next().await {
            joined(ended)?;
            if self.pace == Pace::Rolling {
                break;
            }
        }
        Ok(())
    }

    async fn read(&self) -> Result<(), Error> {
        let mut tasks = JoinSet::new();
        let mut free = Vec::new();
        for (number, &request) in (0_u64..).zip(&self.requests) {
            if tasks.len() >= self.depth {
                let ended = tasks.join_next().await.expect("there are some");
                free.push(joined(ended)?);
            }
            let file = Arc::clone(&self.file);
            let verifies = self.way == Way::Verifies;
            let mut buffer: Vec<u8> = free.pop().unwrap_or_default();
            buffer.resize(usize::try_from(request.bytes).unwrap_or(usize::MAX), 0xa5);
            tasks.spawn(async move {
                let read = file.read_at(&mut buffer, request.offset).await.doing("read")?;
                if read < buffer.len() || verifies && !is_filled(number, &buffer) {
                    let what = format!("{}: not what was written at {}", file.subject(), request.offset);
                    return Err(Error::Content { what });
                }
                Ok(buffer)
            });
        }
        while let Some(ended) = tasks.join_next().await {
            joined(ended)?;
        }
        Ok(())
    }
}

fn joined<T>(ended: Result<Result<T, Error>, tokio::task::JoinError>) -> Result<T, Error> {
    ended.map_err(std::io::Error::other).doing("run a request")?
}

struct Plan {
    requests: Vec<Request>,
    memory: Vec<u8>,
    way: Way,
    depth: u32,
    pace: Pace,
}

fn plan(work: &Work) -> Plan {
    let rolling = |requests: Vec<Request>, depth, way| {
        let end = requests.iter().map(|request| request.memory + request.bytes).max().unwrap_or(0);
        let mut memory = vec![0; usize::try_from(end).unwrap_or(usize::MAX)];
        if way == Way::Writes {
            fill(1, &mut memory);
        }
        Plan { requests, memory, way, depth, pace: Pace::Rolling }
    };
    match *work {
        Work::Write { bytes, request_bytes, depth } => {
            rolling(sequence(bytes, request_bytes), depth, Way::Writes)
        }
        Work::Range { from, bytes, request_bytes, depth } => {
            let mut requests = sequence(bytes, request_bytes);
            requests.iter_mut().for_each(|request| request.offset += from);
            rolling(requests, depth, Way::Writes)
        }
        Work::Read { bytes, request_bytes, depth } => {
            // A read has a buffer of its own.
            let mut requests = sequence(bytes, request_bytes);
            requests.iter_mut().for_each(|request| request.memory = 0);
            Plan { requests, memory: Vec::new(), way: Way::Reads, depth, pace: Pace::Rolling }
        }
        Work::Verify { records } => {
            let requests = sequence(records * RECORD_BYTES, RECORD_BYTES);
            let way = Way::Verifies;
            let depth = RECORDS_AT_ONCE;
            Plan { requests, memory: Vec::new(), way, depth, pace: Pace::Rolling }
        }
        Work::Records { client, clients, records } => {
            let mut memory = vec![0; usize::try_from(records * RECORD_BYTES).unwrap_or(usize::MAX)];
            let record = usize::try_from(RECORD_BYTES).expect("a record is small");
            for (index, bytes) in (0..).zip(memory.chunks_mut(record)) {
                fill(index * clients + client, bytes);
            }
            let request = |index| Request {
                offset: (index * clients + client) * RECORD_BYTES,
                bytes: RECORD_BYTES,
                memory: index * RECORD_BYTES,
            };
            let requests = (0..records).map(request).collect();
            Plan { requests, memory, way: Way::Writes, depth: RECORDS_AT_ONCE, pace: Pace::Batches }
        }
        Work::Updates { within, piece_bytes, pieces, depth, seed } => {
            let mut random = Random(seed);
            let mut request = |index: u64| Request {
                offset: random.below(within / piece_bytes) * piece_bytes,
                bytes: piece_bytes,
                memory: index % 256 * piece_bytes,
            };
            rolling((0..pieces).map(&mut request).collect(), depth, Way::Writes)
        }
        Work::Pieces { within, piece_bytes, pieces, depth, seed } => {
            let mut random = Random(seed);
            let request = |_| {
                let offset = random.below(within / piece_bytes) * piece_bytes;
                Request { offset, bytes: piece_bytes, memory: 0 }
            };
            let requests = (0..pieces).map(request).collect();
            Plan { requests, memory: Vec::new(), way: Way::Reads, depth, pace: Pace::Rolling }
        }
        Work::Spread { within, piece_bytes, every_bytes } => {
            let request = |index| Request { offset: index * every_bytes, bytes: piece_bytes, memory: 0 };
            rolling((0..within / every_bytes).map(request).collect(), 4, Way::Writes)
        }
    }
}

/// Requests one after another from the beginning of the file.
fn sequence(bytes: u64, request_bytes: u64) -> Vec<Request> {
    let slots = (WINDOW_BYTES / request_bytes).max(1);
    let request = |index: u64| Request {
        offset: index * request_bytes,
        bytes: request_bytes.min(bytes - index * request_bytes),
        memory: index % slots * request_bytes,
    };
    (0..bytes.div_ceil(request_bytes)).map(request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_of_all_clients_are_the_file() {
        let mut offsets: Vec<u64> = (0..3)
            .flat_map(|client| plan(&Work::Records { client, clients: 3, records: 5 }).requests)
            .map(|request| request.offset)
            .collect();
        offsets.sort_unstable();
        assert_eq!(offsets, (0..15).map(|record| record * RECORD_BYTES).collect::<Vec<u64>>());
        let of_second = plan(&Work::Records { client: 1, clients: 3, records: 5 });
        let from = usize::try_from(2 * RECORD_BYTES).expect("small");
        assert!(is_filled(7, &of_second.memory[from..from + 4096]), "its third record is the file's eighth");
    }

    #[test]
    fn a_sequence_ends_where_the_bytes_do() {
        let requests = sequence(10 << 20, 4 << 20);
        assert_eq!(requests.last(), Some(&Request { offset: 8 << 20, bytes: 2 << 20, memory: 8 << 20 }));
        let long = sequence(200 << 20, 8 << 20);
        assert!(long.iter().all(|request| request.memory + request.bytes <= WINDOW_BYTES));
    }

    #[test]
    fn ranges_lie_side_by_side() {
        let of =
            |from| plan(&Work::Range { from, bytes: 8 << 20, request_bytes: 2 << 20, depth: 2 }).requests;
        let offsets: Vec<u64> =
            [of(0), of(8 << 20)].concat().iter().map(|request| request.offset >> 20).collect();
        assert_eq!(offsets, [0, 2, 4, 6, 8, 10, 12, 14]);
    }

    #[test]
    fn pieces_are_aligned_and_inside() {
        let work = Work::Updates { within: 1 << 20, piece_bytes: 4096, pieces: 500, depth: 16, seed: 3 };
        for request in plan(&work).requests {
            assert!(request.offset % 4096 == 0 && request.offset + request.bytes <= 1 << 20);
        }
        let read =
            plan(&Work::Pieces { within: 1 << 20, piece_bytes: 4096, pieces: 500, depth: 16, seed: 3 });
        assert!(
            read.requests.iter().all(|read| read.offset % 4096 == 0 && read.offset + read.bytes <= 1 << 20)
        );
        let spread = plan(&Work::Spread { within: 100 << 20, piece_bytes: 1 << 20, every_bytes: 25 << 20 });
        let offsets: Vec<u64> = spread.requests.iter().map(|request| request.offset >> 20).collect();
        assert_eq!(offsets, [0, 25, 50, 75]);
    }
}
