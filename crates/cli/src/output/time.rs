//! Manager time (milliseconds since 1970, UTC) as shown to users.

/// A time in UTC to the second: `2026-11-20 11:47:03Z`.
pub fn show(ms: u64) -> String {
    let seconds = ms / 1000;
    let days = seconds / 86_400;
    let rest = seconds % 86_400;
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// A time in UTC to the second, for a name: `2026-11-20T11-47-03`.
pub(crate) fn in_name(ms: u64) -> String {
    show(ms).trim_end_matches('Z').replace(' ', "T").replace(':', "-")
}

/// Year, month and day of the Gregorian calendar from days since 1970. Works in 400-year eras of 146,097 days
/// and in years that begin in March, so that the leap day comes last (Hinnant, "chrono-compatible low-level
/// date algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (ms, shown) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399_000, "2000-02-28 23:59:59Z"),
            (951_782_400_000, "2000-02-29 00:00:00Z"),
            (1_795_175_223_000, "2026-11-20 11:47:03Z"),
        ] {
            assert_eq!(show(ms), shown);
            assert!(shown.starts_with(&in_name(ms)[..10]) && in_name(ms).len() == 19);
        }
    }
}
