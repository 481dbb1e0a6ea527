//! An open file with UNIX semantics: holes read as zeros, reads stop at the end, writes past the end extend
//! it. Any number of handles may write it; where two of them write the same bytes at once, each unit has the
//! bytes of one or the other.
//!
//! - A write is acknowledged when it is durable on every drive of the file's set. Any reader sees the bytes
//!   at once.
//! - The *size* is committed to the manager by [`File::flush`], [`File::set_len`], [`File::link`] and
//!   [`File::close`]. Until then other readers see the old size. If the writer dies, the manager settles the
//!   size from what the drives hold, so nothing acknowledged is lost. Unacknowledged bytes may become visible
//!   too, with zeros after them if a drive was away.
//! - A truncation ([`File::set_len`] to less) is done when it returns. If the writer dies during it, the file
//!   is either unchanged or truncated; whoever opens it next clears what is past the size.
//! - A reader's size is from its opening; [`File::stat`] updates it. While several handles write the file,
//!   any handle that reads at its end asks for the size anew, and sees what the others have committed.
//! - A file of an encrypted volume has one writer at a time, and what drives get is sealed ([`sealed`]).
//!   Sizes and offsets are those of the file's own bytes.
//! - A file that is dropped without being closed releases its lease in the background, as unclean.

use std::io::SeekFrom;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use braid_layout::{FileId, HolderId, Lease, Stripe};
use braid_schedule::Delivered;
use braid_wire::Reason;
use braid_wire::capability::DataDirection;
use braid_wire::control::{Commit, Cut, FileAttributes, HandlePromise, Seen, StatRow};
use braid_wire::data::Listing;
use tokio::sync::Semaphore;

use crate::concurrent;
use crate::data::extents;
use crate::data::write::{ReservedPlace, Source, WriteSide};
use crate::error::{Error, Result};
use crate::handle::{Handle, Size};
use crate::naming::reservations::Reserved;
use crate::peers::lease::LeaseRenewer;
use crate::peers::retry::Tries;
use crate::promised::Promised;
use crate::sealed::geometry::{self, plain_size, stored_size};

mod allocate;
mod append;
mod close;
mod part;
mod punch;
pub(crate) mod sealed;
mod withdraw;

/// Largest file, in bytes: the largest POSIX offset.
pub const FILE_BYTES_MAX: u64 = i64::MAX.unsigned_abs();

/// An open file. Many `read_at` and `write_at` calls may run at once. Dropping one midway is safe, but after
/// a dropped write the handle writes no more.
#[derive(Debug)]
pub struct File {
    handle: Arc<Handle>,
    writer: Option<Writer>,
    mode: Mode,
    position: u64,
    /// The reservation that ends with this file.
    reserved: Option<Reserved>,
    /// Present if the file's bytes are sealed.
    sealed: Option<sealed::Sealed>,
}

/// The operations that the file was opened for.
#[derive(Debug, Clone)]
pub(crate) struct Mode {
    pub(crate) read: bool,
    pub(crate) append: bool,
    /// The only bytes that the handle may write; `None`: no bound.
    pub(crate) range: Option<Range<u64>>,
}

#[derive(Debug)]
struct Writer {
    side: Arc<WriteSide>,
    keeper: LeaseRenewer,
    /// The size that the manager has, with the lease under which it was committed; `None` if that is not
    /// known.
    committed: Mutex<Option<(Lease, u64)>>,
    /// True if anything was written since the last commit to the manager.
    written: AtomicBool,
    /// Modification time set by [`File::set_modified`], in nanoseconds since 1970; `None` if it was not set.
    modified: Mutex<Option<i64>>,
    /// Allows one commit at a time.
    commits: Semaphore,
    /// Number of the last commit: the manager ignores one that arrives after a later one.
    order: AtomicU64,
}

impl File {
    pub(crate) fn reader(handle: Arc<Handle>) -> File {
        let mode = Mode { read: true, append: false, range: None };
        File { handle, writer: None, mode, position: 0, reserved: None, sealed: None }
    }

    pub(crate) fn writer(
        handle: Arc<Handle>,
        side: Arc<WriteSide>,
        keeper: LeaseRenewer,
        size: u64,
        mode: Mode,
    ) -> File {
        let writer = Writer {
            side,
            keeper,
            committed: Mutex::new(Some((handle.view().lease, size))),
            written: AtomicBool::new(false),
            modified: Mutex::new(None),
            commits: Semaphore::new(1),
            order: AtomicU64::new(0),
        };
        File { handle, writer: Some(writer), mode, position: 0, reserved: None, sealed: None }
    }

    /// Ends the reservation when the file is closed or dropped.
    pub(crate) fn under(self, reserved: Reserved) -> File {
        File { reserved: Some(reserved), ..self }
    }

    /// Seals what is written from now on, and opens what is read.
    pub(crate) fn sealed_by(self, seals: sealed::Sealed) -> File {
        File { sealed: Some(seals), ..self }
    }

    /// Returns true if drives hold what the file has in sealed blocks.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// The promise under which the file is open, as of the manager's last answer; `None`: it is best effort.
    pub fn promise(&self) -> Option<HandlePromise> {
        self.handle.view().promise
    }

    /// Account of the promise since the file was opened: delivered, and late; `None` without one.
    pub fn lateness(&self) -> Option<Delivered> {
        self.handle.lateness()
    }

    /// The file's name in errors.
    pub fn subject(&self) -> &str {
        &self.handle.subject
    }

    /// Number of this open file at the manager, by which the manager knows its part in the file's lease.
    pub fn holder(&self) -> HolderId {
        self.handle.holder
    }

    /// Returns true if other handles may write the same stripes too, as of the manager's last answer.
    pub fn is_shared(&self) -> bool {
        self.handle.view().shared
    }

    /// The lease under which this handle writes, as of the manager's last answer. Another one follows
    /// whenever other handles begin to write the file too, or leave it.
    pub fn lease(&self) -> Lease {
        self.handle.view().lease
    }

    /// Returns true if the handle's lease is known to be lost: the handle writes no more, and others may have
    /// written since.
    pub fn is_lost(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.side.lost.get().is_some())
    }

    /// The drive that refused a write of this handle for lack of space, if one did. The file's content can be
    /// written to a new file: [`Client::create_for`](crate::Client::create_for).
    pub fn full_drive(&self) -> Option<braid_layout::DriveId> {
        self.writer.as_ref().and_then(|writer| writer.side.full.get().copied())
    }

    /// The size in bytes as this handle sees it, including its own uncommitted writes.
    pub fn size(&self) -> u64 {
        let stored = self.stored_size();
        if self.sealed.is_some() { plain_size(stored) } else { stored }
    }

    /// Bytes of the file in so many whole blocks that drives hold.
    pub(crate) fn whole_blocks(&self, stored: u64) -> u64 {
        if self.sealed.is_some() { plain_size(stored) } else { stored }
    }

    /// Where drives hold these bytes.
    fn stored(&self, range: Range<u64>) -> Range<u64> {
        if self.sealed.is_some() { geometry::stored_range(&range) } else { range }
    }

    /// The size of what drives hold.
    fn stored_size(&self) -> u64 {
        self.handle.size().bytes
    }

    /// Bytes of the file in a stripe of its first segment: writes of whole multiples of them, from such a
    /// multiple on, cost the drives least.
    pub fn stripe_bytes(&self) -> u64 {
        let view = self.handle.view();
        let stripe = view.layout.segments().first().map_or(0, |segment| segment.shape.stripe_bytes());
        self.whole_blocks(stripe)
    }

    /// The file's layout, as of the manager's last answer.
    pub fn layout(&self) -> braid_layout::Layout {
        self.handle.view().layout.clone()
    }

    /// The manager's current facts of the file: layout, components, generation. Also updates a reader's size.
    pub async fn stat(&self) -> Result<StatRow> {
        let view = self.handle.refresh(&self.handle.view()).await?;
        let mut row = view.stat.clone();
        if self.writer.is_none() {
            self.handle.set_size(row.size());
        }
        row.attributes.size = self.size();
        Ok(row)
    }

    /// The file's attributes, as of the manager's last answer, with this handle's size.
    pub fn attributes(&self) -> FileAttributes {
        FileAttributes { size: self.size(), ..self.handle.view().stat.attributes }
    }

    /// The file's number, which stays when its name changes.
    pub fn number(&self) -> FileId {
        self.handle.view().file
    }

    /// Sets the modification time, in nanoseconds since 1970; it goes to the manager with the next commit of
    /// the size. Without it, the modification time is the time at which that commit arrives.
    pub fn set_modified(&self, modified_ns: i64) -> Result<()> {
        let writer = self.writing()?;
        *writer.modified.lock().expect("no holder panics") = Some(modified_ns);
        writer.written.store(true, Ordering::Release);
        Ok(())
    }

    /// The facts of the file as of the manager's last answer, which is not asked; the size is this handle's.
    pub fn known(&self) -> StatRow {
        let attributes = self.attributes();
        StatRow { attributes, ..self.handle.view().stat.clone() }
    }

    /// The first range from `from` on that may hold bytes other than zeros, in whole stripes; `None` if there
    /// is none before the end. Asks the drives what they hold, without reading data.
    pub async fn data_after(&self, from: u64) -> Result<Option<Range<u64>>> {
        if self.sealed.is_some() {
            return self.sealed_data_after(from).await;
        }
        extents::data_after(&self.handle, from..self.size()).await
    }

    /// Reads from `offset` into `buffer`. Returns the number of bytes, which is short only at the end of the
    /// file.
    pub async fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.check_reads()?;
        let wanted = u64::try_from(buffer.len()).unwrap_or(u64::MAX);
        let view = self.handle.view();
        if view.has_others() && offset.saturating_add(wanted) > self.size() {
            self.handle.refresh(&view).await?;
        }
        let left = usize::try_from(self.size().saturating_sub(offset)).unwrap_or(usize::MAX);
        let bytes = buffer.len().min(left);
        if bytes > 0 {
            match &self.sealed {
                None => self.read_stored(&mut buffer[..bytes], offset).await?,
                Some(sealed) => self.read_sealed(sealed, &mut buffer[..bytes], offset).await?,
            }
        }
        Ok(bytes)
    }

    /// Reads what drives hold, at the reserved rate if there is one.
    async fn read_stored(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.handle.heed_end().await;
        match self.handle.promised(DataDirection::Read) {
            None => self.handle.read_range(offset, buffer).await,
            Some(promised) => self.read_paced(promised, offset, buffer).await,
        }
    }

    /// Reads at the reserved rate, a period's bytes at a time.
    async fn read_paced(&self, promised: &Promised, mut offset: u64, mut buffer: &mut [u8]) -> Result<()> {
        while !buffer.is_empty() {
            let piece = self.piece(promised, offset, buffer.len());
            let (now, rest) = buffer.split_at_mut(piece);
            let bytes = u64::try_from(piece).unwrap_or(u64::MAX);
            let turn = promised.turn(bytes).await;
            self.handle.read_range(offset, now).await?;
            turn.done();
            offset += bytes;
            buffer = rest;
        }
        Ok(())
    }

    /// Bytes from `offset` on, of `left`, that go at once at a reserved rate: up to the end of a stripe, as
    /// parts of stripes cost more.
    fn piece(&self, promised: &Promised, offset: u64, left: usize) -> usize {
        let view = self.handle.view();
        let segment = view.layout.segments().iter().find(|segment| offset < segment.end);
        let stripe = segment.map_or(1, |segment| segment.shape.stripe_bytes()).max(1);
        let start = segment.map_or(0, |segment| segment.start);
        let end = (offset - start) / stripe * stripe + promised.piece_bytes(stripe);
        left.min(usize::try_from(end.saturating_sub(offset - start)).unwrap_or(usize::MAX).max(1))
    }

    /// Writes all of `data` at `offset`. When it returns, the bytes are durable on every drive of the file's
    /// set.
    pub async fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write_here(data, offset, Source::Still).await
    }

    /// Like [`File::write_at`], for memory that may change during the call, such as another program's. The
    /// file gets the content at some time during the call, and data and parity match. Costs a copy.
    pub async fn write_at_copied(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write_here(data, offset, Source::Changing).await
    }

    async fn write_here(&self, data: &[u8], offset: u64, source: Source) -> Result<()> {
        let _no_cuts = self.writing()?.side.cuts.read().await;
        match &self.sealed {
            None => self.write_from(data, offset, None, source).await,
            // Sealing makes a copy.
            Some(sealed) => self.write_sealed(sealed, data, offset).await,
        }
    }

    /// Writes `data` as drives are to hold it, copying it first if `source` says so. The caller holds `cuts`,
    /// so that nothing is cut meanwhile.
    async fn write_from(
        &self,
        data: &[u8],
        offset: u64,
        place: Option<&ReservedPlace>,
        source: Source,
    ) -> Result<()> {
        let writer = self.writing()?;
        let end = self.end_of(offset, data.len())?;
        self.within(offset, end)?;
        if data.is_empty() {
            return Ok(());
        }
        self.handle.reach(end).await?;
        writer.written.store(true, Ordering::Release);
        self.handle.heed_end().await;
        let Some(promised) = self.handle.promised(DataDirection::Write) else {
            return self.handle.write_range(&writer.side, offset, place, data, source).await;
        };
        // At the reserved rate, a period's bytes at a time.
        let mut offset = offset;
        let mut data = data;
        while !data.is_empty() {
            let (now, rest) = data.split_at(self.piece(promised, offset, data.len()));
            let bytes = u64::try_from(now.len()).unwrap_or(u64::MAX);
            let turn = promised.turn(bytes).await;
            self.handle.write_range(&writer.side, offset, place, now, source).await?;
            turn.done();
            offset += bytes;
            data = rest;
        }
        Ok(())
    }

    /// Reads at the position, and advances it.
    pub async fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let bytes = self.read_at(buffer, self.position).await?;
        self.position += u64::try_from(bytes).expect("a buffer is below 2^64 bytes");
        Ok(bytes)
    }

    /// Writes at the position, or at the end if the file was opened to append, and moves the position to the
    /// end of the written bytes.
    pub async fn write(&mut self, data: &[u8]) -> Result<()> {
        let offset = if self.mode.append && !data.is_empty() {
            self.append(data).await?
        } else {
            self.write_at(data, self.position).await?;
            self.position
        };
        self.position = offset + u64::try_from(data.len()).expect("a buffer is below 2^64 bytes");
        Ok(())
    }

    /// Sets the position; past the end is allowed.
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

    /// Commits the size, with the drives' receipts for the writes since the last commit. The bytes are
    /// durable already.
    pub async fn flush(&self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        writer.side.check(self.subject())?;
        self.commit(writer, Cut::No).await
    }

    /// Like [`File::flush`], but also commits if the bytes changed and the size did not: others then see a
    /// new modification time.
    pub async fn flush_time(&self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        if writer.written.load(Ordering::Acquire) {
            writer.set_committed(None);
        }
        self.flush().await
    }

    /// Sets the size, when all writes of this handle that have begun are done. Not with
    /// [`OpenOptions::range`](crate::OpenOptions::range). Truncated bytes are gone: if the file grows again,
    /// zeros are there. The new size is committed first and the bytes past it are cleared after, so that a
    /// crash in between leaves the file either unchanged or truncated. After a truncation that was dropped
    /// midway or whose outcome is unknown, the handle writes no more.
    pub async fn set_len(&self, size: u64) -> Result<()> {
        let writer = self.writing()?;
        writer.side.check(self.subject())?;
        self.has_all("its size cannot be set")?;
        if size > FILE_BYTES_MAX {
            return Err(Error::Range { file: self.subject().to_owned(), offset: size, bytes: 0 });
        }
        let _no_writes = writer.side.cuts.write().await;
        let size = match &self.sealed {
            None => size,
            Some(sealed) => {
                self.may_cut(sealed, size).await?;
                stored_size(size)
            }
        };
        let mut tries = Tries::new(self.handle.client.config().patience);
        let mut in_vain = 0_u8;
        loop {
            // Other writers of the file wait meanwhile.
            let view = self.handle.view();
            let takes_turn = view.shared;
            if takes_turn {
                self.handle.take_turn(&view, in_vain).await?;
            }
            let done = self.set_len_alone(writer, size).await;
            if done.as_ref().is_err_and(is_stale) && tries.again().await {
                in_vain = in_vain.saturating_add(1);
                self.handle.refresh(&view).await?;
                continue;
            }
            if takes_turn && let Err(error) = self.handle.give_turn().await {
                tracing::debug!(file = %self.subject(), %error, "this writer's turn was not given back: other writers wait until it ends by itself");
            }
            return done;
        }
    }

    async fn set_len_alone(&self, writer: &Writer, size: u64) -> Result<()> {
        // Failed writes, also of other handles, may have left bytes past the size; these are cleared too.
        let is_shorter = size < self.stored_size();
        let cuts = size < self.stored_size().max(writer.side.stamps.live_end(self.handle.view().lease));
        let cutting = cuts.then(|| writer.side.stamps.cutting());
        let how = if cuts { Cut::Begins } else { Cut::No };
        // Under a later lease the file may be longer by now: then the commit is refused, and tried again.
        if let Err(error) = self.commit_once(writer, how, Some(size)).await {
            match cutting {
                // A refusal for quota, or of the lease, proves that the commit was not carried out. After any
                // other error it may have been.
                Some(cutting) if error.reason() == Some(Reason::Quota) || is_stale(&error) => cutting.over(),
                Some(cutting) => cutting.fail(&format!("the file may have been truncated: {error}")),
                None => {}
            }
            return Err(error);
        }
        let Some(cutting) = cutting else { return Ok(()) };
        if is_shorter && let Some(sealed) = &self.sealed {
            sealed.forget_places();
        }
        match self.end_cut_by(writer, size).await {
            Ok(()) => {
                cutting.over();
                Ok(())
            }
            // An extension would expose the bytes, so the handle stops; the next opening clears them.
            Err(error) => {
                cutting.fail(&format!(
                    "the file was truncated, but the bytes past its end were not cleared: {error}"
                ));
                Err(error)
            }
        }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Turns everything that any drive holds past `size` into a hole, and tells the manager that the cut is
    /// done.
    pub(crate) async fn end_cut(&self, size: u64) -> Result<()> {
        self.end_cut_by(self.writing()?, size).await
    }

    async fn end_cut_by(&self, writer: &Writer, size: u64) -> Result<()> {
        if let Some(sealed) = &self.sealed {
            // Boxed, as else the future of each opening for writing would have all of a write in it.
            Box::pin(self.seal_end(sealed, plain_size(size))).await?;
        }
        let mark = writer.side.stamps.mark();
        let view = self.handle.view();
        for (segment, layout) in view.layout.segments().iter().enumerate() {
            if layout.end <= size {
                continue;
            }
            let first = layout.stripe_at(size.max(layout.start)).0;
            let mut held = self.handle.held(segment, Listing::Bytes, first..u64::MAX);
            loop {
                let runs = held.next().await?;
                if runs.is_empty() {
                    break;
                }
                let punches = runs.into_iter().map(|run| {
                    let end = layout.stripe_range(Stripe(run.end - 1)).end;
                    let range = layout.stripe_range(Stripe(run.start)).start.max(size)..end;
                    self.handle.punch_range(&writer.side, range)
                });
                concurrent::windowed(self.handle.client.config().sets_per_request, punches).await?;
            }
        }
        writer.side.stamps.truncated(size, mark);
        self.commit(writer, Cut::Ends).await
    }

    /// Commits the size, and the state of a truncation, unless the manager has them already.
    async fn commit(&self, writer: &Writer, cut: Cut) -> Result<()> {
        let mut tries = Tries::new(self.handle.client.config().patience);
        loop {
            let view = self.handle.view();
            match self.commit_once(writer, cut, None).await {
                Err(error) if is_stale(&error) && cut == Cut::No && tries.again().await => {
                    self.handle.refresh(&view).await?;
                }
                done => return done,
            }
        }
    }

    /// One try of [`File::commit`], under the lease of the current view. `to`: the size that the handle gets
    /// if the commit succeeds. Until then the handle keeps its own size: a refusal leaves it as it is, also
    /// where writes have ended meanwhile.
    async fn commit_once(&self, writer: &Writer, cut: Cut, to: Option<u64>) -> Result<()> {
        let _turn = writer.commits.acquire().await.expect("it is never closed");
        let backing = self.backing(writer);
        let view = self.handle.view();
        let Size { lease, bytes: own, .. } = self.handle.size();
        let size = match to {
            Some(to) if cut == Cut::Begins => to,
            to => to.map_or(own, |to| to.max(own)),
        };
        // An unchanged size is committed too if drives have written since: their receipts come with it. A
        // size that the caller sets is always committed: another lease may have followed, under which the
        // file has grown.
        let is_known = cut == Cut::No && to.is_none() && writer.committed() == Some((lease, size));
        if is_known && backing.receipts.is_empty() {
            return Ok(());
        }
        // Unknown until the answer: a request whose answer is lost may have been carried out.
        writer.set_committed(None);
        writer.written.store(false, Ordering::Release);
        let file = view.file;
        let holder = self.handle.holder;
        let order = writer.next_order();
        let modified_ns = writer.modified();
        let receipts = backing.receipts.clone();
        let request = Commit { file, lease, holder, size, order, cut, modified_ns, backing };
        let answer = self.handle.client.ask_done(self.subject(), request).await;
        answer.map_err(|error| self.handle.lease_error(error))?;
        if cut == Cut::Begins {
            self.handle.set_size(size);
        } else {
            self.handle.grown(lease, size);
        }
        writer.set_committed(Some((lease, size)));
        self.handle.receipts.told(&receipts);
        Ok(())
    }

    fn writing(&self) -> Result<&Writer> {
        self.writer.as_ref().ok_or_else(|| self.no_access("writing"))
    }

    /// Refuses what needs a file that is open for reading.
    pub(crate) fn check_reads(&self) -> Result<()> {
        if self.mode.read { Ok(()) } else { Err(self.no_access("reading")) }
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
    fn committed(&self) -> Option<(Lease, u64)> {
        *self.committed.lock().expect("no holder panics")
    }

    fn set_committed(&self, to: Option<(Lease, u64)>) {
        *self.committed.lock().expect("no holder panics") = to;
    }

    fn modified(&self) -> Option<i64> {
        *self.modified.lock().expect("no holder panics")
    }

    fn next_order(&self) -> u64 {
        self.order.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// Returns true if the manager says that the handle's lease was replaced by another.
fn is_stale(error: &Error) -> bool {
    error.reason() == Some(Reason::StaleGeneration)
}

/// Treatment of an existing file of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// The existing file, if there is one, is replaced atomically.
    Yes,
    /// The existing file stays, and the request fails.
    No,
    /// The existing file is replaced atomically if it is this file and has not changed. Otherwise, and if
    /// there is none, the request fails.
    Only(Seen),
}
