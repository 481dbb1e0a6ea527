//! Clients that cache files and directories, and are to be told of changes. In memory only, and pure: time is
//! handed in.
//!
//! A client has a lease on all that it watches, which its requests for news renew. News are numbered, and
//! stay until the client says that it has heeded them. A client that was not heard for a lease watches
//! nothing any more; when it is heard again it is told that everything may have changed. Silence while the
//! manager itself did not run does not count.
//!
//! The files that a client has open are kept apart from those that it watches ([`Keepers`]): they outlive its
//! lease.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use braid_layout::{ClientId, FileId, HolderId};
use braid_wire::control::{News, Watch};

use crate::rules::pauses::Pauses;
use crate::tree::keepers::Keepers;

/// Time, in milliseconds, for which a client may use its cache without asking for news.
pub const LEASE_MS: u32 = 3000;
/// Maximum time, in milliseconds, for which news may be unheeded. After that the client's lease is not
/// renewed, so that others need not wait for it longer.
const HEED_MS: u64 = 10_000;
/// Maximum number of files that a client watches: beyond that it is told that everything may have changed,
/// and begins anew.
const WATCHED_MAX: usize = 1 << 18;
/// Approximate maximum number of files that all clients watch together: each may watch an equal part.
const WATCHED_ALL: usize = 1 << 22;
/// Maximum number of clients that watch.
const CLIENTS_MAX: usize = 1 << 12;
/// Maximum number of changes remembered for clients whose reads were under way.
const RECENT_MAX: usize = 1 << 14;

/// All clients that watch.
#[derive(Debug)]
pub struct Watchers {
    pauses: Arc<Pauses>,
    /// Files that clients have open.
    pub keepers: Keepers,
    clients: BTreeMap<ClientId, Watcher>,
    of: BTreeMap<FileId, BTreeSet<ClientId>>,
    /// Open files that are written: for each the holders, with the client of each.
    written: BTreeMap<FileId, BTreeMap<HolderId, ClientId>>,
    /// Number of changes told so far.
    now: u64,
    /// The highest number of any news.
    number: u64,
    /// Changes told after `recent_from`, the oldest first.
    recent: VecDeque<Recent>,
    recent_from: u64,
}

#[derive(Debug, Default)]
struct Watcher {
    until_ms: u64,
    watched: BTreeSet<FileId>,
    /// Changed files that the client was told of and has not heeded, with the number of the news.
    news: BTreeMap<FileId, u64>,
    /// Files that the client is to write out and has not, with the number of the news.
    recalls: BTreeMap<FileId, u64>,
    /// Time since which news were not heeded; `None` if all were.
    slow_since_ms: Option<u64>,
    /// Number of the news that everything may have changed; `None` if that was heeded.
    everything: Option<u64>,
    /// Number of the client's last news.
    number: u64,
    heeded: u64,
    written: u64,
}

/// A change that was told.
#[derive(Debug, Clone, Copy)]
struct Recent {
    at: u64,
    file: FileId,
    /// Client that made the change, and so knows of it.
    by: ClientId,
}

/// News to a client that a request waits for to be heeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    client: ClientId,
    number: u64,
    what: What,
}

/// Event that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// The client has dropped what has changed from its cache.
    Heeded,
    /// The client has written out all that it had buffered of the file.
    Written,
}

impl Watchers {
    /// A table that no client watches yet. `began_ms`: time of a start before which clients did.
    pub fn new(pauses: Arc<Pauses>, began_ms: Option<u64>) -> Watchers {
        let keepers = Keepers::begin(began_ms);
        let (clients, of, written, now, number, recent, recent_from) = Default::default();
        Watchers { pauses, keepers, clients, of, written, now, number, recent, recent_from }
    }

    /// Returns true if no client watches.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Returns true if a client was heard within its lease.
    pub fn is_heard(&mut self, client: ClientId, now_ms: u64) -> bool {
        self.lapse(now_ms);
        self.clients.contains_key(&client)
    }

    /// Takes a client's request for news. Returns false if it cannot watch, as too many do.
    pub fn hear(&mut self, asked: &Watch, now_ms: u64) -> bool {
        self.lapse(now_ms);
        if !self.clients.contains_key(&asked.client) {
            if self.clients.len() >= CLIENTS_MAX {
                return false;
            }
            if self.clients.is_empty() {
                // No change was recorded while no client watched.
                (self.recent_from, self.now) = (self.now + 1, self.now + 1);
                self.recent.clear();
            }
            // Numbers go on from those that the client had from another manager, or before its lease lapsed.
            let number = asked.seen.max(asked.heeded).max(self.number) + 1;
            let everything = Some(number);
            // Requests that wait for earlier news to be heeded wait no more.
            let before = number - 1;
            let watcher =
                Watcher { number, heeded: before, written: before, everything, ..Watcher::default() };
            self.number = number;
            self.clients.insert(asked.client, watcher);
            self.keepers.doubt(asked.client, []);
        }
        let listening_ms = self.pauses.last().ended_ms;
        let Some(watcher) = self.clients.get_mut(&asked.client) else { return false };
        if self.keepers.hear(asked.client, asked.order, now_ms) {
            let was_lost = watcher.everything.is_some();
            let heeded = watcher.heed(asked, now_ms);
            if was_lost && watcher.everything.is_none() {
                self.keepers.settle(asked.client);
            }
            // For the files in the news that it has heeded, the client says now which it has open.
            heeded.into_iter().for_each(|file| self.keepers.close(asked.client, file));
            asked.open.iter().for_each(|&file| self.keepers.open(asked.client, file, now_ms));
            if watcher.everything.is_none() {
                asked.closed.iter().for_each(|&file| self.keepers.close(asked.client, file));
            }
        }
        if !watcher.is_slow(now_ms, listening_ms) {
            watcher.until_ms = now_ms + u64::from(LEASE_MS);
        }
        true
    }

    /// News for a client, if there are any beyond those that it has seen.
    pub fn news(&self, client: ClientId, seen: u64, now_ms: u64) -> Option<News> {
        let watcher = self.clients.get(&client).filter(|watcher| watcher.number > seen)?;
        let has_news =
            watcher.everything.is_some() || !watcher.news.is_empty() || !watcher.recalls.is_empty();
        has_news.then(|| watcher.answer(now_ms, self.pauses.last().ended_ms))
    }

    /// The answer to a client that waited and for which there are no news.
    pub fn no_news(&self, client: ClientId, now_ms: u64) -> News {
        let (changed, recalled) = Default::default();
        let unknown = News { number: 0, lease_ms: 0, everything: true, changed, recalled };
        let listening_ms = self.pauses.last().ended_ms;
        self.clients.get(&client).map_or(unknown, |watcher| watcher.answer(now_ms, listening_ms))
    }

    /// Number of changes told so far: what is read after this call is as new as that.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Lets a client watch a file from now on, which it read after [`Watchers::now`] was `since`.
    pub fn watch(&mut self, client: ClientId, file: FileId, since: u64) {
        if !self.enter(client, file) {
            return;
        }
        let has_changed = since < self.recent_from
            || self
                .recent
                .iter()
                .rev()
                .take_while(|recent| recent.at > since)
                .any(|recent| recent.file == file && recent.by != client);
        if has_changed {
            self.tell_one(client, file);
        }
    }

    /// Enters that a client watches a file. Returns false if it cannot: its lease is over, or it watches too
    /// many.
    fn enter(&mut self, client: ClientId, file: FileId) -> bool {
        let most = WATCHED_MAX.min(WATCHED_ALL / self.clients.len().max(1));
        let Some(watcher) = self.clients.get_mut(&client) else {
            if let Some(heard_ms) = self.keepers.heard_ms(client) {
                // The client will find out that it watches nothing, and may open the file before that.
                self.keepers.open(client, file, heard_ms);
            }
            return false;
        };
        if watcher.watched.len() >= most {
            watcher.number += 1;
            watcher.everything = Some(watcher.number);
            let watched = std::mem::take(&mut watcher.watched);
            watched.iter().for_each(|&file| leave(&mut self.of, file, client));
            self.keepers.doubt(client, watched.into_iter().chain([file]));
            return false;
        }
        watcher.watched.insert(file);
        self.of.entry(file).or_default().insert(client);
        true
    }

    /// Tells the watchers that these files were changed by a client (0: by none). That client knows their
    /// present state and watches them. Those that are gone (true) need not be watched any more. Returns the
    /// news that are to be heeded.
    pub fn tell(&mut self, files: &[(FileId, bool)], by: ClientId) -> Vec<Told> {
        if self.clients.is_empty() || files.is_empty() {
            return Vec::new();
        }
        self.now += 1;
        let mut told = Vec::new();
        for &(file, is_gone) in files {
            self.recent.push_back(Recent { at: self.now, file, by });
            let watchers = self.of.get(&file).into_iter().flatten().copied();
            let others: Vec<ClientId> = watchers.filter(|client| *client != by).collect();
            told.extend(self.told_before(file, by));
            told.extend(others.into_iter().filter_map(|client| self.tell_one(client, file)));
            if !is_gone {
                self.enter(by, file);
            } else if let Some(watcher) = self.clients.get_mut(&by) {
                watcher.watched.remove(&file);
                leave(&mut self.of, file, by);
            }
        }
        while self.recent.len() > RECENT_MAX {
            if let Some(Recent { at, .. }) = self.recent.pop_front() {
                self.recent_from = at;
            }
        }
        told
    }

    /// News of a file, or of everything, that others have not heeded yet: until then they answer from the
    /// state before those news, and so from before any later change.
    fn told_before(&self, file: FileId, by: ClientId) -> Vec<Told> {
        let others = self.clients.iter().filter(|(client, _)| **client != by);
        let told = others.filter_map(|(&client, watcher)| {
            let number = watcher.news.get(&file).copied().max(watcher.everything)?;
            Some(Told { client, number, what: What::Heeded })
        });
        told.collect()
    }

    /// Tells other clients that write a file to write out what they have buffered of it, as a client (0: one
    /// that does not watch) opens it. If its writers are not known, all other clients are told.
    pub fn recall(&mut self, file: FileId, by: ClientId, is_known: bool) -> Vec<Told> {
        let writers = self.written.get(&file).into_iter().flat_map(|of| of.values()).copied();
        let mut others: BTreeSet<ClientId> = writers.filter(|client| *client != by).collect();
        if !is_known {
            others.extend(self.clients.keys().filter(|client| **client != by));
        }
        let recall = |client: ClientId| {
            let watcher = self.clients.get_mut(&client)?;
            watcher.number += 1;
            self.number = self.number.max(watcher.number);
            watcher.recalls.insert(file, watcher.number);
            Some(Told { client, number: watcher.number, what: What::Written })
        };
        others.into_iter().filter_map(recall).collect()
    }

    /// Notes that a client has a file open for writing, as this holder.
    pub fn writes(&mut self, file: FileId, holder: HolderId, client: ClientId) {
        if self.clients.contains_key(&client) {
            self.written.entry(file).or_default().insert(holder, client);
        }
    }

    /// Notes that the holder has closed the file.
    pub fn wrote(&mut self, file: FileId, holder: HolderId) {
        if let Some(holders) = self.written.get_mut(&file) {
            holders.remove(&holder);
            if holders.is_empty() {
                self.written.remove(&file);
            }
        }
    }

    /// Returns true if all of these news were heeded, or are for clients whose leases are over.
    pub fn are_heeded(&mut self, told: &[Told], now_ms: u64) -> bool {
        self.lapse(now_ms);
        let is_done =
            |told: &Told| self.clients.get(&told.client).is_none_or(|watcher| watcher.has_done(told));
        told.iter().all(is_done)
    }

    /// Notes that a file is about to lose its last name, by a client, which says whether it has the file
    /// open. Returns true if any client may have it open: then the file is to be kept.
    pub fn lose_name(&mut self, file: FileId, by: ClientId, is_open: bool, now_ms: u64) -> bool {
        self.lapse(now_ms);
        if is_open && by != ClientId::NONE {
            self.keepers.open(by, file, now_ms);
        }
        let watching = self.of.get(&file).into_iter().flatten().copied();
        let may_have = self.clients.iter().filter(|(_, watcher)| watcher.news.contains_key(&file));
        let others: BTreeSet<ClientId> = watching.chain(may_have.map(|(client, _)| *client)).collect();
        // These clients confirm it, or not, when they heed the news of the change.
        let others = others.into_iter().filter(|client| *client != by);
        others.for_each(|client| self.keepers.open(client, file, now_ms));
        let is_kept = self.keepers.is_open(file);
        if is_kept {
            self.keepers.lost_name(file);
        }
        is_kept
    }

    /// Returns true if a client may have the file open.
    pub fn is_open(&mut self, file: FileId, now_ms: u64) -> bool {
        self.lapse(now_ms);
        self.keepers.is_open(file)
    }

    /// The files of `of`, or of all, that have no name and that no client has open. Each is returned once.
    pub fn free(&mut self, of: Option<&[FileId]>, now_ms: u64) -> Vec<FileId> {
        self.lapse(now_ms);
        self.keepers.free(of)
    }

    fn tell_one(&mut self, client: ClientId, file: FileId) -> Option<Told> {
        let watcher = self.clients.get_mut(&client)?;
        watcher.number += 1;
        self.number = self.number.max(watcher.number);
        watcher.news.insert(file, watcher.number);
        watcher.watched.remove(&file);
        leave(&mut self.of, file, client);
        Some(Told { client, number: watcher.number, what: What::Heeded })
    }

    /// Forgets clients whose leases are over. No lease ends while the manager does not listen.
    fn lapse(&mut self, now_ms: u64) {
        let listening_ms = self.pauses.last().ended_ms;
        self.keepers.lapse(now_ms, listening_ms);
        let until_ms = |watcher: &Watcher| watcher.until_ms.max(listening_ms + u64::from(LEASE_MS));
        let over = self.clients.iter().filter(|(_, watcher)| until_ms(watcher) < now_ms);
        let over: Vec<ClientId> = over.map(|(client, _)| *client).collect();
        for client in over {
            let Some(Watcher { watched, news, .. }) = self.clients.remove(&client) else { continue };
            watched.iter().for_each(|&file| leave(&mut self.of, file, client));
            self.keepers.doubt(client, watched.into_iter().chain(news.into_keys()));
            self.written.values_mut().for_each(|holders| holders.retain(|_, of| *of != client));
            self.written.retain(|_, holders| !holders.is_empty());
        }
    }
}

impl Watcher {
    fn has_done(&self, told: &Told) -> bool {
        match told.what {
            What::Heeded => self.heeded >= told.number,
            What::Written => self.written >= told.number,
        }
    }

    /// Takes a client's word on the news that it has heeded. Returns the files of those news.
    fn heed(&mut self, asked: &Watch, now_ms: u64) -> Vec<FileId> {
        let &Watch { heeded, written, .. } = asked;
        let mut files = Vec::new();
        // A higher number is from a manager before a restart.
        if heeded <= self.number && heeded > self.heeded {
            self.heeded = heeded;
            files.extend(self.news.iter().filter(|(_, number)| **number <= heeded).map(|(file, _)| *file));
            self.news.retain(|_, number| *number > heeded);
            self.everything = self.everything.filter(|number| *number > heeded);
            self.slow_since_ms = None;
        }
        if written <= self.number && written > self.written {
            self.written = written;
            self.recalls.retain(|_, number| *number > written);
            self.slow_since_ms = None;
        }
        let waits = self.everything.is_some() || !self.news.is_empty() || !self.recalls.is_empty();
        self.slow_since_ms = if waits { self.slow_since_ms.or(Some(now_ms)) } else { None };
        files
    }

    fn is_slow(&self, now_ms: u64, listening_ms: u64) -> bool {
        self.slow_since_ms.is_some_and(|since| now_ms.saturating_sub(since.max(listening_ms)) > HEED_MS)
    }

    fn answer(&self, now_ms: u64, listening_ms: u64) -> News {
        News {
            number: self.number,
            lease_ms: if self.is_slow(now_ms, listening_ms) { 0 } else { LEASE_MS },
            everything: self.everything.is_some(),
            changed: self.news.keys().copied().collect(),
            recalled: self.recalls.keys().copied().collect(),
        }
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
mod tests;
