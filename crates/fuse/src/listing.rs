//! An open directory: what was listed so far, so that the kernel may go on, or back, by position.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use braid_client::Lister;
use braid_layout::FileId;
use braid_wire::Reason;
use fuser::{FileType, INodeNo, ReplyDirectory};
use tokio::sync::Mutex;

use crate::attributes::{file_type, number};
use crate::context::Context;
use crate::kept::Asked;

/// Positions of `.` and `..`, which are in every directory.
const DOTS: u64 = 2;

/// A listing from its begin, in the order of the names.
pub(crate) struct Listing {
    context: Arc<Context>,
    directory: FileId,
    /// The directory, and the one above it.
    own: INodeNo,
    above: INodeNo,
    state: Mutex<State>,
}

struct State {
    lister: Lister,
    /// When the first entries were asked for.
    asked: Asked,
    known: Vec<(INodeNo, FileType, Vec<u8>)>,
    is_whole: bool,
}

impl Listing {
    pub(crate) fn new(
        context: &Arc<Context>,
        directory: FileId,
        (own, above): (INodeNo, INodeNo),
    ) -> Listing {
        let state = Mutex::new(State::new(context, directory));
        Listing { context: Arc::clone(context), directory, own, above, state }
    }

    /// Fills a reply from a position on. From position 0 the directory is listed anew.
    pub(crate) async fn fill(&self, offset: u64, reply: &mut ReplyDirectory) -> braid_client::Result<()> {
        let mut state = self.state.lock().await;
        if offset == 0 {
            *state = State::new(&self.context, self.directory);
        }
        let mut at = offset;
        loop {
            let is_full = match at {
                0 => reply.add(self.own, 1, FileType::Directory, "."),
                1 => reply.add(self.above, DOTS, FileType::Directory, ".."),
                _ => {
                    let index = usize::try_from(at - DOTS).unwrap_or(usize::MAX);
                    if !state.reach(index, &self.context, self.directory).await? {
                        return Ok(());
                    }
                    let (ino, kind, name) = &state.known[index];
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
    fn new(context: &Context, directory: FileId) -> State {
        let asked = context.kept.ask();
        let lister = context.client.list(&context.name(directory));
        State { lister, asked, known: Vec::new(), is_whole: false }
    }

    /// Lists up to the entry of this index. False if there are fewer. What is listed is kept: programs ask
    /// for the attributes next, as a rule.
    async fn reach(
        &mut self,
        index: usize,
        context: &Context,
        directory: FileId,
    ) -> braid_client::Result<bool> {
        while self.known.len() <= index && !self.is_whole {
            let next = match self.lister.next().await {
                // It was removed, and so was empty.
                Err(error) if error.reason() == Some(Reason::NotFound) => None,
                next => next?,
            };
            match next {
                Some(entry) => {
                    context.kept.put_entry(self.asked, directory, &entry);
                    let (ino, kind) = (number(entry.file, context.root), file_type(entry.kind()));
                    self.known.push((ino, kind, entry.name));
                }
                None => self.is_whole = true,
            }
        }
        Ok(index < self.known.len())
    }
}
