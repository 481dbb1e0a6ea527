//! Folders stay small enough to be read at a glance.

use std::collections::BTreeMap;

use crate::tree::Source;

/// The most Rust files in one folder, those in folders below it not counted.
pub const FILES_MAX: usize = 25;

/// Folders with more. Those of tests do not count: a reader goes to a test by its name.
pub fn check(sources: &[Source]) -> Vec<String> {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.contains("/src/")) {
        let (folder, _) = source.path.rsplit_once('/').unwrap_or_default();
        *folders.entry(folder).or_default() += 1;
    }
    let large = folders.into_iter().filter(|(_, files)| *files > FILES_MAX);
    large.map(|(folder, files)| format!("{folder}: {files} files, {FILES_MAX} allowed")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_folder_is_found() {
        let file = |number| Source { path: format!("crates/x/src/{number}.rs"), text: String::new() };
        assert!(check(&(0..FILES_MAX).map(file).collect::<Vec<_>>()).is_empty());
        assert_eq!(check(&(0..=FILES_MAX).map(file).collect::<Vec<_>>()).len(), 1);
    }
}
