//! Appends. The manager gives each append its place, so that the appends of many writers do not mix.

use braid_layout::Lease;
use braid_wire::control::{ControlReply, ReserveEnd};

use super::{File, is_stale};
use crate::client::unexpected;
use crate::data::write::{ReservedPlace, Source};
use crate::error::Result;
use crate::peers::retry::Tries;

impl File {
    /// Writes all of `data` at the end of the file, and returns the offset. No bytes of any other handle's
    /// append come in between. The manager is asked for the place, once per call. If the append fails, the
    /// bytes that were not written read as zeros once others have written behind them.
    pub async fn append(&self, data: &[u8]) -> Result<u64> {
        self.append_from(data, Source::Still).await
    }

    /// Like [`File::append`], for memory that may change during the call ([`File::write_at_copied`]).
    pub async fn append_copied(&self, data: &[u8]) -> Result<u64> {
        self.append_from(data, Source::Changing).await
    }

    async fn append_from(&self, data: &[u8], source: Source) -> Result<u64> {
        if let Some(sealed) = &self.sealed {
            return self.append_sealed(sealed, data).await;
        }
        let _no_cuts = self.writing()?.side.cuts.read().await;
        loop {
            let (offset, lease) = self.reserve_place(data.len()).await?;
            let place = ReservedPlace::given(lease);
            self.write_from(data, offset, Some(&place), source).await?;
            if !place.is_over() {
                return Ok(offset);
            }
            tracing::debug!(file = %self.subject(), offset, "another writer truncated the file: the append is given a new place");
        }
    }

    /// Reserves bytes at the end for a `write_at`, and returns their offset: the first step of
    /// [`File::append`]. No other handle is given these bytes while the file is open for writing, unless the
    /// file is cut. The size grows when they are written and committed, as with any write. Reserved bytes
    /// that are not written read as zeros if bytes behind them are written.
    pub async fn reserve(&self, length: usize) -> Result<u64> {
        match &self.sealed {
            None => self.reserve_place(length).await.map(|(offset, _)| offset),
            Some(sealed) => self.reserve_sealed(sealed, length).await,
        }
    }

    /// Like [`File::reserve`], and also returns the lease under which the bytes are reserved.
    async fn reserve_place(&self, length: usize) -> Result<(u64, Lease)> {
        let writer = self.writing()?;
        self.has_all("it cannot be appended to")?;
        writer.side.check(self.subject())?;
        let bytes = u64::try_from(length).expect("a buffer is below 2^64 bytes");
        let _turn = writer.commits.acquire().await.expect("it is never closed");
        let mut tries = Tries::new(self.handle.client.config().patience);
        loop {
            let view = self.handle.view();
            let size = self.handle.size();
            let file = view.file;
            let lease = size.lease;
            let holder = self.handle.holder;
            let from = size.bytes;
            let request = ReserveEnd { file, lease, holder, bytes, from };
            match self.handle.client.ask_manager(self.subject(), request).await {
                Ok(ControlReply::EndReserved(reserved)) => {
                    self.end_of(reserved.offset, length)?;
                    return Ok((reserved.offset, lease));
                }
                Ok(other) => return Err(unexpected(self.subject(), &other)),
                Err(error) if is_stale(&error) && tries.again().await => {
                    self.handle.refresh(&view).await?;
                }
                Err(error) => return Err(self.handle.lease_error(error)),
            }
        }
    }
}
