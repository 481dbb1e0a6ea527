//! How requests of the kernel are carried out and answered, and what of them is read in another way than it
//! comes.

use std::future::{Future, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use braid_client::NewAttributes;
use braid_layout::Span;
use braid_wire::control::{LockKind, MODE_MAX};
use fuser::{
    Errno, FileAttr, Generation, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyLock, ReplyXattr, Request, TimeOrNow,
};
use rustix::fs::OFlags;

use crate::attributes::{asked_nanoseconds, nanoseconds};
use crate::mounted::Mounted;
use crate::names::Entry;
use crate::shared::Shared;
use crate::waits::{self, Bound};
use crate::write_back::Outcome;

/// The last byte of a lock that goes to the end, for the kernel.
const LAST: u64 = i64::MAX as u64;

impl Mounted {
    /// Carries a request out: as far as it need not wait in the thread that read it, which saves an answer
    /// from what is kept two changes of threads, and the rest in a task of its own.
    pub(crate) fn spawn<F>(&self, carry_out: impl FnOnce(Arc<Shared>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.begin(carry_out(Arc::clone(&self.shared)));
    }

    fn begin(&self, carried_out: impl Future<Output = ()> + Send + 'static) {
        let runtime = &self.shared.context.runtime;
        let _here = runtime.enter();
        let mut carried_out = Box::pin(carried_out);
        let begun = || carried_out.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        // A task that panics answers EIO as it is dropped; so does this, and the thread goes on.
        if let Ok(Poll::Pending) = catch_unwind(AssertUnwindSafe(begun)) {
            // It is polled again, and so leaves its own waker where it waits.
            runtime.spawn(carried_out);
        }
    }

    /// The same, of a request that only looks, and answers by itself. It is given up if nobody waits for it
    /// any more (`waits`).
    pub(crate) fn spawn_look<F>(&self, asker: &Request, carry_out: impl FnOnce(Arc<Shared>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let thread = asker.pid();
        let shared = Arc::clone(&self.shared);
        let work = carry_out(Arc::clone(&shared));
        self.begin(async move { waits::look(thread, &shared.context.answers, work).await });
    }

    /// The same, of a request that is answered within a bound. What was done after the answer is given
    /// to `late`.
    pub(crate) fn spawn_for<T, F, L>(
        &self,
        (asker, bound): (&Request, Bound),
        carry_out: impl FnOnce(Arc<Shared>) -> F,
        answer: impl FnOnce(Outcome<T>) + Send + 'static,
        late: impl FnOnce(Arc<Shared>, T) -> L + Send + 'static,
    ) where
        T: Send + 'static,
        F: Future<Output = Outcome<T>> + Send + 'static,
        L: Future<Output = ()> + Send + 'static,
    {
        let thread = asker.pid();
        let shared = Arc::clone(&self.shared);
        let work = carry_out(Arc::clone(&self.shared));
        self.begin(async move {
            let late = |done| late(Arc::clone(&shared), done);
            waits::carry_out((thread, bound), &shared.context.answers, work, answer, late).await;
        });
    }

    /// The same, of a request that is answered by yes or no.
    pub(crate) fn spawn_done<F>(
        &self,
        (asker, bound): (&Request, Bound),
        reply: ReplyEmpty,
        carry_out: impl FnOnce(Arc<Shared>) -> F,
    ) where
        F: Future<Output = Outcome<()>> + Send + 'static,
    {
        let answer = |done| match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        };
        self.spawn_for((asker, bound), carry_out, answer, |_, ()| ready(()));
    }

    /// The same, of a request that is answered by attributes.
    pub(crate) fn spawn_attributes<F>(
        &self,
        (asker, bound): (&Request, Bound),
        reply: ReplyAttr,
        carry_out: impl FnOnce(Arc<Shared>) -> F,
    ) where
        F: Future<Output = Outcome<FileAttr>> + Send + 'static,
    {
        let context = Arc::clone(&self.shared.context);
        let answer = move |done| match done {
            Ok(attributes) => reply.attr(&context.trust(), &attributes),
            Err(error) => reply.error(error),
        };
        self.spawn_for((asker, bound), carry_out, answer, |_, _| ready(()));
    }

    /// The same, of a request that is answered by what was made or found.
    pub(crate) fn spawn_entry<F>(
        &self,
        asker: &Request,
        reply: ReplyEntry,
        carry_out: impl FnOnce(Arc<Shared>) -> F,
    ) where
        F: Future<Output = Outcome<Entry>> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let answer = move |done| match done {
            Ok(Entry { attributes, is_kept, is_unmapped }) => {
                shared.tell(&attributes, is_unmapped);
                let trust = shared.context.trust();
                let in_name = if is_kept { trust } else { Duration::ZERO };
                reply.entry_with_ttls(&trust, &in_name, &attributes, Generation(0));
            }
            Err(error) => reply.error(error),
        };
        self.spawn_for((asker, Bound::Asked), carry_out, answer, |_, _| ready(()));
    }
}

/// Whose something new is.
pub(crate) fn new_attributes(asker: &Request, mode: u32) -> NewAttributes {
    NewAttributes { mode: mode & MODE_MAX, uid: asker.uid(), gid: asker.gid() }
}

pub(crate) fn nanoseconds_of(time: TimeOrNow) -> i64 {
    match time {
        TimeOrNow::SpecificTime(time) => asked_nanoseconds(time),
        TimeOrNow::Now => nanoseconds(SystemTime::now()),
    }
}

/// Answers with bytes, or with how many there are if nobody has room for any.
pub(crate) fn give(bytes: Outcome<Vec<u8>>, room: u32, reply: ReplyXattr) {
    match bytes.map(|bytes| (u32::try_from(bytes.len()).unwrap_or(u32::MAX), bytes)) {
        Ok((length, _)) if room == 0 => reply.size(length),
        Ok((length, _)) if length > room => reply.error(Errno::ERANGE),
        Ok((_, bytes)) => reply.data(&bytes),
        Err(error) => reply.error(error),
    }
}

pub(crate) fn open_flags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags.cast_unsigned())
}

/// The kind of a lock, as the kernel has it.
pub(crate) fn lock_kind(number: i32) -> Outcome<Option<LockKind>> {
    match number {
        libc::F_RDLCK => Ok(Some(LockKind::Shared)),
        libc::F_WRLCK => Ok(Some(LockKind::Exclusive)),
        libc::F_UNLCK => Ok(None),
        _ => Err(Errno::EINVAL),
    }
}

/// The bytes of a lock, as the kernel has them.
pub(crate) fn lock_span(from: u64, to: u64) -> Span {
    Span { from, to: if to >= LAST { u64::MAX } else { to } }
}

/// Answers with the lock that is in the way of one, if any.
pub(crate) fn give_lock(asked: Span, found: Option<(Span, LockKind, u32)>, reply: ReplyLock) {
    let (span, number, pid) = match found {
        None => (asked, libc::F_UNLCK, 0),
        Some((span, LockKind::Shared, pid)) => (span, libc::F_RDLCK, pid),
        Some((span, LockKind::Exclusive, pid)) => (span, libc::F_WRLCK, pid),
    };
    reply.locked(span.from, span.to.min(LAST), number, pid);
}
