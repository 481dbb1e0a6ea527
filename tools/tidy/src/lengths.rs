//! Files and functions stay short. The long ones are listed in `ratchet.txt` with their lengths, which may
//! only shrink.

use std::collections::BTreeMap;

use crate::tree::Source;

/// The most lines of any file.
pub const FILE_LINES_MAX: usize = 1000;
/// A longer file must be listed in the ratchet.
pub const FILE_LINES_FREE: usize = 700;
/// A longer function must be listed in the ratchet.
pub const FUNCTION_LINES_FREE: usize = 100;

/// Files and functions over the free length, as `path` or `path:function`, with their lengths.
pub fn long(sources: &[Source]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for source in sources {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_FREE {
            found.insert(source.path.clone(), lines);
        }
        for (name, lines) in functions(&source.text) {
            if lines > FUNCTION_LINES_FREE {
                found.insert(format!("{}:{name}", source.path), lines);
            }
        }
    }
    found
}

/// Lengths that the ratchet allows, by place.
fn bounds(ratchet: &str) -> BTreeMap<&str, usize> {
    let lines = crate::ratchet::lines(ratchet);
    lines.filter(|(place, _)| place.contains(".rs")).collect()
}

/// Complaints: files and functions over the bound or over their ratchet entry, and entries that are higher
/// than what they name.
pub fn check(sources: &[Source], ratchet: &str) -> Vec<String> {
    let allowed = bounds(ratchet);
    let found = long(sources);
    let mut broken = Vec::new();
    for (place, &lines) in &found {
        let bound = allowed.get(place.as_str()).copied().unwrap_or(0);
        if lines > bound || (lines > FILE_LINES_MAX && !place.contains(".rs:")) {
            broken.push(format!(
                "{place}: {lines} lines, {bound} allowed; split it where the second idea begins"
            ));
        }
    }
    for (place, &bound) in &allowed {
        if found.get(*place).is_none_or(|&lines| lines < bound) {
            broken.push(format!(
                "{place}: shorter than the {bound} lines in ratchet.txt; lower or delete its line"
            ));
        }
    }
    broken
}

/// Functions and their lengths, by rustfmt's indentation: from the line with `fn` to the first `}` at the
/// same depth.
fn functions(text: &str) -> Vec<(String, usize)> {
    let mut open: Vec<(usize, String, usize)> = Vec::new();
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let depth = line.len() - line.trim_start().len();
        let code = line.trim_start();
        if code.starts_with('}')
            && let Some(at) = open.iter().rposition(|(indent, _, _)| *indent == depth)
        {
            let (_, name, start) = open.remove(at);
            found.push((name, number - start + 1));
        }
        let signature = code.split_once("fn ").filter(|(before, _)| {
            before.is_empty()
                || before
                    .split_whitespace()
                    .all(|w| w.starts_with("pub") || matches!(w, "async" | "const" | "unsafe"))
        });
        if let Some((_, rest)) = signature
            && !code.ends_with(';')
            && !code.ends_with('}')
        {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            open.push((depth, name.to_owned(), number));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(lines: usize) -> Source {
        Source { path: "crates/x/src/lib.rs".into(), text: "// line\n".repeat(lines) }
    }

    #[test]
    fn a_long_file_must_stand_in_the_ratchet() {
        assert_eq!(check(&[source(FILE_LINES_FREE + 1)], "").len(), 1);
        assert!(check(&[source(800)], "800 crates/x/src/lib.rs").is_empty());
        assert_eq!(check(&[source(801)], "800 crates/x/src/lib.rs").len(), 1);
    }

    #[test]
    fn the_ratchet_only_shrinks() {
        assert_eq!(check(&[source(799)], "800 crates/x/src/lib.rs").len(), 1);
        assert_eq!(check(&[source(1100)], "1100 crates/x/src/lib.rs").len(), 1);
    }

    #[test]
    fn functions_are_measured() {
        let text = format!(
            "impl X {{\n    pub async fn long(\n        a: u8,\n    ) {{\n{}    }}\n}}\n",
            "        a();\n".repeat(110)
        );
        assert_eq!(functions(&text), [("long".to_owned(), 114)]);
    }
}
