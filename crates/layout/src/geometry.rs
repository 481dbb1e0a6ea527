//! Bytes to units: the column, the stripe and the offset in the component object that hold a byte of a file.

use std::ops::Range;

use crate::scheme::Rotation;
use crate::{Column, ColumnMask, DriveId, ObjectId, Shape};

/// A stripe's index in its segment, from 0; also the index of its units in their component objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stripe(pub u64);

/// Role of a column in one stripe: the unit that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The data unit with this index, `0..k`.
    Data(u8),
    /// The parity unit with this index, `0..m`.
    Parity(u8),
}

/// The object that holds one column of a segment, and the drive it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Component {
    /// Drive that holds the object.
    pub drive: DriveId,
    /// The object in the volume's partition on that drive.
    pub object: ObjectId,
}

/// A byte range of a file with one shape and one list of drives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// First byte of the file in this segment.
    pub start: u64,
    /// One past the last byte; `u64::MAX` for the last segment.
    pub end: u64,
    /// Scheme, `k`, `m` and unit size.
    pub shape: Shape,
    /// One component per column: `shape.width()` of them, each on a different drive.
    pub components: Vec<Component>,
}

/// Map of a file's bytes to drives: segments in order, the first from 0, the last to `u64::MAX`, without
/// gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    segments: Vec<Segment>,
}

/// Part of one data unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Offset of the piece's first byte in the file.
    pub file_offset: u64,
    /// Stripe that holds the piece.
    pub stripe: Stripe,
    /// Index of the piece's data unit in the stripe, `0..k`.
    pub data: u8,
    /// Column that holds the piece.
    pub column: Column,
    /// First byte of the piece in its unit.
    pub from: u32,
    /// One past the last byte of the piece in its unit.
    pub to: u32,
}

/// Reason that a layout was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No segment, a gap, an overlap, or a last segment that ends before `u64::MAX`.
    #[error("the layout's segments leave a gap or overlap at segment {index}")]
    Gap {
        /// The first segment that does not fit.
        index: usize,
    },
    /// The number of components is not the width, or one drive has two of them.
    #[error("segment {index} of the layout has {components} distinct drives for {width} columns")]
    Components {
        /// Index of the segment in the layout.
        index: usize,
        /// Number of distinct drives listed.
        components: usize,
        /// Number of columns of the segment.
        width: u8,
    },
}

impl Layout {
    /// Checks that the segments join and that each has one drive per column.
    pub fn new(segments: Vec<Segment>) -> Result<Layout, LayoutError> {
        let mut next = 0;
        for (index, segment) in segments.iter().enumerate() {
            if segment.start != next || segment.end <= segment.start {
                return Err(LayoutError::Gap { index });
            }
            let mut drives: Vec<DriveId> = segment.components.iter().map(|c| c.drive).collect();
            drives.sort_unstable();
            drives.dedup();
            let width = segment.shape.width();
            if drives.len() != usize::from(width) || segment.components.len() != usize::from(width) {
                return Err(LayoutError::Components { index, components: drives.len(), width });
            }
            next = segment.end;
        }
        if next != u64::MAX {
            return Err(LayoutError::Gap { index: segments.len() });
        }
        Ok(Layout { segments })
    }

    /// The segments, in order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The parts of the bytes `range` that lie in each segment, in file order, with the segments' indexes.
    pub fn parts(&self, range: Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> + '_ {
        let first = self.segments.partition_point(|segment| segment.end <= range.start);
        let touched =
            self.segments.iter().enumerate().skip(first).take_while(move |(_, s)| s.start < range.end);
        touched
            .map(move |(index, s)| (index, range.start.max(s.start)..range.end.min(s.end)))
            .filter(|(_, part)| !part.is_empty())
    }

    /// The pieces of data units that hold the bytes `range`, in file order, with their segments' indexes.
    pub fn pieces_in(&self, range: Range<u64>) -> impl Iterator<Item = (usize, Piece)> + '_ {
        self.parts(range)
            .flat_map(|(index, part)| self.segments[index].pieces(part).map(move |piece| (index, piece)))
    }

    /// The component object that holds byte `offset` of the file, and where in the object, in bytes.
    pub fn locate(&self, offset: u64) -> (Component, u64) {
        let (_, segment) = self.segment_at(offset);
        let unit = u64::from(segment.shape.unit_bytes());
        let stripe = segment.stripe_at(offset);
        let within = (offset - segment.start) % segment.shape.stripe_bytes();
        let column = segment.column(stripe, Role::Data(narrow(within / unit)));
        (segment.components[column.index()], segment.object_offset(stripe) + within % unit)
    }

    /// The segment that holds byte `offset`, and its index.
    pub fn segment_at(&self, offset: u64) -> (usize, &Segment) {
        let index =
            self.segments.partition_point(|segment| segment.end <= offset).min(self.segments.len() - 1);
        (index, &self.segments[index])
    }
}

impl Segment {
    /// Offset in bytes of the unit of `stripe` in its component object, whatever its role.
    pub fn object_offset(&self, stripe: Stripe) -> u64 {
        stripe.0 * u64::from(self.shape.unit_bytes())
    }

    /// The column that has `role` in `stripe`.
    pub fn column(&self, stripe: Stripe, role: Role) -> Column {
        self.shape.column(stripe, role)
    }

    /// The role of `column` in `stripe`.
    pub fn role(&self, stripe: Stripe, column: Column) -> Role {
        self.shape.role(stripe, column)
    }

    /// The stripe that holds byte `offset` of the file. `offset` lies in this segment.
    pub fn stripe_at(&self, offset: u64) -> Stripe {
        Stripe((offset - self.start) / self.shape.stripe_bytes())
    }

    /// The bytes of the file that `stripe` holds, cut at the segment's end.
    pub fn stripe_range(&self, stripe: Stripe) -> Range<u64> {
        let bytes = self.shape.stripe_bytes();
        let from = self.start.saturating_add(stripe.0.saturating_mul(bytes));
        from.min(self.end)..from.saturating_add(bytes).min(self.end)
    }

    /// The stripes that hold a byte of `range`, which lies in this segment. None for an empty range.
    pub fn stripes(&self, range: Range<u64>) -> impl Iterator<Item = Stripe> + use<> {
        assert!(range.start >= self.start && range.end <= self.end, "{range:?} is not in the segment");
        let indexes = match range.is_empty() {
            true => 0..0,
            false => self.stripe_at(range.start).0..self.stripe_at(range.end - 1).0 + 1,
        };
        indexes.map(Stripe)
    }

    /// The bytes of the file that data unit `data` of `stripe` holds, cut at the segment's end.
    pub fn unit_range(&self, stripe: Stripe, data: u8) -> Range<u64> {
        assert!(data < self.shape.k(), "data {data} is not a data unit of {}", self.shape);
        let unit = u64::from(self.shape.unit_bytes());
        let from = self.start.saturating_add(stripe.0.saturating_mul(self.shape.stripe_bytes()));
        let from = from.saturating_add(u64::from(data) * unit);
        from.min(self.end)..from.saturating_add(unit).min(self.end)
    }

    /// Number of bytes at the beginning of the unit with `role` in `stripe` that stand for bytes of a file of
    /// `size` bytes; the rest of the unit is zeros. A parity unit is as long as the longest data unit, which
    /// is the first.
    pub fn unit_len(&self, stripe: Stripe, role: Role, size: u64) -> u32 {
        let data = match role {
            Role::Data(data) => data,
            Role::Parity(_) => 0,
        };
        let Range { start, end } = self.unit_range(stripe, data);
        unit_offset(end.min(size).saturating_sub(start))
    }

    /// Length in bytes of the component object of `column` when the file has `size` bytes: up to the end of
    /// the last unit that stands for any, so that there may be zeros between.
    pub fn component_len(&self, column: Column, size: u64) -> u64 {
        let end = self.end.min(size);
        if end <= self.start {
            return 0;
        }
        let last = self.stripe_at(end - 1);
        let in_last = self.unit_len(last, self.role(last, column), size);
        match (in_last, last.0) {
            (0, 0) => 0,
            (0, stripe) => stripe * u64::from(self.shape.unit_bytes()),
            (bytes, _) => self.object_offset(last) + u64::from(bytes),
        }
    }

    /// Offset in the file of the byte at `offset` in the component object of `column`; `None` if that byte is
    /// parity, or past the segment's end. The inverse of [`Layout::locate`].
    pub fn file_offset(&self, column: Column, offset: u64) -> Option<u64> {
        let unit = u64::from(self.shape.unit_bytes());
        let stripe = Stripe(offset / unit);
        let Role::Data(data) = self.role(stripe, column) else { return None };
        let Range { start, end } = self.unit_range(stripe, data);
        start.checked_add(offset % unit).filter(|at| *at < end)
    }

    /// The pieces of data units that hold the bytes `range` of the file, in file order. `range` lies in this
    /// segment.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> + '_ {
        assert!(range.start >= self.start && range.end <= self.end, "{range:?} is not in the segment");
        let unit = u64::from(self.shape.unit_bytes());
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let offset = at - self.start;
            let within = offset % unit;
            let length = (unit - within).min(range.end - at);
            let stripe = Stripe(offset / self.shape.stripe_bytes());
            let data = narrow(offset / unit % u64::from(self.shape.k()));
            let piece = Piece {
                file_offset: at,
                stripe,
                data,
                column: self.column(stripe, Role::Data(data)),
                from: unit_offset(within),
                to: unit_offset(within + length),
            };
            at += length;
            Some(piece)
        })
    }

    /// The columns whose drives are in `drives`.
    pub fn columns_on(&self, drives: impl Fn(DriveId) -> bool) -> ColumnMask {
        (0..self.shape.width()).map(Column).filter(|c| drives(self.components[c.index()].drive)).collect()
    }
}

impl Shape {
    /// The column that has `role` in `stripe`; the table is at the top of this module.
    pub fn column(&self, stripe: Stripe, role: Role) -> Column {
        let n = u64::from(self.width());
        let position = match role {
            Role::Data(index) => u64::from(index),
            Role::Parity(index) => u64::from(self.k()) + u64::from(index),
        };
        assert!(position < n, "{role:?} is not a role of {self}");
        match self.scheme().rotation() {
            Rotation::Fixed => Column(narrow(position)),
            Rotation::LeftSymmetric => Column(narrow((position + n - stripe.0 % n) % n)),
        }
    }

    /// The role of `column` in `stripe`: the inverse of [`Shape::column`].
    pub fn role(&self, stripe: Stripe, column: Column) -> Role {
        let n = u64::from(self.width());
        assert!(u64::from(column.0) < n, "column {column} is not a column of {self}");
        let position = match self.scheme().rotation() {
            Rotation::Fixed => column.0,
            Rotation::LeftSymmetric => narrow((u64::from(column.0) + stripe.0 % n) % n),
        };
        if position < self.k() { Role::Data(position) } else { Role::Parity(position - self.k()) }
    }
}

impl Piece {
    /// Length of the piece in bytes.
    pub fn len(&self) -> u32 {
        self.to - self.from
    }

    /// Returns true if the piece holds no byte.
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }
}

/// A column or data index: below 64 by construction.
fn narrow(value: u64) -> u8 {
    u8::try_from(value).expect("columns are below 64")
}

/// An offset in a unit: at most 64 MiB by construction.
fn unit_offset(value: u64) -> u32 {
    u32::try_from(value).expect("units are at most 64 MiB")
}
