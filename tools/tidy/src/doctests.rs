//! Examples in docs are run: a crate whose documentation tests are switched off, as it has none, has none.

use crate::tree::Source;

/// Examples that are code, in crates with `doctest = false`.
pub fn check(manifests: &[Source], sources: &[Source]) -> Vec<String> {
    let off = manifests.iter().filter(|manifest| manifest.text.lines().any(|line| line == "doctest = false"));
    let folders: Vec<&str> = off.filter_map(|manifest| manifest.path.strip_suffix("Cargo.toml")).collect();
    let mut broken = Vec::new();
    for source in sources {
        let Some(folder) = folders.iter().find(|folder| source.path.starts_with(**folder)) else { continue };
        let mut is_inside = false;
        for (number, line) in (1..).zip(source.text.lines()) {
            let line = line.trim_start();
            let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else { continue };
            let Some(kind) = doc.trim_start().strip_prefix("```") else { continue };
            if !is_inside && !matches!(kind, "text" | "toml" | "console") {
                let path = &source.path;
                broken.push(format!("{path}:{number}: {folder}Cargo.toml has `doctest = false`: remove it"));
            }
            is_inside = !is_inside;
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn an_example_that_is_not_run_is_found() {
        let manifests = [
            source("crates/a/Cargo.toml", "[lib]\ndoctest = false\n"),
            source("crates/b/Cargo.toml", "[dependencies]\n"),
        ];
        let example = "/// ```\n/// f();\n/// ```\n/// ```text\n/// a table\n/// ```\nfn f() {}\n";
        let sources = [source("crates/a/src/lib.rs", example), source("crates/b/src/lib.rs", example)];
        let found = check(&manifests, &sources);
        assert_eq!(found, ["crates/a/src/lib.rs:1: crates/a/Cargo.toml has `doctest = false`: remove it"]);
    }
}
