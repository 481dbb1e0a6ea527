//! How a unit is kept: most hold one settled version in one piece, and that fits in 48 bytes.
//!
//! A unit is changed in its full form and kept again in the smallest that holds it.

use std::borrow::Cow;

use braid_layout::{ColumnMask, Version};

use super::extent::Extent;
use super::unit::{Content, Unit};
use crate::mutation::WriteKind;

/// A unit as the index keeps it.
#[derive(Debug)]
pub(crate) enum Slot {
    /// Settled data in one extent, and nothing else. Version zero: nothing at all.
    Plain {
        /// Its bytes.
        extent: Extent,
        /// Its name.
        version: Version,
        /// The columns its write touched.
        columns: ColumnMask,
    },
    /// Anything else.
    Full(Box<Unit>),
}

const _: () = assert!(size_of::<Slot>() <= 48, "the index's stated cost");

const NOTHING: Extent = Extent { from: 0, to: 0, segment: 0, block: 0 };

impl Default for Slot {
    fn default() -> Self {
        Slot::Plain { extent: NOTHING, version: Version::ZERO, columns: ColumnMask::EMPTY }
    }
}

impl Slot {
    /// The unit, to look at.
    pub(crate) fn unit(&self) -> Cow<'_, Unit> {
        match self {
            Slot::Plain { extent, version, columns } => Cow::Owned(plain(*extent, *version, *columns)),
            Slot::Full(unit) => Cow::Borrowed(unit),
        }
    }

    /// The unit, to change.
    pub(crate) fn into_unit(self) -> Box<Unit> {
        match self {
            Slot::Plain { extent, version, columns } => Box::new(plain(extent, version, columns)),
            Slot::Full(unit) => unit,
        }
    }
}

impl From<Box<Unit>> for Slot {
    fn from(mut unit: Box<Unit>) -> Self {
        if let Unit { settled: Some(content), pending: None, lost: None } = &*unit
            && let Content { version, kind: WriteKind::Data, columns, cover, extents } = content
            && let [extent] = extents[..]
            && cover.is_empty()
        {
            return Slot::Plain { extent, version: *version, columns: *columns };
        }
        if let Some(content) = &mut unit.settled {
            content.extents.shrink_to_fit();
        }
        Slot::Full(unit)
    }
}

fn plain(extent: Extent, version: Version, columns: ColumnMask) -> Unit {
    if version.is_zero() {
        return Unit::default();
    }
    let (kind, cover, extents) = (WriteKind::Data, Box::default(), vec![extent]);
    let settled = Some(Content { version, kind, columns, cover, extents });
    Unit { settled, ..Unit::default() }
}
