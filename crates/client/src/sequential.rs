//! A file that is read or written in order, in pieces of any length: what comes next is read ahead, and small
//! writes go out together, behind the caller.

mod ahead;
mod behind;

use std::sync::Arc;

pub use ahead::ReadAhead;
use behind::WriteBehind;

use crate::error::Result;
use crate::file::File;

/// Bytes that are read ahead or written at a time: some stripes, so that all drives have work.
const PIECE_BYTES: usize = 2 << 20;

/// An open file with a position. Small reads in order take no round trip each, and small writes in order
/// share one.
///
/// Unlike those of [`File`], a write that has returned is durable only after [`Sequential::flush`] or
/// [`Sequential::close`], which also report the errors of earlier writes. What is dropped without either may
/// be lost. Bytes that are read may be as old as [`ReadAhead::AGE_MAX`].
#[derive(Debug)]
pub struct Sequential {
    file: Arc<File>,
    position: u64,
    ahead: ReadAhead,
    behind: WriteBehind,
}

impl Sequential {
    /// Reads or writes the file in order, from its beginning.
    pub fn new(file: File) -> Sequential {
        let ahead = ReadAhead::default();
        let behind = WriteBehind::default();
        Sequential { file: Arc::new(file), position: 0, ahead, behind }
    }

    /// Sets the position.
    pub fn seek(&mut self, position: u64) {
        self.position = position;
    }

    /// Reads at the position, and advances it. Returns the number of bytes, which is less than the buffer's
    /// length only at the end of the file. What was written before is read.
    pub async fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.behind.settle(&self.file).await?;
        let fetch = |offset, length| {
            let file = Arc::clone(&self.file);
            async move {
                let mut bytes = vec![0; length];
                let read = file.read_at(&mut bytes, offset).await?;
                bytes.truncate(read);
                Ok(bytes)
            }
        };
        let read = match self.ahead.read(fetch, buffer, self.position).await {
            Some(read) => read,
            None => self.file.read_at(buffer, self.position).await?,
        };
        self.position += u64::try_from(read).expect("a buffer is below 2^64 bytes");
        self.ahead.reached(self.position);
        Ok(read)
    }

    /// Takes bytes to be written at the position, and advances it. An error is that of this write or of an
    /// earlier one.
    pub async fn write(&mut self, data: &[u8]) -> Result<()> {
        self.ahead.forget();
        self.behind.write(&self.file, data, self.position).await?;
        self.position += u64::try_from(data.len()).expect("a buffer is below 2^64 bytes");
        Ok(())
    }

    /// Writes what is still to be written, and commits the size. Then all of it is durable.
    pub async fn flush(&mut self) -> Result<()> {
        self.behind.settle(&self.file).await?;
        self.file.flush().await
    }

    /// Like [`Sequential::flush`], and ends the file, also after an error.
    pub async fn close(mut self) -> Result<()> {
        let settled = self.behind.settle(&self.file).await;
        self.ahead.end().await;
        let file = Arc::into_inner(self.file).expect("all tasks that had it have ended");
        let closed = file.close().await;
        settled.and(closed)
    }
}
