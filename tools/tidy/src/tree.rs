//! The repository's text files, read once.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the repository.
pub struct Source {
    /// Relative to the repository's root, with `/`.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// The repository's root, found from this crate's own folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("tools/tidy is two folders down")
        .to_owned()
}

/// Every file below the root with one of these endings, sorted by path. Skips build products, hidden folders
/// and golden files.
pub fn sources(root: &Path, endings: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    collect(root, root, endings, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn collect(root: &Path, folder: &Path, endings: &[&str], found: &mut Vec<Source>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("list {}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a folder's entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "golden" && name != "corpus" {
                collect(root, &path, endings, found);
            }
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()));
            let relative = path.strip_prefix(root).expect("below the root");
            found.push(Source { path: relative.to_string_lossy().replace('\\', "/"), text });
        }
    }
}
