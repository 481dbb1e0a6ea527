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
    /// `files_of`: the files on which a client has leases.
    pub fn forget_late(&mut self, files_of: impl Fn(ClientId) -> BTreeSet<FileId>) -> Vec<ClientId> {
        let mut done = Vec::new();
        for (client, late) in &mut self.late {
            let leased = files_of(*client);
            let is_done = match late {
                Some(files) => {
                    files.retain(|file| leased.contains(file));
                    files.is_empty()
                }
                None => leased.is_empty(),
            };
            done.extend(is_done.then_some(*client));
        }
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
mod tests;
