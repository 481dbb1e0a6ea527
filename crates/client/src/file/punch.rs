//! Punching holes in a file.

use std::ops::Range;
use std::sync::atomic::Ordering;

use braid_layout::Stripe;
use braid_wire::data::Listing;

use super::File;
use crate::concurrent;
use crate::error::Result;

impl File {
    /// Makes a range read as zeros; the drives keep nothing of the whole units in it. The size stays. When
    /// the call returns, the hole is durable.
    pub async fn punch(&self, range: Range<u64>) -> Result<()> {
        self.writing()?;
        self.within(range.start, range.end)?;
        match &self.sealed {
            None => self.punch_stored(range).await,
            Some(sealed) => self.punch_sealed(sealed, range).await,
        }
    }

    /// The same for what drives hold.
    pub(super) async fn punch_stored(&self, range: Range<u64>) -> Result<()> {
        let writer = self.writing()?;
        let range = range.start..range.end.min(self.stored_size());
        if range.is_empty() {
            return Ok(());
        }
        // The file's end is derived from the bytes that the drives hold: a hole at the end would make it
        // shorter.
        if writer.committed().is_none_or(|(_, size)| size < range.end) {
            self.flush().await?;
        }
        writer.written.store(true, Ordering::Release);
        let view = self.handle.view();
        for (segment, layout) in view.layout.segments().iter().enumerate() {
            let from = range.start.max(layout.start);
            let to = range.end.min(layout.end);
            if from >= to {
                continue;
            }
            // Stripes that no drive holds read as zeros already and are passed over: a range may be long and
            // empty.
            let stripes = layout.stripe_at(from).0..layout.stripe_at(to - 1).0 + 1;
            let mut held = self.handle.held(segment, Listing::Bytes, stripes);
            loop {
                let runs = held.next().await?;
                if runs.is_empty() {
                    break;
                }
                let punches = runs.into_iter().map(|run| {
                    let end = layout.stripe_range(Stripe(run.end - 1)).end.min(to);
                    let begin = layout.stripe_range(Stripe(run.start)).start.max(from);
                    self.handle.punch_range(&writer.side, begin..end)
                });
                concurrent::windowed(self.handle.client.config().sets_per_request, punches).await?;
            }
        }
        Ok(())
    }
}
