//! Checks that `docs/format-wire.md` describes the code: every kind, name, type, size, number, constant and
//! example.

use std::collections::BTreeMap;
use std::path::PathBuf;

use braid_layout::Scheme;
use braid_wire::authorise::needs;
use braid_wire::capability::{Capability, Rights};
use braid_wire::codec::SEGMENTS_MAX;
use braid_wire::control::{ControlReply, ControlRequest, LABEL_BYTES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX};
use braid_wire::data::{
    Bytes, DriveReply, DriveRequest, FENCE_UNITS_MAX, HELLO, HELLO_REFUSED, OPAQUE_BYTES_MAX,
    REFUSALS_OF_ALL, SCRUB_DAMAGED_MAX, Stamp, VERSIONS_LOOKED_AT_MAX, VERSIONS_UNITS_MAX,
};
use braid_wire::frame::{BODY_BYTES_MAX, FrameHeader, HEADER_BYTES, MAGIC, PAYLOAD_BYTES_MAX, WIRE_VERSION};
use braid_wire::token::Standing;
use braid_wire::{Reason, Record, Wire, checksum::BLOCK_BYTES};

use crate::golden::{bytes_of, is_asked};
use crate::schema::{Fields, choice, nested, size, width};

/// The tables of the document, by the last heading before them. The header row comes first; ruler rows are
/// left out.
struct Document {
    text: String,
    headings: Vec<String>,
    tables: BTreeMap<String, Vec<Vec<Vec<String>>>>,
}

fn document_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/format-wire.md")
}

fn document() -> Document {
    let text = std::fs::read_to_string(document_path()).expect("read docs/format-wire.md");
    let mut headings = Vec::new();
    let mut tables = BTreeMap::<String, Vec<Vec<Vec<String>>>>::new();
    let mut heading = String::new();
    let mut in_table = false;
    let mut in_code = false;
    for line in text.lines() {
        in_code ^= line.starts_with("```");
        let is_row = line.starts_with('|') && !in_code;
        if line.starts_with('#') && !in_code {
            heading = line.trim_start_matches('#').trim().to_owned();
            headings.push(heading.clone());
        }
        if is_row && !line.starts_with("|---") {
            let inside = line.trim_matches('|').replace("\\|", "/");
            let row: Vec<String> = inside.split('|').map(|cell| cell.trim().to_owned()).collect();
            let under = tables.entry(heading.clone()).or_default();
            if !in_table {
                under.push(Vec::new());
            }
            under.last_mut().expect("a table has begun").push(row);
        }
        in_table = is_row;
    }
    Document { text, headings, tables }
}

impl Document {
    /// The rows of the only table under a heading that begins with this header row.
    fn rows(&self, heading: &str, header: &[&str]) -> &[Vec<String>] {
        let under = self.tables.get(heading).unwrap_or_else(|| panic!("no table under \"{heading}\""));
        let mut fitting =
            under.iter().filter(|table| table[0][..header.len().min(table[0].len())] == *header);
        let table = fitting.next().unwrap_or_else(|| panic!("no table {header:?} under \"{heading}\""));
        assert!(fitting.next().is_none(), "two tables {header:?} under \"{heading}\"");
        &table[1..]
    }

    fn check_fields(&self, heading: &str, fields: Fields) {
        let written = |type_name: &str| size(type_name).map_or("varies".to_owned(), |size| size.to_string());
        let expected: Vec<[String; 3]> =
            fields.iter().map(|(name, of)| [(*name).to_owned(), (*of).to_owned(), written(of)]).collect();
        let found: Vec<Vec<String>> = match expected.is_empty() {
            true => Vec::new(),
            false => self.rows(heading, &["field", "type", "size"]).to_vec(),
        };
        assert_eq!(found.len(), expected.len(), "{heading}: number of fields");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found[..3], *expected, "{heading}");
            assert!(!found[3].is_empty(), "{heading}: {} has no meaning", found[0]);
        }
    }

    fn check_set(&self, section: &str, kinds: &[(u16, &str)], bodies: &[(u16, &'static str, Fields)]) {
        let start = self.headings.iter().position(|heading| heading == section).expect("the section");
        let headings = self.headings[start + 1..].iter().take_while(|heading| heading.starts_with("0x"));
        let expected: Vec<String> = kinds.iter().map(|(kind, name)| format!("{kind:#06x} {name}")).collect();
        assert_eq!(headings.cloned().collect::<Vec<_>>(), expected, "{section}");
        for (heading, (_, _, fields)) in expected.iter().zip(bodies) {
            self.check_fields(heading, fields);
        }
    }
}

#[test]
fn messages() {
    let document = document();
    document.check_set("Requests to a drive", DriveRequest::KINDS, DriveRequest::BODIES);
    document.check_set("Replies of a drive", DriveReply::KINDS, DriveReply::BODIES);
    document.check_set("Requests to the manager", ControlRequest::KINDS, ControlRequest::BODIES);
    document.check_set("Replies of the manager", ControlReply::KINDS, ControlReply::BODIES);
    assert_eq!((HELLO, HELLO_REFUSED), (0x0001, 0x8001));
    assert!(document.text.contains("kind 0x8001"));
}

#[test]
fn parts() {
    let document = document();
    for (name, fields) in nested().into_iter().filter(|(name, _)| *name != Capability::NAME) {
        document.check_fields(name, fields);
    }
    for name in [
        "PeerRole",
        "Expect",
        "ScrubAct",
        "ScrubPhase",
        "DiskCharge",
        "CalibrateAct",
        "QualifyAct",
        "Want",
        "LeaseKind",
        "Protection",
        "Methods",
        "DataDirection",
        "EntryKind",
        "ChangeKind",
        "RenameHow",
        "UnlinkOnly",
        "XattrHow",
        "LayoutFrom",
        "Clustering",
        "DriveState",
        "Access",
        "Turn",
        "Room",
        "Ending",
        "Standing",
        "TokenRole",
        "TokenState",
        "Reason",
    ] {
        let found: Vec<(String, String)> = document
            .rows(name, &["number", "name", "meaning"])
            .iter()
            .map(|row| (row[0].clone(), row[1].clone()))
            .collect();
        let expected: Vec<(String, String)> = choice(name)
            .expect("a choice")
            .into_iter()
            .map(|(number, name)| (number.to_string(), name.to_owned()))
            .collect();
        assert_eq!(found, expected, "{name}");
    }
    let number = |scheme: &Scheme| format!("{} {scheme}", scheme.number());
    let schemes = Scheme::ALL.iter().map(number).collect::<Vec<_>>().join(", ");
    let named = document.text.matches(&format!("{schemes} (ARCHITECTURE.md")).count();
    assert_eq!(named, 1, "ColumnMap names the schemes: {schemes}");
    let reasons = document.rows("Reason", &["number", "name", "meaning", "what the asker does"]);
    assert!(
        reasons.iter().all(|row| row.len() == 4 && !row[3].is_empty()),
        "each reason says what the asker does"
    );
}

/// Checks the list of all requests: in order, each with its right, replies and refusals; and at most 21.
#[test]
fn all_requests() {
    let document = document();
    let heading = "All requests to a drive";
    let rows = document.rows(heading, &["request", "right", "answered with", "refused besides with"]);
    let names: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let expected: Vec<&str> = DriveRequest::KINDS.iter().map(|(_, name)| *name).collect();
    assert_eq!(names, expected);
    assert!(names.len() <= 21, "{} requests: NASD has fewer than 20, and no methods", names.len());
    let list = |reasons: &[Reason]| reasons.iter().map(|reason| reason.name()).collect::<Vec<_>>().join(", ");
    let prose = document.text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(prose.contains(&format!("may be refused with {}; ", list(REFUSALS_OF_ALL))));
    let rights = rights();
    for ((row, &(kind, name)), (_, rules)) in rows.iter().zip(DriveRequest::KINDS).zip(DriveRequest::RULES) {
        let refusals = rules.refusals;
        let stated = if row[3] == "nothing" { "" } else { &row[3] };
        assert_eq!(stated, list(refusals), "{name}");
        assert!(refusals.iter().all(|reason| !REFUSALS_OF_ALL.contains(reason)), "{name}: stated twice");
        for reply in row[2].split(", ") {
            assert!(DriveReply::KINDS.iter().any(|(_, known)| *known == reply), "{name}: {reply}");
        }
        let golden = bytes_of(&format!("drive-request-{kind:04x}-{name}.txt"));
        let needs = needs(&DriveRequest::from_body(kind, &golden).expect("golden bytes decode"));
        let needed = rights.iter().filter(|(_, right)| needs.rights.include(*right)).map(|(name, _)| *name);
        let right = needed.collect::<Vec<_>>().join(", ");
        let of_the_drive = if needs.partition.0 == 0 { " of the drive" } else { "" };
        assert_eq!(row[1].split(';').next(), Some(format!("{right}{of_the_drive}").as_str()), "{name}");
    }
}

/// Checks the list of all requests to the manager: in order, each with its rules.
#[test]
fn all_requests_to_the_manager() {
    let document = document();
    let header = ["request", "session", "operation", "in a batch", "needs a manager that leads"];
    let rows = document.rows("All requests to the manager", &header);
    let names: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let expected: Vec<&str> = ControlRequest::KINDS.iter().map(|(_, name)| *name).collect();
    assert_eq!(names, expected);
    for (row, &(kind, name)) in rows.iter().zip(ControlRequest::KINDS) {
        let golden = bytes_of(&format!("control-request-{kind:04x}-{name}.txt"));
        let request = ControlRequest::from_body(kind, &golden).expect("golden bytes decode");
        let rules = request.rules();
        let session = |standing: &Standing| match standing {
            Standing::Client => "client",
            Standing::Join => "join",
            Standing::Drive => "drive",
            Standing::Manager => "manager",
        };
        let sessions: Vec<&str> = rules.by.iter().map(session).collect();
        let sessions = if sessions.is_empty() { "none".to_owned() } else { sessions.join(", ") };
        let yes = |is: bool| if is { "yes" } else { "no" };
        let operation = match request {
            ControlRequest::Open(_) => "to write",
            _ => yes(rules.is_operation),
        };
        assert_eq!(row[1..], [&sessions, operation, yes(rules.in_batch), yes(rules.needs_leading)], "{name}");
        assert!(rules.in_batch || !rules.may_wait, "{name}: only requests in a batch hold up others");
    }
}

/// Checks that the target of each request has what its fields name. Otherwise no rule would judge such a
/// field.
#[test]
fn targets_have_what_the_fields_name() {
    for (&(kind, name), (_, _, fields)) in DriveRequest::KINDS.iter().zip(DriveRequest::BODIES) {
        let golden = bytes_of(&format!("drive-request-{kind:04x}-{name}.txt"));
        let request = DriveRequest::from_body(kind, &golden).expect("golden bytes decode");
        let target = request.target();
        let has = |name| fields.iter().any(|(field, _)| *field == name);
        assert_eq!(target.term.is_some(), has("term"), "{name}: term");
        assert_eq!(target.at.object.0 != 0, has("at"), "{name}: at");
        assert_eq!(target.stamp != Stamp::None, has("stamp"), "{name}: stamp");
        let bytes = match target.bytes {
            Bytes::Any => (false, false, false),
            Bytes::Read { .. } | Bytes::Run { .. } => (true, false, false),
            Bytes::Written { .. } => (true, true, false),
            Bytes::Units(_) => (false, false, true),
        };
        let is_listing = has("units") && (has("list") || has("pieces"));
        assert_eq!(bytes, (has("unit"), has("crcs"), is_listing), "{name}: bytes");
    }
}

/// Checks that each offset is the sum of the sizes before it, and that the last one is the codec's length.
#[test]
fn capability_offsets() {
    let document = document();
    let rows = document.rows("Capability", &["offset", "field", "type", "size"]);
    let mut offset = 0;
    for (row, (name, type_name)) in rows.iter().zip(Capability::FIELDS) {
        let size = size(type_name).expect("a capability has a fixed size");
        assert_eq!(
            row[..4],
            [offset.to_string(), (*name).to_owned(), (*type_name).to_owned(), size.to_string()]
        );
        offset += size;
    }
    assert_eq!(rows.len(), Capability::FIELDS.len() + 1);
    assert_eq!(rows[rows.len() - 1][0], Capability::BYTES_MIN.to_string());
    assert_eq!(offset, Capability::BYTES_MIN);
}

#[test]
fn frame_header_offsets() {
    let header = FrameHeader {
        version: WIRE_VERSION,
        kind: 0x0102,
        request: 0x0304_0506_0708_090a,
        body_bytes: 0x000b_0c0d,
        payload_bytes: 0x000e_0f10,
        body_crc: 0x1112_1314,
    };
    let bytes = header.emit();
    let crc = braid_wire::checksum::crc32c(&bytes[..28]).to_le_bytes();
    let expected: [(&str, Vec<u8>); 8] = [
        ("magic", MAGIC.to_vec()),
        ("version", WIRE_VERSION.to_le_bytes().to_vec()),
        ("kind", header.kind.to_le_bytes().to_vec()),
        ("request", header.request.to_le_bytes().to_vec()),
        ("body_bytes", header.body_bytes.to_le_bytes().to_vec()),
        ("payload_bytes", header.payload_bytes.to_le_bytes().to_vec()),
        ("body_crc", header.body_crc.to_le_bytes().to_vec()),
        ("header_crc", crc.to_vec()),
    ];
    let document = document();
    let rows = document.rows("2. The frame", &["offset", "size", "field", "meaning"]);
    assert_eq!(rows.len(), expected.len());
    for (row, (name, field)) in rows.iter().zip(&expected) {
        let (offset, size): (usize, usize) = (row[0].parse().expect("offset"), row[1].parse().expect("size"));
        assert_eq!(row[2], *name);
        assert_eq!(bytes[offset..offset + size], **field, "{name}");
    }
    assert!(document.text.contains(&format!("A header of {HEADER_BYTES} bytes")));
}

#[test]
fn constants() {
    let expected = [
        ("BODY_BYTES_MAX", usize::try_from(BODY_BYTES_MAX).expect("it fits")),
        ("PAYLOAD_BYTES_MAX", usize::try_from(PAYLOAD_BYTES_MAX).expect("it fits")),
        ("BLOCK_BYTES", usize::try_from(BLOCK_BYTES).expect("it fits")),
        ("SEGMENTS_MAX", SEGMENTS_MAX),
        ("WIDTH_MAX", usize::from(braid_layout::scheme::WIDTH_MAX)),
        ("VERSIONS_UNITS_MAX", VERSIONS_UNITS_MAX),
        ("VERSIONS_LOOKED_AT_MAX", VERSIONS_LOOKED_AT_MAX),
        ("FENCE_UNITS_MAX", FENCE_UNITS_MAX),
        ("OPAQUE_BYTES_MAX", OPAQUE_BYTES_MAX),
        ("SCRUB_DAMAGED_MAX", SCRUB_DAMAGED_MAX),
        ("NAME_BYTES_MAX", NAME_BYTES_MAX),
        ("PATH_BYTES_MAX", PATH_BYTES_MAX),
        ("LABEL_BYTES_MAX", LABEL_BYTES_MAX),
    ];
    let document = document();
    let rows = document.rows("2. The frame", &["constant", "value"]);
    let found: Vec<(&str, &str)> = rows.iter().map(|row| (row[0].as_str(), row[1].as_str())).collect();
    let expected: Vec<(&str, String)> = expected.map(|(name, value)| (name, value.to_string())).into();
    assert_eq!(found, expected.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>());
}

#[test]
fn types_and_rights() {
    let document = document();
    for row in document.rows("1. Rules", &["type", "bytes"]).iter().filter(|row| !row[0].starts_with("[u8")) {
        let widths = row[1].split(", ").cycle();
        for (type_name, bytes) in row[0].split(", ").zip(widths) {
            assert_eq!(
                width(type_name).map(|width| width.to_string()).as_deref(),
                Some(bytes),
                "{type_name}"
            );
        }
    }
    let rights = rights();
    let rows = document.rows("Rights", &["right", "bit"]);
    assert_eq!(rows.len(), rights.len());
    for (row, (name, right)) in rows.iter().zip(rights) {
        let bit: u32 = row[1].parse().expect("a bit");
        assert_eq!((row[0].as_str(), 1 << bit), (name, right.0));
    }
    assert_eq!(rights.iter().fold(Rights::NONE, |all, (_, right)| all.and(*right)), Rights::ALL);
}

fn rights() -> [(&'static str, Rights); 11] {
    [
        ("READ", Rights::READ),
        ("WRITE", Rights::WRITE),
        ("CREATE", Rights::CREATE),
        ("REMOVE", Rights::REMOVE),
        ("GET_ATTRIBUTES", Rights::GET_ATTRIBUTES),
        ("SET_ATTRIBUTES", Rights::SET_ATTRIBUTES),
        ("LIST", Rights::LIST),
        ("MANAGE", Rights::MANAGE),
        ("DELTA", Rights::DELTA),
        ("RUN", Rights::RUN),
        ("RUN_CODE", Rights::RUN_CODE),
    ]
}

/// Checks that the examples in the document are exactly the golden files.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test may write the examples")]
fn examples() {
    let mut document = document();
    for name in ["example-drive.txt", "example-control.txt", "keys.txt"] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        let golden = std::fs::read_to_string(path).expect("read the golden file");
        let first = golden.split_inclusive('\n').next().expect("a line");
        if is_asked("anew")
            && let Some((before, rest)) = document.text.split_once(&format!("```text\n{first}"))
            && let Some((_, after)) = rest.split_once("```\n")
        {
            let text = format!("{before}```text\n{golden}```\n{after}");
            if text != document.text {
                std::fs::write(document_path(), &text).expect("write the document");
                document.text = text;
            }
        }
        assert!(
            document.text.contains(&format!("```text\n{golden}```\n")),
            "{name} is not in the document as it is"
        );
    }
}

/// Checks that the schema's widths are those of the codec.
#[test]
fn widths_are_the_codecs() {
    fn check<T: Record>() {
        assert_eq!(size(T::NAME), Some(T::BYTES_MIN), "{}", T::NAME);
    }
    check::<Capability>();
    check::<braid_wire::capability::Authority>();
    check::<braid_wire::data::Hello>();
    check::<braid_wire::data::ReplyHead>();
    check::<braid_wire::control::RequestHead>();
    check::<braid_wire::control::ControlHead>();
    check::<braid_wire::control::Grant>();
    check::<braid_wire::data::DriveAttributes>();
}
