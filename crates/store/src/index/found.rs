//! The answer to a look for a version of a unit.

use braid_layout::{ColumnMask, Version};

use crate::format::extent::Extent;
use crate::index::extent::Few;
use crate::mutation::WriteKind;

/// A version of a unit that a read asked for.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) version: Version,
    pub(crate) pending: bool,
    pub(crate) kind: WriteKind,
    pub(crate) columns: ColumnMask,
    pub(crate) cover: Vec<Version>,
    /// Ends of the bytes: see [`crate::View::ends`].
    pub(crate) ends: Few<u32>,
    /// The bytes of the range that was asked for.
    pub(crate) extents: Few<Extent>,
    /// Parity deltas to xor to those bytes.
    pub(crate) layers: Few<Extent>,
}
