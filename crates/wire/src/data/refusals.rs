//! The refusals that a request may get: those that any request may get, and those in its row in
//! [`requests`](super::requests). `docs/format-wire.md` has the same table. A drive asserts that it sends
//! no others.

use super::DriveRequest;
use crate::refusal::Reason::{self, *};

/// Reasons for which any request may be refused: its authority is not valid, the drive does not serve, the
/// medium or the drive fails.
pub const REFUSALS_OF_ALL: &[Reason] = &[
    Malformed,
    Unsupported,
    Forged,
    Expired,
    Replayed,
    Rights,
    Scope,
    StaleKey,
    NotServing,
    NoPartition,
    Medium,
    Busy,
    Closing,
];

/// Returns true if a request of this kind may be refused for this reason. Unknown kinds are
/// [`Unsupported`].
pub fn may_refuse(kind: u16, reason: Reason) -> bool {
    let of_kind = DriveRequest::rules_of(kind).map_or(&[][..], |rules| rules.refusals);
    REFUSALS_OF_ALL.contains(&reason) || of_kind.contains(&reason)
}
