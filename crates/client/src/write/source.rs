//! Where the bytes of a write come from.

use braid_plan::Body;

use super::WriteSide;
use crate::concurrent;
use crate::error::Result;
use crate::handle::Handle;
use crate::read::Chunk;

/// What may become of the bytes of a write before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// They stay.
    Still,
    /// Others may change them.
    Changing,
}

impl Handle {
    /// Writes `data` at `offset`.
    pub(crate) async fn write_range(
        &self,
        side: &WriteSide,
        offset: u64,
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
            self.write_bytes(side, chunk, head, source)
        });
        concurrent::windowed(self.client.shared.config.sets_per_request, writes).await
    }

    /// Parity, checksums and what is sent must be of the same bytes, also if it is sent again: bytes that may
    /// change are copied.
    async fn write_bytes(&self, side: &WriteSide, chunk: Chunk, data: &[u8], source: Source) -> Result<()> {
        let body = Body::Buffer { offset: 0 };
        if source == Source::Still {
            return self.write_chunk(side, chunk, body, data).await;
        }
        let scratch = &self.client.shared.scratch;
        let mut copy = scratch.take(data.len());
        copy.copy_from_slice(data);
        let written = self.write_chunk(side, chunk, body, &copy).await;
        scratch.give_back([copy]);
        written
    }
}
