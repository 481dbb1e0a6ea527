//! The work of a client process. Preparing opens the large file, or connects the plain sockets; only
//! running is timed.

use std::sync::Arc;
use std::time::Instant;

use braid_client::Client;
use braid_client::Config;
use braid_client::File;
use braid_client::Name;
use braid_client::OpenOptions;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::exchange::{Exchange, FarEnd, Sockets};
use super::operation::FILE_BYTES;
use super::pace::{Done, Limit, Turns};
use crate::connected::Connected;
use crate::content::{Random, fill, number_of};
use crate::error::{Doing, Error};

/// Bytes of a request that fills the large file.
const FILL_BYTES: u64 = 8 << 20;
/// Pieces of the large file that their contents tell apart: 4 GiB.
const PIECES_MAX: u64 = 1 << 20;
/// Number of overwrites of a piece after which its content repeats.
const VERSIONS: u64 = 1 << 24;

/// A job of one client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Kind of operation.
    pub work: Work,
    /// Operations in flight.
    pub in_flight: u32,
    /// Limits at which the sample ends.
    pub limit: Limit,
    /// Seed of the random choices: another seed gives other places.
    pub seed: u64,
}

/// Kind of work. Files of a directory are `f0`, `f1` and so on; names are full paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Makes, writes and closes files of a directory, from `f0` on.
    Create { directory: String },
    /// Removes files of a directory, from `f0` on.
    Unlink { directory: String },
    /// Opens, reads and closes files.
    OpenRead {
        directory: String,
        /// Number of files in the directory.
        files: u64,
    },
    /// Asks for the attributes of files.
    Stat {
        directory: String,
        /// Number of files in the directory.
        files: u64,
    },
    /// Lists a directory.
    List {
        directory: String,
        /// Number of names in the directory.
        files: u64,
    },
    /// Makes the large file, in large requests; this is not measured.
    Fill {
        file: String,
        /// Bytes of the file, a multiple of 4 KiB.
        bytes: u64,
    },
    /// Reads pieces of the large file.
    Read { file: String, bytes: u64 },
    /// Overwrites pieces of the large file.
    Overwrite { file: String, bytes: u64 },
    /// Plain exchanges instead of operations on the cluster.
    Plain {
        /// Exchanges of one operation.
        exchanges: Vec<Exchange>,
        /// Process that stands for the manager.
        manager: FarEnd,
        /// Processes that stand for the drives.
        drives: Vec<FarEnd>,
    },
}

/// The client of a client process.
#[derive(Debug)]
pub struct Worker {
    connected: Connected,
}

/// A job that is ready to run.
#[derive(Debug)]
pub struct Prepared {
    job: Job,
    ready: Ready,
}

#[derive(Debug)]
enum Ready {
    Braid(Arc<Subject>),
    Plain(Sockets),
}

/// The context of a job's operations.
#[derive(Debug)]
struct Subject {
    client: Client,
    work: Work,
    seed: u64,
    /// Name of the directory, or of the large file.
    name: Name,
    /// The large file, if the job needs it open.
    file: Option<File>,
}

impl Worker {
    /// A worker for the cluster that `config` names.
    pub fn new(config: Config) -> Worker {
        Worker { connected: Connected::new(config) }
    }

    /// Opens the job's file, if it has one, or connects its sockets.
    pub async fn prepare(&mut self, job: &Job) -> Result<Prepared, Error> {
        let ready = match &job.work {
            Work::Plain { manager, drives, .. } => {
                let manager = manager.clone();
                let drives = drives.clone();
                let connect = move || Sockets::connect(&manager, &drives);
                let sockets = tokio::task::spawn_blocking(connect).await.map_err(std::io::Error::other);
                Ready::Plain(sockets.doing("connect to a far end")??)
            }
            work => Ready::Braid(Arc::new(self.subject(work.clone(), job.seed).await?)),
        };
        Ok(Prepared { job: job.clone(), ready })
    }

    async fn subject(&mut self, work: Work, seed: u64) -> Result<Subject, Error> {
        let client = self.connected.client().await?;
        let (text, options) = match &work {
            Work::Create { directory }
            | Work::Unlink { directory }
            | Work::OpenRead { directory, .. }
            | Work::Stat { directory, .. }
            | Work::List { directory, .. } => (directory, None),
            Work::Fill { file, .. } => (file, Some(OpenOptions::new().write(true).create_new(true))),
            Work::Read { file, .. } => (file, Some(OpenOptions::new().read(true))),
            Work::Overwrite { file, .. } => (file, Some(OpenOptions::new().write(true))),
            Work::Plain { .. } => return Err(Error::Content { what: "plain exchanges have no file".into() }),
        };
        let name = Name::parse(text.as_bytes())
            .map_err(|error| Error::Content { what: format!("{text}: {error}") })?;
        let file = match options {
            Some(options) => Some(client.open(&name, &options).await.doing("open the large file")?),
            None => None,
        };
        Ok(Subject { client, work, seed, name, file })
    }
}

impl Prepared {
    /// Runs the job, with the clock going.
    pub async fn run(&self) -> Result<Done, Error> {
        let Job { in_flight, limit, .. } = self.job;
        match (&self.ready, &self.job.work) {
            (Ready::Plain(sockets), Work::Plain { exchanges, .. }) => {
                sockets.run(exchanges, in_flight, limit).await
            }
            (Ready::Braid(subject), Work::Fill { bytes, .. }) => subject.fill(*bytes).await,
            (Ready::Braid(subject), _) => run(subject, in_flight, limit).await,
            (Ready::Plain(_), _) => Err(Error::Content { what: "sockets are for plain exchanges".into() }),
        }
    }

    /// Closes the job's file, if it has one.
    pub async fn close(self) -> Result<(), Error> {
        let Ready::Braid(subject) = self.ready else { return Ok(()) };
        match Arc::into_inner(subject).and_then(|subject| subject.file) {
            Some(file) => file.close().await.doing("close the large file"),
            None => Ok(()),
        }
    }
}

async fn run(subject: &Arc<Subject>, in_flight: u32, limit: Limit) -> Result<Done, Error> {
    let mut slots = JoinSet::new();
    let turns = Arc::new(Turns::begin(limit));
    for slot in 0..in_flight {
        let subject = Arc::clone(subject);
        let turns = Arc::clone(&turns);
        slots.spawn(async move {
            let mut random = Random(subject.seed << 16 | u64::from(slot));
            let mut buffer = vec![0; usize::try_from(FILE_BYTES).expect("it is small")];
            let mut took = Vec::new();
            while let Some(number) = turns.next() {
                let began = Instant::now();
                subject.operation(number, &mut random, &mut buffer).await?;
                took.push(began.elapsed());
            }
            Ok(took)
        });
    }
    turns.end(slots).await
}

impl Subject {
    async fn operation(&self, number: u64, random: &mut Random, buffer: &mut [u8]) -> Result<(), Error> {
        match &self.work {
            Work::Create { .. } => {
                let options = OpenOptions::new().write(true).create_new(true);
                let file = self.client.open(&self.file_name(number)?, &options).await.doing("make a file")?;
                fill(number, buffer);
                file.write_at(buffer, 0).await.doing("write a file")?;
                file.close().await.doing("close a file")
            }
            Work::Unlink { .. } => self.client.unlink(&self.file_name(number)?).await.doing("remove a file"),
            Work::OpenRead { files, .. } => {
                let number = random.below(*files);
                let options = OpenOptions::new().read(true);
                let file = self.client.open(&self.file_name(number)?, &options).await.doing("open a file")?;
                let read = file.read_at(buffer, 0).await.doing("read a file")?;
                self.expect(read == buffer.len() && number_of(buffer) == Some(number), number)?;
                file.close().await.doing("close a file")
            }
            Work::Stat { files, .. } => {
                let number = random.below(*files);
                let row = self.client.stat(&self.file_name(number)?).await.doing("ask about a file")?;
                self.expect(row.size() == u64::from(FILE_BYTES), number)
            }
            Work::List { files, .. } => {
                let names = self.client.list(&self.name).all().await.doing("list a directory")?;
                self.expect(u64::try_from(names.len()) == Ok(*files), *files)
            }
            Work::Read { bytes, .. } => {
                let piece = random.below(pieces(*bytes));
                let at = piece * u64::from(FILE_BYTES);
                let read = self.large()?.read_at(buffer, at).await.doing("read a piece")?;
                let is_it = number_of(buffer).map(|number| number % PIECES_MAX) == Some(piece);
                self.expect(read == buffer.len() && is_it, piece)
            }
            Work::Overwrite { bytes, .. } => {
                let piece = random.below(pieces(*bytes));
                let version = (self.seed << 12).wrapping_add(number) % VERSIONS;
                fill(version * PIECES_MAX + piece, buffer);
                let at = piece * u64::from(FILE_BYTES);
                self.large()?.write_at(buffer, at).await.doing("overwrite a piece")
            }
            Work::Fill { .. } | Work::Plain { .. } => self.expect(false, number),
        }
    }

    async fn fill(&self, bytes: u64) -> Result<Done, Error> {
        let began = Instant::now();
        let mut at = 0;
        let mut operations = 0;
        let mut buffer = Vec::new();
        let piece = usize::try_from(FILE_BYTES).expect("it is small");
        while at < bytes {
            let request = FILL_BYTES.min(bytes - at);
            buffer.resize(usize::try_from(request).expect("it is small"), 0);
            for (number, bytes) in (at / u64::from(FILE_BYTES)..).zip(buffer.chunks_mut(piece)) {
                fill(number, bytes);
            }
            self.large()?.write_at(&buffer, at).await.doing("fill the large file")?;
            (at, operations) = (at + request, operations + 1);
        }
        self.large()?.flush().await.doing("commit the large file's size")?;
        Ok(Done { operations, seconds: began.elapsed().as_secs_f64(), p50_us: 0.0, p99_us: 0.0 })
    }

    fn large(&self) -> Result<&File, Error> {
        self.file.as_ref().ok_or_else(|| Error::Content { what: format!("{}: it is not open", self.name) })
    }

    fn file_name(&self, number: u64) -> Result<Name, Error> {
        self.name
            .join(format!("f{number}").as_bytes())
            .map_err(|error| Error::Content { what: format!("{}/f{number}: {error}", self.name) })
    }

    fn expect(&self, right: bool, number: u64) -> Result<(), Error> {
        let what = || format!("{}: number {number} is not what was written", self.name);
        if right { Ok(()) } else { Err(Error::Content { what: what() }) }
    }
}

/// Number of pieces of a file.
fn pieces(bytes: u64) -> u64 {
    (bytes / u64::from(FILE_BYTES)).min(PIECES_MAX)
}
