//! Running and answering of the kernel's requests, and conversions of their arguments.

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

use crate::errors::Outcome;
use crate::kernel_side::waits::{self, Bound};
use crate::mounted::Mounted;
use crate::shared::Shared;
use crate::tree::attributes::{asked_nanoseconds, nanoseconds};
use crate::tree::names::Entry;

/// The last byte of a lock that reaches to the end, in the kernel's form.
const LAST: u64 = i64::MAX as u64;

impl Mounted {
    /// Carries a request out: as far as it need not wait in the thread that read it, which saves two thread
    /// switches for an answer from kept records, and the rest in a task of its own.
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
        // A task that panics answers EIO as it is dropped; so does this future, and the thread goes on.
        if let Ok(Poll::Pending) = catch_unwind(AssertUnwindSafe(begun)) {
            // The future is polled again in its task, and so leaves that task's waker where it waits.
            runtime.spawn(carried_out);
        }
    }

    /// Carries out a request that only reads, and answers by itself. It is dropped if its asker no longer
    /// waits (`waits`).
    pub(crate) fn spawn_look<F>(&self, asker: &Request, carry_out: impl FnOnce(Arc<Shared>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let thread = asker.pid();
        let shared = Arc::clone(&self.shared);
        let work = carry_out(Arc::clone(&shared));
        self.begin(async move { waits::look(thread, &shared.context.answers, work).await });
    }

    /// Carries out a request that is answered within a bound. A result that comes after the answer is given
    /// to `late`.
    pub(crate) fn spawn_for<T, F, L>(
        &self,
        asker: &Request,
        bound: Bound,
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
            waits::carry_out(thread, bound, &shared.context.answers, work, answer, late).await;
        });
    }

    /// Carries out a request that is answered by success or an error only.
    pub(crate) fn spawn_done<F>(
        &self,
        asker: &Request,
        bound: Bound,
        reply: ReplyEmpty,
        carry_out: impl FnOnce(Arc<Shared>) -> F,
    ) where
        F: Future<Output = Outcome<()>> + Send + 'static,
    {
        let answer = |done| match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        };
        self.spawn_for(asker, bound, carry_out, answer, |_, ()| ready(()));
    }

    /// Carries out a request that is answered by attributes.
    pub(crate) fn spawn_attributes<F>(
        &self,
        asker: &Request,
        bound: Bound,
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
        self.spawn_for(asker, bound, carry_out, answer, |_, _| ready(()));
    }

    /// Carries out a request that is answered by the entry that was made or found.
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
            Ok(entry @ Entry { past: Some(_), .. }) => {
                let trust = entry.trust_in_past();
                shared.tell_of_past(&entry);
                reply.entry(&trust, &entry.attributes, Generation(0));
            }
            Ok(Entry { attributes, is_kept, is_unmapped, past: None }) => {
                shared.tell(&attributes, is_unmapped);
                let trust = shared.context.trust();
                let in_name = if is_kept { trust } else { Duration::ZERO };
                reply.entry_with_ttls(&trust, &in_name, &attributes, Generation(0));
            }
            Err(error) => reply.error(error),
        };
        self.spawn_for(asker, Bound::Asked, carry_out, answer, |_, _| ready(()));
    }
}

/// Owner and mode of a new entry.
pub(crate) fn new_attributes(asker: &Request, mode: u32) -> NewAttributes {
    NewAttributes { mode: mode & MODE_MAX, uid: asker.uid(), gid: asker.gid() }
}

pub(crate) fn nanoseconds_of(time: TimeOrNow) -> i64 {
    match time {
        TimeOrNow::SpecificTime(time) => asked_nanoseconds(time),
        TimeOrNow::Now => nanoseconds(SystemTime::now()),
    }
}

/// Answers with bytes, or with their number if the asker gives no room.
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

/// The kind of a lock from the kernel's number; `None` to unlock.
pub(crate) fn lock_kind(number: i32) -> Outcome<Option<LockKind>> {
    match number {
        libc::F_RDLCK => Ok(Some(LockKind::Shared)),
        libc::F_WRLCK => Ok(Some(LockKind::Exclusive)),
        libc::F_UNLCK => Ok(None),
        _ => Err(Errno::EINVAL),
    }
}

/// The byte range of a lock from the kernel's first and last byte.
pub(crate) fn lock_span(from: u64, to: u64) -> Span {
    Span { from, to: if to >= LAST { u64::MAX } else { to } }
}

/// Answers with the lock that conflicts with the one asked for, if any.
pub(crate) fn give_lock(asked: Span, found: Option<(Span, LockKind, u32)>, reply: ReplyLock) {
    let (span, number, pid) = match found {
        None => (asked, libc::F_UNLCK, 0),
        Some((span, LockKind::Shared, pid)) => (span, libc::F_RDLCK, pid),
        Some((span, LockKind::Exclusive, pid)) => (span, libc::F_WRLCK, pid),
    };
    reply.locked(span.from, span.to.min(LAST), number, pid);
}
