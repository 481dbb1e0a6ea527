//! The files that clients have open, for files that lose their last name: such a file lives until all clients
//! have closed it. Pure: time is handed in.
//!
//! A client has a file open until it says that it has not. It need not report an open: it watches the files
//! that it opens ([`Watchers`](crate::rules::watchers::Watchers)), and a client that watches a file when that
//! loses its last name is taken to have it open, until it has heeded the news and says what is true.
//!
//! A client's word is doubted while the client itself does not know what it missed: from the end of its lease
//! in silence until it has heeded that everything may have changed, and has said all that it has open.
//! Silence closes its files only after [`SILENT_MAX_MS`]. A manager that was restarted does not know which
//! clients have files open: for the same time, every file may be open.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{ClientId, FileId};

/// Silence, in milliseconds, after which a client has its files open no more; also the time after a start in
/// which clients are to say what they have open.
pub const SILENT_MAX_MS: u64 = 60_000;

/// All clients that have files open, and the files without names.
#[derive(Debug, Default)]
pub struct Keepers {
    clients: BTreeMap<ClientId, Keeper>,
    of: BTreeMap<FileId, BTreeSet<ClientId>>,
    /// Files that have lost their names, to be removed when no client has them open.
    nameless: BTreeSet<FileId>,
    /// Start of the manager; `None` once it is known again which files are open.
    began_ms: Option<u64>,
}

#[derive(Debug, Default)]
struct Keeper {
    heard_ms: u64,
    /// Highest order number of the client's messages.
    order: u64,
    open: BTreeSet<FileId>,
    /// Files that the client may have open, by what was known before it was silent.
    doubted: BTreeSet<FileId>,
}

impl Keepers {
    /// An empty table. `began_ms`: time of a start before which clients may have had files open.
    pub fn begin(began_ms: Option<u64>) -> Keepers {
        Keepers { began_ms, ..Keepers::default() }
    }

    /// Notes a message of a client. Returns true if it is later than all that were heard before: messages
    /// that were overtaken count for nothing.
    pub fn hear(&mut self, client: ClientId, order: u64, now_ms: u64) -> bool {
        let keeper = self.clients.entry(client).or_default();
        keeper.heard_ms = now_ms;
        let is_later = order > keeper.order;
        keeper.order = keeper.order.max(order);
        is_later
    }

    /// Time when a client was last heard; `None` for one that has nothing open.
    pub fn heard_ms(&self, client: ClientId) -> Option<u64> {
        self.clients.get(&client).map(|keeper| keeper.heard_ms)
    }

    /// Notes that a client has a file open.
    pub fn open(&mut self, client: ClientId, file: FileId, now_ms: u64) {
        let new = || Keeper { heard_ms: now_ms, ..Keeper::default() };
        self.clients.entry(client).or_insert_with(new).open.insert(file);
        self.of.entry(file).or_default().insert(client);
    }

    /// Notes that a client has closed a file.
    pub fn close(&mut self, client: ClientId, file: FileId) {
        let Some(keeper) = self.clients.get_mut(&client) else { return };
        keeper.open.remove(&file);
        if !keeper.doubted.contains(&file) {
            leave(&mut self.of, file, client);
        }
    }

    /// Notes that a client has missed news: it may have open all that it had open, and `files`.
    pub fn doubt(&mut self, client: ClientId, files: impl IntoIterator<Item = FileId>) {
        let Some(keeper) = self.clients.get_mut(&client) else { return };
        let open = std::mem::take(&mut keeper.open);
        for file in open.into_iter().chain(files) {
            keeper.doubted.insert(file);
            self.of.entry(file).or_default().insert(client);
        }
    }

    /// Ends the doubt about a client, which knows again what happened: of the doubted files only those stay
    /// open that it has named since.
    pub fn settle(&mut self, client: ClientId) {
        let Some(keeper) = self.clients.get_mut(&client) else { return };
        for file in std::mem::take(&mut keeper.doubted) {
            if !keeper.open.contains(&file) {
                leave(&mut self.of, file, client);
            }
        }
    }

    /// Forgets clients that were silent for too long. `listening_ms`: the time since which the manager
    /// listens; no silence counts from before that.
    pub fn lapse(&mut self, now_ms: u64, listening_ms: u64) {
        let is_over = |since_ms: u64| now_ms.saturating_sub(since_ms.max(listening_ms)) > SILENT_MAX_MS;
        self.began_ms = self.began_ms.filter(|began_ms| !is_over(*began_ms));
        let over = self.clients.iter().filter(|(_, keeper)| is_over(keeper.heard_ms));
        let over: Vec<ClientId> = over.map(|(client, _)| *client).collect();
        for client in over {
            let Some(Keeper { open, doubted, .. }) = self.clients.remove(&client) else { continue };
            open.union(&doubted).for_each(|&file| leave(&mut self.of, file, client));
        }
    }

    /// Returns true if a client may have the file open.
    pub fn is_open(&self, file: FileId) -> bool {
        self.began_ms.is_some() || self.of.contains_key(&file)
    }

    /// Notes a file that has lost its name, or was found without one, and is kept.
    pub fn lost_name(&mut self, file: FileId) {
        self.nameless.insert(file);
    }

    /// The files of `of`, or of all, that have no name and that no client has open. Each is returned once.
    pub fn free(&mut self, of: Option<&[FileId]>) -> Vec<FileId> {
        let asked: Vec<FileId> = match of {
            Some(files) => files.iter().copied().filter(|file| self.nameless.contains(file)).collect(),
            None => self.nameless.iter().copied().collect(),
        };
        let free: Vec<FileId> = asked.into_iter().filter(|file| !self.is_open(*file)).collect();
        for file in &free {
            self.nameless.remove(file);
        }
        free
    }
}

fn leave(of: &mut BTreeMap<FileId, BTreeSet<ClientId>>, file: FileId, client: ClientId) {
    if let Some(clients) = of.get_mut(&file) {
        clients.remove(&client);
        if clients.is_empty() {
            of.remove(&file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: FileId = FileId(9);

    /// Clients that were heard at 0.
    fn heard(clients: impl IntoIterator<Item = ClientId>) -> Keepers {
        let mut keepers = Keepers::begin(None);
        clients.into_iter().for_each(|client| assert!(keepers.hear(client, 1, 0)));
        keepers
    }

    #[test]
    fn a_file_is_free_when_the_last_has_closed_it() {
        let mut keepers = heard([ClientId(1), ClientId(2)]);
        [ClientId(1), ClientId(2)].iter().for_each(|&client| keepers.open(client, F, 0));
        keepers.lost_name(F);
        keepers.close(ClientId(1), F);
        assert_eq!(keepers.free(Some(&[F])), []);
        keepers.close(ClientId(2), F);
        assert_eq!(keepers.free(Some(&[FileId(8)])), []);
        assert_eq!((keepers.free(Some(&[F])), keepers.free(None)), (vec![F], vec![]));
    }

    #[test]
    fn what_a_silent_client_had_is_open_until_it_says_otherwise() {
        let mut keepers = heard([ClientId(1)]);
        keepers.open(ClientId(1), F, 0);
        keepers.doubt(ClientId(1), [FileId(8)]);
        keepers.close(ClientId(1), F);
        assert!(keepers.is_open(F) && keepers.is_open(FileId(8)), "it did not know what it missed");
        keepers.open(ClientId(1), FileId(7), 0);
        keepers.settle(ClientId(1));
        keepers.open(ClientId(1), FileId(8), 0);
        let open = [7, 8, 9].map(|file| keepers.is_open(FileId(file)));
        assert_eq!(open, [true, true, false], "what it has said since, and says now");
    }

    #[test]
    fn long_silence_ends_what_is_open_unless_the_manager_did_not_listen() {
        let mut keepers = heard([ClientId(1)]);
        keepers.open(ClientId(1), F, 0);
        keepers.lapse(SILENT_MAX_MS, 0);
        assert!(keepers.is_open(F));
        keepers.lapse(2 * SILENT_MAX_MS, SILENT_MAX_MS);
        assert!(keepers.is_open(F), "it may have spoken to one that was paused");
        keepers.lapse(2 * SILENT_MAX_MS + 1, SILENT_MAX_MS);
        assert!(!keepers.is_open(F) && keepers.heard_ms(ClientId(1)).is_none());
    }

    #[test]
    fn after_a_start_everything_may_be_open_for_a_while() {
        let mut keepers = Keepers::begin(Some(5));
        keepers.lost_name(F);
        keepers.lapse(5 + SILENT_MAX_MS, 0);
        assert_eq!(keepers.free(None), []);
        keepers.lapse(6 + SILENT_MAX_MS, 0);
        assert_eq!(keepers.free(None), [F]);
    }

    #[test]
    fn a_word_that_was_overtaken_counts_for_nothing() {
        let mut keepers = heard([ClientId(1)]);
        assert!(
            keepers.hear(ClientId(1), 3, 0)
                && !keepers.hear(ClientId(1), 2, 0)
                && !keepers.hear(ClientId(1), 3, 0)
        );
        assert!(keepers.hear(ClientId(1), 4, 0));
    }
}
