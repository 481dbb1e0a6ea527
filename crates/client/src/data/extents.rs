//! Finds a file's next data from what its columns list, without reading a byte.

use std::ops::Range;

use braid_layout::Stripe;
use braid_wire::data::Listing;

use crate::error::Result;
use crate::handle::Handle;

/// The first bytes of the range that may be nonzero, in whole stripes, cut to the range.
pub(crate) async fn data_after(handle: &Handle, range: Range<u64>) -> Result<Option<Range<u64>>> {
    let view = handle.view();
    for (index, segment) in view.layout.segments().iter().enumerate() {
        let from = range.start.max(segment.start);
        let to = range.end.min(segment.end);
        if from >= to {
            continue;
        }
        let stripes = segment.stripe_at(from).0..segment.stripe_at(to - 1).0 + 1;
        let mut held = handle.held(index, Listing::Bytes, stripes);
        let runs = held.next_to_read().await?;
        let Some(first) = runs.first() else { continue };
        // A run ends at the end of a plan set; adjoining runs are joined.
        let joined = |end: u64, run: &Range<u64>| if run.start == end { run.end } else { end };
        let last = runs[1..].iter().fold(first.end, joined) - 1;
        let begin = segment.stripe_range(Stripe(first.start)).start;
        let end = segment.stripe_range(Stripe(last)).end;
        return Ok(Some(begin.max(from)..end.min(to)));
    }
    Ok(None)
}
