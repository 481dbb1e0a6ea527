//! The store: a client, a directory in a volume, and how directories are treated.

use std::fmt;

use braid_client::Client;
use braid_client::Name;
use braid_client::NameError;
use braid_client::Parents;
use braid_wire::Reason;
use braid_wire::control::{EntryKind, RenameHow, UnlinkOnly};

use crate::error::{Error, of_object};

/// Maximum number of tries of a request that finds its directory missing, or an empty directory in its
/// place: other clients may remove a directory that was just made.
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
    /// The directory to which the paths of objects are relative.
    pub(crate) root: Name,
    /// True if directories that become empty are removed.
    pub(crate) cleans_up: bool,
}

impl BraidStore {
    /// Creates a store of the objects of a whole volume.
    pub fn new(client: Client, volume: &str) -> Result<BraidStore, NameError> {
        Ok(BraidStore { client, root: Name::root(volume)?, cleans_up: true })
    }

    /// Restricts the store to the objects below a directory of the volume, which need not exist yet. Paths
    /// of objects are relative to it.
    pub fn with_prefix(self, prefix: &str) -> Result<BraidStore, NameError> {
        let root = self.root.with_path(prefix.as_bytes())?;
        Ok(BraidStore { root, ..self })
    }

    /// Restricts the store to what a snapshot of this name shows: that of the volume, or of the first
    /// directory on the prefix that has one. Objects can then only be read.
    pub fn with_snapshot(self, name: &str) -> Result<BraidStore, NameError> {
        let root = self.root.in_snapshot(name)?;
        Ok(BraidStore { root, ..self })
    }

    /// Chooses whether a directory that becomes empty is removed when its last object is deleted or renamed
    /// away. It is removed unless this is called with false: object stores have no directories, and deleted
    /// objects should leave nothing in listings. If this is off, directories stay, as programs expect that
    /// use the same volume through a mount.
    pub fn with_automatic_cleanup(self, cleans_up: bool) -> BraidStore {
        BraidStore { cleans_up, ..self }
    }

    /// The client that the store uses.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The full name of the object at a path: the path's text unchanged, below the root.
    pub(crate) fn name(&self, location: &str) -> Result<Name, Error> {
        let root = self.root.path();
        let path = match (root, location) {
            (root, "") => root.to_vec(),
            (b"", location) => location.as_bytes().to_vec(),
            (root, location) => [root, b"/", location.as_bytes()].concat(),
        };
        self.root.with_path(&path).map_err(|source| Error::Path { location: location.to_owned(), source })
    }

    /// The full name of an object that is to be changed. Refused in a snapshot.
    pub(crate) fn name_to_change(&self, location: &str) -> Result<Name, Error> {
        let name = self.name(location)?;
        if name.snapshot().is_some() {
            return Err(Error::ReadOnly { name: name.to_string() });
        }
        Ok(name)
    }

    /// Removes the obstacle after a request for a new name was refused, and returns true if the request can
    /// now be repeated. Missing directories are made, and an empty directory in the place is removed:
    /// object stores have neither.
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

    /// Renames an object, and nothing but objects.
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
            // The object existed: so the directory of the new name is missing, or the object has gone
            // since.
            if !self.makes_way(&refused, to).await? {
                return Err(refused.into());
            }
            if refused.reason() == Some(Reason::NotFound) {
                self.client.stat_itself(from).await.map_err(of_object)?;
            }
        }
        // If both are names of one file, a rename keeps both, as in POSIX.
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
