//! Redundancy schemes and the shape of a segment: scheme, `k`, `m`, unit size. A [`Shape`] is valid by construction.

use std::fmt;

/// Smallest unit: 4 KiB, one checksum block.
pub const UNIT_BYTES_MIN: u32 = 4 << 10;
/// Largest unit: 64 MiB.
pub const UNIT_BYTES_MAX: u32 = 64 << 20;
/// Most parity units a stripe may have.
pub const PARITY_MAX: u8 = 4;
/// Most columns a segment may have.
pub const WIDTH_MAX: u8 = 64;

/// How a stripe is made redundant. The discriminants are the numbers in every format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Scheme {
    /// Striping, no redundancy: `m = 0`.
    Raid0 = 0,
    /// Mirrors: `k = 1`, `m` copies beside the first.
    Raid1 = 1,
    /// XOR parity on the last column: `m = 1`.
    Raid4 = 4,
    /// XOR parity rotated over all columns, left-symmetric: `m = 1`.
    Raid5 = 5,
    /// Reed-Solomon, Cauchy matrix, parity rotated as in raid5: `m` from 1 to 4.
    Rs = 16,
}

/// Scheme, `k`, `m` and unit size that fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    scheme: Scheme,
    k: u8,
    m: u8,
    unit_bytes: u32,
}

/// Why a shape was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemeError {
    /// The scheme's name is not one of those known.
    #[error("unknown scheme \"{0}\": use raid0, raid1, raid4, raid5 or rs(k,m)")]
    Unknown(String),
    /// The number is not a scheme's.
    #[error("unknown scheme number {0}")]
    UnknownNumber(u8),
    /// `k` and `m` do not fit the scheme.
    #[error("{scheme} with {k} data and {m} parity columns is not possible: {rule}")]
    Columns {
        /// The scheme asked for.
        scheme: Scheme,
        /// Data columns asked for.
        k: u8,
        /// Parity columns asked for.
        m: u8,
        /// What is allowed.
        rule: &'static str,
    },
    /// The unit is not a power of two from 4 KiB to 64 MiB.
    #[error("unit of {0} bytes: it must be a power of two from 4K to 64M")]
    Unit(u64),
}

impl Scheme {
    /// The scheme with this number in a format.
    pub fn from_number(number: u8) -> Result<Scheme, SchemeError> {
        match number {
            0 => Ok(Scheme::Raid0),
            1 => Ok(Scheme::Raid1),
            4 => Ok(Scheme::Raid4),
            5 => Ok(Scheme::Raid5),
            16 => Ok(Scheme::Rs),
            other => Err(SchemeError::UnknownNumber(other)),
        }
    }

    /// Whether the columns' roles rotate from stripe to stripe.
    pub fn rotates(self) -> bool {
        matches!(self, Scheme::Raid1 | Scheme::Raid5 | Scheme::Rs)
    }
}

impl Shape {
    /// Checks that the parts fit together.
    pub fn new(scheme: Scheme, k: u8, m: u8, unit_bytes: u32) -> Result<Shape, SchemeError> {
        let rule = match scheme {
            Scheme::Raid0 if k < 1 || m != 0 => "raid0 has 1 to 64 data columns and no parity",
            Scheme::Raid1 if k != 1 || m < 1 => "raid1 has one data column and 1 to 4 copies of it",
            Scheme::Raid4 | Scheme::Raid5 if k < 2 || m != 1 => {
                "raid4 and raid5 have 2 to 63 data columns and one parity"
            }
            Scheme::Rs if k < 1 || m < 1 => "rs(k,m) has at least one data column and 1 to 4 parity",
            _ if m > PARITY_MAX => "at most 4 parity columns",
            _ if k > WIDTH_MAX || k + m > WIDTH_MAX => "at most 64 columns in all",
            _ => "",
        };
        if !rule.is_empty() {
            return Err(SchemeError::Columns { scheme, k, m, rule });
        }
        if !unit_bytes.is_power_of_two() || !(UNIT_BYTES_MIN..=UNIT_BYTES_MAX).contains(&unit_bytes) {
            return Err(SchemeError::Unit(u64::from(unit_bytes)));
        }
        Ok(Shape { scheme, k, m, unit_bytes })
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Data units in a stripe.
    pub fn k(&self) -> u8 {
        self.k
    }

    /// Parity units in a stripe.
    pub fn m(&self) -> u8 {
        self.m
    }

    /// Columns: `k + m`.
    pub fn width(&self) -> u8 {
        self.k + self.m
    }

    /// Bytes in a unit; a power of two from 4 KiB to 64 MiB.
    pub fn unit_bytes(&self) -> u32 {
        self.unit_bytes
    }

    /// Bytes of the file in a whole stripe: `k` units.
    pub fn stripe_bytes(&self) -> u64 {
        u64::from(self.k) * u64::from(self.unit_bytes)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scheme::Raid0 => "raid0",
            Scheme::Raid1 => "raid1",
            Scheme::Raid4 => "raid4",
            Scheme::Raid5 => "raid5",
            Scheme::Rs => "rs",
        })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scheme {
            Scheme::Rs => write!(f, "rs({},{})", self.k, self.m),
            Scheme::Raid0 => write!(f, "raid0 {}", self.k),
            scheme => write!(f, "{scheme} {}+{}", self.k, self.m),
        }
    }
}
