//! The way that sessions with drives go: TCP, or datagrams over UDP.
//!
//! [`Transport`] is what is asked for. [`Ways`] carries it out, for all drives of a client:
//!
//! - `tcp`: nothing else.
//! - `udp`: datagrams only. Where they do not come through, the error says so.
//! - `auto`: both are tried at the same time. If the session by datagrams stands within [`PROBE`], it is
//!   taken, else the one over TCP. What was found at an address is remembered for [`REMEMBERED`]: after that,
//!   or when datagrams do not come through any more, it is found out anew.
//!
//! Datagrams may be refused: by a drive that has no room or does not take the capability, or by another drive
//! that is at the address now. A refusal carries no proof, so `auto` takes TCP then, where each request is
//! answered, and `udp` asks by TCP who is there.
//!
//! A session goes over TCP in any case if it has no capability to show, or if it is in TLS. Nothing tells
//! beforehand whether a drive listens for datagrams: one that does not, or is older than they are, does not
//! answer.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_datagram::policy::{Kind, UnknownPolicy};
use braid_datagram::{Config, Secret};
use braid_layout::DriveId;
use braid_wire::addresses::IN_TLS;
use braid_wire::control::Grant;
use braid_wire::{Addresses, Reason, Refusal};
use tokio::time::{Instant, timeout};

use crate::datagrams::{DatagramStream, session_config};
use crate::drive_session::{Connecting, DriveSession, Home};
use crate::error::{Result, TransportError};
use crate::limits::Limits;

/// Time for the handshake of datagrams and the drive's hello before TCP is taken: an Open that is lost is
/// sent twice more until then.
pub const PROBE: Duration = Duration::from_millis(500);

/// Time for which it is remembered whether datagrams come through to an address.
pub const REMEMBERED: Duration = Duration::from_secs(60);

/// Maximum number of addresses that are remembered.
const LEARNT_MAX: usize = 4096;

/// That which is asked for: how sessions with drives go, and the policy of what is sent by datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    /// TCP, and nothing else.
    #[default]
    Tcp,
    /// Datagrams, with this policy.
    Udp(Kind),
    /// Datagrams, with this policy, where they come through; else TCP.
    Auto(Kind),
}

/// A text that names no transport.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTransport {
    /// It is none of the names.
    #[error("no transport is named \"{0}\": tcp, udp, auto, or with a policy such as udp:cubic")]
    Unknown(String),
    /// The policy that it names is none.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
}

/// The way that a session goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The session is over a TCP connection.
    Tcp,
    /// The session is by datagrams over UDP.
    Udp,
}

/// The ways to all drives that a client has sessions with.
#[derive(Debug, Default)]
pub struct Ways {
    transport: Transport,
    learnt: Mutex<BTreeMap<String, Learnt>>,
}

/// That which was found at an address.
#[derive(Debug, Clone)]
struct Learnt {
    way: Way,
    until: Instant,
}

/// A call of a drive at one of its addresses.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The drive that must answer.
    pub expect: DriveId,
    /// The cluster to which it must belong.
    pub home: Home,
    /// The bounds of waits.
    pub limits: &'a Limits,
    /// A capability for this drive, by which the asker proves itself; `None`: there is none yet.
    pub grant: Option<&'a Grant>,
}

impl Transport {
    /// Datagrams, with the default policy.
    pub const UDP: Transport = Transport::Udp(Kind::Cubic);
    /// Datagrams, with the default policy, where they come through; else TCP.
    pub const AUTO: Transport = Transport::Auto(Kind::Cubic);
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Tcp => f.write_str("tcp"),
            &Transport::UDP => f.write_str("udp"),
            &Transport::AUTO => f.write_str("auto"),
            Transport::Udp(policy) => write!(f, "udp:{policy}"),
            Transport::Auto(policy) => write!(f, "auto:{policy}"),
        }
    }
}

impl FromStr for Transport {
    type Err = BadTransport;

    fn from_str(text: &str) -> std::result::Result<Transport, BadTransport> {
        Ok(match text.split_once(':') {
            None if text == "tcp" => Transport::Tcp,
            None if text == "udp" => Transport::UDP,
            None if text == "auto" => Transport::AUTO,
            Some(("udp", policy)) => Transport::Udp(policy.parse()?),
            Some(("auto", policy)) => Transport::Auto(policy.parse()?),
            _ => return Err(BadTransport::Unknown(text.to_owned())),
        })
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Tcp => "tcp",
            Way::Udp => "udp",
        })
    }
}

impl Ways {
    /// The ways that are asked for; nothing is known yet.
    pub fn new(transport: Transport) -> Ways {
        Ways { transport, learnt: Mutex::default() }
    }

    /// That which is asked for.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Connects to a drive at `address`. The future is boxed: callers' own would be too deep for the
    /// compiler.
    pub fn connect<'a>(&'a self, address: &'a str, call: Call<'a>) -> Connecting<'a> {
        Box::pin(self.find(address, call))
    }

    async fn find(&self, address: &str, call: Call<'_>) -> Result<DriveSession> {
        let grant = call.grant.filter(|_| !address.starts_with(IN_TLS));
        match (self.transport, grant) {
            (Transport::Tcp, _) | (_, None) => call.by_tcp(address).await,
            (Transport::Udp(policy), Some(grant)) => match call.by_udp(address, grant, policy).await {
                Err(TransportError::Refusal(refusal)) => Err(call.refused_by(address, refusal).await),
                tried => tried.map_err(|error| no_datagrams(address, error)),
            },
            (Transport::Auto(policy), Some(grant)) => self.try_both(address, call, grant, policy).await,
        }
    }

    /// Connects to the drive at the first of its addresses that answers, as [`DriveSession::connect_first`].
    pub async fn connect_first(&self, addresses: &Addresses, call: Call<'_>) -> Result<DriveSession> {
        DriveSession::first(addresses, call.expect, |address| self.connect(address, call)).await
    }

    async fn try_both(
        &self,
        address: &str,
        call: Call<'_>,
        grant: &Grant,
        policy: Kind,
    ) -> Result<DriveSession> {
        let learnt = self.learnt(address);
        if learnt == Some(Way::Tcp) {
            return call.by_tcp(address).await;
        }
        let by_udp = timeout(PROBE, call.by_udp(address, grant, policy));
        let by_tcp = call.by_tcp(address);
        tokio::pin!(by_udp, by_tcp);
        // Where datagrams came through lately, TCP is not called in vain.
        let is_alone = learnt == Some(Way::Udp);
        let mut connected = None;
        let probed = loop {
            tokio::select! {
                biased;
                probed = &mut by_udp => break probed,
                tried = &mut by_tcp, if !is_alone && connected.is_none() => connected = Some(tried),
            }
        };
        let probed = match probed {
            Ok(Ok(session)) => {
                self.learn(address, Way::Udp);
                return Ok(session);
            }
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        let tried = match connected {
            Some(connected) => connected,
            None => by_tcp.await,
        };
        let why = probed.as_ref().map_or_else(|| "no answer".to_owned(), TransportError::to_string);
        match (tried, probed) {
            (Ok(session), refused) => {
                tracing::debug!(address, why, "no datagrams: TCP is used");
                // Who refuses has got them: a drive without room, or with another opinion of the capability.
                if !matches!(refused, Some(TransportError::Refusal(_))) {
                    self.learn(address, Way::Tcp);
                }
                Ok(session)
            }
            // A drive that answers neither tells nothing of the way to it.
            (Err(error), Some(TransportError::Refusal(refusal))) => Err(or_wrong_peer(error, refusal)),
            (Err(error), _) => Err(error),
        }
    }

    /// The way that was found at an address, if that is remembered.
    pub fn learnt(&self, address: &str) -> Option<Way> {
        let learnt = self.lock().get(address)?.clone();
        (Instant::now() < learnt.until).then_some(learnt.way)
    }

    fn learn(&self, address: &str, way: Way) {
        let now = Instant::now();
        let mut all = self.lock();
        if all.len() >= LEARNT_MAX {
            all.retain(|_, learnt| now < learnt.until);
        }
        if all.len() < LEARNT_MAX {
            all.insert(address.to_owned(), Learnt { way, until: now + REMEMBERED });
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Learnt>> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call<'_> {
    async fn by_tcp(&self, address: &str) -> Result<DriveSession> {
        DriveSession::connect(address, self.expect, self.home, self.limits).await
    }

    async fn by_udp(&self, address: &str, grant: &Grant, policy: Kind) -> Result<DriveSession> {
        let config = session_config(policy);
        let Call { expect, home, limits, .. } = *self;
        DriveSession::connect_by_datagrams(address, expect, home, limits, grant, config)
            .await
            .map_err(refused)
    }

    /// The error of a call that was refused by datagrams. Another drive at this address refuses the
    /// capability too, and no new one would mend that: the hello over TCP says who is there.
    async fn refused_by(&self, address: &str, refusal: Refusal) -> TransportError {
        if refusal.reason == Reason::StaleKey
            && let Err(error) = self.by_tcp(address).await
        {
            return or_wrong_peer(error, refusal);
        }
        TransportError::Refusal(refusal)
    }
}

/// The refusal by datagrams, unless TCP has said that it is another peer's.
fn or_wrong_peer(by_tcp: TransportError, refusal: Refusal) -> TransportError {
    match by_tcp {
        TransportError::WrongPeer { .. } => by_tcp,
        _ => TransportError::Refusal(refusal),
    }
}

/// A drive that does not take the capability of a handshake is asked for no reason: its holder asks the
/// manager, as with one that has expired.
fn refused(error: TransportError) -> TransportError {
    match error {
        TransportError::Connect { address, source } if source.kind() == io::ErrorKind::PermissionDenied => {
            let detail = format!("{address} does not take the capability ({source}): ask the manager");
            TransportError::Refusal(Refusal::new(Reason::StaleKey, detail))
        }
        TransportError::Connect { address, source } if source.kind() == io::ErrorKind::ResourceBusy => {
            let detail = format!("{address} has too many connections: try again later");
            TransportError::Refusal(Refusal::new(Reason::Busy, detail))
        }
        error => error,
    }
}

fn no_datagrams(address: &str, error: TransportError) -> TransportError {
    let why = match error {
        TransportError::Timeout { .. } => "no answer in time".to_owned(),
        TransportError::Connect { source, .. } => source.to_string(),
        error => return error,
    };
    TransportError::NoDatagrams { address: address.to_owned(), why }
}

/// Asks whether datagrams come through to a drive and back, without a capability: its refusal of an identity
/// that there is not says so. Returns the time that it took, or the reason why not.
pub async fn probe(address: &str, limits: &Limits) -> std::result::Result<Duration, String> {
    let began = Instant::now();
    let config = Config { connections: 1, believes_refusals: true, ..session_config(Kind::Cubic) };
    let opening = DatagramStream::connect(address, config, b"a probe", Secret::new([0; 32]));
    match timeout(limits.connect, opening).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => Ok(began.elapsed()),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(_)) => Ok(began.elapsed()),
        Err(_) => Err(format!("no answer by UDP in {} ms", limits.connect.as_millis())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_read_and_written() {
        for text in ["tcp", "udp", "auto", "udp:window-7", "auto:credit"] {
            assert_eq!(text.parse::<Transport>().map(|read| read.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("udp:cubic".parse(), Ok(Transport::UDP));
        for text in ["", "TCP", "tcp:cubic", "quic", "udp:"] {
            let error = text.parse::<Transport>().unwrap_err().to_string();
            assert!(error.contains("cubic"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_found_is_remembered_for_a_minute() {
        let ways = Ways::new(Transport::AUTO);
        ways.learn("a:1", Way::Tcp);
        ways.learn("b:1", Way::Udp);
        assert_eq!(
            [ways.learnt("a:1"), ways.learnt("b:1"), ways.learnt("c:1")],
            [Some(Way::Tcp), Some(Way::Udp), None]
        );
        tokio::time::advance(REMEMBERED).await;
        assert_eq!(ways.learnt("a:1"), None);
        // However many are called, few are kept.
        (0..2 * LEARNT_MAX).for_each(|at| ways.learn(&at.to_string(), Way::Tcp));
        assert_eq!(ways.lock().len(), LEARNT_MAX);
    }
}
