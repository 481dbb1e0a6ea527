//! The client's credit: requests wait for their turn where a link is too slow for all of them at once
//! (`braid_credit`).
//!
//! *Reads* wait here, as their answers come to this client: a credit for each of the machine's links, by its
//! address. *Writes* wait for the drive's turn (`WriteTurn`), and only if the drive has said lately that the
//! link to it is congested. Drives on this machine need neither. Requests of reserved handles are promised,
//! and do not wait either.
//!
//! A request waits before it is sent, and what it holds meanwhile (a session, its plan set's permit) no
//! other's answer needs: those on their way end without it.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_credit::{Counts, SMALL_BYTES};
use braid_layout::DriveId;
use braid_transport::{Answers, Asker, Credit, DriveSession, Turn};
use braid_wire::data::DriveReply;
use tokio::time::Instant;

/// For so long after a drive has said that the link to it is congested, writes to it wait for their turns.
const CONGESTED_FOR: Duration = Duration::from_secs(1);

/// The credits of a client.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    links: braid_transport::Credits,
    /// True if a drive was ever congested.
    any_congested: AtomicBool,
    /// By address of a drive: until when the link to it counts as congested.
    congested: Mutex<BTreeMap<Arc<str>, Instant>>,
}

/// The credits, for requests of one caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) credits: &'a Credits,
    /// Callers take turns.
    pub(crate) number: u64,
}

/// Requests in one session.
pub(crate) struct Flights<'a> {
    /// `None`: nothing waits.
    of: Option<Of<'a>>,
}

struct Of<'a> {
    caller: Caller<'a>,
    credit: Arc<Credit>,
    drive: DriveId,
    /// The drive's address.
    rail: Arc<str>,
}

/// The credit of one of this machine's links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkCredit {
    /// The link's address on this machine.
    pub link: IpAddr,
    /// Everything seen so far.
    pub counts: Counts,
}

impl Credits {
    /// Everything seen so far, by link.
    pub(crate) fn counts(&self) -> Vec<LinkCredit> {
        self.links.counts().into_iter().map(|(link, counts)| LinkCredit { link, counts }).collect()
    }

    fn congested(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Instant>> {
        self.congested.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A drive says whether the link to this address is congested.
    fn handle_told(&self, rail: &Arc<str>, is_congested: bool) {
        if is_congested {
            self.any_congested.store(true, Ordering::Relaxed);
            self.congested().insert(Arc::clone(rail), Instant::now() + CONGESTED_FOR);
        } else if self.any_congested.load(Ordering::Relaxed) {
            self.congested().remove(rail);
        }
    }

    fn is_congested(&self, rail: &str) -> bool {
        self.any_congested.load(Ordering::Relaxed)
            && self.congested().get(rail).is_some_and(|until| Instant::now() < *until)
    }
}

impl<'a> Flights<'a> {
    /// For requests in this session.
    pub(crate) fn begin(caller: Option<Caller<'a>>, session: &mut DriveSession) -> Flights<'a> {
        let of = caller.and_then(|caller| {
            let credit = session.credit(&caller.credits.links)?;
            Some(Of { caller, credit, drive: session.drive(), rail: session.rail() })
        });
        Flights { of }
    }

    /// Waits until a read of this many bytes may be sent by the asker. By datagrams the drive is told the
    /// window as it is then, or that there is none: so it never has more on its way than it may.
    pub(crate) async fn turn(&self, bytes: usize, asker: &Asker) -> Option<Turn> {
        let count = u64::try_from(bytes).ok().filter(|&count| count > 0)?;
        let Some(of) = &self.of else {
            asker.tell_window(None);
            return None;
        };
        let turn = of.credit.turn(of.caller.number, of.drive.0, count).await;
        asker.tell_window(of.credit.window());
        Some(turn)
    }

    /// Returns the number of bytes for which the drive is to be asked for a turn before they are sent.
    pub(crate) fn asks_first(&self, payload: &[u8]) -> Option<u64> {
        let bytes = u64::try_from(payload.len()).ok().filter(|&bytes| bytes > SMALL_BYTES)?;
        self.of.as_ref().filter(|of| of.caller.credits.is_congested(&of.rail)).map(|_| bytes)
    }

    /// The answer to a request is there, with a payload of so many bytes.
    pub(crate) fn arrived(
        &self,
        turn: Option<Turn>,
        reply: Option<&DriveReply>,
        bytes: u32,
        answers: &mut Answers,
    ) {
        let Some(of) = &self.of else { return };
        if let Some(DriveReply::Written(written)) = reply {
            of.caller.credits.handle_told(&of.rail, written.turns);
        }
        let Some(turn) = turn else { return };
        let is_lossy = turn.is_worth_a_look() && answers.have_lost();
        turn.arrived(u64::from(bytes), is_lossy);
    }
}
