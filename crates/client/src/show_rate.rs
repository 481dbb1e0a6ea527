//! Rates in messages.

/// A rate as shown to users: three digits and a decimal unit, as rates are asked for.
pub fn show_rate(bytes_per_second: u64) -> String {
    const UNITS: [(&str, u64); 4] =
        [("TB/s", 1_000_000_000_000), ("GB/s", 1_000_000_000), ("MB/s", 1_000_000), ("kB/s", 1000)];
    match UNITS.iter().find(|(_, unit)| bytes_per_second >= *unit) {
        None => format!("{bytes_per_second} B/s"),
        Some((name, unit)) => {
            let hundredths = bytes_per_second / (unit / 100);
            match hundredths {
                0..1000 => format!("{}.{:02} {name}", hundredths / 100, hundredths % 100),
                1000..10_000 => format!("{}.{} {name}", hundredths / 100, hundredths % 100 / 10),
                _ => format!("{} {name}", hundredths / 100),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_rates() {
        let shown: Vec<String> =
            [0, 999, 1000, 12_345, 200_000_000, 1_500_000_000].into_iter().map(show_rate).collect();
        assert_eq!(shown, ["0 B/s", "999 B/s", "1.00 kB/s", "12.3 kB/s", "200 MB/s", "1.50 GB/s"]);
    }
}
