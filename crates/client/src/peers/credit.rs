//! The client's credit: reads from drives wait for their turn where their answers would not fit the link to
//! this client (`braid_credit`). One credit for each of the machine's links, by its address; drives on this
//! machine need none. Reads of reserved handles are promised, and do not wait either.
//!
//! A read waits before it is sent, and what it holds meanwhile (a session, its plan set's permit) no other
//! read's answer needs: those on their way end without it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_credit::Counts;
use braid_transport::{Answers, Credit, DriveSession, Turn};

/// The credits of a client's links.
#[derive(Debug, Default)]
pub(crate) struct Credits(Mutex<BTreeMap<IpAddr, Arc<Credit>>>);

/// The credits, for reads of one caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) credits: &'a Credits,
    /// Callers take turns.
    pub(crate) number: u64,
}

/// Reads in one session.
pub(crate) struct Reads {
    /// `None`: nothing waits.
    of: Option<Of>,
}

struct Of {
    credit: Arc<Credit>,
    caller: u64,
    drive: u128,
    /// By request.
    turns: Mutex<BTreeMap<usize, Turn>>,
}

/// The credit of one of this machine's links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkCredit {
    /// The link's address on this machine.
    pub link: IpAddr,
    /// What was seen so far.
    pub counts: Counts,
}

impl Credits {
    fn of(&self, link: IpAddr) -> Arc<Credit> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(link).or_default())
    }

    /// What was seen so far, by link.
    pub(crate) fn counts(&self) -> Vec<LinkCredit> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(&link, credit)| LinkCredit { link, counts: credit.counts() }).collect()
    }
}

impl Reads {
    /// For reads in this session.
    pub(crate) fn begin(caller: Option<Caller<'_>>, session: &DriveSession) -> Reads {
        let of = caller.zip(session.link()).map(|(caller, link)| Of {
            credit: caller.credits.of(link),
            caller: caller.number,
            drive: session.drive().0,
            turns: Mutex::default(),
        });
        Reads { of }
    }

    /// Waits until a read of this many bytes may be sent.
    pub(crate) async fn turn(&self, index: usize, bytes: usize) {
        let Some(of) = self.of.as_ref().filter(|_| bytes > 0) else { return };
        let turn = of.credit.turn(of.caller, of.drive, u64::try_from(bytes).unwrap_or(u64::MAX)).await;
        of.turns().insert(index, turn);
    }

    /// The answer to a read is there.
    pub(crate) fn arrived(&self, index: usize, answers: &mut Answers) {
        let Some(turn) = self.of.as_ref().and_then(|of| of.turns().remove(&index)) else { return };
        let is_lossy = turn.is_worth_a_look() && answers.have_lost();
        turn.arrived(is_lossy);
    }
}

impl Of {
    fn turns(&self) -> MutexGuard<'_, BTreeMap<usize, Turn>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
