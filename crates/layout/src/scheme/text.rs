//! A shape as one line of text, as extended attributes and programs have it.
//!
//! `raid5 4+1 unit=64KiB` is a scheme as [`Shape::parse`] reads it, and words `unit=SIZE` and
//! `width=COLUMNS`. Words with `=` are taken out, and what is left is the scheme. The text of a shape
//! parses to the same shape.

use super::{Scheme, SchemeError, Shape, UNIT_BYTES_DEFAULT};

impl Shape {
    /// The shape as text, such as `raid5 4+1 unit=64KiB`.
    pub fn text(&self) -> String {
        let unit = match self.unit_bytes {
            bytes if bytes >= 1 << 20 => format!("{}MiB", bytes >> 20),
            bytes => format!("{}KiB", bytes >> 10),
        };
        format!("{self} unit={unit}")
    }

    /// Reads a shape from text. Without a unit it is [`UNIT_BYTES_DEFAULT`]. A scheme that does not say its
    /// number of columns, and has no usual one, needs a width.
    pub fn from_text(text: &str) -> Result<Shape, SchemeError> {
        let mut unit_bytes = UNIT_BYTES_DEFAULT;
        let mut width = None;
        let mut scheme = Vec::new();
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some(("unit", size)) => unit_bytes = bytes(size).ok_or_else(|| unknown(word))?,
                Some(("width", columns)) => width = Some(columns.parse().map_err(|_| unknown(word))?),
                Some(_) => return Err(unknown(word)),
                None => scheme.push(word),
            }
        }
        let scheme = scheme.join(" ");
        match Shape::parse(&scheme, width, unit_bytes) {
            Err(SchemeError::NoWidth(named)) => match Scheme::width_default(named) {
                Some(width) => Shape::parse(&scheme, Some(width), unit_bytes),
                None => Err(SchemeError::NoWidth(named)),
            },
            shape => shape,
        }
    }
}

fn unknown(word: &str) -> SchemeError {
    SchemeError::Word(word.to_owned())
}

/// The bytes of a size: digits, and K or M, or KiB or MiB.
fn bytes(size: &str) -> Option<u32> {
    let end = size.find(|c: char| !c.is_ascii_digit()).unwrap_or(size.len());
    let number: u32 = size[..end].parse().ok()?;
    let shift = match size[end..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_one_line_of_text() {
        for (text, shown) in [
            ("raid5 4+1 unit=64KiB", "raid5 4+1 unit=64KiB"),
            (" raid5:4+1\tunit=64k\n", "raid5 4+1 unit=64KiB"),
            ("unit=65536 width=5 raid5", "raid5 4+1 unit=64KiB"),
            ("rs(4,2)", "rs(4,2) unit=512KiB"),
            ("raid1 unit=1M", "raid1 1+1 unit=1MiB"),
            ("raid0 3 unit=4096", "raid0 3 unit=4KiB"),
        ] {
            let shape = Shape::from_text(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(shape.text(), shown, "{text}");
            assert_eq!(Shape::from_text(shown), Ok(shape), "{shown}");
        }
    }

    #[test]
    fn what_is_no_shape_is_refused_by_name() {
        for (text, named) in [
            ("", "unknown scheme"),
            ("raid5", "needs a width"),
            ("raid5 width=five", "width=five"),
            ("raid5 4+1 unit=64Q", "unit=64Q"),
            ("raid5 4+1 unit=99999M", "unit=99999M"),
            ("raid5 4+1 unit=5000", "5000"),
            ("raid5 4+1 colour=red", "colour=red"),
            ("raid5 4+1 width=6", "width given is 6"),
        ] {
            let error = Shape::from_text(text).expect_err(text).to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
