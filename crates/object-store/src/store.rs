//! The store: a client, a place in a volume, and how to treat directories.

use std::fmt;

use braid_client::{Client, Name, NameError, Parents};
use braid_wire::Reason;
use braid_wire::control::{EntryKind, RenameHow, UnlinkOnly};

use crate::error::{Error, of_object};

/// How often a request is tried again that finds its directory missing, or an empty one in its place: others
/// may remove what was just made.
pub(crate) const TRIES_MAX: usize = 32;

/// A volume, or a directory of it, as an object store. Cheap to clone.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use braid_object_store::BraidStoreBuilder;
/// use object_store_0_14::{ObjectStoreExt, path::Path};
///
/// let store = BraidStoreBuilder::new().with_cluster("/srv/braid").with_volume("main").build().await?;
/// store.put(&Path::from("a/b"), "hello".into()).await?;
/// assert_eq!(store.get(&Path::from("a/b")).await?.bytes().await?, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct BraidStore {
    pub(crate) client: Client,
    /// The directory from which objects' paths lead.
    pub(crate) root: Name,
    /// Whether directories that become empty are removed.
    pub(crate) cleans_up: bool,
}

impl BraidStore {
    /// The objects of a whole volume.
    pub fn new(client: Client, volume: &str) -> Result<BraidStore, NameError> {
        Ok(BraidStore { client, root: Name::root(volume)?, cleans_up: true })
    }

    /// The objects below a directory of the volume; it need not be there yet. An object's path leads from it.
    pub fn with_prefix(self, prefix: &str) -> Result<BraidStore, NameError> {
        let root = Name::new(self.root.volume(), prefix.as_bytes())?;
        Ok(BraidStore { root, ..self })
    }

    /// Whether directories that become empty as their last object is deleted or renamed away are removed.
    /// They are unless this is called: object stores have no directories, and what is gone is not to be seen
    /// in listings. Off, they stay, as for programs that work with the same volume through a mount.
    pub fn with_automatic_cleanup(self, cleans_up: bool) -> BraidStore {
        BraidStore { cleans_up, ..self }
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The name of what is at a path: the path's text as it is, below the root.
    pub(crate) fn name(&self, location: &str) -> Result<Name, Error> {
        let root = self.root.path();
        let path = match (root, location) {
            (root, "") => root.to_vec(),
            (b"", location) => location.as_bytes().to_vec(),
            (root, location) => [root, b"/", location.as_bytes()].concat(),
        };
        Name::new(self.root.volume(), &path)
            .map_err(|source| Error::Path { location: location.to_owned(), source })
    }

    /// After a request for a new name was refused: removes what keeps it from succeeding, and tells whether
    /// it can. Missing directories are made, and an empty one makes way: an object store has neither.
    pub(crate) async fn makes_way(&self, refused: &braid_client::Error, name: &Name) -> Result<bool, Error> {
        match (refused.reason(), name.parent()) {
            (Some(Reason::NotFound), Some(parent)) => {
                self.client.mkdir(&parent, Parents::Make).await?;
                Ok(true)
            }
            (Some(Reason::IsDirectory), Some(_)) => {
                Ok(self.client.unlink_only(name, UnlinkOnly::Directory).await.is_ok())
            }
            _ => Ok(false),
        }
    }

    /// Renames an object, and nothing else.
    pub(crate) async fn rename(&self, from: &Name, to: &Name, how: RenameHow) -> Result<(), Error> {
        let row = self.client.stat_itself(from).await.map_err(of_object)?;
        if !matches!(row.kind(), EntryKind::File | EntryKind::Symlink) {
            return Err(Error::NoFile { name: from.to_string() });
        }
        let mut tries = 0;
        while let Err(refused) = self.client.rename_how(from, to, how).await {
            tries += 1;
            if tries > TRIES_MAX {
                return Err(Error::Contended { name: to.to_string(), tries, source: Box::new(refused) });
            }
            // It was there: so the new name's directory is missing, or it has gone since.
            if !self.makes_way(&refused, to).await? {
                return Err(refused.into());
            }
            if refused.reason() == Some(Reason::NotFound) {
                self.client.stat_itself(from).await.map_err(of_object)?;
            }
        }
        // Of two names of one file a rename keeps both, as in POSIX.
        if row.attributes.links > 1 && from != to {
            let left = self.client.stat_itself(from).await;
            if left.is_ok_and(|left| left.file == row.file) {
                self.client.unlink_only(from, UnlinkOnly::NotDirectory).await?;
            }
        }
        if from != to {
            self.clean_up(from.parent().into_iter().collect()).await;
        }
        Ok(())
    }
}

impl fmt::Display for BraidStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Braid({})", self.root)
    }
}

impl fmt::Debug for BraidStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BraidStore { client, root, cleans_up } = self;
        f.debug_struct("BraidStore")
            .field("root", &root.to_string())
            .field("cleans_up", cleans_up)
            .field("client", client)
            .finish()
    }
}
