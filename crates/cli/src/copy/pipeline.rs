//! One file's bytes from a source to a sink: large buffers, a few in flight, in order.
//!
//! Buffers circulate: pool, source, sink, pool. Their number bounds memory and is the only backpressure. A
//! remote source reads ahead with every free buffer, and a remote sink writes all its buffers at once, so the
//! network stays busy while the local file is read or written.
//!
//! Holes are kept. A local source skips them. A remote source, after a chunk of nothing but zeros, asks the
//! drives where the next data is. The last chunk tells where the file ends, which may be after a hole.

use std::fs::File as LocalFile;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_client::File as RemoteFile;
use braid_wire::Reason;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use super::{local, small, zeros};
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::rate::Progress;

/// Number of buffers of one copy.
const BUFFERS: usize = 5;
/// Approximate size of a buffer; rounded to whole stripes.
const BUFFER_BYTES: u64 = 8 << 20;
/// Stripes larger than this are not kept whole, to limit memory.
const STRIPE_BYTES_MAX: u64 = 64 << 20;
/// Granularity of holes in local files when the target's stripe size does not set it.
const GRANULE_BYTES: u64 = 64 << 10;

/// Source of the bytes.
pub(crate) enum Source {
    /// A local file or pipe. `expected` is its size at opening: fewer bytes are an error, more are copied.
    Local { file: LocalFile, expected: Option<u64>, name: String },
    /// A remote file, with its size at opening.
    Remote { file: Arc<RemoteFile>, size: u64 },
}

/// Sink of the bytes.
pub(crate) enum Sink {
    /// A local pipe, terminal or device.
    Pipe { file: LocalFile, name: String },
    /// A new, empty local file.
    Local { file: LocalFile, name: String },
    /// A remote file that has no name yet.
    Remote(Arc<RemoteFile>),
}

/// Part of a file, in a buffer of the pool.
pub(super) struct CopyChunk {
    pub(super) offset: u64,
    pub(super) buffer: Vec<u8>,
    pub(super) bytes: usize,
    /// True if the chunk comes from a volume, which returns zeros for holes.
    pub(super) may_have_holes: bool,
}

impl CopyChunk {
    pub(super) fn data(&self) -> &[u8] {
        &self.buffer[..self.bytes]
    }

    /// Offset in the file just past the chunk's last byte.
    pub(super) fn end(&self) -> u64 {
        self.offset + u64::try_from(self.bytes).unwrap_or(u64::MAX)
    }
}

/// Returns used buffers to the pool.
pub(super) type Free = mpsc::Sender<Vec<u8>>;

/// The source's side of the pipeline: free buffers, the channel for chunks, and the most bytes of one chunk.
pub(super) struct Feed {
    pub(super) pool: mpsc::Receiver<Vec<u8>>,
    pub(super) send: mpsc::Sender<Coming>,
    pub(super) bytes: usize,
}

/// A chunk that is ready, or still being read.
pub(super) enum Coming {
    Here(Result<CopyChunk, Failure>),
    Reading(JoinHandle<Result<CopyChunk, Failure>>),
}

impl Coming {
    pub(super) async fn arrive(self) -> Result<CopyChunk, Failure> {
        match self {
            Coming::Here(chunk) => chunk,
            Coming::Reading(task) => task.await.map_err(io::Error::other).doing(|| "read".into())?,
        }
    }
}

/// The size of a buffer: whole stripes of `stripe_bytes`, near `BUFFER_BYTES`.
pub(crate) fn buffer_bytes(stripe_bytes: u64) -> usize {
    let whole = match stripe_bytes {
        0 => BUFFER_BYTES,
        stripe if stripe > STRIPE_BYTES_MAX => BUFFER_BYTES,
        stripe => (BUFFER_BYTES / stripe).max(1) * stripe,
    };
    usize::try_from(whole).unwrap_or(usize::MAX)
}

/// Copies everything. Returns the bytes copied.
pub(crate) async fn run(
    source: Source,
    sink: Sink,
    stripe_bytes: u64,
    progress: &Progress,
) -> Result<u64, Failure> {
    let done = match (&source, &sink) {
        (Source::Local { file, expected: Some(expected), name }, Sink::Remote(to))
            if *expected <= small::BYTES_MAX =>
        {
            small::put(file, *expected, name, to, progress).await?.then_some(*expected)
        }
        (Source::Remote { file, size }, Sink::Local { file: to, name }) if *size <= small::BYTES_MAX => {
            small::get(file, *size, to, name, progress).await?.then_some(*size)
        }
        _ => None,
    };
    if let Some(bytes) = done {
        return Ok(bytes);
    }
    let bytes = buffer_bytes(stripe_bytes);
    let (free, pool) = mpsc::channel(BUFFERS);
    for _ in 0..BUFFERS {
        // Buffers are allocated on first use, so a small file costs one.
        let _ = free.try_send(Vec::new());
    }
    let (send, chunks) = mpsc::channel(BUFFERS);
    let feed = Feed { pool, send, bytes };
    // Whole stripes: data beside a hole is then written without reading the rest of its stripe.
    let granule = match stripe_bytes {
        0 => GRANULE_BYTES,
        stripe if stripe > STRIPE_BYTES_MAX => BUFFER_BYTES,
        stripe => stripe,
    };
    match source {
        // Not joined: the threads end with the channel, but a pipe without a writer may block one for ever.
        Source::Local { file, expected: None, name } => {
            std::thread::spawn(move || local::read_stream(file, &name, feed));
        }
        Source::Local { file, expected: Some(expected), name } => {
            std::thread::spawn(move || local::read_file(&file, expected, &name, granule, feed));
        }
        Source::Remote { file, size } => {
            tokio::spawn(read_remote(file, size, feed));
        }
    }
    match sink {
        Sink::Pipe { file, name } => local::write_stream(file, &name, chunks, free, progress).await,
        Sink::Local { file, name } => local::write_file(file, &name, chunks, free, progress).await,
        Sink::Remote(file) => write_remote(&file, granule, chunks, free, progress).await,
    }
}

/// Reads ahead with every free buffer, and passes the chunks on in order.
async fn read_remote(file: Arc<RemoteFile>, size: u64, feed: Feed) {
    let Feed { mut pool, send, bytes } = feed;
    let whole = u64::try_from(bytes).unwrap_or(u64::MAX);
    let gave_zeros = Arc::new(AtomicBool::new(false));
    let mut offset = 0;
    while offset < size {
        if gave_zeros.swap(false, Ordering::Relaxed) {
            match file.data_after(offset).await.map_err(|error| gone(&file, error)) {
                // Chunk offsets stay multiples of the chunk size, and so lie at whole stripes of the target.
                Ok(Some(data)) => offset = offset.max(data.start / whole * whole),
                Ok(None) => break,
                Err(failure) => {
                    let _ = send.send(Coming::Here(Err(failure))).await;
                    return;
                }
            }
        }
        let Some(mut buffer) = pool.recv().await else { return };
        let want = usize::try_from(size - offset).unwrap_or(usize::MAX).min(bytes);
        if buffer.len() < want {
            buffer.resize(want, 0);
        }
        let file = Arc::clone(&file);
        let gave_zeros = Arc::clone(&gave_zeros);
        let reading = tokio::spawn(async move {
            let mut filled = 0;
            while filled < want {
                let at = offset + u64::try_from(filled).unwrap_or(u64::MAX);
                match file.read_at(&mut buffer[filled..want], at).await.map_err(|error| gone(&file, error))? {
                    0 => break,
                    bytes => filled += bytes,
                }
            }
            if zeros::is_all(&buffer[..filled]) {
                gave_zeros.store(true, Ordering::Relaxed);
            }
            Ok(CopyChunk { offset, buffer, bytes: filled, may_have_holes: true })
        });
        if send.send(Coming::Reading(reading)).await.is_err() {
            return;
        }
        offset += u64::try_from(want).unwrap_or(u64::MAX);
    }
    let end = CopyChunk { offset: size, buffer: Vec::new(), bytes: 0, may_have_holes: false };
    let _ = send.send(Coming::Here(Ok(end))).await;
}

/// The error of a read. If the file was replaced or removed, the error says so and names the file.
pub(super) fn gone(file: &RemoteFile, error: braid_client::Error) -> Failure {
    if error.reason() != Some(Reason::NotFound) {
        return error.into();
    }
    let why = "it was replaced or removed while it was read";
    Failure::new(Exit::NotFound, format!("read {}", file.subject()), why).remedy("read it again")
}

/// Writes all chunks at hand in parallel. In chunks that may have holes, pieces of `granule` zeros are
/// skipped.
async fn write_remote(
    file: &Arc<RemoteFile>,
    granule: u64,
    mut chunks: mpsc::Receiver<Coming>,
    free: Free,
    progress: &Progress,
) -> Result<u64, Failure> {
    let granule = usize::try_from(granule).unwrap_or(usize::MAX);
    let mut writing = JoinSet::new();
    let mut size = 0;
    let mut written = 0;
    let mut open = true;
    while open || !writing.is_empty() {
        tokio::select! {
            coming = chunks.recv(), if open => match coming {
                Some(coming) => {
                    let chunk = coming.arrive().await?;
                    size = chunk.end();
                    writing.spawn(write_chunk(Arc::clone(file), chunk, granule));
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
    if file.size() < size {
        // The file ends with a hole.
        file.set_len(size).await?;
    }
    progress.add(usize::try_from(size - written).unwrap_or(usize::MAX));
    Ok(size)
}

async fn write_chunk(
    file: Arc<RemoteFile>,
    chunk: CopyChunk,
    granule: usize,
) -> Result<CopyChunk, braid_client::Error> {
    if !chunk.may_have_holes {
        file.write_at(chunk.data(), chunk.offset).await?;
        return Ok(chunk);
    }
    for run in zeros::data_runs(chunk.data(), granule) {
        let at = chunk.offset + u64::try_from(run.start).unwrap_or(u64::MAX);
        file.write_at(&chunk.data()[run], at).await?;
    }
    Ok(chunk)
}

/// Finds the original error. When one write fails, later ones report the file as given up and may finish
/// first; only the original error gives the reason.
async fn first_cause(
    mut error: braid_client::Error,
    writing: &mut JoinSet<Result<CopyChunk, braid_client::Error>>,
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
    use crate::output::rate::Bar;

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
        let from = dir.path().join("from");
        let to = dir.path().join("to");
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
        let bytes = runtime.block_on(run(source, sink, 4096, &Progress::begin(None, Bar::Hidden)))?;
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
        // The original error is consumed already, so this one is all there is.
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
