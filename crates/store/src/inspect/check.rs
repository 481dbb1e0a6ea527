//! Finds damage in a store, and its location.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::log::{Item, Payloads, name, payload_offset, walk};
use super::{disk, recovered};
use crate::checkpoint::{self, file_name};
use crate::disk::Disk;
use crate::error::Error;
use crate::files::{Files, SPARE};
use crate::format::record::{Kind, Record};
use crate::format::superblock::Superblock;
use crate::index::Index;

/// The most findings that are kept in [`Report::findings`].
const FINDINGS_MAX: usize = 10_000;

/// One fault that the check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, in the store's directory.
    pub file: String,
    /// Byte offset in the file.
    pub offset: u64,
    /// Description of the fault.
    pub what: String,
    /// True if the fault is only something that a crash leaves and opening removes: nothing acknowledged is
    /// affected.
    pub harmless: bool,
}

/// The result of a check, with counts of what it covered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The faults found, by file and offset; at most 10000.
    pub findings: Vec<Finding>,
    /// The number of findings that are not harmless.
    pub damaged: u64,
    pub segments: u64,
    pub records: u64,
    /// Payload bytes verified.
    pub payload_bytes: u64,
    pub checkpoints: u64,
    /// Extents of the index whose records were looked up.
    pub extents: u64,
}

/// A piece of payload that the index refers to.
struct Reference {
    block: u32,
    from: u32,
    to: u32,
    partition: u64,
    object: u64,
    unit: u64,
}

/// Read everything in the store in `dir` (or in its `store/`) and compare. Nothing is written.
/// [`Error::InUse`] if a process has the store open. Other errors mean that it could not be read at all.
pub fn check(dir: &Path) -> Result<Report, Error> {
    let disk = disk(dir)?;
    let mut report = Report::default();
    let (files, superblock) = match Files::open(Arc::clone(&disk) as Arc<dyn Disk>) {
        Ok(found) => found,
        Err(Error::UnknownFormat(_, why)) => {
            // The superblock has the store's identity and salt: without it nothing else can be judged.
            report.find("superblock", 0, format!("{why}: without a superblock nothing else can be checked"));
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    strangers(&*disk, &mut report)?;
    let mut references = BTreeMap::new();
    match recovered(&files, superblock) {
        Ok(found) => {
            for damage in &found.recovery.damaged {
                let segment = u32::try_from(damage.segment).unwrap_or(u32::MAX);
                let file = if segment > 0 { name(segment) } else { "checkpoint".to_owned() };
                report.find(&file, damage.offset, damage.what.clone());
            }
            if found.recovery.torn_bytes > 0 {
                let what = format!("a torn tail of {} bytes, never acknowledged", found.recovery.torn_bytes);
                report.note(&name(found.log.number), found.log.end, what);
            }
            references = collect(&found.index, &mut report);
            let end = Some((found.log.number, found.log.end));
            check_log(&*disk, &files, &superblock, &mut references, end, &mut report)?;
        }
        Err(error @ (Error::Damaged { .. } | Error::Io { .. })) => {
            let what =
                if let Error::Damaged { what, .. } = error { what.to_owned() } else { error.to_string() };
            report.find("checkpoint", 0, format!("it does not open: {what}"));
            check_log(&*disk, &files, &superblock, &mut references, None, &mut report)?;
        }
        Err(error) => return Err(error),
    }
    check_checkpoints(&*disk, &superblock, &mut report)?;
    for (segment, rest) in &references {
        let Some(first) = rest.first() else { continue };
        let what =
            format!("{} and {} more refer to the segment, which is missing", whose(first), rest.len() - 1);
        report.find(&name(*segment), 0, what);
    }
    report.in_order();
    Ok(report)
}

impl Report {
    /// Sort by file and offset, and deduplicate: opening and the log's walk find the same damage.
    fn in_order(&mut self) {
        let key = |finding: &Finding| (finding.file.clone(), finding.offset, finding.what.clone());
        self.findings.sort_by_cached_key(key);
        self.take_out(Vec::dedup);
    }

    /// Opening reports the loaded checkpoint's damage too, but without naming the file: drop those findings.
    fn forget_loaded(&mut self) {
        let told =
            |finding: &Finding| finding.file == "checkpoint" && finding.what.starts_with("checkpoint ");
        self.take_out(|findings| findings.retain(|finding| !told(finding)));
    }

    /// Lets `some` remove findings, which are then not counted any more. More may be counted than are kept.
    fn take_out(&mut self, some: impl FnOnce(&mut Vec<Finding>)) {
        let count = |findings: &[Finding]| findings.iter().filter(|finding| !finding.harmless).count();
        let before = count(&self.findings);
        some(&mut self.findings);
        let gone = u64::try_from(before - count(&self.findings)).unwrap_or(u64::MAX);
        self.damaged = self.damaged.saturating_sub(gone);
    }

    fn find(&mut self, file: &str, offset: u64, what: String) {
        self.damaged += 1;
        self.put(Finding { file: file.to_owned(), offset, what, harmless: false });
    }

    fn note(&mut self, file: &str, offset: u64, what: String) {
        self.put(Finding { file: file.to_owned(), offset, what, harmless: true });
    }

    fn put(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Files that do not belong to the store.
fn strangers(disk: &dyn Disk, report: &mut Report) -> Result<(), Error> {
    let list = |dir: &str| disk.list(dir).map_err(|error| Error::io("list the store's directory", error));
    let known = ["superblock", "log", checkpoint::DIR, "lost+found"];
    for found in list("")?.iter().filter(|found| !known.contains(&found.as_str())) {
        report.find(found, 0, "a file that is no part of the store".to_owned());
    }
    for (dir, ending) in [("log", ".seg"), (checkpoint::DIR, ".ckp")] {
        for found in list(dir)? {
            let file = format!("{dir}/{found}");
            let number = found.strip_suffix(ending).and_then(|number| number.parse::<u32>().ok());
            if number.is_some_and(|number| found == format!("{number:08}{ending}")) {
                continue;
            }
            if dir == "log" && found.ends_with(SPARE) {
                report.note(&file, 0, "a freed segment's file that was to be used again".to_owned());
            } else if dir == checkpoint::DIR && found.ends_with(".new") {
                report.note(&file, 0, "a checkpoint that was never finished".to_owned());
            } else {
                report.find(&file, 0, "a file that is no part of the store".to_owned());
            }
        }
    }
    Ok(())
}

fn check_checkpoints(disk: &dyn Disk, superblock: &Superblock, report: &mut Report) -> Result<(), Error> {
    let (numbers, _) = checkpoint::list(disk)?;
    report.forget_loaded();
    for number in numbers {
        report.checkpoints += 1;
        match checkpoint::load::Checkpoint::open(disk, superblock, number)? {
            Err(why) => report.find(&file_name(number), 0, why),
            Ok(found) => {
                for (offset, what) in found.load()?.wrong {
                    report.find(&file_name(number), offset, what);
                }
            }
        }
    }
    Ok(())
}

/// Every piece of payload that the index refers to, by segment, in order of blocks.
fn collect(index: &Index, report: &mut Report) -> BTreeMap<u32, Vec<Reference>> {
    let mut references: BTreeMap<u32, Vec<Reference>> = BTreeMap::new();
    for (&partition, owner) in &index.partitions {
        for (&object, found) in &owner.objects {
            for (unit, slot) in found.units.iter() {
                for extent in slot.unit().pins().into_iter().filter(|extent| !extent.is_hole()) {
                    report.extents += 1;
                    references.entry(extent.segment).or_default().push(Reference {
                        block: extent.block,
                        from: extent.from,
                        to: extent.to,
                        partition: partition.0,
                        object: object.0,
                        unit,
                    });
                }
            }
        }
    }
    for (&segment, found) in &mut references {
        found.sort_by_key(|reference| reference.block);
        let live: u64 = found.iter().map(|reference| u64::from(reference.to - reference.from)).sum();
        let counted = index.segments.all.get(&segment).map_or(0, |segment| segment.payload);
        if live != counted {
            report.find(
                &name(segment),
                0,
                format!("{counted} live bytes are counted, {live} are referred to"),
            );
        }
    }
    references
}

fn check_log(
    disk: &dyn Disk,
    files: &Files,
    superblock: &Superblock,
    references: &mut BTreeMap<u32, Vec<Reference>>,
    log_end: Option<(u32, u64)>,
    report: &mut Report,
) -> Result<(), Error> {
    let mut before: Option<(u32, u64)> = None;
    for number in files.list()? {
        report.segments += 1;
        let refer = references.remove(&number).unwrap_or_default();
        // Bytes that opening cuts off are not damage: they were never acknowledged.
        let end = log_end.filter(|(last, _)| *last == number).map_or(u64::MAX, |(_, end)| end);
        let mut segment = Segment { number, end, expected: None, refer, next: 0, report };
        walk(disk, superblock, number, Payloads::Verify, |item| segment.item(&item, before))?;
        segment.refer_until(u32::MAX);
        before = Some((number, segment.expected.unwrap_or(0)));
    }
    Ok(())
}

/// A segment that is being checked.
struct Segment<'a> {
    number: u32,
    end: u64,
    /// The next record's sequence number; `None`: unknown.
    expected: Option<u64>,
    refer: Vec<Reference>,
    next: usize,
    report: &'a mut Report,
}

impl Segment<'_> {
    fn item(&mut self, item: &Item<'_>, before: Option<(u32, u64)>) {
        match item {
            Item::Header(Ok(header)) => {
                self.expected = Some(header.first_sequence);
                let follows = before.filter(|(number, next)| number + 1 == self.number && *next > 0);
                if let Some((number, next)) = follows
                    && next != header.first_sequence
                {
                    let what = format!(
                        "it begins with record {}, though segment {number} ends just before record {next}",
                        header.first_sequence
                    );
                    self.find(0, what);
                }
            }
            Item::Header(Err(why)) => self.find(0, format!("segment header: {why}")),
            Item::Behind(from, _) if *from >= self.end => {}
            Item::Behind(from, to) => {
                let what = format!("{} bytes behind the segment's end, which nothing reads", to - from);
                self.report.note(&name(self.number), *from, what);
            }
            Item::Bad(from, ..) if *from >= self.end => {}
            Item::Bad(from, to, why) => {
                self.find(*from, format!("{} bytes without a record: {why}", to - from));
                self.expected = None;
            }
            Item::Record(record, offset, wrong) if *offset < self.end => self.record(record, *offset, *wrong),
            Item::Record(..) => {}
        }
    }

    fn record(&mut self, record: &Record, offset: u64, wrong: Option<&str>) {
        self.report.records += 1;
        self.report.payload_bytes += u64::from(record.payload_bytes);
        if let Some(expected) = self.expected
            && record.sequence != expected
        {
            self.find(offset, format!("record {} where {expected} must be", record.sequence));
        }
        self.expected = Some(record.sequence.saturating_add(1));
        if let Some(wrong) = wrong {
            self.find(payload_offset(record), format!("record {} at {offset}: {wrong}", record.sequence));
        }
        self.refer_until(record.block);
        while let Some(reference) = self.refer.get(self.next)
            && reference.block == record.block
        {
            let about = (record.partition.0, record.object.0, record.unit);
            let same = about == (reference.partition, reference.object, reference.unit);
            let holds = record.from <= reference.from && reference.to <= record.to;
            // A delta is recorded under the parity's object; a move has its ranges in its body.
            if record.kind != Kind::Delta && (!same || !holds) {
                let what = format!(
                    "{} refers to record {}, which belongs to something else",
                    whose(reference),
                    record.sequence
                );
                self.find(offset, what);
            }
            self.next += 1;
        }
    }

    /// References below `block` have no record: report them.
    fn refer_until(&mut self, block: u32) {
        while let Some(reference) = self.refer.get(self.next)
            && reference.block < block
        {
            let offset = u64::from(reference.block) * crate::format::LOG_BLOCK_U64;
            let what = format!("{} refers to a record here, and there is none", whose(reference));
            self.find(offset, what);
            self.next += 1;
        }
    }

    fn find(&mut self, offset: u64, what: String) {
        self.report.find(&name(self.number), offset, what);
    }
}

fn whose(reference: &Reference) -> String {
    let Reference { partition, object, unit, .. } = reference;
    format!("unit {unit} of object {object} in partition {partition}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(report: &Report) -> (u64, usize) {
        (report.damaged, report.findings.len())
    }

    #[test]
    fn what_is_told_twice_counts_once_and_what_is_harmless_not_at_all() {
        let mut report = Report::default();
        for _ in 0..3 {
            report.note("a", 0, "a torn tail".to_owned());
        }
        for _ in 0..2 {
            report.find("a", 512, "a record".to_owned());
        }
        report.find("b", 0, "a file".to_owned());
        assert_eq!(counts(&report), (3, 6));
        report.in_order();
        assert_eq!(counts(&report), (2, 3));
    }

    #[test]
    fn what_is_not_kept_counts_too() {
        let mut report = Report::default();
        report.find("checkpoint", 0, "checkpoint 3: a page".to_owned());
        report.note("checkpoint", 0, "checkpoint 3: half".to_owned());
        (0..20_000).for_each(|offset| report.find("a", offset, "a record".to_owned()));
        assert_eq!(counts(&report), (20_001, FINDINGS_MAX));
        report.forget_loaded();
        assert_eq!(counts(&report), (20_000, FINDINGS_MAX - 2));
    }
}
