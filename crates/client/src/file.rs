//! An open file, with UNIX semantics: holes read as zeros, reads stop at the end, writes past the end extend it.
//!
//! - A write is acknowledged when it is durable on every drive of the file's set: the bytes are there for any reader at once.
//! - The *size* is committed to the manager by [`File::flush`], [`File::set_len`], [`File::link`] and [`File::close`]. Until then
//!   other readers see the old size, and if the writer dies what it wrote past that size is cleared away.
//! - A reader's size is that of its opening; [`File::stat`] brings it up to date.
//! - A file that is dropped without being closed gives its lease up in the background, as unclean.

use std::io::SeekFrom;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_wire::Reason;
use braid_wire::control::{Commit, Link, StatRow};
use tokio::sync::Semaphore;

use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::lease::{self, Keeper};
use crate::name::Name;
use crate::open;
use crate::retire::{self, Answered};
use crate::write::WriteSide;

/// Largest file, in bytes: what POSIX offsets can name.
pub const FILE_BYTES_MAX: u64 = i64::MAX.unsigned_abs();

/// An open file. `read_at` and `write_at` may run many at once; dropping one of them midway is safe, but after a dropped
/// write the handle writes no more.
#[derive(Debug)]
pub struct File {
    handle: Arc<Handle>,
    writer: Option<Writer>,
    mode: Mode,
    /// The size as this handle sees it.
    size: AtomicU64,
    position: u64,
}

/// How the file was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    pub(crate) read: bool,
    pub(crate) append: bool,
}

#[derive(Debug)]
struct Writer {
    side: Arc<WriteSide>,
    keeper: Keeper,
    /// The size that the manager has; [`UNKNOWN`] if it is not known.
    committed: AtomicU64,
    /// One change of the size at the manager at a time.
    commits: Semaphore,
    /// The number of the last: the manager passes over one that arrives after a later one.
    order: AtomicU64,
}

/// Larger than any file.
const UNKNOWN: u64 = u64::MAX;

impl File {
    pub(crate) fn reader(handle: Arc<Handle>, size: u64) -> File {
        let mode = Mode { read: true, append: false };
        File { handle, writer: None, mode, size: AtomicU64::new(size), position: 0 }
    }

    pub(crate) fn writer(
        handle: Arc<Handle>,
        side: Arc<WriteSide>,
        keeper: Keeper,
        size: u64,
        mode: Mode,
    ) -> File {
        let writer = Writer {
            side,
            keeper,
            committed: AtomicU64::new(size),
            commits: Semaphore::new(1),
            order: AtomicU64::new(0),
        };
        File { handle, writer: Some(writer), mode, size: AtomicU64::new(size), position: 0 }
    }

    /// What errors call the file.
    pub fn subject(&self) -> &str {
        &self.handle.subject
    }

    /// The size in bytes as this handle sees it: with its own writes, whether committed or not.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Where its bytes are, as of the manager's last answer.
    pub fn layout(&self) -> braid_layout::Layout {
        self.handle.view().layout.clone()
    }

    /// The manager's facts of the file as of now: layout, components, generation. A reader's size follows.
    pub async fn stat(&self) -> Result<StatRow> {
        let view = self.handle.refresh(&self.handle.view()).await?;
        let mut row = view.stat.clone();
        match &self.writer {
            Some(_) => row.size = self.size(),
            None => self.size.store(row.size, Ordering::Release),
        }
        Ok(row)
    }

    /// Reads from `offset` on into `buffer`. Gives how many bytes: fewer than asked for only where the file ends.
    pub async fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if !self.mode.read {
            return Err(self.no_access("reading"));
        }
        let left = usize::try_from(self.size().saturating_sub(offset)).unwrap_or(usize::MAX);
        let bytes = buffer.len().min(left);
        if bytes > 0 {
            self.handle.read_range(offset, &mut buffer[..bytes]).await?;
        }
        Ok(bytes)
    }

    /// Writes all of `data` at `offset`. When it returns, the bytes are durable on every drive of the file's set.
    pub async fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let writer = self.writing()?;
        let end = self.end_of(offset, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        self.handle.write_range(&writer.side, offset, data).await?;
        self.size.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// Reads from the position on, and moves it.
    pub async fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let bytes = self.read_at(buffer, self.position).await?;
        self.position += u64::try_from(bytes).expect("a buffer is below 2^64 bytes");
        Ok(bytes)
    }

    /// Writes at the position, or at the end if the file was opened to append, and moves the position behind it.
    pub async fn write(&mut self, data: &[u8]) -> Result<()> {
        let offset = if self.mode.append { self.size() } else { self.position };
        self.write_at(data, offset).await?;
        self.position = offset + u64::try_from(data.len()).expect("a buffer is below 2^64 bytes");
        Ok(())
    }

    /// Moves the position; past the end is allowed.
    pub fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.size().checked_add_signed(by),
        };
        match position {
            Some(position) if position <= FILE_BYTES_MAX => {
                self.position = position;
                Ok(position)
            }
            Some(offset) => Err(Error::Range { file: self.subject().to_owned(), offset, bytes: 0 }),
            None => Err(Error::Seek { file: self.subject().to_owned() }),
        }
    }

    /// Commits the size. The bytes are durable already.
    pub async fn flush(&self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        writer.side.check(self.subject())?;
        self.commit(writer).await
    }

    /// Sets the size. Bytes that are cut off are gone: a file that grows again has zeros there. The new size is committed
    /// first and the bytes past it cleared after, so that a crash in between leaves the file either as it was or cut.
    pub async fn set_len(&self, size: u64) -> Result<()> {
        let writer = self.writing()?;
        writer.side.check(self.subject())?;
        if size > FILE_BYTES_MAX {
            return Err(Error::Range { file: self.subject().to_owned(), offset: size, bytes: 0 });
        }
        let old = self.size.swap(size, Ordering::AcqRel);
        if let Err(error) = self.commit(writer).await {
            self.size.store(old, Ordering::Release);
            return Err(error);
        }
        if size < old
            && let Err(error) = self.punch_from(size).await
        {
            // A later extension would show the bytes: whoever opens the file next clears them away first.
            writer.side.stamps.break_off(&format!("it was cut, but not cleared: {error}"));
            return Err(error);
        }
        Ok(())
    }

    /// Gives an unnamed file its name, with its size, atomically.
    pub async fn link(&self, name: &Name, replace: Replace) -> Result<()> {
        let writer = self.writing()?;
        writer.side.check(self.subject())?;
        let _turn = writer.commits.acquire().await.expect("it is never closed");
        let (view, size) = (self.handle.view(), self.size());
        let request = Link {
            file: view.file,
            lease: view.lease,
            volume: name.volume().to_owned(),
            path: name.path().to_vec(),
            size,
            replace: replace == Replace::Yes,
            order: writer.next_order(),
        };
        let subject = name.to_string();
        writer.committed.store(UNKNOWN, Ordering::Release);
        if let Err(error) = self.handle.client.ask_done(&subject, request, None).await {
            let lost = error.reason() == Some(Reason::LeaseLost);
            if !(lost && self.is_linked(name, size).await) {
                return Err(self.handle.lease_error(error));
            }
        }
        writer.committed.store(size, Ordering::Release);
        Ok(())
    }

    /// Whether the file has this name and size. An answer that was lost may have said so, and the lease may have ended before
    /// the request could be repeated.
    async fn is_linked(&self, name: &Name, size: u64) -> bool {
        let found = self.handle.client.stat(name).await;
        found.is_ok_and(|row| (row.file, row.size) == (self.handle.view().file, size))
    }

    /// Commits the size, has the drives retire what is settled, and gives the lease back.
    pub async fn close(mut self) -> Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let flushed = match writer.side.check(self.subject()) {
            Ok(()) => self.commit(&writer).await,
            checked => checked,
        };
        let clean = match writer.side.stamps.all_settled() {
            Some(_) if !writer.side.stamps.is_used() => true,
            Some(settled_to) => retire::retire(&self.handle, settled_to, Answered::WhenDurable).await,
            None => false,
        };
        let lost = writer.side.lost.get().is_some();
        writer.keeper.end();
        let released = if lost { Ok(()) } else { lease::release(&self.handle, clean).await };
        flushed.and(released)
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Makes everything past `size` that any drive may hold a hole.
    pub(crate) async fn punch_from(&self, size: u64) -> Result<()> {
        let writer = self.writing()?;
        let mark = writer.side.stamps.mark();
        let end = open::reach(&self.handle).await?;
        if size < end {
            self.handle.punch_range(&writer.side, size..end).await?;
        }
        writer.side.stamps.truncated(size, mark);
        Ok(())
    }

    /// Has the manager know the size, unless it does.
    async fn commit(&self, writer: &Writer) -> Result<()> {
        let _turn = writer.commits.acquire().await.expect("it is never closed");
        let (view, size) = (self.handle.view(), self.size());
        if writer.committed.load(Ordering::Acquire) == size {
            return Ok(());
        }
        // Until it has answered: a request whose answer is lost may have been carried out.
        writer.committed.store(UNKNOWN, Ordering::Release);
        let request = Commit { file: view.file, lease: view.lease, size, order: writer.next_order() };
        let answer = self.handle.client.ask_done(self.subject(), request, None).await;
        answer.map_err(|error| self.handle.lease_error(error))?;
        writer.committed.store(size, Ordering::Release);
        Ok(())
    }

    fn writing(&self) -> Result<&Writer> {
        self.writer.as_ref().ok_or_else(|| self.no_access("writing"))
    }

    fn no_access(&self, access: &'static str) -> Error {
        Error::Access { file: self.subject().to_owned(), access }
    }

    fn end_of(&self, offset: u64, length: usize) -> Result<u64> {
        let bytes = u64::try_from(length).expect("a buffer is below 2^64 bytes");
        let end = offset.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX);
        end.ok_or_else(|| Error::Range { file: self.subject().to_owned(), offset, bytes })
    }
}

impl Writer {
    fn next_order(&self) -> u64 {
        self.order.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// Whether a file of the same name makes way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// It is replaced, atomically.
    Yes,
    /// It stays, and the request fails.
    No,
}
