//! Advisory locks: programs on several machines agree on who uses which bytes of a file. Nothing else heeds
//! them.
//!
//! A client that watches ([`Watch`](super::Watch)) may hold locks: they are its own as long as its lease is
//! live, and beyond that until another wants one of them. The manager keeps them in memory. After its restart
//! clients claim theirs again, and it grants no other in that time. Which clients may claim is stored, so
//! that none claims what was given to another meanwhile (RFC 8881, section 8.4.3).

use braid_layout::{FileId, Span};

choice! {
    /// How bytes are locked.
    pub enum LockKind {
        /// By any number of holders.
        Shared = 1,
        /// By one.
        Exclusive = 2,
    }
}

choice! {
    /// What is asked of a lock.
    pub enum LockHow {
        /// It is to be set, or removed.
        Set = 1,
        /// Whether it could be set.
        Test = 2,
        /// The asker holds it, as far as it knows: it is to be confirmed. Without a kind: it holds no more
        /// than it has claimed.
        Claim = 3,
    }
}

choice! {
    /// What became of a lock.
    pub enum LockState {
        /// It is as was asked for; of a test: it could be.
        Granted = 1,
        /// Others hold it.
        Held = 2,
        /// Ask again: those who held locks before the manager's start may claim them first.
        Later = 3,
        /// All locks of the session are lost: the asker was not heard, and others were given some of them.
        Lost = 4,
        /// A later request of the session for this file came first: this one counts for nothing. Only its
        /// own asker can tell whether it is to be asked again, with a new number.
        Overtaken = 5,
    }
}

record! {
    /// Sets, removes, tests or claims a lock. The holder's own locks on these bytes are replaced.
    pub struct Lock {
        /// The asker's lock session: a random number. A client has one; a new one ends the one before, and
        /// all its locks.
        session: u64,
        /// The request's number: rising in a session. A repeat has the same.
        order: u64,
        /// The file.
        file: FileId,
        /// Who is to hold it, as the asker tells its programs apart.
        owner: u64,
        /// The process, for others to be told; 0: unknown.
        pid: u32,
        /// What is asked.
        how: LockHow,
        /// How the bytes are to be locked; absent: not at all.
        kind: Option<LockKind>,
        /// The first byte.
        from: u64,
        /// The last byte; the highest number: to the end.
        to: u64,
    }
}

impl Lock {
    /// Which bytes, if any.
    pub fn span(&self) -> Option<Span> {
        (self.from <= self.to).then_some(Span { from: self.from, to: self.to })
    }
}

record! {
    /// What became of it.
    pub struct Locked {
        /// That.
        state: LockState,
        /// The first lock that is in the way, if it is held.
        held: Option<HeldLock>,
    }
}

record! {
    /// A lock that somebody holds.
    pub struct HeldLock {
        /// The session that it belongs to.
        session: u64,
        /// The process there; 0: unknown.
        pid: u32,
        /// How the bytes are locked.
        kind: LockKind,
        /// The first byte.
        from: u64,
        /// The last byte; the highest number: to the end.
        to: u64,
    }
}
