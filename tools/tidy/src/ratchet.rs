//! Numbers that may only shrink (`ratchet.txt`): a number and what it bounds in each line.

/// A bounded number, and its bound.
pub fn lines(ratchet: &str) -> impl Iterator<Item = (&str, usize)> {
    let lines = ratchet.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let parts = lines.filter_map(|line| line.split_once(' '));
    parts.filter_map(|(bound, what)| Some((what.trim(), bound.parse().ok()?)))
}

/// Complaint about a count of the whole repository.
pub fn check(ratchet: &str, what: &str, count: usize) -> Vec<String> {
    let bound = lines(ratchet).find(|(name, _)| *name == what).map_or(0, |(_, bound)| bound);
    if count == bound {
        return Vec::new();
    }
    let remedy = if count > bound { "write it otherwise" } else { "lower the number in ratchet.txt" };
    vec![format!("{what}: {count}, {bound} allowed; {remedy}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_what_its_line_says() {
        let ratchet = "# Counts.\n3 tuple lets\n";
        assert!(check(ratchet, "tuple lets", 3).is_empty());
        assert_eq!(check(ratchet, "tuple lets", 4).len(), 1);
        assert_eq!(check(ratchet, "tuple lets", 2).len(), 1);
        assert_eq!(check(ratchet, "tuple parameters", 1).len(), 1);
    }
}
