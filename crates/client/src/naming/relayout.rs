//! Files that are laid out anew: asked for here, done by the manager and the drives.

use braid_layout::{FileId, Shape};
use braid_wire::control::{ControlReply, Relayout, RelayoutReply, Relayouts, RelayoutsReply};

use crate::client::{Client, unexpected};
use crate::error::Result;
use crate::naming::name::Name;

impl Client {
    /// Has a file laid out anew in this shape; `None`: what was asked for before is not to be done any more.
    /// It is done in the background. Refused for a directory, and for a shape with more columns than there
    /// are drives.
    pub async fn relayout(&self, name: &Name, shape: Option<Shape>) -> Result<RelayoutReply> {
        let subject = name.to_string();
        let asked = Relayout { at: self.place(name).await?, shape: shape.map(Into::into) };
        match self.ask_manager(&subject, asked).await? {
            ControlReply::Relayout(reply) => Ok(reply),
            other => Err(unexpected(&subject, &other)),
        }
    }

    /// Files above `after` that are to be laid out anew, at most `limit`.
    pub async fn relayouts(&self, after: FileId, limit: u32) -> Result<RelayoutsReply> {
        match self.ask_manager("the cluster", Relayouts { after, limit }).await? {
            ControlReply::Relayouts(reply) => Ok(reply),
            other => Err(unexpected("the cluster", &other)),
        }
    }
}
