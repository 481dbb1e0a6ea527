//! Reads: bytes of the file into the caller's buffer, in plan sets of bounded size, a few at a time.
//!
//! Pieces that a drive fails to deliver are planned again without its column; pieces already read are kept.
//! The caller notices nothing until more columns are away than the parity can replace.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use braid_layout::Stripe;
use braid_plan::{MemoryRange, Strategy, Target, Want};
use braid_wire::capability::DataDirection;

use crate::concurrent;
use crate::data::buffers::User;
use crate::data::planning::{Patience, SegmentChunk, or_with_joining, stripes_of};
use crate::error::Result;
use crate::executor::{Executor, Failed};
use crate::handle::Handle;
use crate::peers::faults::{Learnt, Remedy};
use crate::view::FileView;

/// A range still to be read, and what is known about its columns.
struct Todo {
    range: Range<u64>,
    learnt: Learnt,
}

impl Handle {
    /// Fills `buffer` with the file's bytes from `offset` on. The caller has limited it to the file's size.
    pub(crate) async fn read_range(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let length = u64::try_from(buffer.len()).expect("a buffer is below 2^64 bytes");
        let view = self.view();
        if self.read_quickly(&view, offset, buffer).await {
            return Ok(());
        }
        let chunks = self.chunks(view, offset..offset + length);
        let mut rest = buffer;
        let reads = chunks.map(move |chunk| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(length_of(&chunk.range));
            rest = tail;
            async move {
                let _permit = self.client.set_permit_for(chunk.range.end - chunk.range.start).await;
                self.read_chunk(chunk, head).await
            }
        });
        concurrent::windowed(self.client.shared.config.sets_per_request, reads).await
    }

    async fn read_chunk(&self, chunk: SegmentChunk, buffer: &mut [u8]) -> Result<()> {
        let mut patience = Patience::new(self);
        let mut absent: Option<Arc<FileView>> = None;
        let mut todo = vec![Todo { range: chunk.range.clone(), learnt: Learnt::default() }];
        while let Some(mut part) = todo.pop() {
            let view = self.view();
            // The file may have another layout by now, in which this range is too long for one plan set.
            if let Some(first) = self.chunks(Arc::clone(&view), part.range.clone()).next()
                && first.range.end < part.range.end
            {
                let rest = first.range.end..part.range.end;
                todo.push(Todo { range: rest, learnt: part.learnt.clone() });
                todo.push(Todo { range: first.range, ..part });
                continue;
            }
            let compile = |target: &Target<'_>| braid_plan::read(target, part.range.clone(), 0, Want::Newest);
            let Some(set) = self.compile(&view, chunk.segment, &part.learnt, or_with_joining(compile))?
            else {
                let stripes = stripes_of(&view, chunk.segment, &part.range);
                self.wait_for_columns(&view, chunk.segment, stripes, "read", &mut part.learnt, &mut patience)
                    .await?;
                todo.push(part);
                continue;
            };
            let skip = length_of(&(chunk.range.start..part.range.start));
            let own = &mut buffer[skip..skip + length_of(&part.range)];
            let mut executor = Executor::new(self, &view, set, User::Into(own))?;
            executor.failover = self.failover(DataDirection::Read, &view, chunk.segment, &part.learnt);
            let read = executor.read().await;
            if read.is_err() && executor.saw_absent && !self.is_hole(&view).await? {
                drop(executor);
                todo.push(part);
                self.pause(&mut patience).await?;
                continue;
            }
            let failed = read?;
            executor.compute(&failed.iter().map(|one| one.stripe).collect())?;
            if executor.saw_absent {
                absent = Some(Arc::clone(&view));
            }
            if !failed.is_empty() {
                let (missing, refresh) = missing(&executor, &part, &failed);
                drop(executor);
                self.mend(&view, refresh, &mut patience).await?;
                todo.extend(missing);
            }
            if todo.is_empty()
                && let Some(view) = absent.take()
                && !self.is_hole(&view).await?
            {
                todo.push(Todo { range: chunk.range.clone(), learnt: Learnt::default() });
                self.pause(&mut patience).await?;
            }
        }
        Ok(())
    }

    /// Decides what an object that was not found with the capabilities of this view means. Returns true if it
    /// is a hole; false if its column may have moved to another drive meanwhile, as the generation has risen.
    /// Fails if the file was removed.
    pub(crate) async fn is_hole(&self, view: &Arc<FileView>) -> Result<bool> {
        // The manager must be asked after the object was missed.
        let now = self.refresh(&self.view()).await?;
        Ok(now.g == view.g)
    }
}

/// The ranges that must be read again, and the remedy to apply first.
fn missing(executor: &Executor<'_>, part: &Todo, failed: &[Failed]) -> (Vec<Todo>, Remedy) {
    let mut stripes: BTreeMap<Stripe, (Learnt, Vec<Range<u64>>)> = BTreeMap::new();
    let mut remedy = Remedy::Without;
    for one in failed {
        let entry = stripes.entry(one.stripe).or_insert_with(|| (part.learnt.clone(), Vec::new()));
        match entry.0.note(one) {
            Remedy::Refresh => remedy = Remedy::Refresh,
            Remedy::Again if remedy != Remedy::Refresh => remedy = Remedy::Again,
            _ => {}
        }
        if let Some(MemoryRange::User { offset, len }) = one.into {
            let from = part.range.start + offset;
            entry.1.push(from..from + u64::from(len));
        }
    }
    let mut todo: Vec<Todo> = Vec::new();
    let segment = &executor.view.layout.segments()[executor.set.segment];
    for note in &executor.set.stripes {
        let Some((learnt, pieces)) = stripes.remove(&note.stripe) else { continue };
        let ranges = if note.strategy == Strategy::Direct {
            pieces
        } else {
            // A computed piece fails with any of its inputs, so the whole stripe is read again.
            let stripe = segment.stripe_range(note.stripe);
            let whole = stripe.start.max(part.range.start)..stripe.end.min(part.range.end);
            Vec::from([whole])
        };
        todo.extend(ranges.into_iter().map(|range| Todo { range, learnt: learnt.clone() }));
    }
    (todo, remedy)
}

fn length_of(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).expect("a range of a buffer is not longer than memory")
}
