//! Sizes and ranges as users write them (`512K`, `8M`, `0..1M`, `4K+128K`), and sizes as they are shown.

use std::ops::Range;

pub(crate) use braid_client::show_rate;

/// Bytes written as digits with an optional binary suffix K, M, G or T (also KiB, MiB, ...).
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("\"{text}\" is not a size: write bytes or a number with K, M, G or T, such as 512K");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().map_err(|_| wrong())?;
    let shift = match text[end..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is more than 2^64 bytes"))
}

/// Bytes per second: a size that is not 0.
pub(crate) fn parse_rate(text: &str) -> Result<u64, String> {
    parse(text).and_then(|rate| {
        if rate == 0 { Err("a rate is at least 1 byte a second".to_owned()) } else { Ok(rate) }
    })
}

/// Bytes `FROM..TO` or `FROM+LENGTH`; not empty.
pub(crate) fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let range = if let Some((from, to)) = text.split_once("..") {
        parse(from)?..parse(to)?
    } else if let Some((from, length)) = text.split_once('+') {
        let from = parse(from)?;
        from..from.checked_add(parse(length)?).ok_or_else(|| format!("{text} ends after 2^64"))?
    } else {
        return Err(format!(
            "\"{text}\" is not a range: write FROM..TO or FROM+LENGTH, such as 0..1M or 4K+128K"
        ));
    };
    if range.is_empty() { Err(format!("the range {text} is empty")) } else { Ok(range) }
}

/// Bytes as shown to users: three digits and a binary unit.
pub fn show(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let index = usize::try_from(bytes.ilog2() / 10 - 1).unwrap_or(0).min(UNITS.len() - 1);
    let unit = 1_u64 << (10 * (index + 1));
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let value = bytes as f64 / unit as f64;
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {}", UNITS[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512K", 512 << 10),
            ("8m", 8 << 20),
            ("2GiB", 2 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1.5M", "3Q", "99999999999999999999", "99999999999T"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges() {
        assert_eq!(parse_range("0..1M"), Ok(0..1 << 20));
        assert_eq!(parse_range("4K+128K"), Ok(4096..(132 << 10)));
        for text in ["7", "5..5", "9..8", "1+0", "..", "a..b"] {
            assert!(parse_range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shown_sizes() {
        let shown: Vec<String> =
            [0, 1023, 1024, 10 << 10, 153_621_360, u64::MAX].into_iter().map(show).collect();
        assert_eq!(shown, ["0 B", "1023 B", "1.00 KiB", "10.0 KiB", "147 MiB", "16.0 EiB"]);
    }
}
