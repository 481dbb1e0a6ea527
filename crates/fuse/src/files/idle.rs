//! Open files of the client that no program has open any more: a program that opens one again soon needs no
//! request to the manager, as long as the kept record says that the file is unchanged.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use braid_client::File;
use braid_layout::FileId;

use crate::files::version::Version;

/// Maximum number of idle files.
const IDLE_MAX: usize = 1024;

/// Files that are open for reading, with their versions when they were opened.
#[derive(Default)]
pub(crate) struct Idle {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: HashMap<FileId, (Version, File)>,
    /// Numbers of the files, the oldest first; some may have been removed.
    order: VecDeque<FileId>,
}

impl Idle {
    /// Keeps a file that no program has open any more.
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

    /// Takes the open file, if it is of exactly this version.
    pub(crate) fn take(&self, number: FileId, version: Version) -> Option<File> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, file) = state.files.remove(&number)?;
        state.order.retain(|other| *other != number);
        (of == version).then_some(file)
    }
}
