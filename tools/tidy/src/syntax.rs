//! Rust sources as syntax trees, so that rules need not guess at brackets.

use crate::tree::Source;

/// A source of a crate, parsed.
pub struct Parsed<'a> {
    /// Its text and path.
    pub source: &'a Source,
    /// Its items.
    pub file: syn::File,
}

/// The Rust sources among these.
///
/// # Panics
///
/// If one of them is no Rust.
pub fn parse(sources: &[Source]) -> Vec<Parsed<'_>> {
    let parsed = |source: &'_ Source| {
        let file = syn::parse_file(&source.text);
        file.unwrap_or_else(|error| panic!("{}: {error}", source.path))
    };
    let rust = sources.iter().filter(|source| source.path.ends_with(".rs"));
    rust.map(|source| Parsed { source, file: parsed(source) }).collect()
}

/// Returns true if an item is compiled for tests alone.
pub fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        list.path.is_ident("cfg") && list.tokens.to_string().split_whitespace().next() == Some("test")
    })
}
