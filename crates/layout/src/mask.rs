//! A column of a segment, and sets of columns. `k + m` is at most 64, so a set is one 64-bit mask.

use std::fmt;

/// A column's position in its segment: 0 to `k + m - 1`. The drive of column `c` is `segment.components[c]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Column(pub u8);

/// A set of columns; bit `c` stands for column `c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ColumnMask(pub u64);

impl Column {
    /// The column as an index into a segment's components.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl ColumnMask {
    /// The set of no columns.
    pub const EMPTY: ColumnMask = ColumnMask(0);

    /// The columns `0..width`. `width` is at most 64.
    pub fn all(width: u8) -> ColumnMask {
        assert!(width <= 64, "a segment has at most 64 columns, not {width}");
        if width == 64 { ColumnMask(u64::MAX) } else { ColumnMask((1 << width) - 1) }
    }

    /// Returns true if `column` is in the set.
    pub fn contains(self, column: Column) -> bool {
        column.0 < 64 && self.0 & (1 << column.0) != 0
    }

    /// The set with `column`.
    #[must_use]
    pub fn with(self, column: Column) -> ColumnMask {
        assert!(column.0 < 64, "column {column} is past the 64th");
        ColumnMask(self.0 | (1 << column.0))
    }

    /// The set without `column`.
    #[must_use]
    pub fn without(self, column: Column) -> ColumnMask {
        if column.0 < 64 { ColumnMask(self.0 & !(1 << column.0)) } else { self }
    }

    /// Columns that are in both sets.
    #[must_use]
    pub fn and(self, other: ColumnMask) -> ColumnMask {
        ColumnMask(self.0 & other.0)
    }

    /// Columns that are in at least one of the two sets.
    #[must_use]
    pub fn or(self, other: ColumnMask) -> ColumnMask {
        ColumnMask(self.0 | other.0)
    }

    /// Columns of this set that are not in `other`.
    #[must_use]
    pub fn minus(self, other: ColumnMask) -> ColumnMask {
        ColumnMask(self.0 & !other.0)
    }

    /// Number of columns in the set.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns true if the set holds no column.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The columns, lowest first.
    pub fn iter(self) -> impl Iterator<Item = Column> {
        (0..64).map(Column).filter(move |&column| self.contains(column))
    }
}

impl FromIterator<Column> for ColumnMask {
    fn from_iter<I: IntoIterator<Item = Column>>(columns: I) -> Self {
        columns.into_iter().fold(ColumnMask::EMPTY, ColumnMask::with)
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for ColumnMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, column) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{column}")?;
        }
        f.write_str("}")
    }
}
