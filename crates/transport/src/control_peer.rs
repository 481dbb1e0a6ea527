//! The manager's side of a control session: Hello, proof, Welcome; then requests and replies.

use braid_layout::DriveId;
use braid_wire::capability::{Binding, Challenge, Key, mac_equal};
use braid_wire::control::{Authenticate, ControlHead, ControlReply, ControlRequest, Welcome};
use braid_wire::data::{HELLO, Hello};
use braid_wire::token::{Standing, Token};
use braid_wire::{Reason, Refusal, Wire};

use crate::error::{Result, TransportError};
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::stream::Stream;

/// An asker that has proved its secret.
#[derive(Debug)]
pub struct ControlPeer {
    sender: Sender,
    receiver: Receiver,
    /// What it may do.
    pub standing: Standing,
    /// The drive it is; zero for a client.
    pub drive: DriveId,
    /// The connection's binding.
    pub binding: Binding,
    /// The asker's nonce.
    pub nonce: Challenge,
    /// The secret it proved.
    pub secret: Key,
}

impl ControlPeer {
    /// Says Hello and has the asker prove that it knows the secret which `secret_of` gives for its standing and drive.
    /// `hello.challenge` must be fresh: see [`crate::challenge`]. `head` is called for each reply's term and time.
    ///
    /// A wrong proof is told to the asker and is [`TransportError::Refusal`] here: drop the connection.
    pub async fn accept(
        stream: Stream,
        hello: &Hello,
        head: impl Fn() -> ControlHead,
        secret_of: impl FnOnce(&Authenticate) -> std::result::Result<Key, Refusal>,
    ) -> Result<ControlPeer> {
        let (wait, binding) = (stream.limits().stall, hello.binding());
        let (mut sender, mut receiver) = stream.into_halves();
        let address = receiver.address().to_owned();
        sender.send(HELLO, 0, &hello.to_bytes(), &[]).await?;
        let Some((header, body)) = receiver.frame_within(wait, "for its proof").await? else {
            return Err(TransportError::Closed { address });
        };
        let decode = |source| TransportError::Decode { address: address.clone(), source };
        let proved = match ControlRequest::from_body(header.kind, &body).map_err(decode)? {
            ControlRequest::Authenticate(asker) => secret_of(&asker).and_then(|secret| {
                let proof = Token::asker_proof(&secret, &binding, &asker.nonce, asker.standing, asker.drive);
                let wrong = || Refusal::new(Reason::BadToken, "the token is not one of this cluster's");
                if mac_equal(&proof, &asker.proof) { Ok((secret, asker)) } else { Err(wrong()) }
            }),
            _ => Err(Refusal::new(Reason::BadToken, "the first request must prove a token")),
        };
        match proved {
            Ok((secret, Authenticate { standing, drive, nonce, .. })) => {
                let proof = Token::manager_proof(&secret, &binding, &nonce);
                let mut peer = ControlPeer { sender, receiver, standing, drive, binding, nonce, secret };
                peer.reply(header.request, &head(), &Welcome { cluster: hello.cluster, proof }.into())
                    .await?;
                Ok(peer)
            }
            Err(refusal) => {
                send(&mut sender, header.request, &head(), &refusal.clone().into()).await?;
                sender.shutdown().await?;
                Err(TransportError::Refusal(refusal))
            }
        }
    }

    /// The next request and its number; `None`: the asker is gone. Waits at most `limits.idle`. A request that cannot be
    /// decoded is `Err` inside: answer it with a refusal and go on. Cancel-safe between requests.
    pub async fn next(&mut self) -> Result<Option<(u64, std::result::Result<ControlRequest, Refusal>)>> {
        let Some((header, body)) = self.receiver.frame().await? else { return Ok(None) };
        let request = ControlRequest::from_body(header.kind, &body).map_err(|error| match error {
            braid_wire::DecodeError::Kind(kind) => Refusal::new(
                Reason::Unsupported,
                format!("the manager does not serve messages of kind {kind:#06x}"),
            ),
            error => Refusal::new(Reason::Malformed, error.to_string()),
        });
        self.receiver.recycle(body);
        Ok(Some((header.request, request)))
    }

    /// Answers request number `request`.
    pub async fn reply(&mut self, request: u64, head: &ControlHead, reply: &ControlReply) -> Result<()> {
        send(&mut self.sender, request, head, reply).await
    }

    /// The asker's address, for messages.
    pub fn address(&self) -> &str {
        self.receiver.address()
    }
}

async fn send(sender: &mut Sender, request: u64, head: &ControlHead, reply: &ControlReply) -> Result<()> {
    let mut body = Vec::new();
    head.put(&mut body);
    reply.put_body(&mut body);
    sender.send(reply.kind(), request, &body, &[]).await
}
