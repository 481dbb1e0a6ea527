//! Modules of a crate that import each other in a circle can only be understood together. Such circles stay
//! small.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use crate::syntax::{Parsed, is_test};

/// The most files in one circle of imports.
pub const FILES_MAX: usize = 5;

/// The modules of its own crate that each module imports. A module is named by its path: `serve::rows`.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Crates with circles of more files.
pub fn check(parsed: &[Parsed<'_>]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Vec<(String, &syn::File)>> = BTreeMap::new();
    for one in parsed {
        if let Some((name, file)) = one.source.path.split_once("/src/")
            && let Some(module) = module(file)
        {
            crates.entry(name).or_default().push((module, &one.file));
        }
    }
    let mut broken = Vec::new();
    for (name, modules) in crates {
        for circle in circles(&imports(&modules)) {
            if circle.len() > FILES_MAX {
                let list = circle.join(", ");
                broken
                    .push(format!("{name}: a circle of {} files, {FILES_MAX} allowed: {list}", circle.len()));
            }
        }
    }
    broken
}

/// The module that a file below `src` is; `None`: one of tests. A crate's root is the empty name.
fn module(file: &str) -> Option<String> {
    let mut parts: Vec<&str> = file.strip_suffix(".rs")?.split('/').collect();
    if matches!(parts.last(), Some(&("mod" | "lib" | "main"))) {
        parts.pop();
    }
    (!parts.contains(&"tests") && parts.first() != Some(&"bin")).then(|| parts.join("::"))
}

fn imports(modules: &[(String, &syn::File)]) -> Imports {
    let names: BTreeSet<&str> = modules.iter().map(|(name, _)| name.as_str()).collect();
    let of = |(name, file): &(String, &syn::File)| {
        let mut paths =
            Paths { module: name.split("::").filter(|part| !part.is_empty()).collect(), found: Vec::new() };
        paths.visit_file(file);
        let known = |path: &Vec<String>| {
            let longest = (1..=path.len()).rev().map(|parts| path[..parts].join("::"));
            longest.into_iter().find(|path| names.contains(path.as_str()))
        };
        let others = paths.found.iter().filter_map(known).filter(|other| other != name);
        (name.clone(), others.collect())
    };
    modules.iter().map(of).collect()
}

/// The paths in a module that begin with `crate`, `self` or `super`, from the crate's root on.
struct Paths<'a> {
    module: Vec<&'a str>,
    found: Vec<Vec<String>>,
}

impl Paths<'_> {
    fn note(&mut self, path: &[String]) {
        let mut rest = path;
        let mut at: Vec<String> = match rest.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.iter().map(|part| (*part).to_owned()).collect(),
            _ => return,
        };
        while let Some(first @ ("crate" | "self" | "super")) = rest.first().map(String::as_str) {
            if first == "super" {
                at.pop();
            }
            rest = &rest[1..];
        }
        at.extend_from_slice(rest);
        self.found.push(at);
    }

    fn note_tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.note_tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.note(&with(&name.ident)),
            syn::UseTree::Rename(renamed) => self.note(&with(&renamed.ident)),
            syn::UseTree::Glob(_) => self.note(before),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.note_tree(before, item)),
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.note_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.note(&path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>());
        syn::visit::visit_path(self, path);
    }
}

/// The circles, each as the modules that reach each other.
fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|name| (name.as_str(), reach(imports, name))).collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (name, others) in &reached {
        let circle =
            others.iter().filter(|other| reached.get(**other).is_some_and(|back| back.contains(name)));
        let circle: Vec<String> = circle.map(|other| (*other).to_owned()).collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// The modules that can be reached from a module; itself too if a circle leads back.
fn reach<'a>(imports: &'a Imports, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = vec![from];
    while let Some(name) = open.pop() {
        for next in imports.get(name).into_iter().flatten() {
            if reached.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::parse;
    use crate::tree::Source;

    #[test]
    fn a_large_circle_is_found_and_what_tests_import_is_none() {
        let file = |number: usize, text: String| Source { path: format!("crates/x/src/m{number}.rs"), text };
        let chain = |number: usize| file(number, format!("use crate::m{}::{{A, B}};", number + 1));
        let mut sources: Vec<Source> = (0..FILES_MAX).map(chain).collect();
        sources.push(file(FILES_MAX, "fn f() { super::m0::g() }".into()));
        assert_eq!(check(&parse(&sources)).len(), 1);
        sources[FILES_MAX].text = "#[cfg(test)]\nmod tests { fn f() { crate::m0::g() } }".into();
        assert!(check(&parse(&sources)).is_empty());
    }
}
