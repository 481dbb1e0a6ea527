//! Timed transfers between memory and the drives; hashing is not timed.
//!
//! A file goes through a window of memory in parts: filled and hashed, then written with the clock running;
//! or read with the clock running, then hashed. So a rate covers the client and the drives only, as the bound
//! covers sockets and files (`braid-lab demo`). It includes neither the local disk nor SHA-256.

use std::collections::VecDeque;
use std::fs::File as LocalFile;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use braid_client::{Client, File, Name, OpenOptions, Replace};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;

use crate::output::exit::{Doing, Exit, Failure};
use crate::output::rate::Rate;

/// Size of the window in bytes.
pub const WINDOW_BYTES: u64 = 256 << 20;
/// Size of one request in bytes: whole stripes.
const REQUEST_BYTES: usize = 8 << 20;
/// Number of requests in flight at once, each in its own task, as in a copy.
const REQUESTS: usize = 5;

pub(crate) type Hash = [u8; 32];

/// Memory for transfers, one buffer per request. Its pages are touched before the clock runs.
pub(crate) struct TransferBuffers {
    buffers: Vec<Buffer>,
}

/// Memory of a request, and the number of bytes in use.
struct Buffer {
    memory: Vec<u8>,
    filled: usize,
}

impl TransferBuffers {
    /// Allocates buffers for files of up to `largest` bytes.
    pub(crate) fn new(largest: u64) -> TransferBuffers {
        let requests = largest.min(WINDOW_BYTES).div_ceil(REQUEST_BYTES as u64).max(1);
        // Not zeros: the system would map zeroed pages only on first use, within the timed part.
        let buffer = |_| Buffer { memory: vec![0xa5; REQUEST_BYTES], filled: 0 };
        TransferBuffers { buffers: (0..requests).map(buffer).collect() }
    }

    /// Copies a local file to `file`, names and closes it. Returns the rate and the source's hash.
    pub(crate) async fn write(
        &mut self,
        source: &Path,
        file: File,
        name: &Name,
    ) -> Result<(Rate, Hash), Failure> {
        let what = || format!("read {}", source.display());
        let mut local = LocalFile::open(source).doing(what)?;
        let mut hash = Sha256::new();
        let mut rate = Rate::default();
        let file = Arc::new(file);
        loop {
            for buffer in &mut self.buffers {
                buffer.filled = fill(&mut local, &mut buffer.memory).doing(what)?;
                hash.update(buffer.bytes());
            }
            let ended = self.buffers.iter().any(|buffer| buffer.filled < REQUEST_BYTES);
            rate += self.pass(&file, rate.bytes, write_one).await?;
            if ended {
                break;
            }
        }
        let began = Instant::now();
        file.link(name, Replace::Yes).await?;
        Arc::into_inner(file).ok_or_else(|| internal("a request still has the file"))?.close().await?;
        rate.time += began.elapsed();
        Ok((rate, hash.finalize().into()))
    }

    /// Reads a file. Returns the rate and the content's hash.
    pub(crate) async fn read(&mut self, client: &Client, name: &Name) -> Result<(Rate, Hash), Failure> {
        let file = Arc::new(client.open(name, &OpenOptions::new().read(true)).await?);
        let mut hash = Sha256::new();
        let mut rate = Rate::default();
        while rate.bytes < file.size() {
            let mut left = file.size() - rate.bytes;
            for buffer in &mut self.buffers {
                buffer.filled = usize::try_from(left).unwrap_or(usize::MAX).min(REQUEST_BYTES);
                left -= buffer.filled as u64;
            }
            rate += self.pass(&file, rate.bytes, read_one).await?;
            self.buffers.iter().for_each(|buffer| hash.update(buffer.bytes()));
        }
        Ok((rate, hash.finalize().into()))
    }

    /// Sends one request per filled buffer, beginning at `offset` in the file, with the clock running.
    async fn pass<F>(
        &mut self,
        file: &Arc<File>,
        mut offset: u64,
        request: fn(Arc<File>, u64, Buffer) -> F,
    ) -> Result<Rate, Failure>
    where
        F: Future<Output = Result<Buffer, Failure>> + Send + 'static,
    {
        let mut waiting = VecDeque::new();
        for (index, buffer) in self.buffers.drain(..).enumerate() {
            let bytes = buffer.filled as u64;
            waiting.push_back((index, offset, buffer));
            offset += bytes;
        }
        let mut done: Vec<(usize, Buffer)> = Vec::with_capacity(waiting.len());
        let mut tasks = JoinSet::new();
        let mut bytes = 0;
        let began = Instant::now();
        loop {
            while tasks.len() < REQUESTS
                && let Some((index, offset, buffer)) = waiting.pop_front()
            {
                let task = request(Arc::clone(file), offset, buffer);
                tasks.spawn(async move { task.await.map(|buffer| (index, buffer)) });
            }
            let Some(ended) = tasks.join_next().await else { break };
            let (index, buffer) = ended.map_err(|error| internal(&error.to_string()))??;
            bytes += buffer.filled as u64;
            done.push((index, buffer));
        }
        let rate = Rate { bytes, time: began.elapsed() };
        done.sort_by_key(|(index, _)| *index);
        self.buffers.extend(done.into_iter().map(|(_, buffer)| buffer));
        Ok(rate)
    }
}

impl Buffer {
    fn bytes(&self) -> &[u8] {
        &self.memory[..self.filled]
    }
}

async fn write_one(file: Arc<File>, offset: u64, buffer: Buffer) -> Result<Buffer, Failure> {
    if buffer.filled > 0 {
        file.write_at(buffer.bytes(), offset).await?;
    }
    Ok(buffer)
}

async fn read_one(file: Arc<File>, offset: u64, mut buffer: Buffer) -> Result<Buffer, Failure> {
    let mut done = 0;
    while done < buffer.filled {
        let into = &mut buffer.memory[done..buffer.filled];
        match file.read_at(into, offset + done as u64).await? {
            0 => return Err(Failure::new(Exit::Mismatch, "read", "the file ends before its size")),
            read => done += read,
        }
    }
    Ok(buffer)
}

fn internal(why: &str) -> Failure {
    Failure::new(Exit::Failed, "demo", format!("internal: {why}"))
}

fn fill(file: &mut LocalFile, memory: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < memory.len() {
        match file.read(&mut memory[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
