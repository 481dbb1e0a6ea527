//! Lists everything in a store, piece by piece.

use std::path::Path;
use std::sync::Arc;

use super::disk;
use super::log::{Item, Payloads, name, walk};
use crate::checkpoint::load::Checkpoint;
use crate::checkpoint::{self, file_name};
use crate::disk::Disk;
use crate::error::Error;
use crate::files::Files;
use crate::format::body;
use crate::format::dedup::DedupEntry;
use crate::format::entry::{Entries, Entry, PlainUnit};
use crate::format::extent::Extent;
use crate::format::ready::ReadyEntry;
use crate::format::record::{Kind, Record, flags};
use crate::format::snapshots::SnapshotsEntry;
use crate::format::unit::UnitEntry;
use crate::mutation::Base;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The file, in the store's directory.
    pub file: String,
    /// Byte offset in the file.
    pub offset: u64,
    /// Kind of the piece: a record's kind, `segment`, `checkpoint`, `page`, an entry's kind, or `bad`.
    pub kind: &'static str,
    pub text: String,
}

/// Call `act` with every piece of the store in `dir` (or in its `store/`), in order, until it returns
/// `false`. Payloads are not read.
pub fn dump(dir: &Path, mut act: impl FnMut(Line) -> bool) -> Result<(), Error> {
    let disk = disk(dir)?;
    let (files, superblock) = Files::open(Arc::clone(&disk) as Arc<dyn Disk>)?;
    let mut more = act(Line {
        file: "superblock".to_owned(),
        offset: 0,
        kind: "superblock",
        text: format!(
            "cluster={} drive={} salt={:016x}",
            superblock.cluster, superblock.drive, superblock.salt
        ),
    });
    let (numbers, _) = checkpoint::list(&*disk)?;
    for number in numbers {
        let file = file_name(number);
        let mut line = |offset, kind, text| {
            more = more && act(Line { file: file.clone(), offset, kind, text });
        };
        match Checkpoint::open(&*disk, &superblock, number)? {
            Err(why) => line(0, "bad", why),
            Ok(found) => {
                line(0, "checkpoint", checkpoint_text(&found));
                found.walk(|offset, page| match page {
                    Err(why) => line(offset, "bad", why.to_owned()),
                    Ok((head, entries)) => {
                        let part = head.part + 1;
                        let parts = head.parts;
                        let range = format!("from={:?} to={:?}", head.from.to_string(), head.to.to_string());
                        line(offset, "page", format!("as-of={} {range} part={part}/{parts}", head.as_of));
                        for entry in Entries::new(entries) {
                            let (kind, text) = entry_text(entry);
                            line(offset, kind, text);
                        }
                    }
                })?;
            }
        }
    }
    for number in files.list()? {
        let file = name(number);
        walk(&*disk, &superblock, number, Payloads::Skip, |item| {
            let (offset, kind, text) = match item {
                Item::Header(Ok(header)) => {
                    (0, "segment", format!("first-sequence={}", header.first_sequence))
                }
                Item::Header(Err(why)) => (0, "bad", format!("segment header: {why}")),
                Item::Record(record, offset, wrong) => {
                    let wrong = wrong.map_or(String::new(), |wrong| format!(" ({wrong})"));
                    (offset, kind_name(record.kind), format!("{}{wrong}", record_text(record)))
                }
                Item::Behind(from, to) => {
                    (from, "behind", format!("{} bytes behind the segment's end", to - from))
                }
                Item::Bad(from, to, why) => {
                    (from, "bad", format!("{} bytes without a record: {why}", to - from))
                }
            };
            more = more && act(Line { file: file.clone(), offset, kind, text });
        })?;
        if !more {
            break;
        }
    }
    Ok(())
}

fn checkpoint_text(found: &Checkpoint) -> String {
    let replay = found.end.replay;
    let durable = found.totals.map_or(0, |totals| totals.durable_to);
    let appended = found.end.appended;
    format!(
        "number={} replay-segment={} replay-offset={} replay-sequence={} segments={} durable-to={durable} written={} moved={}",
        found.end.number,
        replay.segment,
        replay.offset(),
        replay.sequence,
        found.end.segments.len(),
        appended.written,
        appended.moved
    )
}

fn kind_name(kind: Kind) -> &'static str {
    Kind::ALL.iter().find(|(found, ..)| *found == kind).map_or("record", |(_, _, name)| name)
}

fn record_text(record: &Record) -> String {
    let mut text = format!("sequence={} commit-left={}", record.sequence, record.commit_left);
    if record.kind != Kind::Mark {
        text += &format!(" partition={} birth={}", record.partition, record.birth);
    }
    if record.kind.writes() {
        text += &format!(
            " object={} unit={} range={}..{} version={} previous={} settled-below={} columns={:x} g={}",
            record.object,
            record.unit,
            record.from,
            record.to,
            record.version,
            record.previous,
            record.settled_below,
            record.columns.0,
            record.g
        );
        for (flag, name) in [
            (flags::HOLE, " hole"),
            (flags::INSTALLED, " installed"),
            (flags::BELOW, " below"),
            (flags::OWED, " owed"),
            (flags::FOLDED, " folded"),
        ] {
            text += if record.is(flag) { name } else { "" };
        }
    } else if record.object.0 > 0 || record.kind == Kind::ObjectCreate {
        text += &format!(" object={} g={}", record.object, record.g);
        text += if record.is(flags::DROPPED) { " dropped" } else { "" };
    }
    if let (Kind::Snapshot | Kind::SnapshotDrop, Ok(number)) = (record.kind, body::snapshot(record)) {
        text += &format!(" number={number}");
    }
    if record.kind == Kind::ObjectCreate
        && let Some(base) = body::attributes(record).ok().and_then(|attributes| attributes.base)
    {
        text += &format!(" still {}", base_text(&base));
    }
    text
}

fn base_text(base: &Base) -> String {
    format!("of={} birth={} number={}", base.object, base.birth, base.number)
}

fn entry_text(entry: Result<Entry<'_>, crate::format::DecodeError>) -> (&'static str, String) {
    match entry {
        Err(why) => ("bad", format!("entry: {why}")),
        Ok(Entry::Partition(entry)) => {
            let quota = entry.quota_bytes.map_or("none".to_owned(), |quota| quota.to_string());
            ("partition", format!("partition={} birth={} quota={quota}", entry.partition, entry.birth))
        }
        Ok(Entry::Object(entry)) => {
            let lost = if entry.lost.is_some() { " lost" } else { "" };
            let husk = if entry.husk { " husk" } else { "" };
            let text = format!(
                "partition={} object={} birth={} unit-bytes={} g={}{lost}{husk}",
                entry.partition, entry.object, entry.birth, entry.unit_bytes, entry.g.0
            );
            ("object", text)
        }
        Ok(Entry::PlainUnits(units)) => {
            let units: Vec<String> = units
                .iter()
                .map(|unit| {
                    let PlainUnit { unit, version, extent, .. } = unit;
                    let Extent { from, to, segment, block } = extent;
                    format!("{unit}={version}@{segment}:{block}[{from}..{to}]")
                })
                .collect();
            ("plain units", units.join(" "))
        }
        Ok(Entry::Unit(body)) => match UnitEntry::decode(body) {
            Err(why) => ("bad", format!("unit: {why}")),
            Ok(unit) => {
                let contents: Vec<String> = unit
                    .contents
                    .iter()
                    .map(|content| {
                        format!("{:?}={}/{}", content.role, content.version, content.extents.len())
                    })
                    .collect();
                let lost = if unit.lost.is_some() { " lost" } else { "" };
                ("unit", format!("unit={} {}{lost}", unit.unit, contents.join(" ").to_lowercase()))
            }
        },
        Ok(Entry::Dedup(body)) => match DedupEntry::decode(body) {
            Err(why) => ("bad", format!("operations: {why}")),
            Ok(entry) => {
                let text = format!("client={:x} operations={}", entry.client.0, entry.operations.len());
                ("operations", text)
            }
        },
        Ok(Entry::Ready(body)) => match ReadyEntry::decode(body) {
            Err(why) => ("bad", format!("ready units: {why}")),
            Ok(entry) => {
                let runs = entry.runs.iter().map(|(first, last)| format!("{first}..={last}"));
                ("ready units", runs.collect::<Vec<_>>().join(" "))
            }
        },
        Ok(Entry::Snapshots(body)) => match SnapshotsEntry::decode(body) {
            Err(why) => ("bad", format!("snapshots: {why}")),
            Ok(entry) => ("snapshots", format!("highest={} live={:?}", entry.highest, entry.live)),
        },
        Ok(Entry::Still(body)) => match Base::decode(body) {
            Err(why) => ("bad", format!("still: {why}")),
            Ok(base) => ("still", base_text(&base)),
        },
        Ok(Entry::Lost(range)) => {
            ("lost range", format!("from={:?} to={:?}", range.from.to_string(), range.to.to_string()))
        }
    }
}
