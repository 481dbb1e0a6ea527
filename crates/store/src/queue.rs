//! The queue.
use crate::error::Error;
use crate::mutation::{Mutation, Outcome};

/// The most mutations that wait in the queue.
pub const QUEUE_LEN_MAX: usize = 4096;
/// The most payload bytes that wait in the queue; one mutation is always taken.
pub const QUEUE_BYTES_MAX: u64 = 256 << 20;

/// Where the answer to a mutation goes.
pub type Reply = Box<dyn FnOnce(Result<Outcome, Error>) + Send>;

/// A mutation that did not fit into the queue, handed back unharmed: try again when an answer has come.
pub struct Rejected {
    /// The mutation.
    pub mutation: Mutation,
    /// Where its answer was to go.
    pub reply: Reply,
}
