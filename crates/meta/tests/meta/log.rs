//! The format of the log in etcd, version 1: golden bytes, and docs/format-manager.md must agree with the
//! code.

use braid_meta::records::kv::Batch;
use braid_meta::records::log::*;
use braid_wire::{Record, Wire};

const DOCUMENT: &str = include_str!("../../../../docs/format-manager.md");
const GOLDEN: &str = include_str!("golden/log.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes under this name in the golden file.
fn golden(name: &str) -> String {
    let rest = GOLDEN.split(&format!("## {name}\n")).nth(1).unwrap_or_else(|| panic!("no {name}"));
    rest.split("##").next().unwrap_or_default().split_whitespace().collect()
}

fn check<R: Record + PartialEq + std::fmt::Debug>(record: &R) {
    let bytes = encode(record);
    assert_eq!(hex(&bytes), golden(R::NAME), "{record:?}");
    assert_eq!(&decode::<R>(&bytes).unwrap(), record);
    for damaged in [&bytes[..bytes.len() - 1], &[bytes.as_slice(), &[0]].concat(), &[]] {
        assert!(decode::<R>(damaged).is_err(), "{damaged:02x?}");
    }
    let row = DOCUMENT.lines().find(|line| line.starts_with(&format!("| {} |", R::NAME)));
    let mut rest = row.unwrap_or_else(|| panic!("no row for {}", R::NAME));
    for (field, kind) in R::FIELDS {
        let kind = if *kind == "String" { "text" } else { kind };
        let words = format!("{field} {kind}");
        let at = rest.find(&words).unwrap_or_else(|| panic!("{}: no {words} in its place", R::NAME));
        rest = &rest[at + words.len()..];
    }
}

#[test]
fn the_logs_values_are_as_they_were() {
    check(&StateRecord { identity: 7 });
    check(&LeaderRecord { address: "a:1".into(), name: "a".into() });
    check(&FellowRecord { address: "a:1".into(), name: "a".into(), version: "1".into(), applied: 9 });
    check(&LogRecord { index: 5, leader: 3, before: 2, parts: 1, bytes: 40 });
    check(&HeadRecord { index: 5, sum: 2, writer: 3, chunks: 1, bytes: 40 });
    check(&AppliedRecord { identity: 7, index: 5, sum: 2 });
    assert!(DOCUMENT.contains(&format!("## The log in etcd, version {LOG_VERSION}\n")));
}

#[test]
fn records_and_chunks_are_as_they_were() {
    let before = Place { index: 4, sum: 2 };
    let batch: Batch = [(b"a".to_vec(), Some(b"1".to_vec())), (b"b".to_vec(), None)].into();
    let whole = cut(before, 3, &batch, PART_BYTES);
    assert_eq!((hex(&whole.last), whole.parts.len()), (golden("record"), 0));
    let parted = cut(before, 3, &batch, 10);
    assert_eq!((hex(&parted.last), hex(&parted.parts.concat())), (golden("last"), golden("part")));
    assert_eq!(join(before, &parted.last, &parted.parts).unwrap().0, batch);
    assert_eq!(hex(&encode_chunk(2, &[(b"a".to_vec(), b"1".to_vec())])), golden("chunk"));
    assert_eq!(LogRecord::BYTES_MIN, 44);
}
