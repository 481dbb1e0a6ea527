//! Attributes that are sent with a new file's first bytes: programs that copy and unpack set owner,
//! permissions and times of each file that they make, one after the other, before they close it.
//!
//! The manager is told the attributes with the first size, in the same message. Others see them no later than
//! the bytes. A change that takes a permission away is sent at once: from then on others must not open the
//! file.

use std::time::{Instant, SystemTime};

use braid_client::{AttributeChanges, Result};
use braid_wire::control::{FileAttributes, StatRow};

use crate::files::inode::Inode;
use crate::files::inode_state::InodeState;
use crate::tree::attributes::nanoseconds;

impl Inode {
    /// Takes changes that are to be sent with the file's size, if the file is new and written here only.
    /// Returns the file's record then.
    pub(crate) async fn set_later(&self, changes: AttributeChanges) -> Option<StatRow> {
        let slot = self.slot.read().await;
        let file = slot.file.as_ref().filter(|file| slot.writes && !file.is_shared())?;
        let mut row = file.known();
        {
            let mut state = self.state();
            state.overlay(&mut row);
            if !state.is_new || takes_away(&row.attributes, &changes) {
                return None;
            }
            state.set_later(changes);
        }
        self.tell_of(&slot, &mut row);
        Some(row)
    }

    /// Sends changes to the manager at once.
    pub(crate) async fn set_now(&self, changes: AttributeChanges) -> Result<()> {
        if changes == AttributeChanges::NONE {
            return Ok(());
        }
        let set = self.context.client.set_attributes(&self.context.name(self.file), changes).await;
        self.context.kept.forget(self.file);
        set.map(drop)
    }
}

/// Returns true if the changes take a permission away: a user could do something with the file before them,
/// and cannot after them.
fn takes_away(of: &FileAttributes, changes: &AttributeChanges) -> bool {
    let &AttributeChanges { mode, uid, gid, .. } = changes;
    // The superuser loses nothing.
    mode.is_some_and(|mode| of.mode & !mode & 0o777 != 0)
        || uid.is_some_and(|uid| uid != of.uid && of.uid != 0)
        || gid.is_some_and(|gid| gid != of.gid && of.gid != 0 && of.mode & 0o070 != 0)
}

/// Merges changes with later ones.
pub(crate) fn merged(before: AttributeChanges, changes: AttributeChanges) -> AttributeChanges {
    AttributeChanges {
        mode: changes.mode.or(before.mode),
        uid: changes.uid.or(before.uid),
        gid: changes.gid.or(before.gid),
        accessed_ns: changes.accessed_ns.or(before.accessed_ns),
        modified_ns: changes.modified_ns.or(before.modified_ns),
    }
}

impl InodeState {
    fn set_later(&mut self, changes: AttributeChanges) {
        self.order += 1;
        self.uncommitted = true;
        self.since.get_or_insert_with(Instant::now);
        // The modification time goes with the size.
        self.modified = changes.modified_ns.or(self.modified);
        self.later = AttributeChanges { modified_ns: None, ..merged(self.later, changes) };
    }

    /// Takes the changes that are to be sent now. From then on the file no longer counts as new.
    pub(crate) fn take_later(&mut self) -> AttributeChanges {
        self.is_new = false;
        self.told_now = std::mem::take(&mut self.later);
        self.told_now
    }

    /// Puts changes back that could not be sent: they go with the next size, except for attributes changed
    /// since.
    pub(crate) fn put_back(&mut self, changes: AttributeChanges) {
        self.told_now = AttributeChanges::NONE;
        let since = std::mem::replace(&mut self.later, changes);
        self.set_later(since);
    }

    /// Notes that the changes that were taken have been sent.
    pub(crate) fn told_later(&mut self) {
        self.told_now = AttributeChanges::NONE;
    }

    /// Changes the manager's record of the file by the changes that the manager was not told yet.
    pub(crate) fn overlay(&self, row: &mut StatRow) {
        let later = merged(self.told_now, self.later);
        let attributes = &mut row.attributes;
        attributes.mode = later.mode.unwrap_or(attributes.mode);
        attributes.uid = later.uid.unwrap_or(attributes.uid);
        attributes.gid = later.gid.unwrap_or(attributes.gid);
        attributes.accessed_ns = later.accessed_ns.unwrap_or(attributes.accessed_ns);
        if later != AttributeChanges::NONE {
            attributes.changed_ns = attributes.changed_ns.max(nanoseconds(SystemTime::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_wire::control::EntryKind;

    use super::*;

    #[test]
    fn what_takes_a_permission_away_does_not_wait() {
        let kind = EntryKind::File;
        let size = 0;
        let links = 1;
        let device = 0;
        let has_xattrs = false;
        let (accessed_ns, modified_ns, changed_ns, created_ns) = Default::default();
        let of = |mode, uid, gid| FileAttributes {
            kind,
            mode,
            uid,
            gid,
            links,
            size,
            device,
            has_xattrs,
            accessed_ns,
            modified_ns,
            changed_ns,
            created_ns,
            sealed: false,
        };
        let mode = |mode| AttributeChanges { mode: Some(mode), ..AttributeChanges::NONE };
        let owner = |uid, gid| AttributeChanges { uid, gid, ..AttributeChanges::NONE };
        assert!(!takes_away(&of(0o600, 0, 0), &mode(0o4755)) && takes_away(&of(0o644, 0, 0), &mode(0o600)));
        assert!(!takes_away(&of(0o600, 0, 0), &owner(Some(5), Some(5))));
        assert!(takes_away(&of(0o600, 5, 5), &owner(Some(6), None)));
        assert!(takes_away(&of(0o640, 5, 5), &owner(None, Some(6))));
        assert!(!takes_away(&of(0o600, 5, 5), &owner(Some(5), Some(6))));
    }

    #[test]
    fn the_last_change_of_each_attribute_is_told() {
        let mut state = InodeState::new();
        state.is_new = true;
        state.set_later(AttributeChanges { mode: Some(0o600), uid: Some(1), ..AttributeChanges::NONE });
        let modified_ns = Some(5);
        state.set_later(AttributeChanges { mode: Some(0o644), modified_ns, ..AttributeChanges::NONE });
        assert!(state.uncommitted && state.modified == modified_ns);
        let told = state.take_later();
        let mode_and_owner = AttributeChanges { mode: Some(0o644), uid: Some(1), ..AttributeChanges::NONE };
        assert_eq!((told, state.later, state.is_new), (mode_and_owner, AttributeChanges::NONE, false));
        state.set_later(AttributeChanges { uid: Some(2), ..AttributeChanges::NONE });
        state.put_back(told);
        assert_eq!(state.take_later(), AttributeChanges { uid: Some(2), ..mode_and_owner });
    }
}
