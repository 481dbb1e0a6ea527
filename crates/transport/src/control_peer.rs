//! The manager's side of a control session: Hello; then in TLS proof and Welcome, requests and replies.

use braid_layout::{DriveId, TokenId};
use braid_wire::capability::{Binding, Challenge, Key, mac_equal};
use braid_wire::control::{Authenticate, ControlHead, ControlReply, ControlRequest, RequestHead, Welcome};
use braid_wire::data::{HELLO, Hello};
use braid_wire::token::{Standing, Token};
use braid_wire::{Reason, Refusal, Wire};

use crate::error::{Result, TransportError};
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::slots::ConnectionSlot;
use crate::stream::Stream;
use crate::tls::{Secured, ServerIdentity};

/// The words for a proof that is wrong.
const NOT_PROVED: &str = "the token's secret is not the one on record: take the token's text whole, or ask an admin \
     of the cluster for a new one (braid token new)";

/// A request as received: its frame number, its head and its content.
#[derive(Debug)]
pub struct Asked {
    /// The frame's number on this connection, for the reply.
    pub number: u64,
    /// Newest wire version that the peer speaks.
    pub version: u16,
    /// The client and operation that the request belongs to; [`RequestHead::NONE`] if even the head could not
    /// be decoded.
    pub head: RequestHead,
    /// The request, or the refusal to answer with if it could not be decoded.
    pub request: std::result::Result<ControlRequest, Refusal>,
}

/// An authenticated peer of the manager.
#[derive(Debug)]
pub struct ControlPeer {
    sender: Sender,
    receiver: Receiver,
    /// Rights of the peer.
    pub standing: Standing,
    /// The peer's drive; zero for a client.
    pub drive: DriveId,
    /// The token that the peer has proved; [`TokenId::NONE`] for a drive that has joined.
    pub token: TokenId,
    /// Number of the drive's master key that it has proved; 0 for others.
    pub key: u32,
    /// The connection's binding.
    pub binding: Binding,
    /// The peer's nonce.
    pub nonce: Challenge,
    /// The secret that the peer proved.
    pub secret: Key,
}

impl ControlPeer {
    /// Sends Hello, begins TLS with the certificate of `identity`, and has the peer prove that it knows the
    /// secret, which `secret_of` looks up for its standing and drive. `hello.challenge` must be fresh: see
    /// [`crate::challenge`]. `managers` is the list that the peer is told. `head` gives each reply's term and
    /// time.
    ///
    /// An authenticated peer gets its slot from `place_for`, which may refuse.
    ///
    /// A wrong proof is answered and returned as [`TransportError::Refusal`]: drop the connection.
    pub async fn accept(
        stream: Stream,
        identity: &ServerIdentity,
        hello: &Hello,
        managers: Vec<String>,
        head: impl Fn() -> ControlHead,
        secret_of: impl FnOnce(&Authenticate) -> std::result::Result<Key, Refusal>,
        place_for: impl FnOnce(&Authenticate) -> std::result::Result<ConnectionSlot, Refusal>,
    ) -> Result<ControlPeer> {
        let wait = stream.limits().proof;
        let (mut sender, receiver) = stream.into_halves();
        sender.send(HELLO, 0, &hello.to_bytes(), &[]).await?;
        let secured = Secured::accept(sender, receiver, identity).await?;
        let binding = secured.binding(hello);
        let Secured { mut sender, mut receiver, .. } = secured;
        let address = receiver.address().to_owned();
        let Some((header, body)) = receiver.frame_within(wait, "for its proof").await? else {
            return Err(TransportError::Closed { address });
        };
        let decode = |source| TransportError::Decode { address: address.clone(), source };
        let (_, first) = request_of(header.kind, &body).map_err(decode)?;
        let proved = match first {
            ControlRequest::Authenticate(asker) => secret_of(&asker).and_then(|secret| {
                let proof = Token::asker_proof(&secret, &binding, &asker.nonce, asker.standing, asker.drive);
                let wrong = || Refusal::new(Reason::BadToken, NOT_PROVED);
                if !mac_equal(&proof, &asker.proof) {
                    return Err(wrong());
                }
                Ok((place_for(&asker)?, secret, asker))
            }),
            _ => Err(Refusal::new(Reason::BadToken, "the first request must prove a token")),
        };
        match proved {
            Ok((place, secret, Authenticate { standing, drive, key, token, nonce, .. })) => {
                receiver.admit(place);
                let proof = Token::manager_proof(&secret, &binding, &nonce);
                let mut peer =
                    ControlPeer { sender, receiver, standing, drive, token, key, binding, nonce, secret };
                let welcome = Welcome { cluster: hello.cluster, proof, managers };
                peer.reply(header.request, &head(), &welcome.into()).await?;
                Ok(peer)
            }
            Err(refusal) => {
                send(&mut sender, header.request, &head(), &refusal.clone().into()).await?;
                sender.shutdown().await?;
                Err(TransportError::Refusal(refusal))
            }
        }
    }

    /// The next request, waiting at most `limits.idle`; `None` if the peer is gone. A request that cannot be
    /// decoded comes with a refusal instead: send that and go on. Bytes that are not a frame end the session;
    /// the peer is told so, if it still listens, with request number 0 and the head from `head`. Cancel-safe
    /// between requests.
    pub async fn next(&mut self, head: impl Fn() -> ControlHead) -> Result<Option<Asked>> {
        let frame = match self.receiver.frame().await {
            Err(error @ TransportError::Frame { .. }) => {
                let detail = format!("the bytes received are not a whole frame ({error})");
                let damaged = Refusal::new(Reason::Malformed, detail);
                // The frame's error is the one to return, whether or not the peer could be told.
                let _ = send(&mut self.sender, 0, &head(), &damaged.into()).await;
                return Err(error);
            }
            frame => frame?,
        };
        let Some((header, body)) = frame else { return Ok(None) };
        let decoded = request_of(header.kind, &body);
        self.receiver.recycle(body);
        let (head, request) = match decoded {
            Ok((head, request)) => (head, Ok(request)),
            Err(error) => (RequestHead::NONE, Err(refusal_of(error))),
        };
        Ok(Some(Asked { number: header.request, version: header.version, head, request }))
    }

    /// Counts the connection as idle until its next request, so that its slot may be given to another. Called
    /// for an answer that the peer waits for all the time.
    pub fn rest(&mut self) {
        self.receiver.rest();
    }

    /// Answers request number `request`.
    pub async fn reply(&mut self, request: u64, head: &ControlHead, reply: &ControlReply) -> Result<()> {
        send(&mut self.sender, request, head, reply).await
    }

    /// The peer's address, for messages.
    pub fn address(&self) -> &str {
        self.receiver.address()
    }
}

/// Decodes a request's head and the request.
fn request_of(
    kind: u16,
    body: &[u8],
) -> std::result::Result<(RequestHead, ControlRequest), braid_wire::DecodeError> {
    let mut arguments = body;
    let head = RequestHead::take(&mut arguments)?;
    Ok((head, ControlRequest::from_body(kind, arguments)?))
}

fn refusal_of(error: braid_wire::DecodeError) -> Refusal {
    match error {
        braid_wire::DecodeError::Kind(kind) => Refusal::new(
            Reason::Unsupported,
            format!("the manager does not serve messages of kind {kind:#06x}"),
        ),
        error => Refusal::new(Reason::Malformed, error.to_string()),
    }
}

async fn send(sender: &mut Sender, request: u64, head: &ControlHead, reply: &ControlReply) -> Result<()> {
    let mut body = Vec::new();
    head.put(&mut body);
    reply.put_body(&mut body);
    sender.send(reply.kind(), request, &body, &[]).await
}
