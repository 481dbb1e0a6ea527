//! The wire's versions, each with the hash of its golden bytes: a format cannot change without its version.
//!
//! Peers compare versions before anything else. If two builds claim the same version but differ, they do
//! not understand each other, and get no error that says why. So `versions.txt` has a line for each
//! version: its number, `open` or `closed`, and the hash. The last line is this build's. While a version is
//! open, format changes belong to it, and its hash is made anew (`BRAID_GOLDEN=anew`, see
//! [`crate::golden`]). The version is closed with the round of work or the release that it was made for;
//! then the next change raises [`WIRE_VERSION`] and adds a line.

use std::path::PathBuf;

use braid_wire::frame::WIRE_VERSION;
use sha2::{Digest, Sha256};

use crate::golden::{bytes_of, is_asked};

/// The hash of all messages' golden bytes, in order of their files' names.
fn hash() -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let entries = std::fs::read_dir(folder).expect("list the golden files");
    let names = entries.map(|entry| entry.expect("entry").file_name().into_string().expect("UTF-8"));
    let is_message = |name: &String| !name.starts_with("example-") && name != "keys.txt";
    let mut names: Vec<String> = names.filter(is_message).collect();
    names.sort();
    let mut digest = Sha256::new();
    for name in names {
        let bytes = bytes_of(&name);
        digest.update(format!("{name} {}\n", bytes.len()));
        digest.update(bytes);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may write its golden files")]
fn a_format_changes_only_with_the_version() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/versions.txt");
    let text = std::fs::read_to_string(&path).expect("read the versions");
    let lines: Vec<Vec<&str>> =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(' ').collect()).collect();
    for (number, line) in (1..).zip(&lines) {
        let is_last = number == lines.len();
        assert_eq!(line[0].parse(), Ok(number), "one line for each version, in order");
        assert!(line[1] == "closed" || line[1] == "open" && is_last, "{line:?}: only the last may be open");
    }
    let last = lines.last().expect("at least one version");
    assert_eq!(last[0].parse(), Ok(WIRE_VERSION), "the last line is for this build's version");
    let hash = hash();
    if last[2] == hash {
        return;
    }
    assert_eq!(
        last[1], "open",
        "a format has changed since version {WIRE_VERSION}: raise it, and add a line"
    );
    assert!(
        is_asked("anew"),
        "a format has changed: if that is meant, run, twice: BRAID_GOLDEN=anew cargo test -p braid-wire --test format"
    );
    let before = text.trim_end().strip_suffix(last[2]).expect("the last line ends with its hash");
    std::fs::write(&path, format!("{before}{hash}\n")).expect("write the versions");
}
