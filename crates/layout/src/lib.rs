//! Placement of a file's bytes on drives, and recovery of lost bytes.
//!
//! This crate is the lowest floor, and pure: bytes to units, stripes and columns ([`geometry`]), parity and
//! erasure codes ([`code`]), the choice of drives for a new file ([`placement`]), ranges with a value each
//! ([`ranges`]), the end of a unit's bytes ([`end`]), and the names that all crates share ([`id`],
//! [`version`], [`mask`]). It knows no drive, no socket, no clock and no file.
//!
//! Terms: a *unit* is the bytes of one file that lie together on one drive in one stripe; a *stripe* is `k`
//! data and `m` parity units with the same unit index; a *column* is one of the `k + m` places of a segment,
//! each held by one component object on one drive; a *role* is the data or parity unit that a column holds in
//! a given stripe.

#![warn(missing_docs)]

pub mod code;
pub mod end;
pub mod geometry;
pub mod id;
pub mod mask;
pub mod placement;
pub mod ranges;
pub mod scheme;
pub mod version;

pub use code::{Code, CodeError};
pub use end::EndBound;
pub use geometry::{Component, Layout, Piece, Role, Segment, Stripe};
pub use id::{
    ClientId, ClusterId, DriveId, FileId, HolderId, LockSession, ObjectId, OperationNumber, PartitionId,
    ReservationId, TokenId, VolumeId,
};
pub use mask::{Column, ColumnMask};
pub use placement::{Candidate, PlacementError, PlacementVersion};
pub use ranges::{Ranges, Span};
pub use scheme::{Scheme, SchemeError, Shape};
pub use version::{Generation, Lease, Version};
