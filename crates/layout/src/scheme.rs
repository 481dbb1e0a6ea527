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
    /// The scheme's numbers are not of its form, or are out of all bounds.
    #[error("\"{text}\" is not a way to write {scheme}: write {form}")]
    Form {
        /// What was given.
        text: String,
        /// The scheme it names.
        scheme: Scheme,
        /// Ways to write it.
        form: &'static str,
    },
    /// A scheme whose number of columns is not in its name, given without a width.
    #[error("{0} needs a width: the number of drives a file is spread over, parity or copies included")]
    NoWidth(Scheme),
    /// A width that is not the number of columns written in the scheme.
    #[error(
        "\"{text}\" has {columns} columns, but the width given is {width}: leave the width out or make them agree"
    )]
    Width {
        /// The scheme as given.
        text: String,
        /// Columns it has.
        columns: u16,
        /// The width given with it.
        width: u8,
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

    fn form_error(self, text: &str) -> SchemeError {
        let form = match self {
            Scheme::Raid0 => "raid0 with a width, or raid0:4 for 4 columns",
            Scheme::Raid1 => "raid1 with a width, or raid1:1+2 for two copies beside the first",
            Scheme::Raid4 => "raid4 with a width, or raid4:4+1 for 4 data columns and one parity",
            Scheme::Raid5 => "raid5 with a width, or raid5:4+1 for 4 data columns and one parity",
            Scheme::Rs => "rs(k,m), such as rs(4,2) for 4 data and 2 parity columns",
        };
        SchemeError::Form { text: text.to_owned(), scheme: self, form }
    }

    /// Whether the columns' roles rotate from stripe to stripe.
    pub fn rotates(self) -> bool {
        matches!(self, Scheme::Raid1 | Scheme::Raid5 | Scheme::Rs)
    }
}

impl Shape {
    /// Reads a scheme as people write it. `width` is the number of columns, parity and copies included; `unit_bytes` the
    /// bytes in a unit.
    ///
    /// | scheme | ways to write it (spaces and case do not matter) | width |
    /// |---|---|---|
    /// | raid0 | `raid0`; `raid0:4` or `raid0(4)` for 4 columns | needed with the first only |
    /// | raid1 | `raid1`; `raid1:1+2` or `raid1(1,2)` for two copies beside the first | needed with the first only |
    /// | raid4, raid5 | `raid5`; `raid5:4+1` or `raid5(4,1)` | needed with the first only |
    /// | rs | `rs(4,2)`, `rs:4,2`, `rs:4+2`, `rs4+2`, `rs 4+2` | never needed |
    ///
    /// A width given beside numbers must be their sum. What [`Shape`] displays can be read back, too.
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
                let width = width.ok_or(SchemeError::NoWidth(scheme));
                match scheme {
                    Scheme::Raid0 => (width?, 0),
                    Scheme::Raid1 => (1, width?.saturating_sub(1)),
                    Scheme::Raid4 | Scheme::Raid5 => (width?.saturating_sub(1), 1),
                    Scheme::Rs => return Err(scheme.form_error(&text)),
                }
            }
        };
        Shape::new(scheme, k, m, unit_bytes)
    }

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

/// The trimmed text, the scheme it begins with, and what follows of numbers, without spaces and brackets.
fn split_name(given: &str) -> Result<(String, Scheme, Option<String>), SchemeError> {
    let text = given.trim().to_owned();
    let lower = text.to_ascii_lowercase();
    let names = [Scheme::Raid0, Scheme::Raid1, Scheme::Raid4, Scheme::Raid5, Scheme::Rs];
    let found = names.iter().find_map(|scheme| Some((*scheme, lower.strip_prefix(&scheme.to_string())?)));
    let Some((scheme, rest)) = found else { return Err(SchemeError::Unknown(text)) };
    let numbers: String = rest.chars().filter(|c| !c.is_whitespace()).collect();
    if numbers.is_empty() {
        return Ok((text, scheme, None));
    }
    // "raid10" is not raid1 with a 0, but "rs4+2" can mean one thing only.
    let may_follow = |c: char| match scheme {
        Scheme::Rs if c.is_ascii_digit() => true,
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

/// `k` and `m` from `k,m` or `k+m`, or from `k` alone for raid0.
fn split_numbers(scheme: Scheme, numbers: String) -> Option<(u8, u8)> {
    // `parse` alone would take a sign.
    let number =
        |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u8>().ok())?;
    match numbers.split_once([',', '+']) {
        Some((k, m)) => Some((number(k)?, number(m)?)),
        None if scheme == Scheme::Raid0 => Some((number(&numbers)?, 0)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u32 = 512 << 10;

    fn check(text: &str, width: Option<u8>, expected: (Scheme, u8, u8)) {
        let shape =
            Shape::parse(text, width, UNIT).unwrap_or_else(|error| panic!("{text} {width:?}: {error}"));
        assert_eq!((shape.scheme(), shape.k(), shape.m()), expected, "{text} {width:?}");
        assert_eq!(shape.unit_bytes(), UNIT);
    }

    fn refused(text: &str, width: Option<u8>, expected: &str) {
        let error = Shape::parse(text, width, UNIT).expect_err(text);
        assert_eq!(error.to_string(), expected, "{text} {width:?}");
    }

    #[test]
    fn schemes_as_people_write_them() {
        check("raid0", Some(6), (Scheme::Raid0, 6, 0));
        check("raid0:64", None, (Scheme::Raid0, 64, 0));
        check("raid1", Some(2), (Scheme::Raid1, 1, 1));
        check("raid1", Some(5), (Scheme::Raid1, 1, 4));
        check("raid1(1,2)", Some(3), (Scheme::Raid1, 1, 2));
        check("RAID4", Some(3), (Scheme::Raid4, 2, 1));
        check(" raid5 ", Some(5), (Scheme::Raid5, 4, 1));
        check("raid5:4+1", None, (Scheme::Raid5, 4, 1));
        check("rs(4,2)", None, (Scheme::Rs, 4, 2));
        check("RS( 4, 2 )", Some(6), (Scheme::Rs, 4, 2));
        for text in ["rs:4,2", "rs:4+2", "rs4+2", "rs4,2", "rs 4+2", "rs(4+2)"] {
            check(text, None, (Scheme::Rs, 4, 2));
        }
        check("rs(60,4)", None, (Scheme::Rs, 60, 4));
    }

    #[test]
    fn what_is_displayed_can_be_read_back() {
        for (scheme, k, m) in [
            (Scheme::Raid0, 64, 0),
            (Scheme::Raid1, 1, 4),
            (Scheme::Raid4, 4, 1),
            (Scheme::Raid5, 63, 1),
            (Scheme::Rs, 10, 4),
        ] {
            let shape = Shape::new(scheme, k, m, UNIT).expect("valid");
            assert_eq!(Shape::parse(&shape.to_string(), None, UNIT), Ok(shape));
            assert_eq!(Shape::parse(&shape.to_string(), Some(k + m), UNIT), Ok(shape));
        }
    }

    #[test]
    fn unknown_names_and_forms_are_refused() {
        for text in ["", "raid", "raid6", "raid10", "raid54+1", "rsa(4,2)", "mirror", "5"] {
            refused(
                text,
                Some(5),
                &format!("unknown scheme \"{text}\": use raid0, raid1, raid4, raid5 or rs(k,m)"),
            );
        }
        let of_rs = "write rs(k,m), such as rs(4,2) for 4 data and 2 parity columns";
        for text in [
            "rs",
            "rs()",
            "rs(4",
            "rs(4;2)",
            "rs(,2)",
            "rs(4,2,1)",
            "rs(4,+2)",
            "rs(-4,2)",
            "rs(300,2)",
            "rs:4",
        ] {
            let expected = format!("\"{text}\" is not a way to write rs: {of_rs}");
            refused(text, None, &expected);
        }
        refused(
            "raid5:4",
            None,
            "\"raid5:4\" is not a way to write raid5: write raid5 with a width, or raid5:4+1 for 4 data columns and one parity",
        );
    }

    #[test]
    fn widths_and_numbers_that_do_not_fit_are_refused() {
        refused(
            "raid5",
            None,
            "raid5 needs a width: the number of drives a file is spread over, parity or copies included",
        );
        refused(
            "rs(4,2)",
            Some(5),
            "\"rs(4,2)\" has 6 columns, but the width given is 5: leave the width out or make them agree",
        );
        refused(
            "raid0:4",
            Some(6),
            "\"raid0:4\" has 4 columns, but the width given is 6: leave the width out or make them agree",
        );
        refused(
            "raid5",
            Some(2),
            "raid5 with 1 data and 1 parity columns is not possible: raid4 and raid5 have 2 to 63 data columns and one parity",
        );
        refused(
            "raid5",
            Some(65),
            "raid5 with 64 data and 1 parity columns is not possible: at most 64 columns in all",
        );
        refused(
            "raid5",
            Some(0),
            "raid5 with 0 data and 1 parity columns is not possible: raid4 and raid5 have 2 to 63 data columns and one parity",
        );
        refused(
            "raid1",
            Some(1),
            "raid1 with 1 data and 0 parity columns is not possible: raid1 has one data column and 1 to 4 copies of it",
        );
        refused(
            "raid0",
            Some(0),
            "raid0 with 0 data and 0 parity columns is not possible: raid0 has 1 to 64 data columns and no parity",
        );
        refused(
            "rs(200,200)",
            None,
            "rs with 200 data and 200 parity columns is not possible: at most 4 parity columns",
        );
        refused(
            "rs(255,4)",
            None,
            "rs with 255 data and 4 parity columns is not possible: at most 64 columns in all",
        );
        refused(
            "rs(4,0)",
            None,
            "rs with 4 data and 0 parity columns is not possible: rs(k,m) has at least one data column and 1 to 4 parity",
        );
    }

    #[test]
    fn units_are_powers_of_two_within_bounds() {
        for unit in [4 << 10, 8 << 10, 64 << 20] {
            assert_eq!(Shape::parse("raid5", Some(5), unit).map(|shape| shape.unit_bytes()), Ok(unit));
        }
        for unit in [0, 1, 2 << 10, 5000, 12 << 10, 128 << 20, u32::MAX] {
            let expected = format!("unit of {unit} bytes: it must be a power of two from 4K to 64M");
            assert_eq!(Shape::parse("raid5", Some(5), unit).expect_err("refused").to_string(), expected);
        }
    }

    #[test]
    fn numbers_in_formats_name_one_scheme_each() {
        let known: Vec<u8> = (0..=255).filter(|number| Scheme::from_number(*number).is_ok()).collect();
        assert_eq!(known, [0, 1, 4, 5, 16]);
        for number in known {
            assert_eq!(Scheme::from_number(number).map(|scheme| scheme as u8), Ok(number));
        }
        assert_eq!(Scheme::from_number(6), Err(SchemeError::UnknownNumber(6)));
    }
}
