//! Open files of the client that no program has open any more: who opens one again soon need ask nobody, as
//! long as what is kept of it says that it is unchanged.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use braid_client::File;
use braid_layout::FileId;

use crate::fresh::Version;

/// Most of them.
const IDLE_MAX: usize = 1024;

/// Files that are open to be read, with what they were when they were opened.
#[derive(Default)]
pub(crate) struct Idle {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: HashMap<FileId, (Version, File)>,
    /// The oldest first; some may be gone.
    order: VecDeque<FileId>,
}

impl Idle {
    /// No program has it open any more.
    pub(crate) fn put(&self, number: FileId, file: File) {
        let version = Version::of(&file.known());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.files.insert(number, (version, file)).is_none() {
            state.order.push_back(number);
        }
        while state.order.len() > IDLE_MAX {
            if let Some(oldest) = state.order.pop_front() {
                state.files.remove(&oldest);
            }
        }
    }

    /// One that is of just this version.
    pub(crate) fn take(&self, number: FileId, version: Version) -> Option<File> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, file) = state.files.remove(&number)?;
        state.order.retain(|other| *other != number);
        (of == version).then_some(file)
    }
}
