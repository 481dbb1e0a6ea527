//! Reports of wrong bytes. A drive that sent bytes which do not match their checksums is told so: it verifies
//! the stored units, and has damaged ones repaired. The bytes may also have been changed in transit, so the
//! report is only a doubt.

use std::collections::BTreeMap;

use braid_layout::Column;
use braid_wire::data::{Listing, VERSIONS_UNITS_MAX, Versions};

use super::{Executor, Failed, ask_columns};
use crate::peers::drive_requests::Failure;

impl Executor<'_> {
    /// Tells drives which of these reads brought wrong bytes. Their answers change nothing: the next scrub
    /// would find the damage as well.
    pub(super) async fn doubt(&self, failed: &[Failed]) {
        let mut doubted: BTreeMap<Column, Vec<u64>> = BTreeMap::new();
        for one in failed.iter().filter(|one| matches!(one.failure, Failure::Corrupt(_))) {
            doubted.entry(one.column).or_default().push(one.stripe.0);
        }
        if doubted.is_empty() {
            return;
        }
        let questions = doubted.into_iter().map(|(column, mut units)| {
            units.sort_unstable();
            units.dedup();
            units.truncate(VERSIONS_UNITS_MAX);
            let at = self.view.address(self.set.segment, column);
            (column, Versions { at, list: Listing::Doubted, units, from: 0, limit: 0 }.into())
        });
        ask_columns(self.handle, &self.view, self.set.segment, questions.collect()).await;
    }
}
