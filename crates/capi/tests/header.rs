//! The header that is checked in is the one that the code gives, and all that it declares has a version.
//!
//! `BRAID_HEADER=anew` writes it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(here(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(here("cbindgen.toml")).expect("its settings");
    let builder = cbindgen::Builder::new().with_src(here("src/lib.rs")).with_config(config);
    let mut text = Vec::new();
    builder.generate().expect("a header").write(&mut text);
    String::from_utf8(text).expect("UTF-8")
}

#[test]
fn the_header_is_that_of_the_code() {
    let generated = generated();
    if std::env::var_os("BRAID_HEADER").is_some_and(|value| value == "anew") {
        fs::write(here("include/braid.h"), &generated).expect("written");
    }
    assert_eq!(
        read("include/braid.h"),
        generated,
        "BRAID_HEADER=anew cargo test -p braid-capi --test header"
    );
}

/// The names of functions: words that begin so and have a bracket behind them.
fn functions(text: &str) -> BTreeSet<String> {
    let begins = text.match_indices("braid_").map(|(at, _)| &text[at..]);
    let named = begins.filter_map(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')?;
        rest[end..].starts_with('(').then(|| rest[..end].to_owned())
    });
    named.collect()
}

#[test]
fn each_function_has_a_version() {
    let header = read("include/braid.h");
    let map = read("braid.map");
    let versioned: BTreeSet<String> = map
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';').filter(|name| name.starts_with("braid_")))
        .map(str::to_owned)
        .collect();
    // Comments in the header name functions with empty brackets too, and only those that are there.
    assert_eq!(functions(&header), versioned);
    assert!(versioned.len() > 30, "{versioned:?}");
}
