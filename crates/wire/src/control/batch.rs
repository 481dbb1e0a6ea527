//! Many requests in one message: from a program that has many names to ask about, or from many callers at
//! once.
//!
//! The requests of a batch are independent. The manager carries them out side by side, and answers each as
//! if it had come alone: a refused request does not keep the others from being carried out. Changes share a
//! commit. A request that takes long does not hold up the other answers. It is refused with
//! [`Reason::Busy`](crate::Reason) while it goes on, and must then be repeated on its own, like any other
//! request that is refused so.

use braid_layout::OperationNumber;

use super::{ControlReply, ControlRequest, RequestHead};
use crate::codec::DecodeError;

/// Maximum number of requests in a batch.
pub const BATCH_ITEMS_MAX: usize = 256;

record! {
    /// A request in a batch.
    pub struct BatchItem {
        /// The operation's number, as in [`RequestHead`]. The client and the mark below which operations
        /// are settled are those of the batch.
        operation: OperationNumber,
        /// Manager time when the operation began, as in [`RequestHead`].
        begun_ms: u64,
        /// The request's kind: one whose [`Rules`](super::Rules) allow it in a batch.
        kind: u16,
        /// The request's body, without a head.
        body: Vec<u8>,
    }
}

record! {
    /// A batch of at most [`BATCH_ITEMS_MAX`] requests.
    pub struct Batch {
        /// The requests, in any order.
        items: Vec<BatchItem>,
    }
}

record! {
    /// The reply to a request in a batch.
    pub struct BatchAnswer {
        /// The reply's kind.
        kind: u16,
        /// The reply's body, without a head.
        body: Vec<u8>,
    }
}

record! {
    /// The replies to a batch.
    pub struct BatchReply {
        /// One reply for each request, in the order of the requests.
        answers: Vec<BatchAnswer>,
    }
}

impl BatchItem {
    /// Encodes a request, with the head that it would have by itself.
    pub fn new(head: &RequestHead, request: &ControlRequest) -> BatchItem {
        let mut body = Vec::new();
        request.put_body(&mut body);
        BatchItem { operation: head.operation, begun_ms: head.begun_ms, kind: request.kind(), body }
    }

    /// Decodes the head and the request, given the head of the batch.
    pub fn request(&self, of_batch: &RequestHead) -> Result<(RequestHead, ControlRequest), DecodeError> {
        let request = ControlRequest::from_body(self.kind, &self.body)?;
        let head = match self.operation {
            OperationNumber::NONE => RequestHead { client: of_batch.client, ..RequestHead::NONE },
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
    /// Decodes the reply.
    pub fn reply(&self) -> Result<ControlReply, DecodeError> {
        ControlReply::from_body(self.kind, &self.body)
    }
}
