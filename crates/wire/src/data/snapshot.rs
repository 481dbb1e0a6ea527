//! Stills: objects that show what another object of the drive held when they were taken (PROTOCOL section
//! 11).

use braid_layout::ObjectId;

use super::object::{Address, Attributes};
use crate::refusal::Refusal;

record! {
    /// Takes a still of an object: an object of its own, which shows what `at` holds now, whatever is written
    /// there later. Sent when `at` is drained, judged, and has no joining column: what is there is settled
    /// then, whether the drive knows it or not, and the drive notes it as settled. Idempotent. Answered when
    /// durable; the cost does not depend on the object's size. The still is read, listed, healed, fenced and
    /// removed as any object, and outlives `at`.
    pub struct Snapshot {
        /// The object to take a still of; its own stills cannot be asked for a still.
        at: Address,
        /// Number of the still: an object of the same partition that does not exist yet. If it exists as the
        /// same column of the same file with the same base, nothing needs to be done.
        still: ObjectId,
        /// The still's first attributes. The drive keeps object version, `g`, set, joining, map, opaque,
        /// times and cluster. Unit and column must be those of `at`.
        attributes: Attributes,
        /// The manager's term.
        term: u64,
    }
}

impl Snapshot {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        if self.still == ObjectId(0) || self.still == self.at.object {
            return Err(Refusal::malformed("a still needs an object number of its own"));
        }
        self.attributes.check_form()
    }
}
