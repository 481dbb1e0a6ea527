//! Layouts of new files: those of directories and volumes. The manager decides which one counts.

use braid_layout::Shape;
use braid_wire::control::{Clustering, ControlReply, LayoutOf, LayoutReply, SetClustering, SetLayout};

use crate::client::{Client, unexpected};
use crate::error::Result;
use crate::naming::name::Name;

impl Client {
    /// Sets the layout of all that is made in a directory and below it from now on, or in the volume if the
    /// name is its root; `None` takes a directory's own layout away. What exists stays as it is:
    /// [`Client::relayout`] gives a file another layout. A file can be given one here until something is
    /// written to it.
    pub async fn set_layout(&self, name: &Name, shape: Option<Shape>) -> Result<()> {
        let request = SetLayout { at: self.place(name).await?, shape: shape.map(Into::into) };
        self.ask_done(&name.to_string(), request).await
    }

    /// Sets which small files of those that are made in a directory and below it from now on are placed near
    /// each other in their drives' logs, so that they are read in one sweep; `None`: as what is above says.
    pub async fn set_clustering(&self, name: &Name, clustering: Option<Clustering>) -> Result<()> {
        let request = SetClustering { at: self.place(name).await?, clustering };
        self.ask_done(&name.to_string(), request).await
    }

    /// The layout of a file; or of a directory, the one that new files in it get, and where it comes from.
    pub async fn layout(&self, name: &Name) -> Result<LayoutReply> {
        let subject = name.to_string();
        match self.ask_manager(&subject, LayoutOf { at: self.place(name).await? }).await? {
            ControlReply::Layout(reply) => Ok(reply),
            other => Err(unexpected(&subject, &other)),
        }
    }
}
