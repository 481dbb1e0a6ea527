//! The folder's thread: it makes the bases of parity units that are to be folded, and hands them to the
//! committer ([`crate::fold`]). Only a store that shares its disk has it.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use crate::fold::next;
use crate::folded::Folded;
use crate::threads::OnEnd;
use crate::threads::shared::Shared;

/// Folds until the store is closed.
pub(crate) fn run(shared: &Arc<Shared>) {
    // Without this thread, also after a panic, the committer folds.
    let _ending = OnEnd(|| shared.folding.has_ended());
    while shared.folding.wait() {
        let is_closing = || shared.folding.is_closing();
        loop {
            let bases = next(shared, &is_closing);
            if bases.is_empty() {
                break;
            }
            let (reply, is_written) = sync_channel(1);
            shared.queue.push_fold(Folded { bases, reply });
            // If not all were written, their units have changed, or the log takes nothing now. A commit
            // calls again.
            if is_closing() || is_written.recv() != Ok(true) {
                break;
            }
        }
    }
}
