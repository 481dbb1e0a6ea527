//! Names for new files, and the end of writing.
//!
//! A writer's last facts go to the manager in one request: the name or the size, and how the lease ends. For
//! a file that was new under the lease, the drives are told afterwards, in the background, that all of it is
//! settled. Any other file is likely to be written again sooner, and its next writer would have to wait for a
//! fence: so the drives are told before its lease ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use braid_layout::Lease;
use braid_wire::Reason;
use braid_wire::control::{AttributeChanges, Backing, Cut, Ending, Link, NamePlace, Sized};

use super::{File, Replace, Size, Writer};
use crate::data::retire::{self, Occasion};
use crate::data::write::WriteSide;
use crate::error::{Error, Result};
use crate::naming::name::Name;
use crate::peers::lease::{self, LastSize};

/// The lease of a file that is being created.
const FIRST: Lease = Lease(1);

impl File {
    /// Gives an unnamed file its name and commits its size, atomically.
    pub async fn link(&self, name: &Name, replace: Replace) -> Result<()> {
        self.link_with(name, replace, AttributeChanges::NONE).await
    }

    /// Like [`File::link`], and sets the attributes given in `changes`.
    pub async fn link_with(&self, name: &Name, replace: Replace, changes: AttributeChanges) -> Result<()> {
        let writer = self.writing()?;
        writer.side.check(self.subject())?;
        let at = self.handle.client.place(name).await?;
        // Under a quota the file counts with its size from then on, as other quotas may hold at its place.
        let has_quota = self.handle.view().reach.is_some();
        let _no_writes = if has_quota { Some(writer.side.cuts.write().await) } else { None };
        let _turn = writer.commits.acquire().await.expect("it is never closed");
        let request = self.naming(writer, at, replace, changes);
        let committed = (request.lease, request.size);
        let receipts = request.backing.receipts.clone();
        writer.set_committed(None);
        writer.written.store(false, Ordering::Release);
        let answer = self.handle.client.ask_done(&name.to_string(), request).await;
        answer.map_err(|error| self.handle.lease_error(error))?;
        writer.set_committed(Some(committed));
        self.handle.receipts.told(&receipts);
        if has_quota {
            self.handle.give_back(committed.1).await?;
        }
        Ok(())
    }

    /// Like [`File::link_with`], and then closes the file, in one request to the manager. If it fails, the
    /// file is given up.
    pub async fn link_and_close(
        mut self,
        name: &Name,
        replace: Replace,
        changes: AttributeChanges,
    ) -> Result<()> {
        let writer = self.writer.take().ok_or_else(|| self.no_access("writing"))?;
        // An error from here on drops the writer, which gives the lease up as unclean.
        writer.side.check(self.subject())?;
        let at = self.handle.client.place(name).await?;
        self.handle.tell_lateness().await;
        let side = Arc::clone(&writer.side);
        let ending = self.ending(&writer).await;
        let ends = Some(lease::ended(&self.handle, ending, &side));
        let request = Link { ends, ..self.naming(&writer, at, replace, changes) };
        side.ends();
        let answer = self.handle.client.ask_done(&name.to_string(), request).await;
        answer.map_err(|error| self.handle.lease_error(error))?;
        writer.keeper.end();
        self.retire_later(ending, &side);
        Ok(())
    }

    fn naming(&self, writer: &Writer, at: NamePlace, replace: Replace, changes: AttributeChanges) -> Link {
        let backing = self.backing(writer);
        // The lease under which the file has this size: the manager refuses both if another lease has
        // followed.
        let Size { lease, bytes: size, .. } = self.handle.size();
        Link {
            file: self.handle.view().file,
            lease,
            holder: self.handle.holder,
            at,
            size,
            replace: replace != Replace::No,
            over: match replace {
                Replace::Only(seen) => Some(seen),
                Replace::Yes | Replace::No => None,
            },
            order: writer.next_order(),
            changes: AttributeChanges { modified_ns: changes.modified_ns.or(writer.modified()), ..changes },
            ends: None,
            backing,
        }
    }

    /// Facts about the writes so far. The size that is sent with them must be read after this call.
    pub(super) fn backing(&self, writer: &Writer) -> Backing {
        Backing { within: writer.side.stamps.within(), receipts: self.handle.receipts.all() }
    }

    /// Commits the size and ends the lease, in one request. All that was written is settled then. If the size
    /// is refused for quota, the bytes past the size that the manager has are taken back
    /// ([`File::withdraw`]).
    pub async fn close(mut self) -> Result<()> {
        self.handle.tell_lateness().await;
        let reserved = self.reserved.take();
        let closed = match self.writer.take() {
            None => Ok(()),
            Some(writer) => self.close_writer(writer).await,
        };
        if let Some(reserved) = reserved {
            reserved.end().await;
        }
        closed
    }

    async fn close_writer(&self, writer: Writer) -> Result<()> {
        if writer.written.load(Ordering::Acquire) {
            // Commits even if the size is unchanged, so that the modification time is updated.
            writer.set_committed(None);
        }
        let side = Arc::clone(&writer.side);
        let mut flushed = side.check(self.subject());
        let mut ending = match flushed {
            Ok(()) => self.ending(&writer).await,
            Err(_) => Ending::Unclean,
        };
        if flushed.is_ok()
            && let Some(commit) = self.uncommitted(&writer)
        {
            side.ends();
            let released = lease::release(&self.handle, ending, &side, Some(commit)).await;
            if !matches!(released, Err(Error::Refused { .. })) {
                writer.keeper.end();
                self.retire_later(ending, &side);
                return released;
            }
            // The request did nothing: the lease was replaced, or there is no room for so large a file.
            flushed = self.commit(&writer, Cut::No).await;
        }
        if flushed.is_err() {
            // Bytes refused for quota are removed first: after an unclean end the manager would settle the
            // size from what the drives hold.
            let refused = flushed.as_ref().is_err_and(|error| error.reason() == Some(Reason::Quota));
            let is_back = refused && self.withdraw_by(&writer).await.is_ok_and(|is_back| is_back);
            ending = if is_back { self.ending(&writer).await } else { Ending::Unclean };
        }
        writer.keeper.end();
        let released = match side.lost.get() {
            // The lease may have been lost since the check above: that is no clean end either.
            Some(_) => side.check(self.subject()),
            None => lease::release(&self.handle, ending, &side, None).await,
        };
        self.retire_later(ending, &side);
        flushed.and(released)
    }

    /// The size that remains to be committed, with its lease; `None` if the manager has it.
    fn uncommitted(&self, writer: &Writer) -> Option<LastSize> {
        let within = writer.side.stamps.within();
        let Size { lease, bytes: size, .. } = self.handle.size();
        if writer.committed() == Some((lease, size)) {
            return None;
        }
        writer.set_committed(None);
        let modified_ns = writer.modified();
        Some(LastSize { lease, sized: Sized { size, order: writer.next_order(), modified_ns }, within })
    }

    /// The way in which the lease may end. It is unclean if anything was written past the size: the next
    /// writer assumes that everything there is zeros.
    async fn ending(&self, writer: &Writer) -> Ending {
        let fits = writer.side.stamps.written_end() <= self.stored_size();
        if fits { self.settle_all(writer).await } else { Ending::Unclean }
    }

    /// The ending that the writes allow: retired by the drives, settled, or unclean.
    async fn settle_all(&self, writer: &Writer) -> Ending {
        let Some(settled_to) = writer.side.stamps.all_settled() else { return Ending::Unclean };
        let view = self.handle.view();
        // While other handles write too, no writer gets the file without a fence. A new file is seldom
        // written again soon.
        if view.shared || view.lease == FIRST && view.range.is_none() && writer.side.stamps.is_used() {
            return Ending::Settled;
        }
        let occasion = if view.range.is_some() { Occasion::PartEnd } else { Occasion::LeaseEnd };
        if retire::retire(&self.handle, settled_to, occasion).await {
            return Ending::Retired;
        }
        if view.range.is_some() {
            return Ending::Settled;
        }
        // The manager may have replaced the lease, and settled all that was written under it.
        let now = self.handle.refresh(&view).await;
        let is_other = now.is_ok_and(|now| now.lease != view.lease && now.has_others());
        if is_other { Ending::Settled } else { Ending::Unclean }
    }

    /// Has the drives retire what was written to a new file, in the background.
    fn retire_later(&self, ending: Ending, side: &WriteSide) {
        let view = self.handle.view();
        if ending != Ending::Settled || view.lease != FIRST || view.range.is_some() {
            return;
        }
        if let Some(settled_to) = side.stamps.all_settled() {
            let handle = Arc::clone(&self.handle);
            self.handle.client.shared.later.spawn(async move {
                let all = retire::retire(&handle, settled_to, Occasion::Ended).await;
                tracing::debug!(file = %handle.subject, all, "the drives were told that the writes are settled");
            });
        }
    }
}
