//! `docs/format-store.md` matches the code: tables, constants and examples.

use std::path::Path;

use braid_store::BLOCK_BYTES;
use braid_store::OPAQUE_BYTES_MAX;
use braid_store::OPERATIONS_MAX;
use braid_store::READY_RUNS_MAX;
use braid_store::STILLS_MAX;
use braid_store::UNIT_ENTRY_BYTES_MAX;
use braid_store::crc32c;
use braid_store::format::record::{self, Kind};
use braid_store::format::{
    FORMAT_VERSION, Field, LOG_BLOCK, base, body, checkpoint, dedup, entry, extent, field, page, ready,
    segment, snapshots, subject, superblock, unit,
};

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format-store.md");
    std::fs::read_to_string(path).expect("the document")
}

/// The rows of the first table after `heading`, as trimmed cells.
fn table(document: &str, heading: &str) -> Vec<Vec<String>> {
    let after = document.split(&format!("\n{heading}\n")).nth(1).expect("the heading");
    let lines =
        after.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    lines.skip(2).map(cells).collect()
}

fn check_fields(document: &str, heading: &str, fields: &[Field], length: usize) {
    let rows: Vec<[String; 3]> = table(document, heading)
        .into_iter()
        .map(|row| [row[0].clone(), row[1].clone(), row[2].clone()])
        .collect();
    let expected: Vec<[String; 3]> = fields
        .iter()
        .map(|field| [field.bytes.start.to_string(), field.bytes.len().to_string(), field.name.to_owned()])
        .collect();
    assert_eq!(rows, expected, "{heading}");
    let mut end = 0;
    for field in fields {
        assert_eq!(field.bytes.start, end, "{heading}: no gap before {}", field.name);
        end = field.bytes.end;
    }
    assert_eq!(end, length, "{heading}");
}

#[test]
fn tables() {
    let document = document();
    check_fields(&document, "## Superblock", superblock::FIELDS, superblock::BYTES);
    check_fields(&document, "## Segment header", segment::FIELDS, segment::BYTES);
    check_fields(&document, "### Record header", record::FIELDS, record::FIXED_BYTES);
    check_fields(&document, "in a hole; 8 bytes:", field::END_BOUND_FIELDS, 8);
    check_fields(&document, "A subject, 25 bytes:", subject::FIELDS, subject::BYTES);
    check_fields(&document, "### Attributes body", body::ATTRIBUTES_FIELDS, 48);
    check_fields(&document, "### Partition body", body::PARTITION_FIELDS, 16);
    check_fields(&document, "### Verdict body", body::VERDICT_FIELDS, 16);
    check_fields(&document, "### Base body", base::BASE_FIELDS, base::BASE_BYTES);
    check_fields(&document, "### Snapshot body", body::SNAPSHOT_FIELDS, 8);
    check_fields(&document, "### Move body", body::PIECE_FIELDS, 16);
    check_fields(&document, "### Cut-off", body::CUT_OFF_FIELDS, 24);
    check_fields(&document, "### Dedup entry", dedup::DEDUP_FIELDS, dedup::DEDUP_BYTES);
    check_fields(&document, "### Ready units", ready::RUN_FIELDS, ready::RUN_BYTES);
    check_fields(&document, "### Operation", dedup::OPERATION_FIELDS, dedup::OPERATION_BYTES);
    check_fields(&document, "### Snapshots entry", snapshots::SNAPSHOTS_FIELDS, snapshots::SNAPSHOTS_BYTES);
    check_fields(&document, "## Checkpoint", checkpoint::FIELDS, checkpoint::BYTES);
    check_fields(&document, "### Row of the table", checkpoint::ROW_FIELDS, checkpoint::ROW_BYTES);
    check_fields(&document, "### Page", page::FIELDS, page::FIXED_BYTES);
    check_fields(&document, "### Entry", entry::HEAD_FIELDS, entry::HEAD_BYTES);
    check_fields(&document, "### Partition entry", entry::PARTITION_FIELDS, entry::PARTITION_BYTES);
    check_fields(&document, "### Object entry", entry::OBJECT_FIELDS, entry::OBJECT_BYTES);
    check_fields(&document, "### Plain unit", entry::PLAIN_FIELDS, entry::PLAIN_BYTES);
    check_fields(&document, "### Unit entry", unit::UNIT_FIELDS, unit::UNIT_BYTES);
    check_fields(&document, "### Content", unit::CONTENT_FIELDS, unit::CONTENT_BYTES);
    check_fields(&document, "### Step", unit::STEP_FIELDS, unit::STEP_BYTES);
    check_fields(&document, "### Keeping", unit::KEEPING_FIELDS, unit::KEEPING_BYTES);
    check_fields(&document, "### Extent", extent::EXTENT_FIELDS, extent::EXTENT_BYTES);
    check_fields(&document, "### Lost range", entry::LOST_FIELDS, entry::LOST_BYTES);
    let numbered = |heading| -> Vec<(String, String)> {
        table(&document, heading).into_iter().map(|row| (row[0].clone(), row[1].clone())).collect()
    };
    let entries: Vec<(String, String)> =
        entry::KINDS.iter().map(|(number, name)| (number.to_string(), (*name).to_owned())).collect();
    assert_eq!(numbered("### Entry kinds"), entries);
    let roles: Vec<(String, String)> =
        unit::Role::ALL.iter().map(|(_, number, name)| (number.to_string(), (*name).to_owned())).collect();
    assert_eq!(numbered("### Roles"), roles);
    let kinds: Vec<(String, String)> =
        table(&document, "### Kinds").into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    let expected: Vec<(String, String)> =
        Kind::ALL.iter().map(|(_, number, name)| (number.to_string(), (*name).to_owned())).collect();
    assert_eq!(kinds, expected);
    assert!(
        document.contains("### Flags\n| value | name | meaning |\n"),
        "flags are stated by value, not by bit"
    );
    let flags: Vec<(String, String)> =
        table(&document, "### Flags").into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    let named = [
        (record::flags::INSTALLED, "installed"),
        (record::flags::HOLE, "hole"),
        (record::flags::OWED, "owed"),
        (record::flags::FOLDED, "folded"),
        (record::flags::BELOW, "below"),
        (record::flags::WHOLE, "whole"),
        (record::flags::DROPPED, "dropped"),
    ];
    assert_eq!(flags, named.map(|(bit, name)| (bit.to_string(), name.to_owned())));
}

#[test]
fn constants() {
    let document = document();
    let title = format!("# The store's format on disk, version {FORMAT_VERSION}");
    assert_eq!(document.lines().next(), Some(title.as_str()));
    let prose = document.split_whitespace().collect::<Vec<_>>().join(" ");
    for sentence in [
        format!("the log block, {LOG_BLOCK} bytes"),
        format!("multiples of {BLOCK_BYTES} of the *unit's* offset"),
        format!("of `123456789` it is `{:08x}`", crc32c(b"123456789")),
        format!("a body has at most {} bytes", record::INLINE_BYTES_MAX),
        format!("at most {OPAQUE_BYTES_MAX}; the map follows"),
        format!("at most {STILLS_MAX} stills"),
        format!("`{}`", String::from_utf8_lossy(&superblock::MAGIC)),
        format!("`{}`", String::from_utf8_lossy(&segment::MAGIC)),
        format!("`{}`", String::from_utf8_lossy(&record::MAGIC)),
        format!("`{}`", String::from_utf8_lossy(&checkpoint::MAGIC)),
        format!("`{}`", String::from_utf8_lossy(&page::MAGIC)),
        format!("rows of the table, at most {}", checkpoint::ROWS_MAX),
        format!("and what stills see of it | {UNIT_ENTRY_BYTES_MAX} |"),
        format!("that an object remembers | {OPERATIONS_MAX} |"),
        format!("a joining column has caught up with | {READY_RUNS_MAX} |"),
        format!("An object of more than {} bytes", 4 * page::TARGET_BYTES),
    ] {
        assert!(prose.contains(&sentence), "the document does not say: {sentence}");
    }
}

#[test]
fn examples_are_the_golden_files() {
    let document = document();
    for name in ["superblock", "segment", "data"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.hex"));
        let golden = std::fs::read_to_string(path).expect("the golden file");
        assert!(document.contains(&golden), "the example of {name}");
    }
}
