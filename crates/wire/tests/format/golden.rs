//! Golden bytes: one annotated dump per message kind in `tests/golden`, with every field distinct and none
//! zero, asserted exactly and decoded back. They pin the wire's version: if one of these tests fails, the
//! format has changed, and peers of other builds do not understand it ([`crate::versions`]).
//! `BRAID_GOLDEN=write` writes the files of messages that are new. `BRAID_GOLDEN=anew`, run twice, writes
//! everything that follows from the formats: these files, the document's examples and the version's hash.

use std::fmt::Write as _;
use std::path::PathBuf;

use braid_wire::capability::{Authority, Capability};
use braid_wire::control::{ControlHead, ControlReply, ControlRequest, RequestHead};
use braid_wire::data::{DriveReply, DriveRequest, Hello, ReplyHead};
use braid_wire::{Record, Refusal};

use crate::schema::{Distinct, Fields, Line, concatenate, emit_fields};

/// Asserts that the golden file has this content.
#[expect(clippy::disallowed_methods, reason = "a test may write its golden files")]
pub(crate) fn golden(name: &str, content: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let differs = || std::fs::read_to_string(&path).map_or(true, |found| found != content);
    if is_asked("anew") && differs() || is_asked("write") && !path.exists() {
        std::fs::write(&path, content).expect("write the golden file");
    }
    let expected =
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(content, expected, "{name}: the format has changed");
}

/// Returns true if `BRAID_GOLDEN` has this value.
pub(crate) fn is_asked(how: &str) -> bool {
    std::env::var_os("BRAID_GOLDEN").is_some_and(|value| value == how)
}

/// The bytes of a golden file, independent of how it was made.
pub(crate) fn bytes_of(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let text = std::fs::read_to_string(&path).expect("read the golden file");
    let digits = text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| {
        line.split_once("  ").expect("offset, bytes, field").1.split("  ").next().expect("bytes").split(' ')
    });
    digits.map(|byte| u8::from_str_radix(byte, 16).expect("two hex digits")).collect()
}

/// Formats lines of offset, bytes and field, with 16 bytes a line.
pub(crate) fn dump(lines: &[Line]) -> String {
    let mut out = String::new();
    for line in lines {
        let mut label = match line.type_name.as_str() {
            "" => line.path.clone(),
            type_name => format!("{}: {type_name}", line.path),
        };
        for (i, chunk) in line.bytes.chunks(16).enumerate() {
            let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(out, "{:04x}  {:<47}  {label}", line.offset + i * 16, hex.join(" ")).unwrap();
            label = "...".to_owned();
        }
    }
    out
}

/// Checks the golden file of a record made of distinct values.
fn check_record<T: std::fmt::Debug>(
    file: &str,
    title: &str,
    fields: Fields,
    decode: impl Fn(&[u8]) -> T,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    let lines = emit_fields(fields, &mut Distinct::default());
    let bytes = concatenate(&lines);
    let value = decode(&bytes);
    golden(file, &format!("# {title}\n# {value:?}\n{}", dump(&lines)));
    let pinned = bytes_of(file);
    assert_eq!(pinned, bytes, "{file}: the dump is not its bytes");
    assert_eq!(encode(&decode(&pinned)), pinned, "{file}: not the same when encoded again");
}

macro_rules! check_set {
    ($set:ident, $prefix:literal) => {
        for (&(kind, name), &(_, _, fields)) in $set::KINDS.iter().zip($set::BODIES) {
            check_record(
                &format!("{}-{kind:04x}-{name}.txt", $prefix),
                &format!("{}::{name}, kind {kind:#06x}", stringify!($set)),
                fields,
                |bytes| $set::from_body(kind, bytes).expect("golden bytes decode"),
                |value| {
                    let mut out = Vec::new();
                    value.put_body(&mut out);
                    out
                },
            );
        }
    };
}

#[test]
fn drive_requests() {
    check_set!(DriveRequest, "drive-request");
}

#[test]
fn drive_replies() {
    check_set!(DriveReply, "drive-reply");
}

#[test]
fn control_requests() {
    check_set!(ControlRequest, "control-request");
}

#[test]
fn control_replies() {
    check_set!(ControlReply, "control-reply");
}

#[test]
fn heads() {
    fn check<T: Record + std::fmt::Debug>(file: &str) {
        check_record(
            file,
            T::NAME,
            T::FIELDS,
            |bytes| T::from_bytes(bytes).expect("golden bytes decode"),
            T::to_bytes,
        );
    }
    check::<Hello>("head-Hello.txt");
    check::<Refusal>("head-HelloRefused.txt");
    check::<Authority>("head-Authority.txt");
    check::<Capability>("head-Capability.txt");
    check::<ReplyHead>("head-ReplyHead.txt");
    check::<RequestHead>("head-RequestHead.txt");
    check::<ControlHead>("head-ControlHead.txt");
}

/// Checks that every file in the folder belongs to a test.
#[test]
fn every_golden_file_is_checked() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut known: Vec<String> =
        ["Hello", "HelloRefused", "Authority", "Capability", "ReplyHead", "RequestHead", "ControlHead"]
            .map(|name| format!("head-{name}.txt"))
            .into_iter()
            .chain(["keys.txt", "example-drive.txt", "example-control.txt"].map(str::to_owned))
            .collect();
    for (prefix, kinds) in [
        ("drive-request", DriveRequest::KINDS),
        ("drive-reply", DriveReply::KINDS),
        ("control-request", ControlRequest::KINDS),
        ("control-reply", ControlReply::KINDS),
    ] {
        known.extend(kinds.iter().map(|(kind, name)| format!("{prefix}-{kind:04x}-{name}.txt")));
    }
    known.sort();
    let entries = std::fs::read_dir(folder).expect("list the golden files");
    let mut found: Vec<String> =
        entries.map(|entry| entry.expect("entry").file_name().into_string().expect("UTF-8")).collect();
    found.sort();
    assert_eq!(found, known);
}
