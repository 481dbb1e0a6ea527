//! Advisory locks, in memory only, and pure.
//!
//! A lock session belongs to a client. Its locks bind others while the client is heard. A client that is not
//! heard keeps its locks until another wants one of them: then the whole session is over, and its client is
//! told so when it claims them (as Linux's NFS server does with clients that are away).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_layout::{ClientId, FileId, LockSession, Ranges, Span};
use braid_wire::control::{HeldLock, Lock, LockHow, LockKind};

/// Maximum number of locks of all clients.
const LOCKS_MAX: usize = 1 << 18;
/// Maximum number of locks of one session, so that no client takes them all.
const LOCKS_EACH: usize = LOCKS_MAX / 8;
/// Maximum number of sessions that are remembered as over; the latest are.
const BROKEN_MAX: usize = 1 << 16;
/// Maximum number of files of a session for which the last request's number is kept separately.
const ORDERS_MAX: usize = 1 << 12;

#[derive(Debug, Default)]
pub struct Locks {
    files: BTreeMap<FileId, BTreeMap<Owner, Holder>>,
    sessions: BTreeMap<LockSession, Session>,
    /// Sessions that are over, as they have lost their locks to others, or held none and were not heard.
    broken: BTreeSet<LockSession>,
    /// The sessions of `broken` in the order in which they ended.
    broken_since: VecDeque<LockSession>,
    /// Sessions from before this manager's start that have not yet said that they have claimed all, with
    /// their clients.
    before: BTreeMap<LockSession, ClientId>,
    /// Clients that have lost locks without a fence, each with the files on which it may still write under
    /// them; `None`: on any. They did not claim all in time, or have begun another session.
    late: BTreeMap<ClientId, Option<BTreeSet<FileId>>>,
    /// Clients that were silent after an earlier start, and have not been told so: a session of theirs that
    /// is not known may be one that has lost its locks.
    untold: BTreeSet<ClientId>,
    count: usize,
}

/// The number of the session that stands for a client which did not claim its locks in time. It is in the
/// state, so that other starts know of it. Clients draw the numbers of their sessions at random.
pub fn silence(client: ClientId) -> LockSession {
    LockSession(!client.0)
}

/// A session, and the owner of locks within it: one of the client's programs.
type Owner = (LockSession, u64);

#[derive(Debug, Default)]
struct Holder {
    pid: u32,
    ranges: Ranges<LockKind>,
}

#[derive(Debug)]
struct Session {
    client: ClientId,
    /// Number of the last request, by file.
    orders: BTreeMap<FileId, u64>,
    /// Number of the last request for all files that are not in `orders`.
    floor: u64,
    /// Number of locks that the session holds.
    locks: usize,
}

/// Outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockOutcome {
    /// The request was carried out.
    Granted,
    /// A client that is heard has a lock in the way.
    Held(HeldLock),
    /// A session that is not heard has a lock in the way, and is over. When that is stored its locks are to
    /// be dropped ([`Locks::drop_session`]), and the request is to be repeated.
    Broke(LockSession),
    /// The session of the request is over. Its locks are still in the way of others: they are to be dropped
    /// ([`Locks::drop_session`]) when that is stored.
    Lost,
    /// A later request of the session for this file came first.
    Overtaken,
    /// There are too many locks, of the session or of all clients.
    Full,
}

impl Locks {
    /// Takes over the sessions that the state knows, with their clients: they may claim their locks.
    pub fn begin(&mut self, sessions: impl IntoIterator<Item = (LockSession, ClientId)>) {
        self.before = sessions.into_iter().collect();
        let silent = self.before.iter().filter(|(session, client)| **session == silence(**client));
        self.untold = silent.map(|(_, client)| *client).collect();
    }

    /// Ends a session that begins, and returns true, if its client was silent after an earlier start and was
    /// not told so: it may take the session for one whose locks it still holds.
    pub fn tell_silent(&mut self, session: LockSession, client: ClientId) -> bool {
        let is_untold = !self.before.contains_key(&session) && self.untold.remove(&client);
        if is_untold {
            self.end(session);
        }
        is_untold
    }

    /// Returns true if sessions from before the start may still claim.
    pub fn has_before(&self) -> bool {
        !self.before.is_empty()
    }

    /// Returns true if a session is from before the start and was not heard of since: it may hold locks, or
    /// none.
    pub fn may_claim(&self, session: LockSession) -> bool {
        self.before.contains_key(&session) && !self.sessions.contains_key(&session)
    }

    /// Sessions from before the start that have not said since that they have claimed all.
    pub fn unheard(&self) -> Vec<LockSession> {
        self.before.keys().copied().collect()
    }

    /// Clients of the unheard sessions, but for those that have begun another since and had no unknown locks
    /// at the start.
    pub fn unheard_clients(&self) -> BTreeSet<ClientId> {
        let begun = self.sessions.iter().filter(|(session, _)| !self.before.contains_key(session));
        let back: BTreeSet<ClientId> = begun.map(|(_, session)| session.client).collect();
        let unheard = self.before.iter();
        let is_late =
            |session: LockSession, client: ClientId| session == silence(client) || !back.contains(&client);
        unheard.filter(|(session, client)| is_late(**session, **client)).map(|(_, client)| *client).collect()
    }

    /// Refuses the claims of the unheard sessions from now on. When that is stored they are to be dropped
    /// ([`Locks::end_of_claims`]).
    pub fn refuse_claims(&mut self) {
        self.unheard().into_iter().for_each(|session| self.end(session));
    }

    /// Ends the time for claims, after [`Locks::refuse_claims`]. A session that has claimed only some of its
    /// locks loses those too, as a session has all of its locks or none.
    pub fn end_of_claims(&mut self) {
        self.late.extend(self.unheard_clients().into_iter().map(|client| (client, None)));
        for session in std::mem::take(&mut self.before).into_keys() {
            self.drop_session(session);
        }
    }

    /// Clients that may still write a file under locks that they have lost, but for `asker`.
    pub fn late_writers(&self, file: FileId, asker: ClientId) -> BTreeSet<ClientId> {
        let may = |files: &Option<BTreeSet<FileId>>| files.as_ref().is_none_or(|files| files.contains(&file));
        let late = self.late.iter().filter(|(client, files)| **client != asker && may(files));
        late.map(|(client, _)| *client).collect()
    }

    /// Records that these clients' leases on a file have ended: they cannot write it any more.
    pub fn fenced(&mut self, file: FileId, clients: &BTreeSet<ClientId>) {
        for client in clients {
            if let Some(Some(files)) = self.late.get_mut(client) {
                files.remove(&file);
            }
        }
    }

    /// Clients with unknown locks that have a session now: [`Locks::narrow`] says what they may write.
    pub fn late_and_back(&self) -> Vec<ClientId> {
        let back: BTreeSet<ClientId> = self.sessions.values().map(|session| session.client).collect();
        let unknown = self.late.iter().filter(|(client, files)| files.is_none() && back.contains(client));
        unknown.map(|(client, _)| *client).collect()
    }

    /// Limits a client with unknown locks to the files on which it has leases now: later ones are of its
    /// present session.
    pub fn narrow(&mut self, client: ClientId, files: BTreeSet<FileId>) {
        if let Some(late @ None) = self.late.get_mut(&client) {
            *late = Some(files);
        }
    }

    /// Returns true if a client may still write under locks that it has lost.
    pub fn is_late(&self, client: ClientId) -> bool {
        self.late.contains_key(&client)
    }

    /// Removes the clients that can write nothing any more under locks that they have lost, and returns them.
    pub fn forget_late(&mut self, may_write: impl Fn(ClientId) -> bool) -> Vec<ClientId> {
        let is_done = |client: ClientId, files: &Option<BTreeSet<FileId>>| {
            !may_write(client) || files.as_ref().is_some_and(BTreeSet::is_empty)
        };
        let done = self.late.iter().filter(|(client, files)| is_done(**client, files));
        let done: Vec<ClientId> = done.map(|(client, _)| *client).collect();
        done.iter().for_each(|client| drop(self.late.remove(client)));
        done
    }

    /// Ends the sessions that hold no lock and whose clients are not heard, and returns them. When that is
    /// stored they are to be dropped ([`Locks::drop_session`]).
    pub fn end_idle(&mut self, is_heard: impl Fn(ClientId) -> bool) -> Vec<LockSession> {
        let is_idle = |session: &Session| session.locks == 0 && !is_heard(session.client);
        let idle = self.sessions.iter().filter(|(_, session)| is_idle(session));
        let idle: Vec<LockSession> = idle.map(|(number, _)| *number).collect();
        idle.iter().for_each(|session| self.end(*session));
        idle
    }

    /// Marks a session as over: all its further requests are refused.
    fn end(&mut self, session: LockSession) {
        if self.broken.insert(session) {
            self.broken_since.push_back(session);
        }
        if self.broken_since.len() > BROKEN_MAX
            && let Some(oldest) = self.broken_since.pop_front()
        {
            self.broken.remove(&oldest);
        }
    }

    /// Returns true if the session is over.
    pub fn is_broken(&self, session: LockSession) -> bool {
        self.broken.contains(&session)
    }

    /// Returns true if the session has begun, or was heard of, since this manager's start.
    pub fn knows(&self, session: LockSession) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Sessions of the client that end when it begins `session`.
    pub fn former(&self, client: ClientId, session: LockSession) -> Vec<LockSession> {
        let of = self.sessions.iter().filter(|(number, one)| one.client == client && **number != session);
        of.map(|(number, _)| *number).collect()
    }

    /// Enters a session that begins, or is heard of again after a start.
    pub fn enter(&mut self, session: LockSession, client: ClientId) {
        for former in self.former(client, session) {
            // Late requests of the former session must not end this one, and late writes under its locks
            // must not come after those of the next holders.
            self.end(former);
            let locked = self.held_by(former).1;
            self.drop_session(former);
            if let Some(files) = self.late.entry(client).or_insert_with(|| Some(BTreeSet::new())) {
                files.extend(locked);
            }
        }
        let begun = Session { client, orders: BTreeMap::new(), floor: 0, locks: 0 };
        self.sessions.entry(session).or_insert(begun);
    }

    /// Carries out a request of a session that has begun. `is_heard` says if a client is heard.
    pub fn ask(&mut self, asked: &Lock, span: Span, is_heard: impl Fn(ClientId) -> bool) -> LockOutcome {
        if self.is_broken(asked.session) {
            return LockOutcome::Lost;
        }
        if asked.how == LockHow::Claim {
            let Some(kind) = asked.kind else {
                self.before.remove(&asked.session); // it has claimed all
                return LockOutcome::Granted;
            };
            let has = |is_fit: &dyn Fn(LockKind) -> bool| {
                self.holder(asked).is_some_and(|holder| holder.ranges.cover(span, is_fit))
            };
            if has(&|held| held == kind || held == LockKind::Exclusive) {
                return LockOutcome::Granted;
            }
            // A client that has asked for the other kind, and had no answer, claims the lock that it had
            // before.
            let has_any = has(&|_| true);
            if !self.before.contains_key(&asked.session) && !has_any {
                if !self.is_next(asked) {
                    // This is a copy that was delayed: what it names was released since.
                    return LockOutcome::Overtaken;
                }
                self.end(asked.session);
                return LockOutcome::Lost;
            }
        }
        if asked.how != LockHow::Test && !self.is_next(asked) {
            return LockOutcome::Overtaken;
        }
        if let Some(kind) = asked.kind
            && let Some(held) = self.in_the_way(asked, kind, span)
        {
            let client = self.sessions.get(&held.session).map_or(ClientId::NONE, |session| session.client);
            if is_heard(client) && !self.is_broken(held.session) {
                return LockOutcome::Held(held);
            }
            if asked.how == LockHow::Test {
                return LockOutcome::Granted; // whoever only asks takes nothing from who is away
            }
            // From now on that session can claim nothing.
            self.end(held.session);
            return LockOutcome::Broke(held.session);
        }
        if asked.how == LockHow::Test {
            return LockOutcome::Granted;
        }
        let own = self.sessions.get(&asked.session).map_or(0, |session| session.locks);
        // After a start a session claims what it had before, however much that was.
        let is_claim = asked.how == LockHow::Claim && self.before.contains_key(&asked.session);
        let is_more = asked.kind.is_some() && !is_claim;
        if is_more && (self.count >= LOCKS_MAX || own >= LOCKS_EACH) {
            return LockOutcome::Full;
        }
        self.set(asked, span);
        LockOutcome::Granted
    }

    fn holder(&self, asked: &Lock) -> Option<&Holder> {
        self.files.get(&asked.file)?.get(&(asked.session, asked.owner))
    }

    /// Returns true if no later request of the session for this file came before. A repeat is let through.
    fn is_next(&mut self, asked: &Lock) -> bool {
        let Some(session) = self.sessions.get_mut(&asked.session) else { return false };
        let last = session.orders.get(&asked.file).copied().unwrap_or(session.floor);
        if asked.order < last {
            return false;
        }
        if session.orders.len() >= ORDERS_MAX {
            session.floor = session.orders.values().copied().fold(session.floor, u64::max);
            session.orders.clear();
        }
        session.orders.insert(asked.file, asked.order);
        true
    }

    fn in_the_way(&self, asked: &Lock, kind: LockKind, span: Span) -> Option<HeldLock> {
        let holders = self.files.get(&asked.file)?;
        let others = holders.iter().filter(|(owner, _)| **owner != (asked.session, asked.owner));
        others
            .flat_map(|((session, _), holder)| {
                let meeting = holder.ranges.meeting(span);
                meeting.map(|(at, its)| (*session, holder.pid, its, at))
            })
            .find(|(_, _, its, _)| kind == LockKind::Exclusive || *its == LockKind::Exclusive)
            .map(|(session, pid, kind, at)| HeldLock { session, pid, kind, from: at.from, to: at.to })
    }

    fn set(&mut self, asked: &Lock, span: Span) {
        let holders = self.files.entry(asked.file).or_default();
        let holder = holders.entry((asked.session, asked.owner)).or_default();
        let before = holder.ranges.len();
        if asked.kind.is_some() {
            // The process that releases a part need not be the one that holds the rest.
            holder.pid = asked.pid;
        }
        holder.ranges.set(span, asked.kind);
        let after = holder.ranges.len();
        self.count = self.count + after - before;
        if let Some(session) = self.sessions.get_mut(&asked.session) {
            session.locks = session.locks + after - before;
        }
        if after == 0 {
            holders.remove(&(asked.session, asked.owner));
        }
        if holders.is_empty() {
            self.files.remove(&asked.file);
        }
    }

    /// Client of a session, and the files on which the session holds locks.
    pub fn held_by(&self, session: LockSession) -> (ClientId, Vec<FileId>) {
        let client = self.sessions.get(&session).map_or(ClientId::NONE, |session| session.client);
        let holds = |holders: &BTreeMap<Owner, Holder>| holders.keys().any(|(of, _)| *of == session);
        let files = self.files.iter().filter(|(_, holders)| holds(holders)).map(|(file, _)| *file);
        (client, files.collect())
    }

    /// Removes a session and its locks.
    pub fn drop_session(&mut self, session: LockSession) {
        self.sessions.remove(&session);
        for holders in self.files.values_mut() {
            holders.retain(|(of, _), holder| {
                let is_kept = *of != session;
                self.count -= if is_kept { 0 } else { holder.ranges.len() };
                is_kept
            });
        }
        self.files.retain(|_, holders| !holders.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(5);

    fn lock(session: LockSession, order: u64, kind: Option<LockKind>, from: u64, to: u64) -> Lock {
        let how = LockHow::Set;
        Lock { session, order, file: FILE, owner: 1, pid: 7, how, kind, from, to }
    }

    fn ask(locks: &mut Locks, asked: &Lock, heard: &[u64]) -> LockOutcome {
        locks.ask(asked, asked.span().expect("it has bytes"), |client| heard.contains(&client.0))
    }

    /// Sessions 10 and 20 of clients 1 and 2.
    fn two() -> Locks {
        let mut locks = Locks::default();
        locks.enter(LockSession(10), ClientId(1));
        locks.enter(LockSession(20), ClientId(2));
        locks
    }

    const EXCLUSIVE: Option<LockKind> = Some(LockKind::Exclusive);
    const SHARED: Option<LockKind> = Some(LockKind::Shared);

    #[test]
    fn exclusive_locks_keep_others_out_and_shared_ones_do_not() {
        let mut locks = two();
        assert_eq!(ask(&mut locks, &lock(LockSession(10), 1, SHARED, 0, 9), &[1, 2]), LockOutcome::Granted);
        assert_eq!(ask(&mut locks, &lock(LockSession(20), 1, SHARED, 5, 14), &[1, 2]), LockOutcome::Granted);
        let held = HeldLock { session: LockSession(20), pid: 7, kind: LockKind::Shared, from: 5, to: 14 };
        assert_eq!(
            ask(&mut locks, &lock(LockSession(10), 2, EXCLUSIVE, 0, 9), &[1, 2]),
            LockOutcome::Held(held)
        );
        assert_eq!(
            ask(&mut locks, &lock(LockSession(10), 3, EXCLUSIVE, 0, 4), &[1, 2]),
            LockOutcome::Granted
        );
        let held = HeldLock { session: LockSession(10), pid: 7, kind: LockKind::Exclusive, from: 0, to: 4 };
        let test = Lock { how: LockHow::Test, ..lock(LockSession(20), 0, SHARED, 4, 5) };
        assert_eq!(ask(&mut locks, &test, &[1, 2]), LockOutcome::Held(held));
        assert_eq!(
            ask(&mut locks, &lock(LockSession(10), 4, None, 0, u64::MAX), &[1, 2]),
            LockOutcome::Granted
        );
        assert_eq!(
            ask(&mut locks, &lock(LockSession(20), 2, EXCLUSIVE, 0, u64::MAX), &[1, 2]),
            LockOutcome::Granted
        );
        assert_eq!(locks.count, 1);
    }

    #[test]
    fn what_is_left_of_a_lock_names_its_process() {
        let mut locks = two();
        ask(&mut locks, &lock(LockSession(10), 1, EXCLUSIVE, 0, 99), &[1, 2]);
        let part = Lock { pid: 0, ..lock(LockSession(10), 2, None, 40, 59) };
        assert_eq!(ask(&mut locks, &part, &[1, 2]), LockOutcome::Granted);
        for (asked, from, to) in [(0, 0, 39), (70, 60, 99)] {
            let held = HeldLock { session: LockSession(10), pid: 7, kind: LockKind::Exclusive, from, to };
            let test = Lock { how: LockHow::Test, ..lock(LockSession(20), 0, EXCLUSIVE, asked, asked) };
            assert_eq!(ask(&mut locks, &test, &[1, 2]), LockOutcome::Held(held));
        }
        assert_eq!(locks.held_by(LockSession(10)), (ClientId(1), vec![FILE]));
        assert_eq!(locks.held_by(LockSession(20)), (ClientId(2), Vec::new()));
    }

    #[test]
    fn who_is_not_heard_keeps_its_locks_until_others_want_one() {
        let mut locks = two();
        ask(&mut locks, &lock(LockSession(10), 1, EXCLUSIVE, 0, 9), &[1]);
        ask(&mut locks, &lock(LockSession(10), 2, EXCLUSIVE, 50, 59), &[1]);
        let claim = |order| Lock { how: LockHow::Claim, ..lock(LockSession(10), order, EXCLUSIVE, 0, 9) };
        assert_eq!(ask(&mut locks, &lock(LockSession(20), 1, EXCLUSIVE, 20, 29), &[2]), LockOutcome::Granted);
        assert_eq!(ask(&mut locks, &claim(3), &[1, 2]), LockOutcome::Granted, "nobody wanted it");
        let test = Lock { how: LockHow::Test, ..lock(LockSession(20), 0, SHARED, 0, 0) };
        assert_eq!(ask(&mut locks, &test, &[2]), LockOutcome::Granted);
        assert_eq!(ask(&mut locks, &claim(3), &[1, 2]), LockOutcome::Granted, "to ask takes nothing");
        assert_eq!(
            ask(&mut locks, &lock(LockSession(20), 2, SHARED, 0, 0), &[2]),
            LockOutcome::Broke(LockSession(10))
        );
        assert_eq!(ask(&mut locks, &claim(4), &[1, 2]), LockOutcome::Lost, "from then on");
        assert_eq!(
            ask(&mut locks, &lock(LockSession(20), 3, SHARED, 0, 0), &[1, 2]),
            LockOutcome::Broke(LockSession(10))
        );
        locks.drop_session(LockSession(10));
        assert_eq!(ask(&mut locks, &lock(LockSession(20), 4, SHARED, 0, 0), &[2]), LockOutcome::Granted);
        assert_eq!(ask(&mut locks, &lock(LockSession(10), 5, EXCLUSIVE, 90, 99), &[1, 2]), LockOutcome::Lost);
        locks.enter(LockSession(11), ClientId(1));
        assert_eq!(
            ask(&mut locks, &lock(LockSession(11), 1, EXCLUSIVE, 50, 59), &[1, 2]),
            LockOutcome::Granted
        );
    }

    #[test]
    fn one_session_takes_a_part_of_all_locks() {
        let mut locks = two();
        let taken = |locks: &mut Locks, session| {
            let order = locks.count as u64;
            let one = |n: u64| Lock { file: FileId(n), ..lock(session, order + n, SHARED, 0, 9) };
            (1..).take_while(|n| ask(locks, &one(*n), &[1, 2]) == LockOutcome::Granted).count()
        };
        assert_eq!(taken(&mut locks, LockSession(10)), LOCKS_EACH);
        assert_eq!(taken(&mut locks, LockSession(20)), LOCKS_EACH, "another has its own");
        let one = Lock { file: FileId(1), ..lock(LockSession(10), u64::MAX, None, 0, 9) };
        assert_eq!(ask(&mut locks, &one, &[1, 2]), LockOutcome::Granted, "to release is no lock");
        let again = Lock { file: FileId(1), ..lock(LockSession(10), u64::MAX, SHARED, 0, 9) };
        assert_eq!(ask(&mut locks, &again, &[1, 2]), LockOutcome::Granted);
        locks.drop_session(LockSession(10));
        assert_eq!(locks.count, LOCKS_EACH);
    }

    #[test]
    fn a_session_without_locks_ends_with_its_client_and_comes_late_for_all() {
        let mut locks = two();
        ask(&mut locks, &lock(LockSession(10), 1, EXCLUSIVE, 0, 9), &[1, 2]);
        ask(&mut locks, &lock(LockSession(20), 1, EXCLUSIVE, 50, 59), &[1, 2]);
        ask(&mut locks, &lock(LockSession(20), 2, None, 50, 59), &[1, 2]);
        assert_eq!(locks.end_idle(|_| true), []);
        assert_eq!(locks.end_idle(|_| false), [LockSession(20)], "the other holds a lock");
        assert!(locks.knows(LockSession(20)), "until that is stored");
        locks.drop_session(LockSession(20));
        assert!(locks.is_broken(LockSession(20)) && !locks.knows(LockSession(20)));
        assert_eq!(ask(&mut locks, &lock(LockSession(20), 1, EXCLUSIVE, 50, 59), &[1, 2]), LockOutcome::Lost);
        // The number of sessions remembered as over is bounded.
        (100..100 + BROKEN_MAX as u64).map(LockSession).for_each(|session| locks.end(session));
        assert_eq!((locks.broken.len(), locks.broken_since.len()), (BROKEN_MAX, BROKEN_MAX));
        assert!(!locks.is_broken(LockSession(20)) && locks.is_broken(LockSession(100)));
    }

    #[test]
    fn a_request_that_comes_late_counts_for_nothing() {
        let mut locks = two();
        ask(&mut locks, &lock(LockSession(10), 2, EXCLUSIVE, 0, 9), &[1, 2]);
        ask(&mut locks, &lock(LockSession(10), 3, None, 0, 9), &[1, 2]);
        assert_eq!(
            ask(&mut locks, &lock(LockSession(10), 2, EXCLUSIVE, 0, 9), &[1, 2]),
            LockOutcome::Overtaken
        );
        assert_eq!(
            ask(&mut locks, &lock(LockSession(20), 1, EXCLUSIVE, 0, 9), &[1, 2]),
            LockOutcome::Granted
        );
        assert_eq!(
            ask(&mut locks, &lock(LockSession(20), 1, EXCLUSIVE, 0, 9), &[1, 2]),
            LockOutcome::Granted,
            "a repeat"
        );
        let mut locks = two();
        for file in 0..=ORDERS_MAX as u64 {
            let other = Lock { file: FileId(100 + file), ..lock(LockSession(10), 10 + file, None, 0, 9) };
            ask(&mut locks, &other, &[1, 2]);
        }
        let late = Lock { file: FileId(100), ..lock(LockSession(10), 9, EXCLUSIVE, 0, 9) };
        assert_eq!(ask(&mut locks, &late, &[1, 2]), LockOutcome::Overtaken, "also when files were forgotten");
    }

    #[test]
    fn after_a_start_those_may_claim_who_are_on_record() {
        let mut locks = Locks::default();
        locks.begin([(LockSession(10), ClientId(1))]);
        locks.enter(LockSession(10), ClientId(1));
        locks.enter(LockSession(20), ClientId(2));
        let claim = |session| Lock { how: LockHow::Claim, ..lock(session, 1, EXCLUSIVE, 0, 9) };
        assert_eq!(ask(&mut locks, &claim(LockSession(10)), &[1, 2]), LockOutcome::Granted);
        assert_eq!(ask(&mut locks, &claim(LockSession(20)), &[1, 2]), LockOutcome::Lost);
        locks.drop_session(LockSession(20));
        assert_eq!(locks.unheard(), [LockSession(10)], "it may have more to claim");
        // A session that says that it has claimed all keeps what it has claimed, and what it was given since.
        let is_all = |session| Lock { kind: None, ..claim(session) };
        assert_eq!(ask(&mut locks, &is_all(LockSession(10)), &[1, 2]), LockOutcome::Granted);
        assert_eq!((locks.unheard(), locks.has_before()), (vec![], false));
        locks.enter(LockSession(30), ClientId(3));
        assert_eq!(ask(&mut locks, &is_all(LockSession(30)), &[1, 2]), LockOutcome::Granted);
        assert_eq!((locks.count, locks.is_broken(LockSession(30))), (1, false));
        let mut locks = Locks::default();
        locks.begin([(LockSession(10), ClientId(1))]);
        assert_eq!(
            (locks.unheard(), locks.may_claim(LockSession(10)), locks.may_claim(LockSession(20))),
            (vec![LockSession(10)], true, false)
        );
        locks.refuse_claims();
        locks.end_of_claims();
        assert_eq!(
            locks.late_writers(FILE, ClientId(2)),
            BTreeSet::from([ClientId(1)]),
            "what it had locked is not known"
        );
        assert!(locks.late_writers(FILE, ClientId(1)).is_empty(), "its own writes do no harm to it");
        locks.enter(LockSession(10), ClientId(1));
        assert_eq!(ask(&mut locks, &claim(LockSession(10)), &[1, 2]), LockOutcome::Lost, "too late");
    }

    #[test]
    fn who_has_not_claimed_all_in_time_loses_all() {
        let mut locks = Locks::default();
        locks.begin([(LockSession(10), ClientId(1)), (LockSession(20), ClientId(2))]);
        let claim = |session, at| Lock { how: LockHow::Claim, ..lock(session, 1, EXCLUSIVE, at, at + 9) };
        let is_all = |session| Lock { kind: None, ..claim(session, 0) };
        for (session, client) in [(LockSession(10), ClientId(1)), (LockSession(20), ClientId(2))] {
            locks.enter(session, client);
            assert_eq!(ask(&mut locks, &claim(session, 10 * session.0), &[1, 2]), LockOutcome::Granted);
        }
        assert_eq!(ask(&mut locks, &is_all(LockSession(20)), &[1, 2]), LockOutcome::Granted);
        assert_eq!(
            (locks.unheard(), locks.unheard_clients()),
            (vec![LockSession(10)], BTreeSet::from([ClientId(1)]))
        );
        locks.refuse_claims();
        assert_eq!(
            ask(&mut locks, &is_all(LockSession(10)), &[1, 2]),
            LockOutcome::Lost,
            "while that is being stored"
        );
        assert_eq!(
            locks.held_by(LockSession(10)),
            (ClientId(1), vec![FILE]),
            "nobody has its locks until that is stored"
        );
        locks.end_of_claims();
        assert_eq!((locks.late_writers(FILE, ClientId(0)), locks.count), (BTreeSet::from([ClientId(1)]), 1));
        assert_eq!(ask(&mut locks, &claim(LockSession(10), 100), &[1, 2]), LockOutcome::Lost);
        assert_eq!(ask(&mut locks, &claim(LockSession(20), 200), &[1, 2]), LockOutcome::Granted);
    }

    #[test]
    fn who_did_not_hear_of_another_kind_may_claim_what_it_had() {
        let mut locks = two();
        let ask_all = |locks: &mut Locks, asked: &Lock| ask(locks, asked, &[1, 2]);
        let claim = |order, kind| Lock { how: LockHow::Claim, ..lock(LockSession(10), order, kind, 0, 9) };
        ask_all(&mut locks, &lock(LockSession(10), 1, SHARED, 0, 9));
        ask_all(&mut locks, &lock(LockSession(10), 2, EXCLUSIVE, 5, 9));
        assert_eq!(ask_all(&mut locks, &claim(3, SHARED)), LockOutcome::Granted);
        ask_all(&mut locks, &lock(LockSession(10), 4, SHARED, 0, 9));
        assert_eq!(ask_all(&mut locks, &claim(5, EXCLUSIVE)), LockOutcome::Granted, "nobody else has it");
        assert_eq!(ask_all(&mut locks, &lock(LockSession(20), 1, SHARED, 0, 9)), {
            let held =
                HeldLock { session: LockSession(10), pid: 7, kind: LockKind::Exclusive, from: 0, to: 9 };
            LockOutcome::Held(held)
        });
        ask_all(&mut locks, &lock(LockSession(10), 6, SHARED, 0, 9));
        ask_all(&mut locks, &lock(LockSession(20), 2, SHARED, 0, 9));
        assert!(matches!(ask_all(&mut locks, &claim(7, EXCLUSIVE)), LockOutcome::Held(_)));
        ask_all(&mut locks, &lock(LockSession(10), 8, None, 9, 9));
        assert_eq!(ask_all(&mut locks, &claim(7, SHARED)), LockOutcome::Overtaken, "it was delayed");
        assert_eq!(ask_all(&mut locks, &claim(9, SHARED)), LockOutcome::Lost, "a byte of it was released");
        assert_eq!(
            locks.held_by(LockSession(10)),
            (ClientId(1), vec![FILE]),
            "until its leases have ended, and that is stored"
        );
        assert_eq!(
            ask_all(&mut locks, &lock(LockSession(20), 3, EXCLUSIVE, 0, 9)),
            LockOutcome::Broke(LockSession(10))
        );
    }

    #[test]
    fn a_session_may_claim_as_many_locks_as_it_had() {
        let mut locks = Locks::default();
        locks.begin([(LockSession(10), ClientId(1))]);
        locks.enter(LockSession(10), ClientId(1));
        let one = |n: u64, how| Lock { file: FileId(n), how, ..lock(LockSession(10), n, SHARED, 0, 9) };
        // Releases leave a session more locks than it may ask for: each may split one.
        let had = LOCKS_EACH as u64 + 2;
        for n in 1..=had {
            assert_eq!(ask(&mut locks, &one(n, LockHow::Claim), &[1]), LockOutcome::Granted);
        }
        assert_eq!(ask(&mut locks, &one(had + 1, LockHow::Set), &[1]), LockOutcome::Full);
    }

    #[test]
    fn who_was_silent_before_a_second_start_is_told_so_once() {
        let mut locks = Locks::default();
        locks.begin([(silence(ClientId(1)), ClientId(1)), (LockSession(20), ClientId(2))]);
        assert!(!locks.tell_silent(LockSession(20), ClientId(2)));
        assert!(
            locks.tell_silent(LockSession(10), ClientId(1)) && locks.is_broken(LockSession(10)),
            "it may take its locks for its own"
        );
        assert!(
            !locks.tell_silent(LockSession(11), ClientId(1)) && !locks.is_broken(LockSession(11)),
            "it knows now"
        );
        locks.enter(LockSession(11), ClientId(1));
        locks.enter(LockSession(20), ClientId(2));
        let all = Lock { how: LockHow::Claim, ..lock(LockSession(20), 1, None, 0, 9) };
        assert_eq!(ask(&mut locks, &all, &[1, 2]), LockOutcome::Granted);
        assert_eq!(
            locks.unheard_clients(),
            BTreeSet::from([ClientId(1)]),
            "it may still write under its locks of before"
        );
        let mut locks = Locks::default();
        locks.begin([(silence(ClientId(1)), ClientId(1)), (LockSession(11), ClientId(1))]);
        assert!(
            !locks.tell_silent(LockSession(11), ClientId(1)),
            "it began this session knowing that it had lost the former"
        );
    }

    #[test]
    fn who_has_lost_locks_without_a_fence_is_fenced_before_the_next_has_them() {
        let mut locks = two();
        ask(&mut locks, &lock(LockSession(10), 1, EXCLUSIVE, 0, 9), &[1, 2]);
        locks.enter(LockSession(11), ClientId(1));
        assert_eq!(
            locks.late_writers(FILE, ClientId(2)),
            BTreeSet::from([ClientId(1)]),
            "the former session had it locked"
        );
        assert!(locks.late_writers(FileId(6), ClientId(2)).is_empty() && locks.late_and_back().is_empty());
        locks.fenced(FILE, &BTreeSet::from([ClientId(1)]));
        assert!(locks.late_writers(FILE, ClientId(2)).is_empty());
        assert_eq!(locks.forget_late(|_| true), [ClientId(1)]);
        // Of a client that did not claim it is not known what it had locked.
        let mut locks = Locks::default();
        locks.begin([(LockSession(10), ClientId(1))]);
        locks.refuse_claims();
        locks.end_of_claims();
        locks.fenced(FILE, &BTreeSet::from([ClientId(1)]));
        assert_eq!(
            locks.late_writers(FILE, ClientId(2)),
            BTreeSet::from([ClientId(1)]),
            "it may get another lease there"
        );
        assert!(locks.late_and_back().is_empty() && locks.forget_late(|_| true).is_empty());
        locks.enter(LockSession(11), ClientId(1));
        assert_eq!(locks.late_and_back(), [ClientId(1)]);
        locks.narrow(ClientId(1), BTreeSet::from([FILE]));
        locks.narrow(ClientId(1), BTreeSet::from([FileId(6)]));
        assert!(locks.late_writers(FileId(6), ClientId(2)).is_empty(), "that lease is of its new session");
        assert_eq!(locks.late_writers(FILE, ClientId(2)), BTreeSet::from([ClientId(1)]));
        assert_eq!(
            (locks.forget_late(|_| false), locks.is_late(ClientId(1))),
            (vec![ClientId(1)], false),
            "it has no lease left"
        );
    }
}
