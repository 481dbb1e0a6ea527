//! The connections to the drives: idle sessions per drive, and notes on drives that did not answer lately.
//!
//! The number of sessions in use is bounded by the plan sets in flight
//! ([`Config::sets`](crate::Config::sets)). Each uses at most one session per drive, so that no set ever
//! waits for another's session and no deadlock is possible.
//!
//! Small requests of all callers share one session per drive, which serves any number of them at a time.
//!
//! With a note, the next request plans without the drive at once instead of waiting for it again. A note is a
//! hint: it expires, and it is ignored if the data cannot be had without the drive. Where data is due, no
//! request finds out whether the drive is back: a connection is made aside, and until it is there the drive
//! is avoided.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use braid_layout::{ClusterId, DriveId};
use braid_transport::{DriveSession, Limits, SharedSession, TransportError};

use crate::analysis::Recorder;

/// Sessions and notes of all drives.
pub(crate) struct Drives {
    cluster: ClusterId,
    limits: Limits,
    idle_max: usize,
    avoid: Duration,
    counts: Counts,
    /// True if drives that are avoided are tried aside, not by requests.
    tries_aside: bool,
    /// True if there was ever a note.
    notes: AtomicBool,
    entries: Arc<Entries>,
    /// Takes spans of the requests; `None`: nobody asks.
    pub(crate) recorder: Option<Arc<Recorder>>,
}

type Entries = Mutex<BTreeMap<DriveId, Entry>>;

/// Counts over all connections of a client, also those that some handles have to themselves.
#[derive(Clone, Default)]
struct Counts {
    /// Bytes sent to drives so far.
    sent: Arc<AtomicU64>,
    /// Requests sent to drives so far.
    asked: Arc<AtomicU64>,
    /// Answers of drives so far.
    answers: Arc<AtomicU64>,
}

#[derive(Default)]
struct Entry {
    /// The address of the idle sessions.
    address: String,
    idle: Vec<DriveSession>,
    /// The session for small requests of many callers.
    shared: Option<Arc<SharedSession>>,
    note: Option<Note>,
}

struct Note {
    until: Instant,
    /// The note's present period. Periods double, so that a drive that stays away is tried less and less
    /// often.
    span: Duration,
    why: String,
}

/// The longest validity of a note, as a multiple of the first.
const SPAN_MAX: u32 = 16;

/// A session in use. Return it by [`Drives::give_back`] if nothing is in flight on it; dropping it closes it.
pub(crate) struct Lent {
    pub(crate) session: DriveSession,
    /// True if the session was idle before: a failure on first use says nothing about the drive's present
    /// state.
    pub(crate) reused: bool,
    drive: DriveId,
    address: String,
}

impl Entry {
    /// Drops the sessions kept for reuse; sessions in use go on.
    fn forget_sessions(&mut self) {
        self.idle.clear();
        self.shared = None;
    }
}

impl Drives {
    /// Creates the connections; no drive is known yet.
    pub(crate) fn new(cluster: ClusterId, limits: Limits, idle_max: usize, avoid: Duration) -> Drives {
        Drives {
            cluster,
            limits,
            idle_max,
            avoid,
            counts: Counts::default(),
            tries_aside: false,
            notes: AtomicBool::new(false),
            entries: Arc::default(),
            recorder: None,
        }
    }

    /// Connections apart from these, with the same settings, for data that is due. Both are counted together.
    pub(crate) fn apart(&self) -> Drives {
        let counts = self.counts.clone();
        let tries_aside = true;
        Drives { counts, tries_aside, ..Drives::new(self.cluster, self.limits, self.idle_max, self.avoid) }
    }

    /// Connections apart from these whose requests leave spans.
    pub(crate) fn recording(&self, recorder: Arc<Recorder>) -> Drives {
        let counts = self.counts.clone();
        let recorder = Some(recorder);
        Drives { counts, recorder, ..Drives::new(self.cluster, self.limits, self.idle_max, self.avoid) }
    }

    /// A session with the drive at this address: an idle one, or a new one.
    pub(crate) async fn session(&self, drive: DriveId, address: &str) -> Result<Lent, TransportError> {
        if let Some(session) = self.take_idle(drive, address) {
            return Ok(Lent { session, reused: true, drive, address: address.to_owned() });
        }
        let mut session = DriveSession::connect(address, drive, self.cluster, &self.limits).await?;
        session.count_sent(Arc::clone(&self.counts.sent));
        Ok(Lent { session, reused: false, drive, address: address.to_owned() })
    }

    /// Requests sent to drives so far.
    pub(crate) fn asked(&self) -> u64 {
        self.counts.asked.load(Ordering::Relaxed)
    }

    /// Counts `requests` more requests as sent.
    pub(crate) fn asks(&self, requests: usize) {
        self.counts.asked.fetch_add(u64::try_from(requests).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The session that small requests to the drive share, made of an idle one, which has worked before.
    /// `None` if there is neither.
    pub(crate) fn shared(&self, drive: DriveId, address: &str) -> Option<Arc<SharedSession>> {
        let mut entries = self.entries.lock().expect("no holder panics");
        let entry = entries.get_mut(&drive).filter(|entry| entry.address == address)?;
        if entry.shared.as_ref().is_none_or(|shared| shared.has_ended()) {
            entry.shared = match entry.idle.pop()?.share() {
                Ok(shared) => Some(Arc::new(shared)),
                Err(session) => {
                    entry.idle.push(*session);
                    None
                }
            };
        }
        entry.shared.clone()
    }

    /// Drops this shared session, which has broken, and the drive's idle sessions, which are as old.
    pub(crate) fn forget_shared(&self, drive: DriveId, broken: &Arc<SharedSession>) {
        let mut entries = self.entries.lock().expect("no holder panics");
        if let Some(entry) = entries.get_mut(&drive)
            && entry.shared.as_ref().is_some_and(|shared| Arc::ptr_eq(shared, broken))
        {
            entry.forget_sessions();
        }
    }

    /// Records that the drive has answered in its shared session, and removes its note.
    pub(crate) fn answered(&self, drive: DriveId) {
        self.counts.answers.fetch_add(1, Ordering::Relaxed);
        if self.notes.load(Ordering::Relaxed) {
            let mut entries = self.entries.lock().expect("no holder panics");
            entries.entry(drive).or_default().note = None;
        }
    }

    /// Number of answers of drives so far; the answers to many requests at once may count as one.
    pub(crate) fn answers(&self) -> u64 {
        self.counts.answers.load(Ordering::Relaxed)
    }

    /// Bytes sent to drives so far.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.counts.sent.load(Ordering::Relaxed)
    }

    /// Keeps the session for reuse. The drive has answered, so its note is removed.
    pub(crate) fn give_back(&self, lent: Lent) {
        self.counts.answers.fetch_add(1, Ordering::Relaxed);
        let mut entries = self.entries.lock().expect("no holder panics");
        let entry = entries.entry(lent.drive).or_default();
        entry.note = None;
        if entry.address != lent.address {
            entry.forget_sessions();
            entry.address = lent.address;
        }
        if entry.idle.len() < self.idle_max {
            entry.idle.push(lent.session);
        }
    }

    /// Drops the drive's idle sessions, which are dead.
    pub(crate) fn forget_idle(&self, drive: DriveId) {
        if let Some(entry) = self.entries.lock().expect("no holder panics").get_mut(&drive) {
            entry.forget_sessions();
        }
    }

    /// Notes that the drive did not answer: it is avoided for a while.
    pub(crate) fn note_away(&self, drive: DriveId, why: &str) {
        tracing::info!(drive = %drive.short(), why, "a drive did not answer: it is avoided for a while");
        let mut entries = self.entries.lock().expect("no holder panics");
        let entry = entries.entry(drive).or_default();
        entry.forget_sessions();
        let span = match &entry.note {
            // Several requests may notice at the same time; that counts once.
            Some(note) if note.until > Instant::now() => note.span,
            Some(note) => (note.span * 2).min(self.avoid * SPAN_MAX),
            None => self.avoid,
        };
        entry.note = Some(Note { until: Instant::now() + span, span, why: why.to_owned() });
        self.notes.store(true, Ordering::Relaxed);
    }

    /// Returns true if the drive should be avoided now. When a note has expired, one caller gets `false` and
    /// tries the drive, or it is tried aside; the others keep avoiding it meanwhile.
    pub(crate) fn avoid(&self, drive: DriveId, address: &str) -> bool {
        if !self.notes.load(Ordering::Relaxed) {
            return false;
        }
        let mut entries = self.entries.lock().expect("no holder panics");
        let Some(entry) = entries.get_mut(&drive) else { return false };
        let Some(note) = &mut entry.note else { return false };
        let now = Instant::now();
        if note.until > now {
            return true;
        }
        note.until = now + note.span;
        note.span = (note.span * 2).min(self.avoid * SPAN_MAX);
        drop(entries);
        if self.tries_aside {
            self.try_aside(drive, address.to_owned());
        }
        self.tries_aside
    }

    /// Connects to the drive in a task of its own. Its hello removes the note.
    fn try_aside(&self, drive: DriveId, address: String) {
        let cluster = self.cluster;
        let limits = self.limits;
        let sent = Arc::clone(&self.counts.sent);
        let entries = Arc::clone(&self.entries);
        tokio::spawn(async move {
            match DriveSession::connect(&address, drive, cluster, &limits).await {
                Ok(mut session) => {
                    session.count_sent(sent);
                    let mut entries = entries.lock().expect("no holder panics");
                    let entry = entries.entry(drive).or_default();
                    entry.forget_sessions();
                    entry.note = None;
                    entry.address = address;
                    entry.idle.push(session);
                }
                Err(error) => tracing::debug!(drive = %drive.short(), %error, "a drive is still avoided"),
            }
        });
    }

    /// Reason for which the drive is avoided; `None` if there is no note.
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
        assert!(!drives.avoid(drive, "") && drives.noted(drive).is_none());
        drives.note_away(drive, "gone");
        // A note with no duration expires at once.
        assert!(!drives.avoid(drive, ""));
        assert_eq!(drives.noted(drive).as_deref(), Some("gone"));
        let drives = Drives::new(ClusterId(1), Limits::default(), 4, Duration::from_secs(3600));
        drives.note_away(drive, "gone");
        drives.note_away(drive, "gone");
        assert!(drives.avoid(drive, "") && drives.avoid(drive, ""));
        let span = |drives: &Drives| {
            drives.entries.lock().expect("no holder panics")[&drive].note.as_ref().expect("noted").span
        };
        assert_eq!(span(&drives), Duration::from_secs(3600));
        for _ in 0..10 {
            let mut entries = drives.entries.lock().expect("no holder panics");
            let note = entries.get_mut(&drive).and_then(|entry| entry.note.as_mut()).expect("noted");
            note.until = Instant::now();
            drop(entries);
            assert!(!drives.avoid(drive, ""), "one asker finds out");
            assert!(drives.avoid(drive, ""), "the others pass it over");
        }
        assert_eq!(span(&drives), Duration::from_secs(3600) * SPAN_MAX);
    }

    #[tokio::test]
    async fn where_data_is_due_a_drive_that_stays_away_is_tried_aside() {
        let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = mute.local_addr().expect("it is bound").to_string();
        let drives = Drives::new(ClusterId(1), Limits::default(), 4, Duration::ZERO).apart();
        let drive = DriveId(7);
        drives.note_away(drive, "gone");
        // The note has no duration: each asker would be the one that finds out.
        assert!(drives.avoid(drive, &address) && drives.avoid(drive, &address));
        mute.accept().await.expect("somebody tries the drive");
        assert!(drives.avoid(drive, &address), "it has said no hello");
    }
}
