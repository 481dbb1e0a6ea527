//! The stored form of a unit. Most units hold one settled version in one piece, which fits in 40 bytes.
//!
//! A unit is changed in its full form and then stored in the smallest form that holds it.

use std::borrow::Cow;
use std::num::NonZeroU32;

use braid_layout::{ColumnMask, Version};

use crate::format::extent::Extent;
use crate::index::extent::Few;
use crate::index::unit::{Content, Unit};
use crate::mutation::WriteKind;

/// A unit as the index stores it.
#[derive(Debug)]
pub(crate) enum Slot {
    /// Settled data in one extent, and nothing else.
    Plain {
        /// First byte of the extent.
        from: u32,
        /// One past the extent's last byte. Never 0, so that the enum needs no extra tag.
        to: NonZeroU32,
        /// As in [`Extent`].
        segment: u32,
        /// As in [`Extent`].
        block: u32,
        /// Identifies the version.
        version: Version,
        /// The columns that the write touched.
        columns: ColumnMask,
    },
    /// Anything else; `None`: an empty unit.
    Full(Option<Box<Unit>>),
}

const _: () = assert!(size_of::<Slot>() == 40, "the index's stated cost");

impl Default for Slot {
    fn default() -> Self {
        Slot::Full(None)
    }
}

impl Slot {
    /// The slot of a unit that was never written.
    pub(crate) const EMPTY: Slot = Slot::Full(None);

    /// The slot of settled data in one extent; `None` for an empty extent.
    pub(crate) fn plain(extent: Extent, version: Version, columns: ColumnMask) -> Option<Slot> {
        let Extent { from, to, segment, block } = extent;
        let to = NonZeroU32::new(to)?;
        Some(Slot::Plain { from, to, segment, block, version, columns })
    }

    /// The content of a plain slot.
    pub(crate) fn as_plain(&self) -> Option<(Extent, Version, ColumnMask)> {
        match *self {
            Slot::Plain { from, to, segment, block, version, columns } => {
                Some((Extent { from, to: to.get(), segment, block }, version, columns))
            }
            Slot::Full(_) => None,
        }
    }

    /// The unit of a slot that is not plain.
    pub(crate) fn as_whole(&self) -> Option<&Unit> {
        match self {
            Slot::Full(unit) => unit.as_deref(),
            Slot::Plain { .. } => None,
        }
    }

    /// The unit, for reading.
    pub(crate) fn unit(&self) -> Cow<'_, Unit> {
        match self {
            Slot::Full(Some(unit)) => Cow::Borrowed(unit),
            Slot::Full(None) => Cow::Owned(Unit::default()),
            Slot::Plain { .. } => Cow::Owned(self.as_plain().map_or_else(Unit::default, plain)),
        }
    }

    /// The unit, for changing.
    pub(crate) fn into_unit(self) -> Box<Unit> {
        match self {
            Slot::Full(unit) => unit.unwrap_or_default(),
            Slot::Plain { .. } => Box::new(self.unit().into_owned()),
        }
    }
}

impl From<Box<Unit>> for Slot {
    fn from(mut unit: Box<Unit>) -> Self {
        if let Unit { settled: Some(content), pending: None, owed, deltas, lost: None, epoch: 0, kept } =
            &*unit
            && let Content { version, kind: WriteKind::Data, columns, cover, ends, extents, layers } = content
            && let [extent] = extents[..]
            && cover.is_empty()
            && ends.is_empty()
            && layers.is_empty()
            && owed.is_empty()
            && deltas.is_empty()
            && kept.is_empty()
            && let Some(slot) = Slot::plain(extent, *version, *columns)
        {
            return slot;
        }
        if let Some(content) = &mut unit.settled {
            content.extents.shrink_to_fit();
        }
        unit.owed.shrink_to_fit();
        unit.deltas.shrink_to_fit();
        unit.kept.shrink_to_fit();
        Slot::Full(Some(unit))
    }
}

fn plain(held: (Extent, Version, ColumnMask)) -> Unit {
    let (extent, version, columns) = held;
    let kind = WriteKind::Data;
    let cover = Box::default();
    let ends = Box::default();
    let extents = Few::from_elem(extent, 1);
    let layers = Vec::new();
    let settled = Some(Content { version, kind, columns, cover, ends, extents, layers });
    Unit { settled, ..Unit::default() }
}
