//! The threads' work without threads, for tests that must run the same each time: the caller says when the
//! queue is committed. The checkpointer's work is done after each commit; the cleaner's is not done.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::mutex::Mutex;
use crate::threads::checkpointer;
use crate::threads::committer::Committer;
use crate::threads::shared::Shared;

pub(crate) struct ByHand {
    shared: Arc<Shared>,
    /// `None`: the committer works right now, further up on the stack, or has ended.
    committer: Mutex<Option<Committer>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl ByHand {
    pub(crate) fn new(committer: Committer, wake: Box<dyn Fn() + Send + Sync>) -> ByHand {
        let shared = Arc::clone(&committer.shared);
        shared.checkpointer.do_without_thread();
        shared.queue.do_without_waits();
        // No cleaner ever answers.
        shared.queue.end_help();
        shared.cleaning.close();
        ByHand { shared, committer: Mutex::new(Some(committer)), wake }
    }

    /// Tell the owner that a turn is due.
    pub(crate) fn wake(&self) {
        (self.wake)();
    }

    /// Commit what is queued, then write the checkpoint that is due.
    pub(crate) fn turn(&self) {
        let Some(mut committer) = self.committer.lock().take() else { return };
        let mut waiting = VecDeque::new();
        while self.shared.queue.len() > 0 || !waiting.is_empty() {
            committer.delay = Default::default();
            committer.turn(&mut waiting);
        }
        checkpointer::turn(&self.shared);
        *self.committer.lock() = Some(committer);
    }

    /// Commit what is left in the closed queue, and end.
    pub(crate) fn end(&self) {
        self.turn();
        let Some(mut committer) = self.committer.lock().take() else { return };
        committer.end();
        self.shared.queue.abandon();
        self.shared.checkpointer.close();
    }
}
