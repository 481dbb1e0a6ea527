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
    /// How long it held when it was last made: a drive that stays away is tried ever less often.
    span: Duration,
    why: String,
}

/// A note holds at most this many times as long as the first.
const SPAN_MAX: u32 = 16;

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
        let span = match &entry.note {
            // Several requests may have found out at the same time: that is one finding.
            Some(note) if note.until > Instant::now() => note.span,
            Some(note) => (note.span * 2).min(self.avoid * SPAN_MAX),
            None => self.avoid,
        };
        entry.note = Some(Note { until: Instant::now() + span, span, why: why.to_owned() });
    }

    /// Whether to pass over the drive now. When a note has run out one asker is told "no", and finds out; the others go on
    /// passing over the drive meanwhile.
    pub(crate) fn avoid(&self, drive: DriveId) -> bool {
        let mut entries = self.entries.lock().expect("no holder panics");
        let Some(note) = entries.get_mut(&drive).and_then(|entry| entry.note.as_mut()) else { return false };
        let now = Instant::now();
        if note.until > now {
            return true;
        }
        note.until = now + note.span;
        note.span = (note.span * 2).min(self.avoid * SPAN_MAX);
        false
    }

    /// Why the drive is passed over, if it is noted.
    pub(crate) fn noted(&self, drive: DriveId) -> Option<String> {
        let entries = self.entries.lock().expect("no holder panics");
        Some(entries.get(&drive)?.note.as_ref()?.why.clone())
    }

    fn take_idle(&self, drive: DriveId, address: &str) -> Option<DriveSession> {
        let mut entries = self.entries.lock().expect("no holder panics");
        let entry = entries.get_mut(&drive)?;
        if entry.address == address { entry.idle.pop() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_stays_away_is_tried_by_one_at_a_time_and_ever_less_often() {
        let drives = Drives::new(ClusterId(1), Limits::default(), 4, Duration::ZERO);
        let drive = DriveId(7);
        assert!(!drives.avoid(drive) && drives.noted(drive).is_none());
        drives.note_away(drive, "gone");
        // A note of no time has run out at once.
        assert!(!drives.avoid(drive));
        assert_eq!(drives.noted(drive).as_deref(), Some("gone"));
        let drives = Drives::new(ClusterId(1), Limits::default(), 4, Duration::from_secs(3600));
        drives.note_away(drive, "gone");
        drives.note_away(drive, "gone");
        assert!(drives.avoid(drive) && drives.avoid(drive));
        let span = |drives: &Drives| {
            drives.entries.lock().expect("no holder panics")[&drive].note.as_ref().expect("noted").span
        };
        assert_eq!(span(&drives), Duration::from_secs(3600));
        for _ in 0..10 {
            let mut entries = drives.entries.lock().expect("no holder panics");
            let note = entries.get_mut(&drive).and_then(|entry| entry.note.as_mut()).expect("noted");
            note.until = Instant::now();
            drop(entries);
            assert!(!drives.avoid(drive), "one asker finds out");
            assert!(drives.avoid(drive), "the others pass it over");
        }
        assert_eq!(span(&drives), Duration::from_secs(3600) * SPAN_MAX);
    }
}
