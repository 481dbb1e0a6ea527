//! Many requests in one message: of a program that has many names to ask about, or of many callers at once.
//!
//! The requests of a batch are independent. The manager carries them out side by side, and answers each as if
//! it had come alone: one that is refused does not keep the others from being done. Changes share a commit.
//! What takes long does not hold up the others' answers: it is refused as [`Reason::Busy`](crate::Reason)
//! while it goes on, and is to be asked for again by itself, as any request is after that.

use super::{ControlReply, ControlRequest, RequestHead};
use crate::codec::DecodeError;

/// Most requests in a batch.
pub const BATCH_ITEMS_MAX: usize = 256;

record! {
    /// A request in a batch.
    pub struct BatchItem {
        /// As in [`RequestHead`]; its client and mark are those of the batch.
        operation: u64,
        /// As in [`RequestHead`].
        begun_ms: u64,
        /// The request's kind; one for which [`ControlRequest::may_be_in_batch`] holds.
        kind: u16,
        /// Its body, without a head.
        body: Vec<u8>,
    }
}

record! {
    /// Many requests in one: at most [`BATCH_ITEMS_MAX`].
    pub struct Batch {
        /// The requests.
        items: Vec<BatchItem>,
    }
}

record! {
    /// The reply to a request in a batch.
    pub struct BatchAnswer {
        /// The reply's kind.
        kind: u16,
        /// Its body, without a head.
        body: Vec<u8>,
    }
}

record! {
    /// The replies to a batch.
    pub struct BatchReply {
        /// One for each request, in their order.
        answers: Vec<BatchAnswer>,
    }
}

impl BatchItem {
    /// A request, with the head that it would have by itself.
    pub fn new(head: &RequestHead, request: &ControlRequest) -> BatchItem {
        let mut body = Vec::new();
        request.put_body(&mut body);
        BatchItem { operation: head.operation, begun_ms: head.begun_ms, kind: request.kind(), body }
    }

    /// The head and the request, given the batch's head.
    pub fn request(&self, of_batch: &RequestHead) -> Result<(RequestHead, ControlRequest), DecodeError> {
        let request = ControlRequest::from_body(self.kind, &self.body)?;
        let head = match self.operation {
            0 => RequestHead { client: of_batch.client, ..RequestHead::NONE },
            operation => RequestHead { operation, begun_ms: self.begun_ms, ..of_batch.clone() },
        };
        Ok((head, request))
    }
}

impl From<&ControlReply> for BatchAnswer {
    fn from(reply: &ControlReply) -> BatchAnswer {
        let mut body = Vec::new();
        reply.put_body(&mut body);
        BatchAnswer { kind: reply.kind(), body }
    }
}

impl BatchAnswer {
    /// The reply.
    pub fn reply(&self) -> Result<ControlReply, DecodeError> {
        ControlReply::from_body(self.kind, &self.body)
    }
}

impl ControlRequest {
    /// Whether it may be in a batch: its answer is short, and as a rule comes at once. If it takes long it
    /// goes on, while its sender asks again: so it changes nothing, or has a number by which the manager
    /// knows that it comes late. A Refresh may change the lease's kind, and has none.
    pub fn may_be_in_batch(&self) -> bool {
        use ControlRequest as R;
        matches!(
            self,
            R::Lookup(_)
                | R::MakeDirectory(_)
                | R::Rename(_)
                | R::Unlink(_)
                | R::SetAttributes(_)
                | R::MakeNode(_)
                | R::HardLink(_)
                | R::CreateUnnamed(_)
                | R::Link(_)
                | R::Open(_)
                | R::Commit(_)
                | R::Release(_)
                | R::Reserve(_)
                | R::Lock(_)
        )
    }

    /// Whether its answer may wait for other peers, as for a fence. In a batch, if only of one, it holds up
    /// no other for long.
    pub fn may_wait(&self) -> bool {
        use ControlRequest as R;
        match self {
            R::Link(link) => link.ends.is_some(),
            request => matches!(request, R::CreateUnnamed(_) | R::Open(_) | R::Release(_)),
        }
    }
}
