//! A session with the manager: its Hello, TLS, mutual proof of the token's secret, then calls, one at a time.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use braid_layout::{ClusterId, DriveId, TokenId};
use braid_wire::Wire;
use braid_wire::capability::{Binding, Challenge, Key, mac_equal};
use braid_wire::control::{
    Authenticate, ControlHead, ControlReply, ControlRequest, RequestHead, managers_mark,
};
use braid_wire::data::PeerRole;
use braid_wire::token::{Pin, Standing, Token};

use crate::error::{Greeted, Result, TransportError};
use crate::hello::{self, Wanted};
use crate::limits::Limits;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::stream::Stream;
use crate::tls::Secured;

/// Identity and secret that a client or drive proves to the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Rights of the session.
    pub standing: Standing,
    /// The pin of the CA that the manager's certificate must be of.
    pub pin: Pin,
    /// The CA's cluster, once it is known.
    pub cluster: KnownCluster,
    /// Identity of the drive; zero for a client.
    pub drive: DriveId,
    /// The token that is proved; [`TokenId::NONE`] for a drive that has joined.
    pub token: TokenId,
    /// The secret that is proved.
    pub secret: Secret,
}

/// The identity of a cluster of which first only the pin may be known. Copies share it: the first session
/// with the manager tells it to all of them.
#[derive(Debug, Clone, Default)]
pub struct KnownCluster(Arc<OnceLock<ClusterId>>);

impl KnownCluster {
    /// The cluster's identity; `ClusterId(0)`, which no cluster has, before the first session.
    pub fn get(&self) -> ClusterId {
        self.0.get().copied().unwrap_or_default()
    }
}

impl From<ClusterId> for KnownCluster {
    fn from(cluster: ClusterId) -> KnownCluster {
        let known = KnownCluster::default();
        let _ = known.0.set(cluster);
        known
    }
}

impl PartialEq for KnownCluster {
    fn eq(&self, other: &KnownCluster) -> bool {
        self.get() == other.get()
    }
}

impl Eq for KnownCluster {}

/// A secret that is proved to the manager: a token's, or a drive's own once it has joined. Its copies share
/// it: when a drive's key is turned, all of them prove the new one.
#[derive(Debug, Clone)]
pub struct Secret(Arc<Mutex<Proved>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Proved {
    /// Number of the drive's master key; zero for a token.
    number: u32,
    key: Key,
}

impl Secret {
    fn new(number: u32, key: Key) -> Secret {
        Secret(Arc::new(Mutex::new(Proved { number, key })))
    }

    fn get(&self) -> Proved {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Secret {}

impl Credentials {
    /// Credentials of a drive that joins with a token.
    pub fn joining(token: &Token, drive: DriveId) -> Credentials {
        Credentials { drive, ..Credentials::from(token) }
    }

    /// Credentials of a drive that has joined, from its master key and the number of that.
    pub fn of_drive(cluster: ClusterId, pin: Pin, drive: DriveId, key: u32, master: &Key) -> Credentials {
        let secret = Secret::new(key, Token::drive_secret(master));
        Credentials {
            standing: Standing::Drive,
            pin,
            cluster: cluster.into(),
            drive,
            token: TokenId::NONE,
            secret,
        }
    }

    /// The drive's master key was turned: from now on these credentials and all copies of them prove the new
    /// one.
    pub fn handle_turn(&self, key: u32, master: &Key) {
        let proved = Proved { number: key, key: Token::drive_secret(master) };
        *self.secret.0.lock().unwrap_or_else(PoisonError::into_inner) = proved;
    }
}

impl From<&Token> for Credentials {
    fn from(token: &Token) -> Credentials {
        Credentials {
            standing: token.role.standing(),
            pin: token.pin,
            cluster: KnownCluster::default(),
            drive: DriveId(0),
            token: token.id,
            secret: Secret::new(0, token.secret.clone()),
        }
    }
}

/// A session with the manager. After any error but [`TransportError::Refusal`]: connect again.
#[derive(Debug)]
pub struct ControlSession {
    sender: Sender,
    receiver: Receiver,
    limits: Limits,
    binding: Binding,
    nonce: Challenge,
    head: ControlHead,
    request: u64,
    /// The list of managers that this one told; empty: it is the only one.
    told: Vec<String>,
}

impl ControlSession {
    /// Connects, checks that the manager belongs to the cluster and has a certificate of its CA, and has both
    /// sides prove the secret within TLS.
    pub async fn connect(
        address: &str,
        credentials: impl Into<Credentials>,
        limits: &Limits,
    ) -> Result<ControlSession> {
        let Credentials { standing, pin, cluster: known, drive, token, secret } = credentials.into();
        let Proved { number: key, key: secret } = secret.get();
        let (sender, mut receiver) = Stream::connect(address, limits).await?.into_halves();
        let wanted = known.0.get().copied().map_or(Wanted::AnyCluster, Wanted::Cluster);
        let hello = hello::take(&mut receiver, PeerRole::Manager, wanted, None, limits).await;
        let hello = hello.map_err(|error| error.or_damaged(Greeted::No))?;
        let secured = Secured::connect(sender, receiver, &pin).await?;
        let binding = secured.binding(&hello);
        let Secured { sender, receiver, .. } = secured;
        let nonce = hello::challenge();
        let head = ControlHead { term: 0, now_ms: 0, managers: 0 };
        let mut session = ControlSession {
            sender,
            receiver,
            limits: *limits,
            binding,
            nonce,
            head,
            request: 0,
            told: vec![],
        };
        let proof = Token::asker_proof(&secret, &binding, &nonce, standing, drive);
        match session.call(&Authenticate { standing, drive, key, token, nonce, proof }.into()).await? {
            ControlReply::Welcome(welcome) => {
                let expected = Token::manager_proof(&secret, &binding, &nonce);
                if welcome.cluster == hello.cluster && mac_equal(&expected, &welcome.proof) {
                    let _ = known.0.set(hello.cluster); // or it is known already
                    session.told = welcome.managers;
                    return Ok(session);
                }
                Err(TransportError::Forged { address: address.to_owned(), what: "welcome" })
            }
            other => Err(session.unexpected(format!("{} instead of a welcome", other.name()))),
        }
    }

    /// Asks who listens at the address: the cluster of the manager there, if that has a certificate of the CA
    /// with this pin. Nothing is proved to it.
    pub async fn cluster_at(address: &str, pin: Pin, limits: &Limits) -> Result<ClusterId> {
        let (sender, mut receiver) = Stream::connect(address, limits).await?.into_halves();
        let hello = hello::take(&mut receiver, PeerRole::Manager, Wanted::AnyCluster, None, limits).await;
        let hello = hello.map_err(|error| error.or_damaged(Greeted::No))?;
        Secured::connect(sender, receiver, &pin).await?;
        Ok(hello.cluster)
    }

    /// Sends a request that is not an operation, and returns its reply: see [`ControlSession::call_as`].
    pub async fn call(&mut self, request: &ControlRequest) -> Result<ControlReply> {
        self.call_as(&RequestHead::NONE, request).await
    }

    /// Sends a request and returns its reply, which must begin within `limits.reply`. A refusal is
    /// [`TransportError::Refusal`]; the session stays usable after it. If the call is dropped midway, the
    /// session is unusable.
    pub async fn call_as(&mut self, head: &RequestHead, request: &ControlRequest) -> Result<ControlReply> {
        self.request += 1;
        let mut body = Vec::new();
        head.put(&mut body);
        request.put_body(&mut body);
        self.sender.send(request.kind(), self.request, &body, &[]).await?;
        let frame = self.receiver.frame_within(self.limits.reply, "for an answer").await;
        let Some((header, body)) = frame.map_err(|error| error.or_damaged(Greeted::Yes))? else {
            return Err(TransportError::Closed { address: self.receiver.address().to_owned() });
        };
        let decode = |source| TransportError::Decode { address: self.receiver.address().to_owned(), source };
        let mut arguments = body.as_slice();
        let head = ControlHead::take(&mut arguments).map_err(decode)?;
        let reply = ControlReply::from_body(header.kind, arguments).map_err(decode)?;
        if header.request != self.request || header.payload_bytes > 0 {
            return Err(self.out_of_step(header.request, &reply));
        }
        self.head = head;
        self.receiver.recycle(body);
        match reply {
            ControlReply::Refused(refusal) => Err(TransportError::Refusal(refusal)),
            reply => Ok(reply),
        }
    }

    /// The manager's term and time as given in its last reply.
    pub fn head(&self) -> &ControlHead {
        &self.head
    }

    /// The list of managers that this one told, the leader first; empty: it is the only one.
    pub fn told(&self) -> &[String] {
        &self.told
    }

    /// Returns true if the list of managers has changed since the session began: a new session tells the new
    /// one.
    pub fn is_outdated(&self) -> bool {
        self.head.managers != managers_mark(&self.told)
    }

    /// The connection's binding. With the nonce it gives a joining drive's master key.
    pub fn binding(&self) -> &Binding {
        &self.binding
    }

    /// Our own nonce in this session's proof.
    pub fn nonce(&self) -> &Challenge {
        &self.nonce
    }

    /// The manager's address.
    pub fn address(&self) -> &str {
        self.receiver.address()
    }

    /// The error for a reply to another request: the manager could not tell which request it answers, an
    /// answer came twice, or an earlier call was dropped and left its answer behind.
    fn out_of_step(&self, answered: u64, reply: &ControlReply) -> TransportError {
        let what = match reply {
            ControlReply::Refused(refusal) if answered == 0 => refusal.detail.clone(),
            _ => format!("answer to request {answered}; expected {}", self.request),
        };
        TransportError::Damaged { address: self.receiver.address().to_owned(), what }
    }

    fn unexpected(&self, what: String) -> TransportError {
        TransportError::Unexpected { address: self.receiver.address().to_owned(), what }
    }
}
