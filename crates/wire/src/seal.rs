//! The MACs that make requests and replies unforgeable, and the bodies that carry them.
//!
//! Each MAC is made over its label and these fields, with their lengths in bytes:
//!
//! - request, under the capability's private part: binding 16, nonce 16, kind 2, request 8, payload_bytes 4,
//!   sequence 8, arguments;
//! - reply, under the same private part: the request's MAC 16, kind 2, request 8, payload_bytes 4, g 4,
//!   arguments.
//!
//! So a request is valid on one connection only: the binding covers the drive's challenge and all of its
//! hello. The request is valid once: the sequence number must rise on that connection. A reply is valid for
//! one request only: its MAC covers the request's MAC, which covers the asker's nonce. So recorded replies
//! and replies to other requests are refused. The labels keep requests and replies apart.

use braid_layout::Generation;

use crate::capability::{Authority, Binding, Challenge, Key, Mac, MacKey, first_half, mac_equal};
use crate::codec::{DecodeError, Wire};
use crate::control::Grant;
use crate::data::{DriveReply, DriveRequest, Hello, ReplyHead};
use crate::frame::FrameHeader;

/// The asker's side of one connection to a drive: numbers and seals its requests.
#[derive(Debug, Clone)]
pub struct Asker {
    binding: Binding,
    nonce: Challenge,
    sequence: u64,
    /// The private parts used last, prepared for MACs; the one used last comes first.
    ready: Vec<(Key, MacKey)>,
}

/// Number of private parts that are kept prepared.
const READY_KEPT: usize = 8;

/// The facts that an asker must remember of a request to check the reply to it.
#[derive(Debug, Clone)]
pub struct Asked {
    private: MacKey,
    request: u64,
    mac: Mac,
}

/// The facts that a drive must remember of a request to seal the reply to it.
#[derive(Debug, Clone)]
pub struct ReplySeal {
    request: u64,
    /// The key and the request's MAC. `None`: the request could not be verified, and the reply goes without
    /// proof.
    proof: Option<(MacKey, Mac)>,
}

/// The reason why a frame is not the reply to a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The frame has the number of another request.
    #[error("reply to request {found}; expected {expected}")]
    Request {
        /// The request number in the frame.
        found: u64,
        /// The number of the request that was sent.
        expected: u64,
    },
    /// The reply's MAC is not the drive's, or the reply has none and is not a refusal that needs none.
    #[error("the reply's MAC is not the drive's: forged, or damaged on its way")]
    Forged,
    /// The reply cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// The parts of a frame's header that a MAC covers.
#[derive(Debug, Clone, Copy)]
struct FrameFacts {
    kind: u16,
    request: u64,
    payload_bytes: u32,
}

impl Asker {
    /// Creates the asker's side of the connection that began with `hello`. `nonce` must be random and never
    /// used again.
    pub fn new(hello: &Hello, nonce: Challenge) -> Asker {
        Asker::bound(hello.binding(), nonce)
    }

    /// As [`Asker::new`], for a connection with this binding.
    pub fn bound(binding: Binding, nonce: Challenge) -> Asker {
        Asker { binding, nonce, sequence: 0, ready: Vec::new() }
    }

    /// Appends the body of a request to `body`, and returns the facts needed to check the reply. Requests
    /// must be sent in the order in which they were sealed. `request` is the frame's request number.
    pub fn seal(
        &mut self,
        grant: &Grant,
        request: u64,
        message: &DriveRequest,
        payload_bytes: u32,
        body: &mut Vec<u8>,
    ) -> Asked {
        self.sequence += 1;
        let nonce = self.nonce;
        let sequence = self.sequence;
        let begin = body.len();
        let capability = grant.capability.clone();
        Authority { capability, sequence, nonce, mac: Mac::default() }.put(body);
        let arguments = body.len();
        message.put_body(body);
        let facts = FrameFacts { kind: message.kind(), request, payload_bytes };
        let private = self.ready(&grant.private);
        let mac = request_mac(&private, &self.binding, &nonce, facts, sequence, &body[arguments..]);
        // The MAC is the authority's last field.
        debug_assert_eq!(arguments - begin, Authority::BYTES_MIN, "an authority is of one length");
        body[arguments - mac.len()..arguments].copy_from_slice(&mac);
        Asked { private, request, mac }
    }

    fn ready(&mut self, private: &Key) -> MacKey {
        match self.ready.iter().position(|(key, _)| key == private) {
            Some(at) => self.ready[..=at].rotate_right(1),
            None => {
                self.ready.truncate(READY_KEPT - 1);
                self.ready.insert(0, (private.clone(), private.ready()));
            }
        }
        self.ready[0].1.clone()
    }
}

impl Asked {
    /// The request's number.
    pub fn request(&self) -> u64 {
        self.request
    }

    /// Checks that the frame is the drive's reply to this request, and decodes the reply. A refusal without
    /// proof is accepted only if its reason [needs none](crate::Reason::needs_no_proof).
    pub fn open(&self, header: &FrameHeader, body: &[u8]) -> Result<(ReplyHead, DriveReply), ReplyError> {
        if header.request != self.request {
            return Err(ReplyError::Request { found: header.request, expected: self.request });
        }
        let mut arguments = body;
        let head = ReplyHead::take(&mut arguments)?;
        let facts =
            FrameFacts { kind: header.kind, request: self.request, payload_bytes: header.payload_bytes };
        if mac_equal(&reply_mac(&self.private, &self.mac, facts, head.g, arguments), &head.mac) {
            return Ok((head, DriveReply::from_body(header.kind, arguments)?));
        }
        let bare = head.mac == Mac::default() && head.g == Generation(0) && header.payload_bytes == 0;
        match DriveReply::from_body(header.kind, arguments) {
            Ok(DriveReply::Refused(refusal)) if bare && refusal.reason.needs_no_proof() => {
                Ok((head, DriveReply::Refused(refusal)))
            }
            _ => Err(ReplyError::Forged),
        }
    }
}

impl ReplySeal {
    /// The seal for the reply to a request that could not be verified.
    pub fn without_proof(request: u64) -> ReplySeal {
        ReplySeal { request, proof: None }
    }

    /// The seal for the reply to a request whose MAC is valid.
    pub(crate) fn proven(request: u64, private: MacKey, mac: Mac) -> ReplySeal {
        ReplySeal { request, proof: Some((private, mac)) }
    }

    /// The request's number, for the reply's frame.
    pub fn request(&self) -> u64 {
        self.request
    }

    /// Returns true if the reply will carry a proof.
    pub fn is_proven(&self) -> bool {
        self.proof.is_some()
    }

    /// Encodes the body of the reply. `g` is the drive's generation of the object, zero where there is
    /// none; a reply without proof carries zero.
    pub fn seal(&self, g: Generation, reply: &DriveReply, payload_bytes: u32) -> Vec<u8> {
        let mut body = Vec::new();
        self.seal_into(g, reply, payload_bytes, &mut body);
        body
    }

    /// Appends the body of the reply to `out`, as [`ReplySeal::seal`] encodes it.
    pub fn seal_into(&self, g: Generation, reply: &DriveReply, payload_bytes: u32, out: &mut Vec<u8>) {
        let begin = out.len();
        // An empty head first: the real one has the same length and replaces it below.
        ReplyHead { g: Generation(0), mac: Mac::default() }.put(out);
        let arguments = out.len();
        reply.put_body(out);
        if let Some((private, mac)) = &self.proof {
            let facts = FrameFacts { kind: reply.kind(), request: self.request, payload_bytes };
            let mac = reply_mac(private, mac, facts, g, &out[arguments..]);
            out[begin..arguments].copy_from_slice(&ReplyHead { g, mac }.to_bytes());
        }
    }
}

/// Splits a request's body into its authority and its arguments. The MAC is not checked here.
pub fn split(body: &[u8]) -> Result<(Authority, &[u8]), DecodeError> {
    let mut arguments = body;
    let authority = Authority::take(&mut arguments)?;
    Ok((authority, arguments))
}

/// The MAC that a request with this header and authority must carry under this private part.
pub fn expected_mac(
    private: &MacKey,
    binding: &Binding,
    header: &FrameHeader,
    authority: &Authority,
    arguments: &[u8],
) -> Mac {
    let facts =
        FrameFacts { kind: header.kind, request: header.request, payload_bytes: header.payload_bytes };
    request_mac(private, binding, &authority.nonce, facts, authority.sequence, arguments)
}

fn request_mac(
    private: &MacKey,
    binding: &Binding,
    nonce: &Challenge,
    facts: FrameFacts,
    sequence: u64,
    arguments: &[u8],
) -> Mac {
    first_half(&private.hmac(&[
        b"braid request 1\0",
        &binding.0,
        nonce,
        &facts.kind.to_le_bytes(),
        &facts.request.to_le_bytes(),
        &facts.payload_bytes.to_le_bytes(),
        &sequence.to_le_bytes(),
        arguments,
    ]))
}

fn reply_mac(private: &MacKey, request_mac: &Mac, facts: FrameFacts, g: Generation, arguments: &[u8]) -> Mac {
    first_half(&private.hmac(&[
        b"braid reply 1\0",
        request_mac,
        &facts.kind.to_le_bytes(),
        &facts.request.to_le_bytes(),
        &facts.payload_bytes.to_le_bytes(),
        &g.to_bytes(),
        arguments,
    ]))
}
