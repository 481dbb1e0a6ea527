//! Sizes, rates and times as a spec writes them: text with a unit, such as `32K`, `2.5MB/s` and `8.3ms`.
//!
//! | kind | units |
//! |---|---|
//! | size | none or `B`: bytes; `K` ... `P` (also `KiB` ...): powers of 1024; `KB` ... `PB`: powers of 1000
//! |
//! | rate | a size and `/s`; or bits: `Mbit/s`, `Gbit/s`, powers of 1000; or `25GbE` |
//! | time | `ns`, `us`, `ms`, `s` |

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::number::{SECOND, real, whole};

/// Greatest size, in bytes.
const BYTES_MAX: f64 = 1e18;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bytes(pub u64);

/// A rate in bytes a second, above 0.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate(pub f64);

/// A time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(pub u64);

impl Span {
    /// A time of this many milliseconds.
    pub fn milliseconds(value: f64) -> Span {
        Span(whole(value * SECOND / 1e3))
    }

    pub fn seconds(self) -> f64 {
        real(self.0) / SECOND
    }
}

impl Rate {
    /// The time that this many bytes take, in nanoseconds.
    pub(crate) fn time(self, bytes: u64) -> f64 {
        real(bytes) / self.0 * SECOND
    }
}

/// Splits a text into the number at its beginning, which is not negative, and the rest.
fn split<'a>(text: &'a str, what: &str, example: &str) -> Result<(f64, &'a str), String> {
    let text = text.trim();
    let wrong = || format!("\"{text}\" is not a {what}: write it like {example}");
    if let Some(rest) = text.strip_prefix('-')
        && rest.starts_with(|c: char| c.is_ascii_digit())
    {
        return Err(format!("{text} is negative: a {what} is at least 0, such as {example}"));
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().map_err(|_| wrong())?;
    Ok((number, text[end..].trim()))
}

/// The bytes that a unit of sizes stands for.
fn size_unit(unit: &str) -> Option<f64> {
    let powers = |base: f64, power: i32| Some(base.powi(power));
    match unit {
        "" | "B" => Some(1.0),
        "K" | "KiB" => powers(1024.0, 1),
        "M" | "MiB" => powers(1024.0, 2),
        "G" | "GiB" => powers(1024.0, 3),
        "T" | "TiB" => powers(1024.0, 4),
        "KB" | "kB" => powers(1000.0, 1),
        "MB" => powers(1000.0, 2),
        "GB" => powers(1000.0, 3),
        "TB" => powers(1000.0, 4),
        "P" | "PiB" => powers(1024.0, 5),
        "PB" => powers(1000.0, 5),
        _ => None,
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let (number, unit) = split(text, "size", "32K or 1MB")?;
        let unit = size_unit(unit).ok_or_else(|| {
            format!("\"{text}\" is not a size: units are K, M, G, T, P (1024) and KB, MB, GB, TB, PB (1000)")
        })?;
        if number * unit > BYTES_MAX {
            return Err(format!("{text} are too much: at most 1000 PB"));
        }
        Ok(Bytes(whole(number * unit)))
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let (number, unit) = split(text, "rate", "2.5MB/s or 25Gbit/s")?;
        let bytes = match unit {
            "Mbit/s" => Some(1e6 / 8.0),
            "Gbit/s" | "GbE" => Some(1e9 / 8.0),
            unit => unit.strip_suffix("/s").and_then(size_unit),
        };
        let bytes = bytes.ok_or_else(|| {
            format!("\"{text}\" is not a rate: write it like 2.5MB/s, 100MiB/s, 10Gbit/s or 25GbE")
        })?;
        let rate = number * bytes;
        if rate > 0.0 {
            Ok(Rate(rate))
        } else {
            Err(format!("a rate of {text} carries nothing: it is above 0"))
        }
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let (number, unit) = split(text, "time", "8.3ms or 20us")?;
        let ns = match unit {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ if number == 0.0 => 0.0,
            _ => return Err(format!("\"{text}\" is not a time: its unit is ns, us, ms or s")),
        };
        Ok(Span(whole(number * ns)))
    }
}

macro_rules! as_text {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<$name, String> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
    };
}

as_text!(Bytes);
as_text!(Rate);
as_text!(Span);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        match units.iter().find(|(shift, _)| self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift)) {
            Some((shift, name)) => write!(f, "{}{name}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "KB/s")];
        match units.iter().find(|(size, _)| self.0 >= *size) {
            Some((size, name)) => write!(f, "{}{name}", self.0 / size),
            None => write!(f, "{}B/s", self.0),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
        match units.iter().find(|(size, _)| self.0 >= *size) {
            Some((size, name)) => write!(f, "{}{name}", real(self.0) / real(*size)),
            None => write!(f, "{}ns", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_meant() {
        let size = |text: &str| text.parse::<Bytes>().map(|size| size.0);
        assert_eq!(
            ["512", "4K", "1.5MiB", "1MB"].map(size),
            [Ok(512), Ok(4096), Ok(1_572_864), Ok(1_000_000)]
        );
        let rate = |text: &str| text.parse::<Rate>().map(|rate| rate.0);
        assert_eq!(["2.5MB/s", "1K/s", "25GbE"].map(rate), [Ok(2.5e6), Ok(1024.0), Ok(3.125e9)]);
        let span = |text: &str| text.parse::<Span>().map(|span| span.0);
        assert_eq!(["8.3ms", "0", "20us"].map(span), [Ok(8_300_000), Ok(0), Ok(20_000)]);
    }

    #[test]
    fn nonsense_is_refused_with_the_way_to_write_it() {
        for (error, part) in [
            ("-5MB/s".parse::<Rate>().unwrap_err(), "negative"),
            ("0MB/s".parse::<Rate>().unwrap_err(), "above 0"),
            ("5 furlongs".parse::<Rate>().unwrap_err(), "2.5MB/s"),
            ("12Q".parse::<Bytes>().unwrap_err(), "units are"),
            ("12".parse::<Span>().unwrap_err(), "unit is ns"),
            ("-1ms".parse::<Span>().unwrap_err(), "negative"),
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read() {
        for size in [0, 1000, 4096, 3 << 20, 5 << 30] {
            assert_eq!(Bytes(size).to_string().parse(), Ok(Bytes(size)));
        }
        for rate in [12.0, 2.56e6, 3.125e9] {
            assert_eq!(Rate(rate).to_string().parse(), Ok(Rate(rate)));
        }
        for span in [0, 17, 8_300_000, 2_000_000_000] {
            assert_eq!(Span(span).to_string().parse(), Ok(Span(span)));
        }
    }
}
