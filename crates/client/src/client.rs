//! The client: the state that all its files share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_layout::ClientId;
use braid_transport::{Limits, SHARED_PAYLOAD_BYTES_MAX};
use braid_wire::control::{ControlReply, ControlRequest, DriveRow};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::analysis::Recorder;
use crate::config::Config;
use crate::data::recent::AllRecent;
use crate::data::scratch::Scratch;
use crate::data::unit_writes::UnitWrites;
use crate::error::{Error, Result};
use crate::later::Later;
use crate::peers::control::Control;
use crate::peers::credit::{Caller, Credits, LinkCredit};
use crate::peers::dealing::{Datagrams, RailSeen, RailUse};
use crate::peers::drive_requests::InFlightLimit;
use crate::peers::drives::Drives;
use crate::peers::renewals::Renewals;
use crate::sealed::ring::Ring;

/// Plan sets in flight of requests for at most [`SHARED_PAYLOAD_BYTES_MAX`] each.
const SMALL_SETS_MAX: usize = 128;

/// A client of one cluster. Cheap to clone; clones share sessions and bounds.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) paths: Arc<Paths>,
}

/// The way of data: sessions with drives, and the bounds of what is in flight. A handle with a reserved rate
/// has one of its own, so that it never waits for what other handles have in flight.
pub(crate) struct Paths {
    pub(crate) drives: Drives,
    /// One permit per plan set in flight.
    sets: Semaphore,
    /// One permit per plan set in flight of a request for a few bytes. Such requests share sessions, and hold
    /// little memory: many of them may wait for drives at a time.
    small_sets: Semaphore,
    /// One permit per chunk that is read here for a method. Who holds one waits for those of plan sets.
    judging: Semaphore,
    pub(crate) scratch: Scratch,
    /// Instructions in flight per drive and session.
    flights: usize,
    /// `None`: reads wait for no turn.
    pub(crate) credits: Option<Arc<Credits>>,
}

/// Instructions in flight per drive and session of a handle with a reserved rate. A drive spreads what it
/// gets over the promise's time: those of a whole period are to wait there, not here for answers to others.
const PROMISED_FLIGHTS: usize = 128;

/// The state shared by clones.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) control: Control,
    /// Random: distinguishes this client's operations from those of others.
    pub(crate) number: ClientId,
    pub(crate) unit_writes: UnitWrites,
    /// Content that its handles have just written.
    pub(crate) recent: Arc<AllRecent>,
    pub(crate) renewals: Renewals,
    pub(crate) later: Later,
    /// Keys of encrypted volumes.
    pub(crate) ring: Ring,
    /// True if lookups and listings ask the manager to watch their results: set when a watch begins.
    pub(crate) watches: AtomicBool,
}

/// Number of requests that a client has sent. A repeated request counts each time that it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentRequests {
    /// Requests to the manager, renewals of leases included; those sent in one message count as one.
    pub manager: u64,
    /// Requests to drives.
    pub drives: u64,
}

impl Paths {
    fn new(config: &Config) -> Paths {
        let limits = Limits { reply: config.drive_reply, ..config.limits };
        let drives =
            Drives::new(config.credentials.cluster.clone(), limits, config.idle_sessions, config.avoid);
        let drives = drives.with_pin(Some(config.credentials.pin)).by(config.transport);
        let credits = config.credit.then(Arc::default);
        Paths { credits, ..Paths::of(config, drives, config.flights_per_drive) }
    }

    fn of(config: &Config, drives: Drives, flights: usize) -> Paths {
        Paths {
            drives,
            sets: Semaphore::new(config.sets.max(1)),
            small_sets: Semaphore::new(SMALL_SETS_MAX),
            judging: Semaphore::new(config.sets.max(1)),
            scratch: Scratch::default(),
            flights,
            credits: None,
        }
    }
}

impl Paths {
    /// The same bounds and credit, with sessions whose requests leave spans.
    fn recording(&self, config: &Config, recorder: Arc<Recorder>) -> Paths {
        let credits = self.credits.clone();
        Paths { credits, ..Paths::of(config, self.drives.recording(recorder), self.flights) }
    }
}

impl Client {
    /// Makes a client and proves its token to the manager. Waits for the manager within the client's
    /// patience.
    pub async fn connect(config: Config) -> Result<Client> {
        let number = ClientId(random()?);
        let shared = Shared {
            control: Control::new(config.clone(), number),
            number,
            unit_writes: UnitWrites::new(),
            recent: Arc::default(),
            renewals: Renewals::new(),
            later: Later::default(),
            ring: Ring::new(config.volume_keys.clone()),
            watches: AtomicBool::new(false),
            config,
        };
        let paths = Arc::new(Paths::new(&shared.config));
        let client = Client { shared: Arc::new(shared), paths };
        client.shared.control.greet().await?;
        Ok(client)
    }

    /// The same client, with sessions and bounds of its own, for a handle with a reserved rate.
    pub(crate) fn apart(&self) -> Client {
        let config = &self.shared.config;
        let flights = config.flights_per_drive.max(PROMISED_FLIGHTS);
        let paths = Paths::of(config, self.paths.drives.apart(), flights);
        Client { shared: Arc::clone(&self.shared), paths: Arc::new(paths) }
    }

    /// The same client, with sessions of its own, whose requests leave spans with the recorder. They wait for
    /// the same credit as this client's.
    pub fn analysed(&self) -> (Client, Arc<Recorder>) {
        let recorder = Recorder::new();
        let paths = self.paths.recording(&self.shared.config, Arc::clone(&recorder));
        (Client { shared: Arc::clone(&self.shared), paths: Arc::new(paths) }, recorder)
    }

    /// The settings that the client was made with.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Waits, for some seconds at most, until the drives have been told which writes to closed files are
    /// settled. A program that ends without this call loses nothing, but the drives keep more than they need
    /// for longer.
    pub async fn finish(&self) {
        self.shared.later.end().await;
    }

    /// Requests sent so far.
    pub fn sent_requests(&self) -> SentRequests {
        let control = &self.shared.control;
        let drives = &self.paths.drives;
        SentRequests { manager: control.asked(), drives: drives.asked() }
    }

    /// A number that grows whenever a drive answers.
    pub fn drive_answers(&self) -> u64 {
        self.paths.drives.answers()
    }

    /// Bytes sent to drives so far, over all sessions: frames' headers, capabilities, MACs and payloads.
    pub fn sent_bytes(&self) -> u64 {
        self.paths.drives.sent_bytes()
    }

    /// The rails of drives that were used so far, by drive and in the order in which the drive names them.
    /// Handles with a reserved rate have connections of their own, which are not among them.
    pub fn rails(&self) -> Vec<RailUse> {
        self.paths.drives.rails()
    }

    /// Calls these drives on each of their rails, all at once; the answers are in the drives' order, and in
    /// that of their addresses. Waits `limits.connect` for a connection, and as long for the drive's hello.
    pub async fn see_rails(&self, drives: &[DriveRow]) -> Vec<Vec<RailSeen>> {
        self.paths.drives.see_rails(drives).await
    }

    /// Looks whether datagrams come through to drives at these addresses, all at once, for a second at most,
    /// if the client's transport uses them.
    pub async fn see_datagrams(&self, addresses: Vec<String>) -> Vec<Datagrams> {
        self.paths.drives.see_datagrams(addresses).await
    }

    /// Sends a request to the manager; `subject` names it in errors.
    pub(crate) async fn ask_manager(
        &self,
        subject: &str,
        request: impl Into<ControlRequest>,
    ) -> Result<ControlReply> {
        self.shared.control.call(subject, &request.into()).await
    }

    /// Sends a request whose only answer is "done".
    pub(crate) async fn ask_done(&self, subject: &str, request: impl Into<ControlRequest>) -> Result<()> {
        match self.ask_manager(subject, request).await? {
            ControlReply::Done(_) => Ok(()),
            other => Err(unexpected(subject, &other)),
        }
    }

    /// A permit to run one more plan set. A holder never waits for another permit of any kind.
    pub(crate) async fn set_permit(&self) -> SemaphorePermit<'_> {
        self.paths.sets.acquire().await.expect("it is never closed")
    }

    /// A permit to run one more plan set of a request for `bytes` bytes of the file. Small requests have
    /// permits of their own.
    pub(crate) async fn set_permit_for(&self, bytes: u64) -> SemaphorePermit<'_> {
        if bytes > u64::from(SHARED_PAYLOAD_BYTES_MAX) {
            return self.set_permit().await;
        }
        self.paths.small_sets.acquire().await.expect("it is never closed")
    }

    /// A permit to have one more chunk of a file in memory, on which a method runs here. Its bytes are read
    /// with permits for plan sets.
    pub(crate) async fn judging_permit(&self) -> SemaphorePermit<'_> {
        self.paths.judging.acquire().await.expect("it is never closed")
    }

    /// Returns true if lookups and listings are to ask the manager to watch their results.
    pub(crate) fn watches(&self) -> bool {
        self.shared.watches.load(Ordering::Acquire)
    }

    /// The bounds for one caller, which has this number.
    pub(crate) fn in_flight_limit(&self, number: u64) -> InFlightLimit<'_> {
        let config = &self.shared.config;
        let caller = self.paths.credits.as_deref().map(|credits| Caller { credits, number });
        InFlightLimit { flights: self.paths.flights, bytes: config.flight_bytes, caller }
    }

    /// The credit of each of this machine's links over which drives were read, but for reserved handles.
    pub fn credit(&self) -> Vec<LinkCredit> {
        self.paths.credits.as_deref().map(Credits::counts).unwrap_or_default()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("managers", &self.shared.config.managers).finish_non_exhaustive()
    }
}

/// The error for an answer that does not belong to the request.
pub(crate) fn unexpected(subject: &str, reply: &ControlReply) -> Error {
    Error::Answer {
        subject: subject.to_owned(),
        why: format!("{} does not answer this request", reply.name()),
    }
}

/// A random number other than 0.
pub(crate) fn random() -> Result<u64> {
    let mut number = [0; 8];
    getrandom::fill(&mut number).map_err(|error| Error::Answer {
        subject: "this machine's random numbers".to_owned(),
        why: error.to_string(),
    })?;
    Ok(u64::from_le_bytes(number).max(1))
}

#[cfg(test)]
mod tests {
    use braid_layout::TokenId;
    use braid_wire::Key;
    use braid_wire::token::{Token, TokenRole};

    use super::*;

    #[test]
    fn an_analysed_client_waits_for_the_same_credit() {
        let token = Token::lasting(TokenRole::Client, [0; 32], TokenId(1), Key::new([7; 32]));
        let config = Config::new("", token);
        let recorded = |config: &Config| {
            let paths = Paths::new(config);
            let recording = paths.recording(config, Recorder::new());
            (paths.credits, recording.credits)
        };
        let shared = recorded(&config);
        assert!(shared.0.zip(shared.1).is_some_and(|(own, recording)| Arc::ptr_eq(&own, &recording)));
        assert!(recorded(&Config { credit: false, ..config }).1.is_none());
    }
}
