//! The connections to the drives: idle sessions per drive and rail, and notes on drives that did not answer
//! lately.
//!
//! The number of sessions in use is bounded by the plan sets in flight
//! ([`Config::sets`](crate::Config::sets)). Each uses at most one session per rail of a drive, so that no set
//! ever waits for another's session and no deadlock is possible. How requests are dealt out over a drive's
//! rails is in [`dealing`](crate::peers::dealing).
//!
//! Small requests of all callers share one session per drive, which serves any number of them at a time. It
//! is on the rail that answered fastest.
//!
//! Files that were opened at different times may name different addresses of a drive. Connections are kept
//! for each address that any has named lately, and each request uses those that its own file names.
//!
//! With a note, the next request plans without the drive at once instead of waiting for it again. A note is a
//! hint: it expires, and it is ignored if the data cannot be had without the drive. Where data is due, no
//! request finds out whether the drive is back: a connection is made aside, and until it is there the drive
//! is avoided.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use braid_layout::DriveId;
use braid_transport::ways::Call;
use braid_transport::{
    DriveSession, Home, KnownCluster, Limits, SharedSession, Transport, TransportError, Ways,
};
use braid_wire::addresses::RAILS_MAX;
use braid_wire::control::Grant;
use braid_wire::token::Pin;
use braid_wire::{Addresses, Reason};

use crate::peers::calls::Calls;
use crate::peers::rails::{Among, Rails};

use crate::analysis::Recorder;

/// Sessions and notes of all drives.
pub(crate) struct Drives {
    cluster: KnownCluster,
    /// The pin of the cluster's CA; `None`: no session is in TLS.
    pin: Option<Pin>,
    pub(super) limits: Limits,
    /// The ways of sessions.
    pub(super) ways: Arc<Ways>,
    idle_max: usize,
    avoid: Duration,
    pub(super) counts: Counts,
    /// True if drives that are avoided are tried aside, not by requests.
    tries_aside: bool,
    /// True if there was ever a note.
    notes: AtomicBool,
    pub(super) entries: Arc<Entries>,
    /// The beginning of the rails' times.
    pub(super) began: tokio::time::Instant,
    /// Takes spans of the requests; `None`: nobody asks.
    pub(crate) recorder: Option<Arc<Recorder>>,
}

pub(super) type Entries = Mutex<BTreeMap<DriveId, Entry>>;

/// Counts over all connections of a client, also those that some handles have to themselves.
#[derive(Clone, Default)]
pub(super) struct Counts {
    /// Bytes sent to drives so far.
    pub(super) sent: Arc<AtomicU64>,
    /// Requests sent to drives so far.
    asked: Arc<AtomicU64>,
    /// Answers of drives so far.
    answers: Arc<AtomicU64>,
}

#[derive(Default)]
pub(super) struct Entry {
    pub(super) rails: Rails,
    /// The connections of each rail, by its number.
    pub(super) links: Vec<Link>,
    note: Option<Note>,
}

/// One rail's connections.
pub(super) struct Link {
    pub(super) address: String,
    /// Time at which a request named the address last.
    named: tokio::time::Instant,
    pub(super) idle: Vec<DriveSession>,
    /// The session for small requests of many callers.
    shared: Option<Arc<SharedSession>>,
    /// Bytes of large requests answered on this rail so far.
    pub(super) bytes: u64,
    pub(super) calls: Calls,
}

struct Note {
    until: Instant,
    /// The note's present period. Periods double, so that a drive that stays away is tried less and less
    /// often.
    span: Duration,
    why: String,
}

/// Time after which the connections at an address that no request names are dropped.
const NAMED_FOR: Duration = Duration::from_secs(60);
/// Maximum number of addresses of one drive whose connections are kept.
const LINKS_MAX: usize = 4 * RAILS_MAX;
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
    /// Requests name these addresses: their rails are kept, and those that none has named lately are dropped.
    fn name(&mut self, addresses: &Addresses) {
        let now = tokio::time::Instant::now();
        for address in addresses.iter() {
            match self.rail(address) {
                Some(at) => self.links[at].named = now,
                None => self.add(address, now),
            }
        }
        if self.links.len() > addresses.count() {
            let is_old = |link: &Link| now.saturating_duration_since(link.named) > NAMED_FOR;
            while let Some(at) = self.links.iter().position(is_old) {
                self.remove(at);
            }
        }
    }

    fn add(&mut self, address: &str, now: tokio::time::Instant) {
        if self.links.len() >= LINKS_MAX
            && let Some((at, _)) = self.links.iter().enumerate().min_by_key(|(_, link)| link.named)
        {
            self.remove(at);
        }
        // Where there was no choice so far, nobody has said whether the rail is up. It was used.
        if let [only] = self.links.as_slice()
            && !only.idle.is_empty()
        {
            self.rails.returned(0, Duration::ZERO);
        }
        let address = address.to_owned();
        let calls = Calls::default();
        self.links.push(Link { address, named: now, idle: Vec::new(), shared: None, bytes: 0, calls });
        self.rails.add();
    }

    fn remove(&mut self, at: usize) {
        self.links.remove(at);
        self.rails.remove(at);
    }

    /// The rails at these addresses.
    pub(super) fn among(&self, addresses: &Addresses) -> Among {
        addresses.iter().filter_map(|address| self.rail(address)).collect()
    }

    /// The number of the rail at this address, if it is one of the drive's.
    pub(super) fn rail(&self, address: &str) -> Option<usize> {
        self.links.iter().position(|link| link.address == address)
    }

    /// Keeps a new session, whose hello came after `greeting`. Its rail is up from now on.
    pub(super) fn keep(&mut self, session: DriveSession, greeting: Duration) {
        if let Some(at) = self.rail(session.address()) {
            self.rails.returned(at, greeting);
            self.links[at].idle.push(session);
        }
    }

    /// Drops the sessions of a rail that are kept for reuse; sessions in use go on.
    pub(super) fn forget_rail(&mut self, at: usize) {
        self.links[at].idle.clear();
        self.links[at].shared = None;
    }

    /// Drops the sessions of these rails that are kept for reuse.
    fn forget_sessions(&mut self, among: Among) {
        (0..self.links.len()).filter(|at| among.has(*at)).for_each(|at| self.forget_rail(at));
    }

    /// The drive does not answer on these rails.
    fn note(&mut self, among: Among, avoid: Duration, why: &str) {
        self.forget_sessions(among);
        self.rails.forget(among);
        let span = match &self.note {
            // Several requests may notice at the same time; that counts once.
            Some(note) if note.until > Instant::now() => note.span,
            Some(note) => (note.span * 2).min(avoid * SPAN_MAX),
            None => avoid,
        };
        self.note = Some(Note { until: Instant::now() + span, span, why: why.to_owned() });
    }
}

/// The entry of a drive, with rails at these addresses.
pub(super) fn entry_at<'e>(
    entries: &'e mut BTreeMap<DriveId, Entry>,
    drive: DriveId,
    addresses: &Addresses,
) -> &'e mut Entry {
    let entry = entries.entry(drive).or_default();
    entry.name(addresses);
    entry
}

impl Drives {
    /// Creates the connections; no drive is known yet.
    pub(crate) fn new(
        cluster: impl Into<KnownCluster>,
        limits: Limits,
        idle_max: usize,
        avoid: Duration,
    ) -> Drives {
        Drives {
            cluster: cluster.into(),
            pin: None,
            limits,
            ways: Arc::default(),
            idle_max,
            avoid,
            counts: Counts::default(),
            tries_aside: false,
            notes: AtomicBool::new(false),
            entries: Arc::default(),
            began: tokio::time::Instant::now(),
            recorder: None,
        }
    }

    /// The same settings, and no connection.
    fn anew(&self) -> Drives {
        let ways = Arc::clone(&self.ways);
        let drives = Drives::new(self.cluster.clone(), self.limits, self.idle_max, self.avoid);
        Drives { ways, ..drives.with_pin(self.pin) }
    }

    /// The same, with sessions in TLS to addresses that ask for it, with drives of the CA of this pin.
    pub(crate) fn with_pin(self, pin: Option<Pin>) -> Drives {
        Drives { pin, ..self }
    }

    /// The same, with sessions that go this way.
    pub(crate) fn by(self, transport: Transport) -> Drives {
        Drives { ways: Arc::new(Ways::new(transport)), ..self }
    }

    /// A call of a drive, with a capability of it if there is one.
    pub(super) fn call<'a>(&self, drive: DriveId, limits: &'a Limits, grant: Option<&'a Grant>) -> Call<'a> {
        Call { expect: drive, home: self.home(), limits, grant }
    }

    /// The cluster whose drives these are.
    pub(super) fn home(&self) -> Home {
        Home { cluster: self.cluster.get(), pin: self.pin }
    }

    /// Connections apart from these, with the same settings, for data that is due. Both are counted together.
    pub(crate) fn apart(&self) -> Drives {
        let counts = self.counts.clone();
        let tries_aside = true;
        Drives { counts, tries_aside, ..self.anew() }
    }

    /// Connections apart from these whose requests leave spans.
    pub(crate) fn recording(&self, recorder: Arc<Recorder>) -> Drives {
        let counts = self.counts.clone();
        let recorder = Some(recorder);
        Drives { counts, recorder, ..self.anew() }
    }

    /// A session with the drive on the rail of this address: an idle one, or a new one.
    pub(crate) async fn session(
        &self,
        drive: DriveId,
        address: &str,
        limits: &Limits,
        grant: &Grant,
    ) -> Result<Lent, TransportError> {
        let address = address.to_owned();
        if let Some(session) = self.take_idle(drive, &address) {
            return Ok(Lent { session, reused: true, drive, address });
        }
        let mut session = self.ways.connect(&address, self.call(drive, limits, Some(grant))).await?;
        session.count_sent(Arc::clone(&self.counts.sent));
        Ok(Lent { session, reused: false, drive, address })
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
    pub(crate) fn shared(&self, drive: DriveId, addresses: &Addresses) -> Option<Arc<SharedSession>> {
        let mut entries = self.entries.lock().expect("no holder panics");
        let entry = entry_at(&mut entries, drive, addresses);
        let among = entry.among(addresses);
        let links = entry.links.iter().enumerate().filter(|(at, _)| among.has(*at));
        let mut sessions = links.filter_map(|(_, link)| link.shared.as_ref());
        if let Some(shared) = sessions.find(|shared| !shared.has_ended()) {
            return Some(Arc::clone(shared));
        }
        let mut fastest = entry.rails.fastest(among).into_iter();
        let at = fastest.find(|at| !entry.links[*at].idle.is_empty())?;
        let link = &mut entry.links[at];
        link.shared = match link.idle.pop()?.share() {
            Ok(shared) => Some(Arc::new(shared)),
            Err(session) => {
                link.idle.push(*session);
                None
            }
        };
        link.shared.clone()
    }

    /// Drops this shared session, which has broken, and the idle sessions of its rail, which are as old.
    pub(crate) fn forget_shared(&self, drive: DriveId, broken: &Arc<SharedSession>) {
        if let Some(address) = self.rail_of_shared(drive, broken) {
            self.forget_idle(drive, &address);
        }
    }

    /// The address of the rail that this shared session is on, if it is a present one of the drive.
    pub(crate) fn rail_of_shared(&self, drive: DriveId, session: &Arc<SharedSession>) -> Option<String> {
        let entries = self.entries.lock().expect("no holder panics");
        let entry = entries.get(&drive)?;
        let is_it = |link: &&Link| link.shared.as_ref().is_some_and(|shared| Arc::ptr_eq(shared, session));
        Some(entry.links.iter().find(is_it)?.address.clone())
    }

    /// Records that the drive has answered in its shared session, and removes its note.
    pub(crate) fn answered(&self, drive: DriveId) {
        self.counts.answers.fetch_add(1, Ordering::Relaxed);
        if self.notes.load(Ordering::Relaxed) {
            let mut entries = self.entries.lock().expect("no holder panics");
            if let Some(entry) = entries.get_mut(&drive) {
                entry.note = None;
            }
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
        let Some(entry) = entries.get_mut(&lent.drive) else { return };
        entry.note = None;
        // A session at an address that the drive has left is dropped.
        let Some(at) = entry.rail(&lent.address) else { return };
        if entry.links[at].idle.len() < self.idle_max {
            entry.links[at].idle.push(lent.session);
        }
    }

    /// Drops the idle sessions of the drive's rail at this address, which are dead.
    pub(crate) fn forget_idle(&self, drive: DriveId, address: &str) {
        if let Some(entry) = self.entries.lock().expect("no holder panics").get_mut(&drive)
            && let Some(at) = entry.rail(address)
        {
            entry.forget_rail(at);
        }
    }

    /// Notes that the drive did not answer: it is avoided for a while.
    pub(crate) fn note_away(&self, drive: DriveId, why: &str) {
        let mut entries = self.entries.lock().expect("no holder panics");
        self.note(drive, entries.entry(drive).or_default(), Among::ALL, why);
    }

    /// Notes that the drive did not answer at these addresses. Sessions at others, which newer views of files
    /// may name, are kept.
    pub(crate) fn note_away_at(&self, drive: DriveId, addresses: &Addresses, why: &str) {
        let mut entries = self.entries.lock().expect("no holder panics");
        let entry = entry_at(&mut entries, drive, addresses);
        let among = entry.among(addresses);
        self.note(drive, entry, among, why);
    }

    fn note(&self, drive: DriveId, entry: &mut Entry, among: Among, why: &str) {
        tracing::info!(drive = %drive.short(), why, "a drive did not answer: it is avoided for a while");
        entry.note(among, self.avoid, why);
        self.notes.store(true, Ordering::Relaxed);
    }

    /// Returns true if the drive should be avoided now. When a note has expired, one caller gets `false` and
    /// tries the drive, or it is tried aside; the others keep avoiding it meanwhile.
    pub(crate) fn avoid(&self, drive: DriveId, addresses: &Addresses, grant: Option<&Grant>) -> bool {
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
            self.try_aside(drive, addresses.clone(), grant.cloned());
        }
        self.tries_aside
    }

    /// Connects to the drive in a task of its own, the way that requests under this capability go. Its hello
    /// removes the note. So does its refusal of the capability: who uses that asks the manager for another.
    fn try_aside(&self, drive: DriveId, addresses: Addresses, grant: Option<Grant>) {
        let home = self.home();
        let limits = self.limits;
        let sent = Arc::clone(&self.counts.sent);
        let entries = Arc::clone(&self.entries);
        let ways = Arc::clone(&self.ways);
        // Without a capability the session is over TCP, where requests may not go.
        let is_kept = grant.is_some() || ways.transport() == Transport::Tcp;
        tokio::spawn(async move {
            let call = Call { expect: drive, home, limits: &limits, grant: grant.as_ref() };
            let session = match ways.connect_first(&addresses, call).await {
                Ok(session) => Some(session),
                Err(TransportError::Refusal(refusal)) if refusal.reason == Reason::StaleKey => None,
                Err(error) => {
                    tracing::debug!(drive = %drive.short(), %error, "a drive is still avoided");
                    return;
                }
            };
            let mut entries = entries.lock().expect("no holder panics");
            let entry = entry_at(&mut entries, drive, &addresses);
            entry.forget_sessions(entry.among(&addresses));
            entry.note = None;
            if let Some(mut session) = session.filter(|_| is_kept) {
                session.count_sent(sent);
                entry.keep(session, Duration::ZERO);
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
        let at = entry.rail(address)?;
        entry.links[at].idle.pop()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use braid_datagram::policy::Kind;
    use braid_layout::version::Lease;
    use braid_layout::{ClientId, ClusterId, ColumnMask, FileId, Generation, ObjectId, PartitionId};
    use braid_testing::wait_for;
    use braid_transport::{Listener, SecretOf, challenge, session_config};
    use braid_wire::capability::{Capability, LeaseKind, Promise, Protection, Rights};
    use braid_wire::data::{HELLO, Hello, PeerRole};
    use braid_wire::frame::WIRE_VERSION;
    use braid_wire::{Key, Wire};

    use super::*;

    /// A capability to read an object of this drive.
    pub(crate) fn grant(drive: DriveId) -> Grant {
        let capability = Capability {
            drive,
            partition: PartitionId(1),
            object: ObjectId(2),
            rights: Rights::READ,
            expires_ms: u64::MAX,
            promise: Promise::NONE,
            client: ClientId::NONE,
            key_epoch: 1,
            g: Generation(1),
            set: ColumnMask::all(1),
            joining: ColumnMask::EMPTY,
            lease: Lease(0),
            kind: LeaseKind::Exclusive,
            first_stripe: 0,
            end_stripe: u64::MAX,
            reach: u64::MAX,
            protection: Protection::Integrity,
            holder: DriveId(0),
            map: [0; 16],
            file: FileId(2),
        };
        Grant { private: Key::new([1; 32]).private_part(&capability), capability }
    }

    #[test]
    fn a_drive_that_stays_away_is_tried_by_one_at_a_time_and_ever_less_often() {
        let drives = Drives::new(ClusterId(1), Limits::default(), 4, Duration::ZERO);
        let drive = DriveId(7);
        let avoids = |drives: &Drives| drives.avoid(drive, &"".into(), None);
        assert!(!avoids(&drives) && drives.noted(drive).is_none());
        drives.note_away(drive, "gone");
        // A note with no duration expires at once.
        assert!(!avoids(&drives));
        assert_eq!(drives.noted(drive).as_deref(), Some("gone"));
        let drives = Drives::new(ClusterId(1), Limits::default(), 4, Duration::from_secs(3600));
        drives.note_away(drive, "gone");
        drives.note_away(drive, "gone");
        assert!(avoids(&drives) && avoids(&drives));
        let span = |drives: &Drives| {
            drives.entries.lock().expect("no holder panics")[&drive].note.as_ref().expect("noted").span
        };
        assert_eq!(span(&drives), Duration::from_secs(3600));
        for _ in 0..10 {
            let mut entries = drives.entries.lock().expect("no holder panics");
            let note = entries.get_mut(&drive).and_then(|entry| entry.note.as_mut()).expect("noted");
            note.until = Instant::now();
            drop(entries);
            assert!(!avoids(&drives), "one asker finds out");
            assert!(avoids(&drives), "the others pass it over");
        }
        assert_eq!(span(&drives), Duration::from_secs(3600) * SPAN_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_name_different_addresses_leave_each_others_rails_alone() {
        let drives = Drives::new(ClusterId(1), Limits::default(), 4, Duration::ZERO);
        let drive = DriveId(7);
        let old = Addresses::from("a:1");
        let both = Addresses::from("a:1,b:1");
        let names = |addresses: &Addresses| {
            let mut entries = drives.entries.lock().expect("no holder panics");
            entry_at(&mut entries, drive, addresses);
        };
        let rails = || {
            let rails = drives.rails().into_iter();
            rails.map(|rail| (rail.address, rail.is_up, rail.bytes)).collect::<Vec<_>>()
        };
        names(&both);
        {
            let mut entries = drives.entries.lock().expect("no holder panics");
            let entry = entries.get_mut(&drive).expect("it was named");
            assert!(entry.rails.returned(1, Duration::ZERO));
            entry.links[1].bytes = 5;
        }
        // An old view does not answer, and a newer one goes on.
        names(&old);
        drives.note_away_at(drive, &old, "gone");
        names(&both);
        assert_eq!(rails(), [("a:1".to_owned(), false, 0), ("b:1".to_owned(), true, 5)]);
        // An address that none has named for long is left.
        tokio::time::advance(NAMED_FOR / 2).await;
        names(&"b:1".into());
        tokio::time::advance(NAMED_FOR).await;
        names(&"b:1".into());
        assert_eq!(rails(), [("b:1".to_owned(), true, 5)]);
        // However many are named, few are kept.
        (1..100).for_each(|port| names(&format!("c:{port}").as_str().into()));
        assert_eq!(rails().len(), LINKS_MAX);
        assert_eq!(rails().last().expect("there are some").0, "c:99");
    }

    #[tokio::test]
    async fn where_data_is_due_a_drive_that_stays_away_is_tried_aside() {
        let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = Addresses::from(mute.local_addr().expect("it is bound").to_string());
        let drives = Drives::new(ClusterId(1), Limits::default(), 4, Duration::ZERO).apart();
        let drive = DriveId(7);
        drives.note_away(drive, "gone");
        // The note has no duration: each asker would be the one that finds out.
        assert!(drives.avoid(drive, &address, None) && drives.avoid(drive, &address, None));
        mute.accept().await.expect("somebody tries the drive");
        assert!(drives.avoid(drive, &address, None), "it has said no hello");
    }

    /// Over TCP the drive might answer though no request reaches it.
    #[tokio::test]
    async fn where_requests_go_by_datagrams_a_drive_is_tried_so_too() {
        let mute = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let address = Addresses::from(mute.local_addr().expect("it is bound").to_string());
        let drives = Drives::new(ClusterId(1), Limits::default(), 4, Duration::ZERO);
        let drives = drives.by(Transport::UDP).apart();
        let drive = DriveId(7);
        drives.note_away(drive, "gone");
        assert!(drives.avoid(drive, &address, Some(&grant(drive))));
        let asked = tokio::time::timeout(Duration::from_secs(60), mute.recv(&mut [0; 2000])).await;
        asked.expect("somebody tries the drive by datagrams").expect("a datagram");
        assert!(drives.noted(drive).is_some(), "it has not answered");
    }

    /// Without a capability a drive is tried over TCP, where requests may not go. Its note goes, and the
    /// session too.
    #[tokio::test]
    async fn a_drive_that_takes_no_capability_by_datagrams_is_not_away() {
        let cluster = ClusterId(1);
        let drive = DriveId(7);
        let mut listener = Listener::bind("127.0.0.1:0").await.expect("a port");
        let nobody: SecretOf = Arc::new(|_| None);
        listener.add_datagrams(&session_config(Kind::Cubic), &nobody).expect("it is free for UDP");
        let address = listener.local_address().to_string();
        let addresses = Addresses::from(address.clone());
        let hello = Hello {
            role: PeerRole::Drive,
            version_min: WIRE_VERSION,
            version_max: WIRE_VERSION,
            cluster,
            drive,
            features: 0,
            challenge: challenge(),
        };
        tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut sender, receiver) = listener.accept().await.expect("a connection").into_halves();
                let _ = sender.send(HELLO, 0, &hello.to_bytes(), &[]).await;
                open.push((sender, receiver));
            }
        });
        let limits = Limits { connect: Duration::from_secs(60), ..Limits::default() };
        for grant in [Some(grant(drive)), None] {
            let drives = Drives::new(cluster, limits, 4, Duration::ZERO).by(Transport::UDP).apart();
            drives.note_away_at(drive, &addresses, "gone");
            assert!(drives.avoid(drive, &addresses, grant.as_ref()));
            wait_for(async || drives.noted(drive).is_none()).await;
            assert!(drives.take_idle(drive, &address).is_none());
        }
    }
}
