//! Runs every house rule on the repository.

use braid_tidy::{
    circles, doctests, floors, folders, formats, lengths, manifests, paths, ratchet, sentences, syntax, tree,
    tuples, widths, words,
};

fn report(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn crates_use_only_floors_below() {
    let found = tree::sources(&tree::root(), &["Cargo.toml"]);
    assert!(found.len() > 8, "the manifests were not found");
    report("one-way crate edges", &floors::check(&found));
}

#[test]
fn versions_stand_in_one_place() {
    let root = tree::root();
    let members: Vec<_> =
        tree::sources(&root, &["Cargo.toml"]).into_iter().filter(|m| !m.path.starts_with("fuzz/")).collect();
    report("one place for versions", &manifests::check(&members));
}

#[test]
fn each_dependency_has_its_reason() {
    let root = tree::root();
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect("a file of the repository");
    let workspace = read("Cargo.toml");
    report("reasons", &manifests::reasons(&workspace, &read("ARCHITECTURE.md")));
    report("unused", &manifests::unused(&workspace, &tree::sources(&root, &["Cargo.toml"])));
}

#[test]
fn files_and_functions_stay_short() {
    let root = tree::root();
    report("lengths", &lengths::check(&tree::sources(&root, &[".rs"]), &allowed()));
}

#[test]
fn examples_in_docs_are_run() {
    let root = tree::root();
    let manifests = tree::sources(&root, &["Cargo.toml"]);
    report("doctests", &doctests::check(&manifests, &tree::sources(&root, &[".rs"])));
}

/// The bounds in `ratchet.txt`.
fn allowed() -> String {
    std::fs::read_to_string(tree::root().join("tools/tidy/ratchet.txt")).expect("the ratchet")
}

#[test]
fn circles_and_folders_stay_small() {
    let found = tree::sources(&tree::root(), &[".rs"]);
    report("circles", &circles::check(&syntax::parse(&found)));
    report("folders", &folders::check(&found));
}

#[test]
fn tuples_and_poor_sentences_get_fewer() {
    let found = tree::sources(&tree::root(), &[".rs"]);
    let tuples = tuples::count(&syntax::parse(&found));
    let sentences = sentences::count(&found);
    let counts = [
        ("tuple lets", tuples.lets),
        ("tuple parameters", tuples.parameters),
        ("docs of two words", sentences.stubs),
        ("docs that begin as questions", sentences.questions),
    ];
    let broken: Vec<String> =
        counts.iter().flat_map(|(what, count)| ratchet::check(&allowed(), what, *count)).collect();
    report("counts", &broken);
}

#[test]
fn prose_is_wrapped() {
    let mut found = tree::sources(&tree::root(), &[".rs", ".py", ".pyi", ".md", ".toml", ".sh", "Makefile"]);
    // Written by `braid-lab bench`.
    found.retain(|source| !source.path.starts_with("docs/results/"));
    report("widths", &widths::check(&found));
}

#[test]
fn paths_in_documents_exist() {
    let root = tree::root();
    report("paths", &paths::check(&root, &tree::sources(&root, &[".md"])));
}

#[test]
fn nothing_is_left_undone() {
    report("words", &words::check(&tree::sources(&tree::root(), &[".rs"])));
}

#[test]
fn format_documents_are_bound_to_code() {
    let root = tree::root();
    let tests: Vec<_> = tree::sources(&root, &[".rs"])
        .into_iter()
        .filter(|source| source.path.starts_with("crates/"))
        .collect();
    report("formats", &formats::check(&tree::sources(&root, &[".md"]), &tests));
}
