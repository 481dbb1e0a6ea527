//! Who keeps what it was told, and is to be told of changes. In memory only, and pure: time is handed in.
//!
//! A client has a lease on all that it watches, which its requests for news renew. News are numbered, and
//! stay until the client says that it has heeded them. A client that was not heard for a lease watches
//! nothing any more; when it is heard again it is told that everything may have changed.
//!
//! A file that loses its last name while a client has it open is kept until that client has closed it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_layout::FileId;
use braid_wire::control::{News, Watch};

/// How long a client may keep what it was told without asking for news.
pub const LEASE_MS: u32 = 3000;
/// How long news may be unheeded: then the client's lease is not renewed, and so others wait no longer.
const HEED_MS: u64 = 10_000;
/// Most numbers that a client watches: beyond that it is told of everything, and begins anew.
const WATCHED_MAX: usize = 1 << 18;
/// About the most that all clients watch: each may watch its part of it.
const WATCHED_ALL: usize = 1 << 22;
/// Most clients that watch.
const CLIENTS_MAX: usize = 1 << 12;
/// Changes remembered for those who were just reading.
const RECENT_MAX: usize = 1 << 14;

/// All clients that watch.
#[derive(Debug, Default)]
pub struct Watchers {
    clients: BTreeMap<u64, Watcher>,
    of: BTreeMap<FileId, BTreeSet<u64>>,
    /// Open files that live without a name, by those who have them open.
    kept: BTreeMap<FileId, BTreeSet<u64>>,
    /// Files that have lost their names and may have been open then, to be looked at.
    nameless: BTreeSet<FileId>,
    /// Open files that are written, by holder: whose it is.
    written: BTreeMap<FileId, BTreeMap<u64, u64>>,
    /// Changes told so far.
    now: u64,
    /// The highest number of any news.
    number: u64,
    /// When a number was told last, of the changes after `recent_from`.
    recent: VecDeque<Recent>,
    recent_from: u64,
}

#[derive(Debug, Default)]
struct Watcher {
    until_ms: u64,
    watched: BTreeSet<FileId>,
    /// What it was told and has not heeded, by the number of the news.
    news: BTreeMap<FileId, u64>,
    /// The same of what it is to write out.
    recalls: BTreeMap<FileId, u64>,
    /// Since when news were not heeded.
    slow_since_ms: Option<u64>,
    /// The number of the news that everything may have changed.
    everything: Option<u64>,
    /// The number of the last news.
    number: u64,
    heeded: u64,
    written: u64,
}

/// A change that was told.
#[derive(Debug, Clone, Copy)]
struct Recent {
    at: u64,
    file: FileId,
    /// Who made it, and so knows of it.
    by: u64,
}

/// News that somebody waits for to be heeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    client: u64,
    number: u64,
    what: What,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// That the client answers nothing any more from what has changed.
    Heeded,
    /// That it has written out what it had.
    Written,
}

impl Watchers {
    /// Whether nobody watches.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Whether a client was heard within its lease.
    pub fn is_heard(&mut self, client: u64, now_ms: u64) -> bool {
        self.lapse(now_ms);
        self.clients.contains_key(&client)
    }

    /// A client asks for news. False if it cannot watch: too many do.
    pub fn hear(&mut self, asked: &Watch, now_ms: u64) -> bool {
        self.lapse(now_ms);
        if !self.clients.contains_key(&asked.client) {
            if self.clients.len() >= CLIENTS_MAX {
                return false;
            }
            if self.clients.is_empty() {
                // Nothing was recorded while nobody watched.
                (self.recent_from, self.now) = (self.now + 1, self.now + 1);
                self.recent.clear();
            }
            // Numbers go on from those that it had from another manager, or before it lapsed.
            let number = asked.seen.max(asked.heeded).max(self.number) + 1;
            let everything = Some(number);
            // Whoever waits for earlier news to be heeded waits no more.
            let before = number - 1;
            let watcher =
                Watcher { number, heeded: before, written: before, everything, ..Watcher::default() };
            self.number = number;
            self.clients.insert(asked.client, watcher);
        }
        let Some(watcher) = self.clients.get_mut(&asked.client) else { return false };
        watcher.heed(asked, now_ms);
        if !watcher.is_slow(now_ms) {
            watcher.until_ms = now_ms + u64::from(LEASE_MS);
        }
        for &file in &asked.open {
            self.kept.entry(file).or_default().insert(asked.client);
        }
        asked.closed.iter().for_each(|&file| self.let_go(file, asked.client));
        true
    }

    /// News for a client, if there are any beyond those that it has seen.
    pub fn news(&self, client: u64, seen: u64, now_ms: u64) -> Option<News> {
        let watcher = self.clients.get(&client).filter(|watcher| watcher.number > seen)?;
        let has_news =
            watcher.everything.is_some() || !watcher.news.is_empty() || !watcher.recalls.is_empty();
        has_news.then(|| watcher.answer(now_ms))
    }

    /// The answer to a client that waited in vain.
    pub fn no_news(&self, client: u64, now_ms: u64) -> News {
        let (changed, recalled) = Default::default();
        let unknown = News { number: 0, lease_ms: 0, everything: true, changed, recalled };
        self.clients.get(&client).map_or(unknown, |watcher| watcher.answer(now_ms))
    }

    /// How many changes were told: what is read after this is as new as that.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// A client watches this from now on, as it read it after [`Watchers::now`] was `since`.
    pub fn watch(&mut self, client: u64, file: FileId, since: u64) {
        let most = WATCHED_MAX.min(WATCHED_ALL / self.clients.len().max(1));
        let Some(watcher) = self.clients.get_mut(&client) else { return };
        if watcher.watched.len() >= most {
            watcher.number += 1;
            watcher.everything = Some(watcher.number);
            for file in std::mem::take(&mut watcher.watched) {
                leave(&mut self.of, file, client);
            }
            return;
        }
        watcher.watched.insert(file);
        self.of.entry(file).or_default().insert(client);
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

    /// These have changed, by a client (0: none), or are gone (true), so that nobody need watch them any
    /// more. Gives the news that are to be heeded.
    pub fn tell(&mut self, files: &[(FileId, bool)], by: u64) -> Vec<Told> {
        if self.clients.is_empty() || files.is_empty() {
            return Vec::new();
        }
        self.now += 1;
        let mut told = Vec::new();
        for &(file, is_gone) in files {
            self.recent.push_back(Recent { at: self.now, file, by });
            let watchers = self.of.get(&file).into_iter().flatten().copied();
            let others: Vec<u64> = watchers.filter(|client| *client != by).collect();
            told.extend(others.into_iter().filter_map(|client| self.tell_one(client, file)));
            if let Some(watcher) = self.clients.get_mut(&by).filter(|_| is_gone) {
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

    /// A file is opened, by a client (0: one that does not watch): others who write it write out what they
    /// have.
    pub fn recall(&mut self, file: FileId, by: u64) -> Vec<Told> {
        let writers = self.written.get(&file).into_iter().flat_map(|of| of.values()).copied();
        let others: BTreeSet<u64> = writers.filter(|client| *client != by).collect();
        let recall = |client: u64| {
            let watcher = self.clients.get_mut(&client)?;
            watcher.number += 1;
            self.number = self.number.max(watcher.number);
            watcher.recalls.insert(file, watcher.number);
            Some(Told { client, number: watcher.number, what: What::Written })
        };
        others.into_iter().filter_map(recall).collect()
    }

    /// A client has a file open for writing, as this holder.
    pub fn writes(&mut self, file: FileId, holder: u64, client: u64) {
        if self.clients.contains_key(&client) {
            self.written.entry(file).or_default().insert(holder, client);
        }
    }

    /// The holder has closed it.
    pub fn wrote(&mut self, file: FileId, holder: u64) {
        if let Some(holders) = self.written.get_mut(&file) {
            holders.remove(&holder);
            if holders.is_empty() {
                self.written.remove(&file);
            }
        }
    }

    /// Whether all of these news were heeded, or are for clients whose leases are over.
    pub fn are_heeded(&mut self, told: &[Told], now_ms: u64) -> bool {
        self.lapse(now_ms);
        let is_done =
            |told: &Told| self.clients.get(&told.client).is_none_or(|watcher| watcher.has_done(told));
        told.iter().all(is_done)
    }

    /// A client has this open, which lost its last name.
    pub fn keep(&mut self, file: FileId, client: u64) {
        if self.clients.contains_key(&client) {
            self.kept.entry(file).or_default().insert(client);
        }
    }

    /// Whether somebody has it open.
    pub fn is_kept(&mut self, file: FileId, now_ms: u64) -> bool {
        self.lapse(now_ms);
        self.kept.contains_key(&file)
    }

    /// A file has lost its name, or was found without one, and is kept.
    pub fn lost_name(&mut self, file: FileId) {
        self.nameless.insert(file);
    }

    /// Files without names that nobody has open any more. They are not given again.
    pub fn let_go_of(&mut self, now_ms: u64) -> Vec<FileId> {
        self.lapse(now_ms);
        let nameless = std::mem::take(&mut self.nameless);
        let (kept, free): (BTreeSet<_>, BTreeSet<_>) =
            nameless.into_iter().partition(|file| self.kept.contains_key(file));
        self.nameless = kept;
        free.into_iter().collect()
    }

    /// Whether anybody but this client watches it.
    pub fn others_watch(&self, file: FileId, but: u64) -> bool {
        self.of.get(&file).is_some_and(|clients| clients.iter().any(|client| *client != but))
    }

    fn tell_one(&mut self, client: u64, file: FileId) -> Option<Told> {
        let watcher = self.clients.get_mut(&client)?;
        watcher.number += 1;
        self.number = self.number.max(watcher.number);
        watcher.news.insert(file, watcher.number);
        watcher.watched.remove(&file);
        leave(&mut self.of, file, client);
        Some(Told { client, number: watcher.number, what: What::Heeded })
    }

    fn let_go(&mut self, file: FileId, client: u64) {
        if let Some(clients) = self.kept.get_mut(&file) {
            clients.remove(&client);
            if clients.is_empty() {
                self.kept.remove(&file);
            }
        }
    }

    /// Forgets clients whose leases are over.
    fn lapse(&mut self, now_ms: u64) {
        let over = self.clients.iter().filter(|(_, watcher)| watcher.until_ms < now_ms);
        let over: Vec<u64> = over.map(|(client, _)| *client).collect();
        for client in over {
            let watched = self.clients.remove(&client).map(|watcher| watcher.watched).unwrap_or_default();
            watched.into_iter().for_each(|file| leave(&mut self.of, file, client));
            self.kept.values_mut().for_each(|clients| clients.retain(|of| *of != client));
            self.kept.retain(|_, clients| !clients.is_empty());
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

    /// The client says how far it is.
    fn heed(&mut self, asked: &Watch, now_ms: u64) {
        let &Watch { heeded, written, .. } = asked;
        // A higher number is of a manager before a restart.
        if heeded <= self.number && heeded > self.heeded {
            self.heeded = heeded;
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
    }

    fn is_slow(&self, now_ms: u64) -> bool {
        self.slow_since_ms.is_some_and(|since| now_ms.saturating_sub(since) > HEED_MS)
    }

    fn answer(&self, now_ms: u64) -> News {
        News {
            number: self.number,
            lease_ms: if self.is_slow(now_ms) { 0 } else { LEASE_MS },
            everything: self.everything.is_some(),
            changed: self.news.keys().copied().collect(),
            recalled: self.recalls.keys().copied().collect(),
        }
    }
}

fn leave(of: &mut BTreeMap<FileId, BTreeSet<u64>>, file: FileId, client: u64) {
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

    fn asked(client: u64, heeded: u64) -> Watch {
        Watch { client, seen: 0, heeded, written: heeded, open: Vec::new(), closed: Vec::new(), wait_ms: 0 }
    }

    /// Two clients that have heeded their first news.
    fn two() -> Watchers {
        let mut watchers = Watchers::default();
        for client in [1, 2] {
            assert!(watchers.hear(&asked(client, 0), 0));
            let news = watchers.news(client, 0, 0).expect("everything is news to it");
            assert!(news.everything);
            assert!(watchers.hear(&asked(client, news.number), 0));
            assert_eq!(watchers.news(client, 0, 0), None);
        }
        watchers
    }

    #[test]
    fn a_change_is_heeded_by_all_others_who_watch() {
        let mut watchers = two();
        let since = watchers.now();
        [1, 2].iter().for_each(|&client| watchers.watch(client, FileId(5), since));
        let told = watchers.tell(&[(FileId(5), false), (FileId(6), false)], 1);
        assert_eq!(told.len(), 1, "its own changes are no news to a client");
        assert!(!watchers.are_heeded(&told, 10));
        let news = watchers.news(2, 0, 0).expect("it was told");
        assert_eq!((news.everything, news.changed.as_slice()), (false, &[FileId(5)][..]));
        watchers.hear(&asked(2, news.number - 1), 10);
        assert!(!watchers.are_heeded(&told, 10), "it asks again, and has not heeded them");
        watchers.hear(&asked(2, news.number), 10);
        assert!(watchers.are_heeded(&told, 10) && watchers.news(2, 0, 0).is_none());
        assert_eq!(watchers.tell(&[(FileId(5), false)], 1), [], "it watches it no more until it looks again");
        assert_eq!(watchers.tell(&[(FileId(5), false)], 2).len(), 1, "the other one does");
    }

    #[test]
    fn a_change_between_the_look_and_the_watch_is_told() {
        let mut watchers = two();
        let since = watchers.now();
        watchers.tell(&[(FileId(5), false)], 2);
        watchers.watch(1, FileId(5), since);
        assert_eq!(watchers.news(1, 0, 0).expect("told").changed, [FileId(5)]);
        let since = watchers.now();
        watchers.watch(2, FileId(5), since);
        assert_eq!(watchers.news(2, 0, 0), None, "what it read is newer");
        watchers.tell(&[(FileId(6), false)], 1);
        watchers.watch(1, FileId(6), since);
        assert!(watchers.news(1, 0, 0).expect("told before").changed == [FileId(5)], "it made it itself");
    }

    #[test]
    fn each_of_many_clients_watches_its_part_and_then_begins_anew() {
        let mut watchers = two();
        (3..=CLIENTS_MAX as u64).for_each(|client| assert!(watchers.hear(&asked(client, 0), 0)));
        let (since, part) = (watchers.now(), (WATCHED_ALL / CLIENTS_MAX) as u64);
        (0..part).for_each(|file| watchers.watch(1, FileId(file), since));
        assert_eq!((watchers.of.len() as u64, watchers.news(1, 0, 0)), (part, None));
        watchers.watch(1, FileId(part), since);
        assert!(watchers.of.is_empty() && watchers.news(1, 0, 0).expect("news").everything);
    }

    #[test]
    fn what_is_gone_is_watched_by_nobody() {
        let mut watchers = two();
        let since = watchers.now();
        [1, 2].iter().for_each(|&client| watchers.watch(client, FileId(5), since));
        assert_eq!(watchers.tell(&[(FileId(5), true)], 1).len(), 1);
        assert!(
            watchers.of.is_empty() && watchers.clients.values().all(|watcher| watcher.watched.is_empty())
        );
    }

    #[test]
    fn who_is_not_heard_is_not_waited_for_and_begins_anew() {
        let mut watchers = two();
        let since = watchers.now();
        watchers.watch(2, FileId(5), since);
        watchers.keep(FileId(9), 2);
        watchers.writes(FileId(7), 70, 2);
        let told = watchers.tell(&[(FileId(5), false)], 1);
        let later = u64::from(LEASE_MS) + 1;
        assert!(watchers.is_kept(FileId(9), later - 1) && !watchers.are_heeded(&told, later - 1));
        assert!(watchers.are_heeded(&told, later));
        assert!(!watchers.is_kept(FileId(9), later));
        assert_eq!(watchers.recall(FileId(7), 1), []);
        assert!(watchers.hear(&asked(2, 1), later));
        assert!(watchers.news(2, 0, 0).expect("news").everything);
    }

    #[test]
    fn who_heeds_nothing_loses_its_lease() {
        let mut watchers = two();
        let since = watchers.now();
        watchers.watch(2, FileId(5), since);
        let told = watchers.tell(&[(FileId(5), false)], 1);
        let mut now_ms = 0;
        while !watchers.are_heeded(&told, now_ms) {
            now_ms += 1000;
            watchers.hear(&asked(2, 1), now_ms);
            assert!(now_ms < 60_000, "it asks, and heeds nothing");
        }
        assert!(now_ms > HEED_MS);
    }

    #[test]
    fn who_writes_hears_that_others_open_it() {
        let mut watchers = two();
        watchers.writes(FileId(7), 70, 1);
        assert_eq!(watchers.recall(FileId(7), 1), [], "its own opens are no news");
        let told = watchers.recall(FileId(7), 0);
        assert_eq!(told.len(), 1);
        assert_eq!(watchers.news(1, 0, 0).expect("told").recalled, [FileId(7)]);
        let number = watchers.news(1, 0, 0).expect("told").number;
        watchers.hear(&asked(1, number), 0);
        assert_eq!(watchers.recall(FileId(7), 2).len(), 1, "as long as it writes");
        watchers.wrote(FileId(7), 70);
        assert_eq!(watchers.recall(FileId(7), 2), []);
    }

    #[test]
    fn a_kept_file_is_let_go_when_the_last_has_closed_it() {
        let mut watchers = two();
        watchers.keep(FileId(9), 1);
        watchers.hear(&Watch { open: vec![FileId(9)], ..asked(2, 1) }, 0);
        watchers.hear(&Watch { closed: vec![FileId(9)], ..asked(1, 1) }, 0);
        assert!(watchers.is_kept(FileId(9), 0));
        watchers.hear(&Watch { closed: vec![FileId(9)], ..asked(2, 1) }, 0);
        assert!(!watchers.is_kept(FileId(9), 0));
    }
}
