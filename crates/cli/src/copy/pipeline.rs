//! One file's bytes from a source to a sink: large buffers, a few in flight, in order.
//!
//! Buffers go round: pool, source, sink, pool. Their number bounds memory and is the only backpressure. A remote source reads
//! ahead with every free buffer and a remote sink writes all buffers it holds at once, so the network works while
//! the local file is read or written.

use std::fs::File as LocalFile;
use std::io::{self, Read, Write};
use std::sync::Arc;

use braid_client::File as RemoteFile;
use braid_wire::Reason;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use crate::exit::{Doing, Exit, Failure};
use crate::rate::Progress;

/// Buffers of one copy.
const BUFFERS: usize = 5;
/// Bytes of a buffer, about; rounded to whole stripes.
const BUFFER_BYTES: u64 = 8 << 20;
/// Buffers of small files are multiples of this.
const SMALL_BYTES: u64 = 64 << 10;
/// Stripes over this are not kept whole: memory matters more.
const STRIPE_BYTES_MAX: u64 = 64 << 20;

/// Where bytes come from.
pub(crate) enum Source {
    /// A file or pipe here. `expected`: its size when it was opened; fewer bytes are an error, more are not.
    Local { file: LocalFile, expected: Option<u64>, name: String },
    /// A file of this size when it was opened.
    Remote { file: Arc<RemoteFile>, size: u64 },
}

/// Where bytes go to.
pub(crate) enum Sink {
    /// A file or pipe here.
    Local { file: LocalFile, name: String },
    /// A file being made.
    Remote(Arc<RemoteFile>),
}

/// Part of a file, in a buffer of the pool.
struct Chunk {
    offset: u64,
    buffer: Vec<u8>,
    bytes: usize,
}

/// A chunk that is there, or on its way.
enum Coming {
    Here(Result<Chunk, Failure>),
    Reading(JoinHandle<Result<Chunk, Failure>>),
}

impl Coming {
    async fn arrive(self) -> Result<Chunk, Failure> {
        match self {
            Coming::Here(chunk) => chunk,
            Coming::Reading(task) => task.await.map_err(io::Error::other).doing(|| "read".into())?,
        }
    }
}

/// Whole stripes of `stripe_bytes` near the size of a buffer.
pub(crate) fn buffer_bytes(stripe_bytes: u64) -> usize {
    let whole = match stripe_bytes {
        0 => BUFFER_BYTES,
        stripe if stripe > STRIPE_BYTES_MAX => BUFFER_BYTES,
        stripe => (BUFFER_BYTES / stripe).max(1) * stripe,
    };
    usize::try_from(whole).unwrap_or(usize::MAX)
}

/// Copies all of it; the bytes copied.
pub(crate) async fn run(
    source: Source,
    sink: Sink,
    stripe_bytes: u64,
    progress: &Progress,
) -> Result<u64, Failure> {
    let bytes = buffer_bytes(stripe_bytes);
    let (free, pool) = mpsc::channel(BUFFERS);
    for _ in 0..BUFFERS {
        // Buffers take memory when they are first used, so a small file costs one.
        let _ = free.try_send(Vec::new());
    }
    let (send, chunks) = mpsc::channel(BUFFERS);
    match source {
        Source::Local { file, expected, name } => {
            // Not waited for: it ends with the channel, and a pipe without a writer may keep it for ever.
            std::thread::spawn(move || read_local(file, expected, &name, bytes, pool, &send));
        }
        Source::Remote { file, size } => {
            tokio::spawn(read_remote(file, size, bytes, pool, send));
        }
    }
    match sink {
        Sink::Local { file, name } => write_local(file, &name, chunks, free, progress).await,
        Sink::Remote(file) => write_remote(&file, chunks, free, progress).await,
    }
}

/// Fills buffers from a local file until its end.
fn read_local(
    mut file: LocalFile,
    expected: Option<u64>,
    name: &str,
    bytes: usize,
    mut pool: mpsc::Receiver<Vec<u8>>,
    send: &mpsc::Sender<Coming>,
) {
    let mut offset = 0;
    while let Some(mut buffer) = pool.blocking_recv() {
        // A small file needs a small buffer; one byte more than it has, to meet its end.
        let small = expected
            .filter(|_| offset == 0)
            .map_or(u64::MAX, |expected| (expected + 1).next_multiple_of(SMALL_BYTES));
        let want = usize::try_from(small).unwrap_or(usize::MAX).min(bytes);
        if buffer.len() < want {
            buffer.resize(want, 0);
        }
        let chunk = fill(&mut file, &mut buffer[..want]).doing(|| format!("read {name}"));
        let read = *chunk.as_ref().unwrap_or(&0);
        let ended = read < want;
        let whole =
            chunk.and_then(|_| if ended { not_shrunk(&file, expected, offset, read, name) } else { Ok(()) });
        let last = whole.is_err() || ended;
        let length = u64::try_from(read).unwrap_or(u64::MAX);
        let coming = whole.map(|()| Chunk { offset, buffer, bytes: read });
        if send.blocking_send(Coming::Here(coming)).is_err() || last {
            return;
        }
        offset += length;
    }
}

/// Reads until the buffer is full or the file has ended.
fn fill(file: &mut LocalFile, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// At the end of the file: it must have given at least what it had when it was opened, and must still have what it gave.
fn not_shrunk(
    file: &LocalFile,
    expected: Option<u64>,
    offset: u64,
    read: usize,
    name: &str,
) -> Result<(), Failure> {
    let Some(expected) = expected else { return Ok(()) };
    let reached = offset + u64::try_from(read).unwrap_or(u64::MAX);
    let now = file.metadata().doing(|| format!("read {name}"))?.len();
    if reached >= expected && now >= reached {
        return Ok(());
    }
    let why =
        format!("it shrank from {} to {} bytes while it was copied", expected.max(reached), now.min(reached));
    Err(Failure::new(Exit::Failed, format!("copy {name}"), why).remedy("nothing was stored; copy it again"))
}

/// Reads ahead with every free buffer, and hands them on in order.
async fn read_remote(
    file: Arc<RemoteFile>,
    size: u64,
    bytes: usize,
    mut pool: mpsc::Receiver<Vec<u8>>,
    send: mpsc::Sender<Coming>,
) {
    let mut offset = 0;
    while offset < size {
        let Some(mut buffer) = pool.recv().await else { return };
        let want = usize::try_from(size - offset).unwrap_or(usize::MAX).min(bytes);
        if buffer.len() < want {
            buffer.resize(want, 0);
        }
        let file = Arc::clone(&file);
        let reading = tokio::spawn(async move {
            let mut filled = 0;
            while filled < want {
                let at = offset + u64::try_from(filled).unwrap_or(u64::MAX);
                match file.read_at(&mut buffer[filled..want], at).await.map_err(|error| gone(&file, error))? {
                    0 => break,
                    bytes => filled += bytes,
                }
            }
            Ok(Chunk { offset, buffer, bytes: filled })
        });
        if send.send(Coming::Reading(reading)).await.is_err() {
            return;
        }
        offset += u64::try_from(want).unwrap_or(u64::MAX);
    }
}

/// An error of a read; that the file went away is told by its name.
fn gone(file: &RemoteFile, error: braid_client::Error) -> Failure {
    if error.reason() != Some(Reason::NotFound) {
        return error.into();
    }
    let why = "it was replaced or removed while it was read";
    Failure::new(Exit::NotFound, format!("read {}", file.subject()), why).remedy("read it again")
}

/// Writes chunks one after another.
async fn write_local(
    mut file: LocalFile,
    name: &str,
    mut chunks: mpsc::Receiver<Coming>,
    free: mpsc::Sender<Vec<u8>>,
    progress: &Progress,
) -> Result<u64, Failure> {
    let mut written = 0;
    while let Some(coming) = chunks.recv().await {
        let chunk = coming.arrive().await?;
        let bytes = chunk.bytes;
        let writing = tokio::task::spawn_blocking(move || {
            let result = file.write_all(&chunk.buffer[..chunk.bytes]);
            (file, chunk.buffer, result)
        });
        let (back, buffer, result) =
            writing.await.map_err(io::Error::other).doing(|| format!("write {name}"))?;
        file = back;
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(Failure::closed_pipe()),
            result => result.doing(|| format!("write {name}"))?,
        }
        let _ = free.try_send(buffer);
        written += u64::try_from(bytes).unwrap_or(u64::MAX);
        progress.add(bytes);
    }
    Ok(written)
}

/// Writes all the chunks that are there at once.
async fn write_remote(
    file: &Arc<RemoteFile>,
    mut chunks: mpsc::Receiver<Coming>,
    free: mpsc::Sender<Vec<u8>>,
    progress: &Progress,
) -> Result<u64, Failure> {
    let mut writing = JoinSet::new();
    let mut written = 0;
    let mut open = true;
    while open || !writing.is_empty() {
        tokio::select! {
            coming = chunks.recv(), if open => match coming {
                Some(coming) => {
                    let chunk = coming.arrive().await?;
                    let file = Arc::clone(file);
                    writing.spawn(async move {
                        if chunk.bytes > 0 {
                            file.write_at(&chunk.buffer[..chunk.bytes], chunk.offset).await?;
                        }
                        Ok(chunk)
                    });
                }
                None => open = false,
            },
            Some(done) = writing.join_next(), if !writing.is_empty() => {
                let chunk = match done.map_err(io::Error::other).doing(|| "write".into())? {
                    Ok(chunk) => chunk,
                    Err(error) => return Err(first_cause(error, &mut writing).await.into()),
                };
                written += u64::try_from(chunk.bytes).unwrap_or(u64::MAX);
                progress.add(chunk.bytes);
                let _ = free.try_send(chunk.buffer);
            }
        }
    }
    Ok(written)
}

/// What went wrong first: a write that finds the file given up already may be done before the one that failed, which says why.
async fn first_cause(
    mut error: braid_client::Error,
    writing: &mut JoinSet<Result<Chunk, braid_client::Error>>,
) -> braid_client::Error {
    while matches!(error, braid_client::Error::Unfinished { .. }) {
        match writing.join_next().await {
            Some(Ok(Err(other))) => error = other,
            Some(_) => {}
            None => break,
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_whole_stripes() {
        assert_eq!(buffer_bytes(2 << 20), 8 << 20);
        assert_eq!(buffer_bytes(3 << 20), 6 << 20);
        assert_eq!(buffer_bytes(12 << 20), 12 << 20);
        assert_eq!(buffer_bytes(1 << 30), 8 << 20);
        assert_eq!(buffer_bytes(0), 8 << 20);
    }

    fn local_copy(size_claimed: Option<u64>, content: &[u8]) -> Result<Vec<u8>, Failure> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::write(&from, content).expect("written");
        let source = Source::Local {
            file: LocalFile::open(&from).expect("opened"),
            expected: size_claimed,
            name: "from".into(),
        };
        let sink = Sink::Local { file: LocalFile::create(&to).expect("made"), name: "to".into() };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let bytes = runtime.block_on(run(source, sink, 4096, &Progress::begin(None, false)))?;
        let copied = std::fs::read(&to).expect("read");
        assert_eq!(bytes, copied.len() as u64);
        Ok(copied)
    }

    #[tokio::test]
    async fn the_write_that_failed_says_why_and_not_those_after_it() {
        use braid_client::Error;
        let late = || Error::Unfinished { file: "f".into(), why: "another failed".into() };
        let mut writing = JoinSet::new();
        writing.spawn(async move { Err(late()) });
        writing.spawn(async {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            Err(Error::NoDrive("c".into()))
        });
        assert!(matches!(first_cause(late(), &mut writing).await, Error::NoDrive(_)));
        // Whatever failed first is gone: then it is what there is.
        assert!(matches!(first_cause(late(), &mut writing).await, Error::Unfinished { .. }));
    }

    #[test]
    fn bytes_keep_their_order() {
        let content: Vec<u8> =
            (0..20_000_003_u32).map(|i| i.to_le_bytes()[usize::from(i % 3 == 0)]).collect();
        assert_eq!(local_copy(Some(20_000_003), &content).expect("copied"), content);
        assert_eq!(local_copy(None, &content).expect("copied"), content);
        assert_eq!(local_copy(Some(0), b"").expect("copied"), b"");
    }

    #[test]
    fn a_file_that_grew_is_copied_to_its_end_and_one_that_shrank_is_refused() {
        assert_eq!(local_copy(Some(3), b"longer").expect("copied"), b"longer");
        let failure = local_copy(Some(100), b"shorter").expect_err("shrank");
        assert!(failure.to_string().contains("shrank from 100 to 7 bytes"), "{failure}");
    }
}
