//! Advisory locks, by which programs on several machines agree on who uses which bytes of a file. Reads and
//! writes ignore them.
//!
//! A client that watches ([`Watch`](super::Watch)) may hold locks. The client keeps its locks as long as
//! its lease is live, and beyond that until another client wants one of them. The manager keeps locks in
//! memory. After the manager's restart clients claim their locks again, and the manager grants no others in
//! that time. The list of clients that may claim is stored, so that no client claims a lock that was given
//! to another meanwhile (RFC 8881, section 8.4.3).

use braid_layout::{FileId, LockSession, Span};

choice! {
    /// The kind of a lock.
    pub enum LockKind {
        /// Any number of holders may lock the same bytes.
        Shared = 1,
        /// Only one holder may lock the bytes.
        Exclusive = 2,
    }
}

choice! {
    /// The action of a [`Lock`] request.
    pub enum LockHow {
        /// Set the lock, or remove it.
        Set = 1,
        /// Test whether the lock could be set.
        Test = 2,
        /// Confirm a lock that the asker believes it holds. Without a kind: the asker holds no more locks
        /// than it has claimed.
        Claim = 3,
    }
}

choice! {
    /// The outcome of a [`Lock`] request.
    pub enum LockState {
        /// The request was carried out; for a test: the lock could be set.
        Granted = 1,
        /// Another owner holds a conflicting lock.
        Held = 2,
        /// Ask again later: clients that held locks before the manager's start may claim them first.
        Later = 3,
        /// All locks of the session are lost: the asker was not heard, and some of the locks were given to
        /// others.
        Lost = 4,
        /// A later request of the session for this file came first, and this one is ignored. Only the
        /// program that asked can tell whether to ask again, with a new number.
        Overtaken = 5,
    }
}

record! {
    /// Sets, removes, tests or claims a lock. The owner's earlier locks on these bytes are replaced.
    pub struct Lock {
        /// The asker's lock session: a random number. A client has one at a time; a new session ends the
        /// one before, and all its locks.
        session: LockSession,
        /// Sequence number of the request, rising in a session. A repeat has the same number.
        order: u64,
        /// The file to lock.
        file: FileId,
        /// The owner of the lock: a number by which the asker tells its programs apart.
        owner: u64,
        /// Process id of the owner, to be told to others; 0: unknown.
        pid: u32,
        /// The action asked for.
        how: LockHow,
        /// The kind of lock; absent: the bytes are unlocked.
        kind: Option<LockKind>,
        /// The first byte to lock.
        from: u64,
        /// The last byte; the highest number: up to the end of the file, however long it becomes.
        to: u64,
    }
}

impl Lock {
    /// The bytes to lock; `None` if `from` is above `to`.
    pub fn span(&self) -> Option<Span> {
        (self.from <= self.to).then_some(Span { from: self.from, to: self.to })
    }
}

record! {
    /// The answer to [`Lock`].
    pub struct Locked {
        /// The outcome of the request.
        state: LockState,
        /// The first conflicting lock, if the outcome is [`LockState::Held`].
        held: Option<HeldLock>,
    }
}

record! {
    /// A lock that a program holds.
    pub struct HeldLock {
        /// The session that the lock belongs to.
        session: LockSession,
        /// Process id of the holder; 0: unknown.
        pid: u32,
        /// The kind of the lock.
        kind: LockKind,
        /// The first byte.
        from: u64,
        /// The last byte; the highest number: up to the end of the file, however long it becomes.
        to: u64,
    }
}
