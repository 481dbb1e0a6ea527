//! Removes objects, and the directories that become empty with them.

use std::collections::BTreeSet;

use braid_client::Name;
use braid_wire::control::UnlinkOnly;
use futures_util::future::join_all;

use crate::error::{Error, of_object};
use crate::store::BraidStore;

impl BraidStore {
    /// Removes objects, all at once; the results are in the order of the names. Requests made together
    /// reach the manager together.
    pub(crate) async fn remove(&self, names: &[Name]) -> Vec<Result<(), Error>> {
        let removing = names.iter().map(|name| self.client.unlink_only(name, UnlinkOnly::NotDirectory));
        let removed: Vec<_> = join_all(removing).await;
        let emptied = names.iter().zip(&removed).filter(|(_, removed)| removed.is_ok());
        self.clean_up(emptied.filter_map(|(name, _)| name.parent()).collect()).await;
        removed.into_iter().map(|removed| removed.map_err(of_object)).collect()
    }

    /// Removes the directories among these that are empty, then their parents that become empty, and so on
    /// up to the root, which stays. The manager refuses to remove a directory that has an entry, so nothing
    /// is lost if an object is made at the same time.
    pub(crate) async fn clean_up(&self, mut directories: BTreeSet<Name>) {
        if !self.cleans_up {
            return;
        }
        let depth = self.root.path().len();
        loop {
            directories.retain(|directory| directory.path().len() > depth);
            if directories.is_empty() {
                return;
            }
            let removing =
                directories.iter().map(|name| self.client.unlink_only(name, UnlinkOnly::Directory));
            let removed: Vec<_> = join_all(removing).await;
            let gone = directories.iter().zip(removed).filter(|(_, removed)| removed.is_ok());
            directories = gone.filter_map(|(name, _)| name.parent()).collect();
        }
    }
}
