//! Small writes in order, which go out together, some at a time, while the caller goes on.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::PIECE_BYTES;
use crate::error::{Error, Result};
use crate::file::File;

/// Pieces that are on their way at most.
const FLIGHTS_MAX: usize = 3;

/// Bytes that wait to be written, and those on their way.
#[derive(Debug, Default)]
pub(super) struct WriteBehind {
    /// Offset of the bytes that wait.
    start: u64,
    waiting: Vec<u8>,
    flights: JoinSet<(Result<()>, Vec<u8>)>,
    /// Memory of pieces that have been written.
    spare: Vec<Vec<u8>>,
    /// The first error that was not told yet.
    untold: Option<Error>,
    /// The first error: bytes are missing, and nothing more is taken.
    failed: Option<String>,
}

impl WriteBehind {
    /// Takes bytes to be written at an offset. Fails if an earlier piece could not be written.
    pub(super) async fn write(&mut self, file: &Arc<File>, mut data: &[u8], mut offset: u64) -> Result<()> {
        if offset != self.start + length(&self.waiting) {
            // The same bytes may be on their way, and writes that are under way together have no order.
            self.settle(file).await?;
            self.start = offset;
        }
        while !data.is_empty() {
            // Pieces end at multiples of their length, as stripes do.
            let piece = file.whole_blocks(u64::try_from(PIECE_BYTES).expect("it is small"));
            let left = usize::try_from(piece - offset % piece).expect("at most a piece");
            let (now, rest) = data.split_at(left.min(data.len()));
            self.waiting.extend_from_slice(now);
            offset += length(now);
            data = rest;
            if offset.is_multiple_of(piece) {
                self.send(file).await?;
            }
        }
        Ok(())
    }

    /// Waits until all bytes are written.
    pub(super) async fn settle(&mut self, file: &Arc<File>) -> Result<()> {
        self.send(file).await?;
        while !self.flights.is_empty() {
            self.ended().await;
        }
        self.verdict(file)
    }

    /// Fails if a piece could not be written.
    fn verdict(&mut self, file: &File) -> Result<()> {
        match (self.untold.take(), &self.failed) {
            (Some(error), _) => Err(error),
            (None, Some(why)) => Err(Error::Unfinished { file: file.subject().to_owned(), why: why.clone() }),
            (None, None) => Ok(()),
        }
    }

    /// Sends the bytes that wait.
    async fn send(&mut self, file: &Arc<File>) -> Result<()> {
        if self.waiting.is_empty() {
            return self.verdict(file);
        }
        let next = self.spare.pop().unwrap_or_default();
        let bytes = std::mem::replace(&mut self.waiting, next);
        let offset = self.start;
        self.start += length(&bytes);
        let writer = Arc::clone(file);
        self.flights.spawn(async move {
            let written = writer.write_at(&bytes, offset).await;
            (written, bytes)
        });
        if self.flights.len() > FLIGHTS_MAX {
            self.ended().await;
        }
        self.verdict(file)
    }

    /// Waits for a piece on its way. Its error is kept: the caller may give up at any time.
    async fn ended(&mut self) {
        match self.flights.join_next().await {
            Some(Ok((written, mut memory))) => {
                memory.clear();
                self.spare.push(memory);
                if let Err(error) = written {
                    self.failed.get_or_insert_with(|| error.to_string());
                    self.untold.get_or_insert(error);
                }
            }
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            None => {}
        }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("a buffer is below 2^64 bytes")
}
