//! Attributes that go with a new file's first bytes: programs that copy and unpack set owner, permissions and
//! times of each file that they make, one after the other, before they close it.
//!
//! They are told to the manager with the first size, in the same message. Others see them no later than the
//! bytes.

use std::time::{Instant, SystemTime};

use braid_client::{AttributeChanges, Result};
use braid_wire::control::StatRow;

use crate::attributes::nanoseconds;
use crate::inode::{Inode, State};

impl Inode {
    /// Takes changes that are to be told with the file's size, if it is new and written here only. Gives its
    /// facts then.
    pub(crate) async fn set_later(&self, changes: AttributeChanges) -> Option<StatRow> {
        let mut row = {
            let slot = self.slot.read().await;
            let file = slot.file.as_ref().filter(|file| slot.writes && !file.is_shared())?;
            let mut state = self.state();
            if !state.is_new {
                return None;
            }
            state.set_later(changes);
            file.known()
        };
        self.tell(&mut row).await;
        Some(row)
    }

    /// Tells the manager.
    pub(crate) async fn set_now(&self, changes: AttributeChanges) -> Result<()> {
        if changes == AttributeChanges::NONE {
            return Ok(());
        }
        let set = self.context.client.set_attributes(&self.context.name(self.file), changes).await;
        self.context.kept.forget(self.file);
        set.map(drop)
    }
}

impl State {
    fn set_later(&mut self, changes: AttributeChanges) {
        self.order += 1;
        self.uncommitted = true;
        self.since.get_or_insert_with(Instant::now);
        // The time of change goes with the size.
        self.modified = changes.modified_ns.or(self.modified);
        let before = self.later;
        self.later = AttributeChanges {
            mode: changes.mode.or(before.mode),
            uid: changes.uid.or(before.uid),
            gid: changes.gid.or(before.gid),
            accessed_ns: changes.accessed_ns.or(before.accessed_ns),
            modified_ns: None,
        };
    }

    /// Takes what is to be told now. From then on the file is none that is new.
    pub(crate) fn take_later(&mut self) -> AttributeChanges {
        self.is_new = false;
        std::mem::take(&mut self.later)
    }

    /// It could not be told: it goes with the next size, unless it was changed since.
    pub(crate) fn put_back(&mut self, changes: AttributeChanges) {
        let since = std::mem::replace(&mut self.later, changes);
        self.set_later(since);
    }

    /// Changes what the manager says to what it was not told yet.
    pub(crate) fn overlay(&self, row: &mut StatRow) {
        let (later, attributes) = (self.later, &mut row.attributes);
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
    use super::*;

    #[test]
    fn the_last_change_of_each_attribute_is_told() {
        let mut state = State::new();
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
