//! An open directory: what was listed so far, so that the kernel may go on, or back, by position.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use braid_client::{Client, Lister, Name};
use braid_layout::FileId;
use fuser::{FileType, INodeNo, ReplyDirectory};
use tokio::sync::Mutex;

use crate::attributes::{file_type, number};

/// Positions of `.` and `..`, which are in every directory.
const DOTS: u64 = 2;

/// A listing from its begin, in the order of the names.
pub(crate) struct Listing {
    name: Name,
    /// The directory, and the one above it.
    own: INodeNo,
    above: INodeNo,
    root: FileId,
    state: Mutex<State>,
}

struct State {
    lister: Lister,
    known: Vec<(INodeNo, FileType, Vec<u8>)>,
    is_whole: bool,
}

impl Listing {
    pub(crate) fn new(
        client: &Client,
        name: Name,
        (own, above): (INodeNo, INodeNo),
        root: FileId,
    ) -> Listing {
        let state = State { lister: client.list(&name), known: Vec::new(), is_whole: false };
        Listing { name, own, above, root, state: Mutex::new(state) }
    }

    /// Fills a reply from a position on. From position 0 the directory is listed anew.
    pub(crate) async fn fill(
        &self,
        client: &Client,
        offset: u64,
        reply: &mut ReplyDirectory,
    ) -> braid_client::Result<()> {
        let mut state = self.state.lock().await;
        if offset == 0 {
            *state = State { lister: client.list(&self.name), known: Vec::new(), is_whole: false };
        }
        let mut at = offset;
        loop {
            let is_full = match at {
                0 => reply.add(self.own, 1, FileType::Directory, "."),
                1 => reply.add(self.above, DOTS, FileType::Directory, ".."),
                _ => {
                    let index = usize::try_from(at - DOTS).unwrap_or(usize::MAX);
                    if !state.reach(index, self.root).await? {
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
    /// Lists up to the entry of this index. False if there are fewer.
    async fn reach(&mut self, index: usize, root: FileId) -> braid_client::Result<bool> {
        while self.known.len() <= index && !self.is_whole {
            match self.lister.next().await? {
                Some(entry) => {
                    self.known.push((number(entry.file, root), file_type(entry.kind()), entry.name))
                }
                None => self.is_whole = true,
            }
        }
        Ok(index < self.known.len())
    }
}
