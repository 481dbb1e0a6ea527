//! Paths that documents name exist: a file that moves takes its documents with it.

use std::path::Path;

use crate::tree::Source;

/// Folders in which the named files are.
const FOLDERS: [&str; 5] = ["crates/", "docs/", "fuzz/", "tests/", "tools/"];

/// Paths between backquotes, and targets of links, that are not there. A path with a placeholder in capitals,
/// or with a choice in braces, names no single file and is passed over.
pub fn check(root: &Path, documents: &[Source]) -> Vec<String> {
    let mut broken = Vec::new();
    for document in documents {
        let folder = root.join(&document.path);
        let folder = folder.parent().unwrap_or(root);
        for path in quoted(&document.text).filter(|path| !root.join(path).exists()) {
            broken.push(format!("{}: there is no {path}", document.path));
        }
        for path in linked(&document.text).filter(|path| !folder.join(path).exists()) {
            broken.push(format!("{}: a link leads to {path}, which is not there", document.path));
        }
    }
    broken
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let is_path = |part: &&str| FOLDERS.iter().any(|folder| part.starts_with(folder));
    let is_plain = |part: &&str| !part.contains([' ', '*', '{', '\n']) && !part.contains(char::is_uppercase);
    text.split('`').skip(1).step_by(2).filter(is_path).filter(is_plain)
}

fn linked(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| {
        let (path, _) = rest.split_once(')')?;
        let path = path.split('#').next().unwrap_or_default();
        (!path.is_empty() && !path.contains("://")).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::root;

    #[test]
    fn a_path_that_is_not_there_is_found() {
        let document = |text: &str| Source { path: "docs/x.md".into(), text: text.into() };
        let good = "`tools/tidy/src/paths.rs`, [it](design.md#1), [far](https://x/y), `crates/NAME/x.rs`";
        assert!(check(&root(), &[document(good)]).is_empty());
        assert_eq!(check(&root(), &[document("`tools/none.rs` and [it](docs/design.md)")]).len(), 2);
    }
}
