//! Which refusals a request may get. `docs/format-wire.md` has the same table; a drive asserts that it keeps to it.

use super::DriveRequest;
use crate::refusal::Reason::{self, *};

/// What any request may be refused with: its authority is not good, the drive does not serve, the medium or the drive fails.
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

/// What a request of each kind may be refused with besides.
pub const REFUSALS: &[(u16, &[Reason])] = &[
    (0x0100, &[StaleGeneration, Exists, Full, Quota, Damaged, ReadOnly]),
    (0x0101, &[StaleGeneration, PartitionNotEmpty, Full, Damaged, ReadOnly, NotLeading]),
    (0x0102, &[Range, StaleGeneration, NoObject, Damaged, Gone, NoSnapshot]),
    (0x0103, &[Range, StaleGeneration, NoObject, Full, Quota, Damaged, PayloadChecksum, ReadOnly]),
    (0x0104, &[Range, StaleGeneration, NoObject, Full, Quota, Damaged, PayloadChecksum, ReadOnly]),
    (0x0105, &[Range, StaleGeneration, NoObject, Full, Quota, Damaged, PayloadChecksum, Gone, ReadOnly]),
    (0x0106, &[Range, StaleGeneration, NoObject, Damaged]),
    (0x0107, &[StaleGeneration, NoObject, Full, Damaged, ReadOnly]),
    (0x0108, &[StaleGeneration, NoObject, Full, Damaged, ReadOnly, NotLeading]),
    (0x0109, &[StaleGeneration, NoObject, Full, Damaged, ReadOnly, NotLeading]),
    (0x010a, &[StaleGeneration, NoObject, Full, Damaged, ReadOnly, NotLeading]),
    (0x010b, &[StaleGeneration, NoObject, Full, Damaged, ReadOnly, NotLeading]),
    (0x010c, &[StaleGeneration, Full, Damaged, ReadOnly]),
    (0x010d, &[NoObject, Damaged]),
    (0x010e, &[StaleGeneration, NoObject, Full, Quota, Damaged, ReadOnly, NotLeading]),
    (0x010f, &[]),
    (0x0110, &[Exists, Full, ReadOnly, NotLeading]),
    (
        0x0111,
        &[
            StaleGeneration,
            NoObject,
            Full,
            Damaged,
            ReadOnly,
            NotLeading,
            Unsettled,
            SnapshotUsed,
            TooManySnapshots,
        ],
    ),
    (0x0112, &[NotLeading]),
];

const _: () = assert!(REFUSALS.len() == DriveRequest::KINDS.len(), "one row per kind");

/// Whether a request of this kind may be refused for this reason. Unknown kinds are [`Unsupported`].
pub fn may_refuse(kind: u16, reason: Reason) -> bool {
    let of_kind = REFUSALS.iter().find(|(known, _)| *known == kind).map_or(&[][..], |(_, reasons)| reasons);
    REFUSALS_OF_ALL.contains(&reason) || of_kind.contains(&reason)
}
