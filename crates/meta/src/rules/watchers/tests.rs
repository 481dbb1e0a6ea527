use std::sync::atomic::{AtomicU64, Ordering};

use braid_layout::ClientId;

use super::*;

fn asked(client: ClientId, heeded: u64) -> Watch {
    static ORDER: AtomicU64 = AtomicU64::new(1);
    let order = ORDER.fetch_add(1, Ordering::Relaxed);
    let (open, closed) = Default::default();
    Watch { client, order, seen: 0, heeded, written: heeded, open, closed, wait_ms: 0 }
}

/// A table that no client watches, of a manager that was never paused.
fn none() -> Watchers {
    Watchers::new(Arc::new(Pauses::new(1000, 0)), None)
}

/// Two clients that have heeded their first news.
fn two() -> Watchers {
    let mut watchers = none();
    for client in [ClientId(1), ClientId(2)] {
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
    [ClientId(1), ClientId(2)].iter().for_each(|&client| watchers.watch(client, FileId(5), since));
    let told = watchers.tell(&[(FileId(5), false), (FileId(6), false)], ClientId(1));
    assert_eq!(told.len(), 1, "its own changes are no news to a client");
    assert!(!watchers.are_heeded(&told, 10));
    let news = watchers.news(ClientId(2), 0, 0).expect("it was told");
    assert_eq!((news.everything, news.changed.as_slice()), (false, &[FileId(5)][..]));
    let again = watchers.tell(&[(FileId(5), false)], ClientId(1));
    assert!(again == told, "it was told, and answers from what is older until it has heeded that");
    watchers.hear(&asked(ClientId(2), news.number - 1), 10);
    assert!(!watchers.are_heeded(&told, 10), "it asks again, and has not heeded them");
    watchers.hear(&asked(ClientId(2), news.number), 10);
    assert!(watchers.are_heeded(&told, 10) && watchers.news(ClientId(2), 0, 0).is_none());
    assert_eq!(
        watchers.tell(&[(FileId(5), false)], ClientId(1)),
        [],
        "it watches it no more until it looks again"
    );
    assert_eq!(watchers.tell(&[(FileId(5), false)], ClientId(2)).len(), 1, "the other one does");
}

#[test]
fn a_change_between_the_look_and_the_watch_is_told() {
    let mut watchers = two();
    let since = watchers.now();
    watchers.tell(&[(FileId(5), false)], ClientId(2));
    watchers.watch(ClientId(1), FileId(5), since);
    assert_eq!(watchers.news(ClientId(1), 0, 0).expect("told").changed, [FileId(5)]);
    let since = watchers.now();
    watchers.watch(ClientId(2), FileId(5), since);
    assert_eq!(watchers.news(ClientId(2), 0, 0), None, "what it read is newer");
    watchers.tell(&[(FileId(6), false)], ClientId(1));
    watchers.watch(ClientId(1), FileId(6), since);
    assert!(
        watchers.news(ClientId(1), 0, 0).expect("told before").changed == [FileId(5)],
        "it made it itself"
    );
}

#[test]
fn what_is_gone_is_watched_by_nobody() {
    let mut watchers = two();
    let since = watchers.now();
    [ClientId(1), ClientId(2)].iter().for_each(|&client| watchers.watch(client, FileId(5), since));
    assert_eq!(watchers.tell(&[(FileId(5), true)], ClientId(1)).len(), 1);
    assert!(watchers.of.is_empty() && watchers.clients.values().all(|watcher| watcher.watched.is_empty()));
}

#[test]
fn who_is_not_heard_is_not_waited_for_and_begins_anew() {
    let mut watchers = two();
    let since = watchers.now();
    watchers.watch(ClientId(2), FileId(5), since);
    watchers.writes(FileId(7), HolderId(70), ClientId(2));
    let told = watchers.tell(&[(FileId(5), false)], ClientId(1));
    let later = u64::from(LEASE_MS) + 1;
    assert!(!watchers.are_heeded(&told, later - 1));
    assert!(watchers.are_heeded(&told, later));
    assert_eq!(watchers.recall(FileId(7), ClientId(1), true), []);
    assert!(watchers.hear(&asked(ClientId(2), 1), later));
    assert!(watchers.news(ClientId(2), 0, 0).expect("news").everything);
}

#[test]
fn who_heeds_nothing_loses_its_lease() {
    let mut watchers = two();
    let since = watchers.now();
    watchers.watch(ClientId(2), FileId(5), since);
    let told = watchers.tell(&[(FileId(5), false)], ClientId(1));
    let mut now_ms = 0;
    while !watchers.are_heeded(&told, now_ms) {
        now_ms += 1000;
        watchers.hear(&asked(ClientId(2), 1), now_ms);
        assert!(now_ms < 60_000, "it asks, and heeds nothing");
    }
    assert!(now_ms > HEED_MS);
}

#[test]
fn who_writes_hears_that_others_open_it() {
    let mut watchers = two();
    watchers.writes(FileId(7), HolderId(70), ClientId(1));
    assert_eq!(watchers.recall(FileId(7), ClientId(1), true), [], "its own opens are no news");
    assert_eq!(
        watchers.recall(FileId(8), ClientId(2), false).len(),
        1,
        "while nobody knows who writes, all do"
    );
    let number = watchers.news(ClientId(1), 0, 0).expect("told").number;
    watchers.hear(&asked(ClientId(1), number), 0);
    let told = watchers.recall(FileId(7), ClientId::NONE, true);
    assert_eq!(told.len(), 1);
    assert_eq!(watchers.news(ClientId(1), 0, 0).expect("told").recalled, [FileId(7)]);
    let number = watchers.news(ClientId(1), 0, 0).expect("told").number;
    watchers.hear(&asked(ClientId(1), number), 0);
    assert_eq!(watchers.recall(FileId(7), ClientId(2), true).len(), 1, "as long as it writes");
    watchers.wrote(FileId(7), HolderId(70));
    assert_eq!(watchers.recall(FileId(7), ClientId(2), true), []);
}

/// Client 1 removes the file's last name.
fn remove(watchers: &mut Watchers, file: FileId, now_ms: u64) -> (bool, u64) {
    let is_kept = watchers.lose_name(file, ClientId(1), false, now_ms);
    watchers.tell(&[(file, false)], ClientId(1));
    (is_kept, watchers.news(ClientId(2), 0, now_ms).map_or(0, |news| news.number))
}

#[test]
fn a_file_that_was_watched_is_kept_for_those_who_have_it_open() {
    for is_open in [false, true] {
        let mut watchers = two();
        let since = watchers.now();
        watchers.watch(ClientId(2), FileId(5), since);
        let (is_kept, number) = remove(&mut watchers, FileId(5), 0);
        assert!(is_kept && watchers.free(None, 0).is_empty(), "it has not said yet whether it is open");
        let open = if is_open { vec![FileId(5)] } else { Vec::new() };
        watchers.hear(&Watch { open, ..asked(ClientId(2), number) }, 0);
        assert_eq!(watchers.is_open(FileId(5), 0), is_open);
        watchers.hear(&Watch { closed: vec![FileId(5)], ..asked(ClientId(2), number) }, 0);
        assert_eq!(watchers.free(None, 0), [FileId(5)]);
    }
    assert!(!remove(&mut two(), FileId(5), 0).0, "nobody knew of it");
}

#[test]
fn a_file_that_has_changed_before_is_kept_when_it_is_removed() {
    let mut watchers = two();
    let since = watchers.now();
    watchers.watch(ClientId(2), FileId(5), since);
    watchers.tell(&[(FileId(5), false)], ClientId(1));
    let number = watchers.news(ClientId(2), 0, 0).expect("told").number;
    assert!(watchers.lose_name(FileId(5), ClientId(1), false, 0), "it has not heeded them");
    watchers.hear(&Watch { open: vec![FileId(5)], ..asked(ClientId(2), number) }, 0);
    assert!(watchers.is_open(FileId(5), 0), "it said so when it heeded the change");
}

#[test]
fn who_was_away_for_longer_than_its_lease_has_open_what_it_had() {
    let mut watchers = two();
    let since = watchers.now();
    watchers.watch(ClientId(2), FileId(5), since);
    watchers.watch(ClientId(2), FileId(6), since);
    let later = u64::from(LEASE_MS) + 1;
    watchers.hear(&asked(ClientId(1), 1), later - 1);
    assert!(remove(&mut watchers, FileId(5), later).0 && remove(&mut watchers, FileId(6), later).0);
    // The client's word from before it knows that it was away does not count.
    watchers.hear(&Watch { closed: vec![FileId(5)], ..asked(ClientId(2), 1) }, later);
    assert!(watchers.is_open(FileId(5), later));
    let number = watchers.news(ClientId(2), 0, later).expect("everything").number;
    watchers.hear(&Watch { open: vec![FileId(5)], ..asked(ClientId(2), number) }, later);
    assert_eq!((watchers.free(None, later), watchers.is_open(FileId(5), later)), (vec![FileId(6)], true));
}

#[test]
fn a_pause_of_the_manager_is_nobodys_silence() {
    let pauses = Arc::new(Pauses::new(1000, 0));
    let mut watchers = Watchers::new(Arc::clone(&pauses), None);
    assert!(watchers.hear(&asked(ClientId(2), 0), 0));
    let number = watchers.news(ClientId(2), 0, 0).expect("everything").number;
    assert!(watchers.hear(&asked(ClientId(2), number), 0));
    pauses.listen(10_000);
    assert!(watchers.is_heard(ClientId(2), 10_000), "it may have spoken all the time");
    let lease_ms = u64::from(LEASE_MS);
    assert!(
        watchers.is_heard(ClientId(2), 10_000 + lease_ms)
            && !watchers.is_heard(ClientId(2), 10_001 + lease_ms)
    );
}

#[test]
fn who_changes_something_watches_it() {
    let mut watchers = two();
    watchers.tell(&[(FileId(5), false)], ClientId(1));
    assert_eq!(watchers.tell(&[(FileId(5), false)], ClientId(2)).len(), 1, "it knew how it was");
}

#[test]
fn each_of_many_clients_watches_its_part_and_then_begins_anew() {
    let mut watchers = two();
    (3..=CLIENTS_MAX as u64).map(ClientId).for_each(|client| assert!(watchers.hear(&asked(client, 0), 0)));
    let since = watchers.now();
    let part = (WATCHED_ALL / CLIENTS_MAX) as u64;
    (0..part).for_each(|file| watchers.watch(ClientId(1), FileId(file), since));
    assert_eq!((watchers.of.len() as u64, watchers.news(ClientId(1), 0, 0)), (part, None));
    watchers.watch(ClientId(1), FileId(part), since);
    let news = watchers.news(ClientId(1), 0, 0).expect("news");
    assert!(watchers.of.is_empty() && news.everything);
    // Until the client has heeded that news it answers from its cache, and its files are not watched.
    let waits_for_it = |told: Vec<Told>| told.iter().any(|told| told.client == ClientId(1));
    assert!(waits_for_it(watchers.tell(&[(FileId(0), false)], ClientId(2))));
    watchers.hear(&asked(ClientId(1), news.number), 0);
    assert!(!waits_for_it(watchers.tell(&[(FileId(0), false)], ClientId(2))));
}
