//! Times of seconds to days, as users write them and as they are shown.

/// Suffixes, with their milliseconds.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Milliseconds of a time such as `90s`, `30m`, `2h` or `1d`.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is not a time: write a number with s, m, h or d, such as 90s or 2h");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().map_err(|_| wrong())?;
    let (_, unit_ms) = UNITS.iter().find(|(suffix, _)| *suffix == &text[end..]).ok_or_else(wrong)?;
    number.checked_mul(*unit_ms).filter(|ms| *ms > 0).ok_or_else(|| format!("{text} is no possible time"))
}

/// A time as shown, rounded to the nearest: seconds, minutes with them, or hours and minutes.
pub(crate) fn show(ms: u64) -> String {
    let seconds = ms.saturating_add(500) / 1000;
    let minutes = seconds.saturating_add(30) / 60;
    match seconds {
        0 if ms > 0 => format!("{ms} ms"),
        0..=119 => format!("{seconds} s"),
        120..=7199 if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        120..=7199 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, ms) in
            [("90s", 90_000), ("30m", 1_800_000), ("2h", 7_200_000), ("1d", 86_400_000), ("5ms", 5)]
        {
            assert_eq!(parse(text), Ok(ms), "{text}");
        }
        for text in ["", "2", "h", "-1h", "1.5h", "0s", "2 h", "99999999999999999d"] {
            assert!(parse(text).is_err(), "{text}");
        }
        for (ms, shown) in [
            (0, "0 s"),
            (400, "400 ms"),
            (119_000, "119 s"),
            (119_999, "2 min"),
            (299_400, "4 min 59 s"),
            (303_000, "5 min 03 s"),
            (7_199_999, "2 h 00 min"),
            (17_999_900, "5 h 00 min"),
        ] {
            assert_eq!(show(ms), shown);
        }
    }
}
