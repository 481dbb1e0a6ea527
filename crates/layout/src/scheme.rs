//! Redundancy schemes and the shape of a segment: scheme, `k`, `m`, unit size. A [`Shape`] is valid by
//! construction.
//!
//! All that is particular to a scheme stands in its row of `schemes!`, here and nowhere else.

use std::fmt;
use std::ops::RangeInclusive;

mod text;

/// Minimum unit size: 4 KiB, one checksum block.
pub const UNIT_BYTES_MIN: u32 = 4 << 10;
/// Maximum unit size: 64 MiB.
pub const UNIT_BYTES_MAX: u32 = 64 << 20;
/// Unit size of a shape that names none: 512 KiB.
pub const UNIT_BYTES_DEFAULT: u32 = 512 << 10;
/// Maximum number of parity units in a stripe.
pub const PARITY_MAX: u8 = 4;
/// Maximum number of columns in a segment.
pub const WIDTH_MAX: u8 = 64;

/// Order of a stripe's roles on the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rotation {
    /// Each role in the same column in every stripe; parity last.
    Fixed,
    /// Roles move one column to the left with each stripe (left-symmetric).
    LeftSymmetric,
}

/// Method by which parity is made from data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redundancy {
    /// There is no parity.
    None,
    /// Each parity unit is a copy of the one data unit.
    Copies,
    /// The one parity unit is the XOR of the data units.
    Xor,
    /// Reed-Solomon with the Cauchy matrix.
    ReedSolomon,
}

/// Notation of a scheme's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    /// `raid0 4`: data columns only.
    Data,
    /// `raid5 4+1`: data columns plus parity columns.
    Sum,
    /// `rs(4,2)`: the columns are part of the name.
    Call,
}

/// All that is particular to a scheme.
#[derive(Debug)]
struct Row {
    name: &'static str,
    rotation: Rotation,
    redundancy: Redundancy,
    notation: Notation,
    /// Number of data columns that the scheme allows.
    data: RangeInclusive<u8>,
    /// Number of parity columns that the scheme allows.
    parity: RangeInclusive<u8>,
    /// The two ranges in words, for an error message.
    rule: &'static str,
    /// The ways to write the scheme, for an error message.
    form: &'static str,
    /// The default width; `None` if it depends on the number of drives.
    width_default: Option<u8>,
}

/// Declares [`Scheme`] by its rows, each with the scheme's number in every format.
macro_rules! schemes {
    ($($(#[$doc:meta])* $number:literal $name:ident => $row:expr,)*) => {
        /// Redundancy scheme of a stripe. The discriminants are the numbers in every format.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Scheme { $($(#[$doc])* $name = $number),* }

        impl Scheme {
            /// Every scheme, by number.
            pub const ALL: &'static [Scheme] = &[$(Scheme::$name),*];

            fn row(self) -> &'static Row {
                match self { $(Scheme::$name => const { &$row }),* }
            }
        }
    };
}

schemes! {
    /// Striping, no redundancy: `m = 0`.
    0 Raid0 => Row {
        name: "raid0",
        rotation: Rotation::Fixed,
        redundancy: Redundancy::None,
        notation: Notation::Data,
        data: 1..=u8::MAX,
        parity: 0..=0,
        rule: "raid0 has 1 to 64 data columns and no parity",
        form: "raid0 with a width, or raid0:4 for 4 columns",
        width_default: None,
    },
    /// Mirrors: `k = 1`, `m` copies beside the first.
    1 Raid1 => Row {
        name: "raid1",
        rotation: Rotation::LeftSymmetric,
        redundancy: Redundancy::Copies,
        notation: Notation::Sum,
        data: 1..=1,
        parity: 1..=u8::MAX,
        rule: "raid1 has one data column and 1 to 4 copies of it",
        form: "raid1 with a width, or raid1:1+2 for two copies beside the first",
        width_default: Some(2),
    },
    /// XOR parity on the last column: `m = 1`.
    4 Raid4 => Row {
        name: "raid4",
        rotation: Rotation::Fixed,
        redundancy: Redundancy::Xor,
        notation: Notation::Sum,
        data: 2..=u8::MAX,
        parity: 1..=1,
        rule: "raid4 and raid5 have 2 to 63 data columns and one parity",
        form: "raid4 with a width, or raid4:4+1 for 4 data columns and one parity",
        width_default: None,
    },
    /// XOR parity rotated over all columns, left-symmetric: `m = 1`.
    5 Raid5 => Row {
        name: "raid5",
        rotation: Rotation::LeftSymmetric,
        redundancy: Redundancy::Xor,
        notation: Notation::Sum,
        data: 2..=u8::MAX,
        parity: 1..=1,
        rule: "raid4 and raid5 have 2 to 63 data columns and one parity",
        form: "raid5 with a width, or raid5:4+1 for 4 data columns and one parity",
        width_default: None,
    },
    /// Reed-Solomon, Cauchy matrix, parity rotated as in raid5: `m` from 1 to 4.
    16 Rs => Row {
        name: "rs",
        rotation: Rotation::LeftSymmetric,
        redundancy: Redundancy::ReedSolomon,
        notation: Notation::Call,
        data: 1..=u8::MAX,
        parity: 1..=u8::MAX,
        rule: "rs(k,m) has at least one data column and 1 to 4 parity",
        form: "rs(k,m), such as rs(4,2) for 4 data and 2 parity columns",
        width_default: None,
    },
}

/// Scheme, `k`, `m` and unit size that fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    scheme: Scheme,
    k: u8,
    m: u8,
    unit_bytes: u32,
}

/// Reason that a shape was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemeError {
    /// The scheme's name is unknown.
    #[error("unknown scheme \"{0}\": use {names}", names = Scheme::names())]
    Unknown(String),
    /// No scheme has this number.
    #[error("unknown scheme number {0}")]
    UnknownNumber(u8),
    /// `k` and `m` do not fit the scheme.
    #[error("{scheme} with {k} data and {m} parity columns is not possible: {rule}")]
    Columns {
        /// The scheme asked for.
        scheme: Scheme,
        /// Number of data columns asked for.
        k: u8,
        /// Number of parity columns asked for.
        m: u8,
        /// Columns that the scheme allows, in words.
        rule: &'static str,
    },
    /// The scheme's numbers are malformed or far out of bounds.
    #[error("\"{text}\" is not a way to write {scheme}: write {form}")]
    Form {
        /// Text that was to be parsed.
        text: String,
        /// Scheme that the text names.
        scheme: Scheme,
        /// Ways to write the scheme.
        form: &'static str,
    },
    /// A scheme whose number of columns is not in its name, given without a width.
    #[error("{0} needs a width: the number of drives a file is spread over, parity or copies included")]
    NoWidth(Scheme),
    /// The width differs from the number of columns written in the scheme.
    #[error(
        "\"{text}\" has {columns} columns, but the width given is {width}: leave the width out or make them agree"
    )]
    Width {
        /// The scheme as given.
        text: String,
        /// Number of columns written in the text.
        columns: u16,
        /// Width that was given beside the text.
        width: u8,
    },
    /// The unit is not a power of two from 4 KiB to 64 MiB.
    #[error("unit of {0} bytes: it must be a power of two from 4K to 64M")]
    Unit(u64),
    /// A word of a layout's text is not one of those that it may have.
    #[error("\"{0}\" is not part of a layout: write it such as \"raid5 4+1 unit=64KiB\"")]
    Word(String),
}

impl Scheme {
    /// The scheme's number in every format.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The scheme with this number in a format.
    pub fn from_number(number: u8) -> Result<Scheme, SchemeError> {
        let known = Scheme::ALL.iter().find(|scheme| scheme.number() == number);
        known.copied().ok_or(SchemeError::UnknownNumber(number))
    }

    /// Returns true if the parity units are copies of the one data unit.
    pub fn is_mirror(self) -> bool {
        self.redundancy() == Redundancy::Copies
    }

    /// The width of a scheme that is written without numbers; `None` if it depends on the number of drives.
    pub fn width_default(self) -> Option<u8> {
        self.row().width_default
    }

    pub(crate) fn redundancy(self) -> Redundancy {
        self.row().redundancy
    }

    pub(crate) fn rotation(self) -> Rotation {
        self.row().rotation
    }

    /// Splits this many columns into `k` and `m`; `None` if the number alone does not determine them.
    fn split(self, width: u8) -> Option<(u8, u8)> {
        let data = &self.row().data;
        let parity = &self.row().parity;
        if parity.start() == parity.end() {
            Some((width.saturating_sub(*parity.end()), *parity.end()))
        } else if data.start() == data.end() {
            Some((*data.end(), width.saturating_sub(*data.end())))
        } else {
            None
        }
    }

    /// The names of all schemes, listed as in a sentence.
    fn names() -> String {
        let name = |scheme: &Scheme| match scheme.row().notation {
            Notation::Call => format!("{scheme}(k,m)"),
            Notation::Data | Notation::Sum => scheme.to_string(),
        };
        let (last, others) = Scheme::ALL.split_last().expect("there are schemes");
        format!("{} or {}", others.iter().map(name).collect::<Vec<_>>().join(", "), name(last))
    }

    fn form_error(self, text: &str) -> SchemeError {
        SchemeError::Form { text: text.to_owned(), scheme: self, form: self.row().form }
    }
}

impl Shape {
    /// Parses a scheme as users write it. `width` is the number of columns, parity and copies included;
    /// `unit_bytes` the bytes in a unit.
    ///
    /// | scheme | ways to write it (spaces and case do not matter) | width |
    /// |---|---|---|
    /// | raid0 | `raid0`; `raid0:4` or `raid0(4)` for 4 columns | needed with the first only |
    /// | raid1 | `raid1`; `raid1:1+2` or `raid1(1,2)` for two more copies | needed with the first only |
    /// | raid4, raid5 | `raid5`; `raid5:4+1` or `raid5(4,1)` | needed with the first only |
    /// | rs | `rs(4,2)`, `rs:4,2`, `rs:4+2`, `rs4+2`, `rs 4+2` | never needed |
    ///
    /// A width given with numbers must be their sum. What [`Shape`] displays can be parsed again.
    pub fn parse(scheme: &str, width: Option<u8>, unit_bytes: u32) -> Result<Shape, SchemeError> {
        let (text, scheme, numbers) = split_name(scheme)?;
        let (k, m) = match numbers {
            Some(numbers) => {
                let (k, m) = split_numbers(scheme, numbers).ok_or_else(|| scheme.form_error(&text))?;
                let columns = u16::from(k) + u16::from(m);
                match width {
                    Some(width) if u16::from(width) != columns => {
                        return Err(SchemeError::Width { text, columns, width });
                    }
                    _ => (k, m),
                }
            }
            None => {
                // If no width would make the shape valid, the missing width is not the error to report.
                scheme.split(0).ok_or_else(|| scheme.form_error(&text))?;
                let split = scheme.split(width.ok_or(SchemeError::NoWidth(scheme))?);
                split.expect("it was possible for another width")
            }
        };
        Shape::new(scheme, k, m, unit_bytes)
    }

    /// Makes a shape, if its parts are valid together.
    pub fn new(scheme: Scheme, k: u8, m: u8, unit_bytes: u32) -> Result<Shape, SchemeError> {
        let row = scheme.row();
        let rule = if !row.data.contains(&k) || !row.parity.contains(&m) {
            row.rule
        } else if m > PARITY_MAX {
            "at most 4 parity columns"
        } else if k > WIDTH_MAX || k + m > WIDTH_MAX {
            "at most 64 columns in all"
        } else {
            ""
        };
        if !rule.is_empty() {
            return Err(SchemeError::Columns { scheme, k, m, rule });
        }
        if !unit_bytes.is_power_of_two() || !(UNIT_BYTES_MIN..=UNIT_BYTES_MAX).contains(&unit_bytes) {
            return Err(SchemeError::Unit(u64::from(unit_bytes)));
        }
        Ok(Shape { scheme, k, m, unit_bytes })
    }

    /// The default shape. It is raid5 4+1 in units of [`UNIT_BYTES_DEFAULT`]. With fewer than five drives it
    /// is the widest that fits: raid5 3+1 on four, raid5 2+1 on three, raid1 on two, raid0 on one. `None` if
    /// there is no drive.
    pub fn default_on(drives: usize) -> Option<Shape> {
        let (scheme, k, m) = match drives {
            0 => return None,
            1 => (Scheme::Raid0, 1, 0),
            2 => (Scheme::Raid1, 1, 1),
            3 => (Scheme::Raid5, 2, 1),
            4 => (Scheme::Raid5, 3, 1),
            _ => (Scheme::Raid5, 4, 1),
        };
        Some(Shape { scheme, k, m, unit_bytes: UNIT_BYTES_DEFAULT })
    }

    /// Redundancy scheme of the shape.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Number of data units in a stripe.
    pub fn k(&self) -> u8 {
        self.k
    }

    /// Number of parity units in a stripe.
    pub fn m(&self) -> u8 {
        self.m
    }

    /// Number of columns: `k + m`.
    pub fn width(&self) -> u8 {
        self.k + self.m
    }

    /// Size of a unit in bytes: a power of two from 4 KiB to 64 MiB.
    pub fn unit_bytes(&self) -> u32 {
        self.unit_bytes
    }

    /// Number of bytes of the file in a whole stripe: `k` units.
    pub fn stripe_bytes(&self) -> u64 {
        u64::from(self.k) * u64::from(self.unit_bytes)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().name)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { scheme, k, m, .. } = self;
        match scheme.row().notation {
            Notation::Data => write!(f, "{scheme} {k}"),
            Notation::Sum => write!(f, "{scheme} {k}+{m}"),
            Notation::Call => write!(f, "{scheme}({k},{m})"),
        }
    }
}

/// The trimmed text, the scheme it begins with, and the numbers that follow, without spaces and brackets.
fn split_name(given: &str) -> Result<(String, Scheme, Option<String>), SchemeError> {
    let text = given.trim().to_owned();
    let lower = text.to_ascii_lowercase();
    let found = Scheme::ALL.iter().find_map(|scheme| Some((*scheme, lower.strip_prefix(scheme.row().name)?)));
    let Some((scheme, rest)) = found else { return Err(SchemeError::Unknown(text)) };
    let numbers: String = rest.chars().filter(|c| !c.is_whitespace()).collect();
    if numbers.is_empty() {
        return Ok((text, scheme, None));
    }
    // "raid10" is not raid1 with a 0, but "rs4+2" has only one meaning.
    let may_follow = |c: char| match scheme.row().notation {
        Notation::Call if c.is_ascii_digit() => true,
        _ => c == ':' || c == '(' || c.is_whitespace(),
    };
    if !rest.starts_with(may_follow) {
        return Err(SchemeError::Unknown(text));
    }
    let bare = match (numbers.strip_prefix('('), numbers.strip_prefix(':')) {
        (Some(inner), _) => inner.strip_suffix(')').ok_or_else(|| scheme.form_error(&text))?,
        (_, Some(inner)) => inner,
        _ => &numbers,
    };
    let bare = bare.to_owned();
    Ok((text, scheme, Some(bare)))
}

/// `k` and `m` from `k,m` or `k+m`, or from `k` alone where there is no parity.
fn split_numbers(scheme: Scheme, numbers: String) -> Option<(u8, u8)> {
    // `parse` alone would accept a sign.
    let number =
        |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u8>().ok())?;
    match numbers.split_once([',', '+']) {
        Some((k, m)) => Some((number(k)?, number(m)?)),
        None if scheme.row().notation == Notation::Data => Some((number(&numbers)?, 0)),
        None => None,
    }
}

#[cfg(test)]
mod tests;
