//! Room that the drives keep free for bytes to come.

use std::ops::Range;

use braid_wire::control::{Allocate, AllocateAct, ControlReply};

use super::{File, is_stale};
use crate::client::unexpected;
use crate::error::Result;
use crate::peers::retry::Tries;

impl File {
    /// Has the drives keep room free for the bytes of a range, and for all before it, so that writes there do
    /// not fail for lack of space. Fails with [`Kind::NoSpace`](crate::Kind::NoSpace) if a drive has not the
    /// room, and then keeps none. The room counts under quotas. It is given back as it is written, and when
    /// the file is made shorter or removed. The size stays.
    pub async fn reserve_space(&self, range: Range<u64>) -> Result<()> {
        self.allocate(AllocateAct::Keep, range).await
    }

    /// Gives back the room that is kept from the range's start on, if none is kept past its end.
    pub async fn give_space_back(&self, range: Range<u64>) -> Result<()> {
        self.allocate(AllocateAct::GiveBack, range).await
    }

    async fn allocate(&self, act: AllocateAct, range: Range<u64>) -> Result<()> {
        let writer = self.writing()?;
        self.within(range.start, range.end)?;
        let Range { start: from, end: to } = self.stored(range);
        writer.side.check(self.subject())?;
        let mut tries = Tries::new(self.handle.client.config().patience);
        loop {
            let view = self.handle.view();
            let file = view.file;
            let lease = self.handle.size().lease;
            let holder = self.handle.holder;
            let request = Allocate { file, lease, holder, act, from, to };
            match self.handle.client.ask_manager(self.subject(), request).await {
                Ok(ControlReply::Done(_)) => return Ok(()),
                Ok(other) => return Err(unexpected(self.subject(), &other)),
                Err(error) if is_stale(&error) && tries.again().await => {
                    self.handle.refresh(&view).await?;
                }
                Err(error) => return Err(self.handle.lease_error(error)),
            }
        }
    }
}
