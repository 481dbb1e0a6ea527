//! Source of the bytes of a write, and its reserved place in the file.

use std::sync::atomic::{AtomicBool, Ordering};

use braid_layout::Lease;
use braid_plan::Body;

use super::WriteSide;
use crate::concurrent;
use crate::data::planning::SegmentChunk;
use crate::error::Result;
use crate::handle::Handle;
use crate::view::FileView;

/// Stability of a write's bytes in memory until the write is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The bytes stay as they are.
    Still,
    /// Other programs or threads may change the bytes: they are copied first.
    Changing,
}

/// A place at the file's end that is reserved for a write. A cut ends the reservation: other writes are given
/// the same bytes of the file then.
#[derive(Debug)]
pub(crate) struct ReservedPlace {
    /// The lease under which the place was reserved.
    lease: Lease,
    is_over: AtomicBool,
}

impl ReservedPlace {
    pub(crate) fn given(lease: Lease) -> ReservedPlace {
        ReservedPlace { lease, is_over: AtomicBool::new(false) }
    }

    /// Returns true if some of the write was left out, as the file had been cut.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns true if the write must not be made under this view, as the file was cut since the reservation.
    /// Parts written before the cut lay past its end.
    pub(crate) fn ends_with(&self, view: &FileView) -> bool {
        let is_cut = view.cut_at > self.lease;
        self.is_over.fetch_or(is_cut, Ordering::AcqRel);
        is_cut
    }
}

impl Handle {
    /// Writes `data` at `offset`. With a place, only as long as the reservation holds.
    pub(crate) async fn write_range(
        &self,
        side: &WriteSide,
        offset: u64,
        place: Option<&ReservedPlace>,
        data: &[u8],
        source: Source,
    ) -> Result<()> {
        let length = u64::try_from(data.len()).expect("a buffer is below 2^64 bytes");
        let chunks = self.chunks(self.view(), offset..offset + length);
        let mut rest = data;
        let writes = chunks.map(move |chunk| {
            let bytes =
                usize::try_from(chunk.range.end - chunk.range.start).expect("it is part of the buffer");
            let (head, tail) = rest.split_at(bytes);
            rest = tail;
            self.write_bytes(side, chunk, place, head, source)
        });
        concurrent::windowed(self.client.shared.config.sets_per_request, writes).await
    }

    /// Writes one chunk. Parity, checksums and payload must be of the same bytes, also when they are sent
    /// again: bytes that may change are copied first.
    async fn write_bytes(
        &self,
        side: &WriteSide,
        chunk: SegmentChunk,
        place: Option<&ReservedPlace>,
        data: &[u8],
        source: Source,
    ) -> Result<()> {
        let body = Body::Buffer { offset: 0 };
        if source == Source::Still {
            return self.write_chunk(side, chunk, place, body, data).await;
        }
        let scratch = &self.client.paths.scratch;
        let mut copy = scratch.take(data.len());
        copy.copy_from_slice(data);
        let written = self.write_chunk(side, chunk, place, body, &copy).await;
        scratch.give_back([copy]);
        written
    }
}
