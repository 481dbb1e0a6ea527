//! An open directory: its last listed entries, so that the kernel may go on, or back, by position. If it goes
//! further back, the directory is listed again from there.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use braid_client::{Lister, Name};
use braid_layout::FileId;
use braid_wire::Reason;
use braid_wire::control::Entry;
use fuser::{FileType, INodeNo, ReplyDirectory};
use tokio::sync::Mutex;

use crate::context::Context;
use crate::tree::attributes::{file_type, number};
use crate::tree::kept::Asked;
use crate::tree::past;

/// Positions of `.` and `..`, which are in every directory.
const DOTS: u64 = 2;
/// Number of entries that are kept of an open directory: more than the kernel asks for at once.
const WINDOW: usize = 4096;

/// A listing from its beginning, in the order of the names.
pub(crate) struct Listing {
    context: Arc<Context>,
    directory: Listed,
    /// Numbers of the directory and of the one above it.
    own: INodeNo,
    above: INodeNo,
    state: Mutex<State>,
}

/// The directory that is listed.
#[derive(Debug, Clone)]
pub(crate) enum Listed {
    /// A live directory: the records of its entries are kept.
    Live(FileId),
    /// A directory in a snapshot; 0: one that has the names of snapshots.
    Past { name: Name, snapshot: u32 },
}

impl Listed {
    fn name(&self, context: &Context) -> Name {
        match self {
            Listed::Live(directory) => context.name(*directory),
            Listed::Past { name, .. } => name.clone(),
        }
    }

    /// The number of an entry. The numbers of snapshots' roots are known once they are looked up.
    fn number(&self, entry: &Entry, context: &Context) -> INodeNo {
        match self {
            Listed::Live(_) => number(entry.file, context.root),
            Listed::Past { snapshot, .. } => past::number(entry.file, *snapshot),
        }
    }
}

struct State {
    lister: Lister,
    /// Count of changes when the first entries were asked for.
    asked: Asked,
    window: Window,
    is_whole: bool,
}

/// The newest entries, and the names after which older ones are listed again.
#[derive(Debug, Default)]
struct Window {
    /// Index of the first entry that is kept.
    begin: usize,
    kept: VecDeque<One>,
    /// The name of the last entry before each multiple of [`WINDOW`], except the first.
    marks: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct One {
    ino: INodeNo,
    kind: FileType,
    name: Vec<u8>,
}

impl Listing {
    pub(crate) fn new(context: &Arc<Context>, directory: Listed, own: INodeNo, above: INodeNo) -> Listing {
        let state = Mutex::new(State::new(context, &directory));
        Listing { context: Arc::clone(context), directory, own, above, state }
    }

    /// Fills a reply from a position on. From position 0 the directory is listed anew.
    pub(crate) async fn fill(&self, offset: u64, reply: &mut ReplyDirectory) -> braid_client::Result<()> {
        let mut state = self.state.lock().await;
        if offset == 0 {
            *state = State::new(&self.context, &self.directory);
        }
        let mut at = offset;
        loop {
            let is_full = match at {
                0 => reply.add(self.own, 1, FileType::Directory, "."),
                1 => reply.add(self.above, DOTS, FileType::Directory, ".."),
                _ => {
                    let index = usize::try_from(at - DOTS).unwrap_or(usize::MAX);
                    let listed = state.reach(index, &self.context, &self.directory).await?;
                    let Some(One { ino, kind, name }) = listed else { return Ok(()) };
                    reply.add(*ino, at + 1, *kind, OsStr::from_bytes(name))
                }
            };
            if is_full {
                return Ok(());
            }
            at += 1;
        }
    }
}

impl State {
    fn new(context: &Context, directory: &Listed) -> State {
        let asked = context.kept.ask();
        let lister = context.client.list(&directory.name(context));
        State { lister, asked, window: Window::default(), is_whole: false }
    }

    /// Lists up to the entry of this index; `None` if there are fewer. The records of listed entries are
    /// kept, as programs usually ask for the attributes next.
    async fn reach(
        &mut self,
        index: usize,
        context: &Context,
        directory: &Listed,
    ) -> braid_client::Result<Option<&One>> {
        if let Some(after) = self.window.go_back(index) {
            self.asked = context.kept.ask();
            self.lister = context.client.list_after(&directory.name(context), after);
            self.is_whole = false;
        }
        while self.window.end() <= index && !self.is_whole {
            let next = match self.lister.next().await {
                // The directory was removed, and so was empty.
                Err(error) if error.reason() == Some(Reason::NotFound) => None,
                next => next?,
            };
            match next {
                Some(entry) => {
                    if let Listed::Live(directory) = directory {
                        context.kept.put_entry(self.asked, *directory, &entry);
                    }
                    let ino = directory.number(&entry, context);
                    let kind = file_type(entry.kind());
                    self.window.push(One { ino, kind, name: entry.name });
                }
                None => self.is_whole = true,
            }
        }
        Ok(self.window.get(index))
    }
}

impl Window {
    fn end(&self) -> usize {
        self.begin + self.kept.len()
    }

    fn get(&self, index: usize) -> Option<&One> {
        self.kept.get(index.checked_sub(self.begin)?)
    }

    fn push(&mut self, listed: One) {
        let count = self.end() + 1;
        if count.is_multiple_of(WINDOW) && count / WINDOW > self.marks.len() {
            self.marks.push(listed.name.clone());
        }
        self.kept.push_back(listed);
        if self.kept.len() > WINDOW {
            self.kept.pop_front();
            self.begin += 1;
        }
    }

    /// Prepares to list again for an entry that is no longer kept: returns the name after which to list.
    fn go_back(&mut self, index: usize) -> Option<Vec<u8>> {
        if index >= self.begin {
            return None;
        }
        let windows = (index / WINDOW).min(self.marks.len());
        self.kept.clear();
        self.begin = windows * WINDOW;
        Some(windows.checked_sub(1).map_or_else(Vec::new, |mark| self.marks[mark].clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(index: usize) -> Vec<u8> {
        format!("{index:08}").into_bytes()
    }

    #[test]
    fn however_long_a_directory_is_a_window_of_it_is_kept_and_any_part_is_found_again() {
        let count = 5 * WINDOW + 7;
        let mut window = Window::default();
        let mut next = 0;
        let mut listed = 0;
        let forwards = 0..count;
        let jumps =
            [count - WINDOW, 3, WINDOW - 1, WINDOW, 2 * WINDOW + 5, 2 * WINDOW + 4, 0, count - 1, count];
        for index in forwards.chain(jumps) {
            if let Some(after) = window.go_back(index) {
                next = (0..count).find(|other| name(*other) > after).expect("one comes after it");
            }
            while window.end() <= index && next < count {
                window.push(One { ino: INodeNo(1), kind: FileType::RegularFile, name: name(next) });
                next += 1;
                listed += 1;
            }
            let found = window.get(index).map(|listed| listed.name.clone());
            assert_eq!(found, (index < count).then(|| name(index)));
            assert!(window.kept.len() <= WINDOW && window.marks.len() == count.min(listed) / WINDOW);
        }
    }
}
