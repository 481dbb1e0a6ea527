//! The side towards the drives: idle sessions per drive, and notes on which drives did not answer lately.
//!
//! How many sessions are in use is bounded by the plan sets under way ([`Config::sets`](crate::Config::sets)): each uses at
//! most one session per drive, so that no set ever waits for another's session and there is nothing to deadlock on.
//!
//! A note lets the next request plan without the drive at once, instead of waiting for it again. It is a hint: it ends by
//! itself, and it is ignored where the data cannot be had without the drive.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use braid_layout::{ClusterId, DriveId};
use braid_transport::{DriveSession, Limits, TransportError};

/// Sessions and notes of all drives.
pub(crate) struct Drives {
    cluster: ClusterId,
    limits: Limits,
    idle_max: usize,
    avoid: Duration,
    entries: Mutex<BTreeMap<DriveId, Entry>>,
}

#[derive(Default)]
struct Entry {
    /// Where the idle sessions lead.
    address: String,
    idle: Vec<DriveSession>,
    note: Option<Note>,
}

struct Note {
    until: Instant,
    why: String,
}

/// A session in use. Given back by [`Drives::give_back`] when nothing is in flight on it; else dropped, which closes it.
pub(crate) struct Lent {
    pub(crate) session: DriveSession,
    /// It was idle before: if it fails at once, that says nothing of the drive as it is now.
    pub(crate) reused: bool,
    drive: DriveId,
    address: String,
}

impl Drives {
    /// Nothing is known of any drive.
    pub(crate) fn new(cluster: ClusterId, limits: Limits, idle_max: usize, avoid: Duration) -> Drives {
        Drives { cluster, limits, idle_max, avoid, entries: Mutex::new(BTreeMap::new()) }
    }

    /// A session with the drive at this address: an idle one, or a new one.
    pub(crate) async fn session(&self, drive: DriveId, address: &str) -> Result<Lent, TransportError> {
        if let Some(session) = self.take_idle(drive, address) {
            return Ok(Lent { session, reused: true, drive, address: address.to_owned() });
        }
        let session = DriveSession::connect(address, drive, self.cluster, &self.limits).await?;
        Ok(Lent { session, reused: false, drive, address: address.to_owned() })
    }

    /// Keeps the session for the next. The drive has answered: its note goes.
    pub(crate) fn give_back(&self, lent: Lent) {
        let mut entries = self.entries.lock().expect("no holder panics");
        let entry = entries.entry(lent.drive).or_default();
        entry.note = None;
        if entry.address != lent.address {
            entry.idle.clear();
            entry.address = lent.address;
        }
        if entry.idle.len() < self.idle_max {
            entry.idle.push(lent.session);
        }
    }

    /// The drive's idle sessions are of no use any more.
    pub(crate) fn forget_idle(&self, drive: DriveId) {
        if let Some(entry) = self.entries.lock().expect("no holder panics").get_mut(&drive) {
            entry.idle.clear();
        }
    }

    /// The drive did not answer: it is passed over for a while.
    pub(crate) fn note_away(&self, drive: DriveId, why: &str) {
        tracing::info!(drive = %drive.short(), why, "a drive did not answer; passing it over for a while");
        let mut entries = self.entries.lock().expect("no holder panics");
        let entry = entries.entry(drive).or_default();
        entry.idle.clear();
        entry.note = Some(Note { until: Instant::now() + self.avoid, why: why.to_owned() });
    }

    /// Why the drive is passed over at the moment; `None` if it is not.
    pub(crate) fn avoided(&self, drive: DriveId) -> Option<String> {
        let entries = self.entries.lock().expect("no holder panics");
        let note = entries.get(&drive)?.note.as_ref()?;
        (note.until > Instant::now()).then(|| note.why.clone())
    }

    fn take_idle(&self, drive: DriveId, address: &str) -> Option<DriveSession> {
        let mut entries = self.entries.lock().expect("no holder panics");
        let entry = entries.get_mut(&drive)?;
        if entry.address == address { entry.idle.pop() } else { None }
    }
}
