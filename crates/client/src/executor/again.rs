//! Writes that are sent again: under a newer view, or in place of another set's.

use std::sync::Arc;

use braid_plan::{Op, VersionOf};

use super::Executor;
use crate::view::FileView;

impl Executor<'_> {
    /// Sends the whole units that this set reconstructs, under the stamps of `other`, in place of the parts
    /// that `other` writes. `are_damaged`: true if the replaced units are damaged.
    pub(crate) fn stand_in_for(&mut self, other: &Executor<'_>, are_damaged: bool) {
        let writes = other.set.instructions().filter_map(|(_, instruction)| match &instruction.op {
            Op::StripeWrite { stripe, stamp: VersionOf::Given(stamp), columns, .. } => {
                Some((*stripe, (*stamp, *columns)))
            }
            _ => None,
        });
        self.stands_in = Some(writes.collect());
        self.over_damage = are_damaged;
    }

    /// Prepares the set's writes to be sent under a newer view (PROTOCOL C3). If the view's generation is
    /// newer, earlier answers are forgotten.
    pub(crate) fn retarget(&mut self, view: &Arc<FileView>) {
        let segment = &view.segments[self.set.segment];
        if view.g > self.set.g {
            // A column that joins now, but did not when the set was planned, has dropped what it had. It
            // needs whole units, as a column that was out does (`write_joined`).
            let rejoined = segment.joining.minus(self.set.joining);
            self.set.retarget(view.g, segment.set.minus(rejoined), segment.joining);
            self.written.fill(false);
        }
        self.view = Arc::clone(view);
    }
}
