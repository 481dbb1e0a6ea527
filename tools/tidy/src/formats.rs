//! Each format document is bound to the code: a test refers to it.

use crate::tree::Source;

/// Format documents that no test mentions.
pub fn check(documents: &[Source], tests: &[Source]) -> Vec<String> {
    documents
        .iter()
        .filter_map(|document| document.path.strip_prefix("docs/"))
        .filter(|name| name.starts_with("format-"))
        .filter(|name| !tests.iter().any(|test| test.text.contains(*name)))
        .map(|name| format!("docs/{name}: no test binds it to the code"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unbound_document_is_found() {
        let document = || Source { path: "docs/format-x.md".into(), text: String::new() };
        let test = Source { path: "crates/x/tests/doc.rs".into(), text: "read(\"format-x.md\")".into() };
        assert_eq!(check(&[document()], &[]).len(), 1);
        assert!(check(&[document()], &[test]).is_empty());
    }
}
