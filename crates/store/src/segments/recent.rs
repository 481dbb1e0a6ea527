//! The subjects of the newest records. Each record repeats the subjects of preceding records that one bad
//! page could destroy together with it.

use crate::format::checkpoint::ReplayPoint;
use crate::format::record::{PAGE_BYTES, Record};
use crate::format::subject::{Subject, TOGETHER_MAX};
use crate::format::{LOG_BLOCK, padded_u64};

/// The subject of the newest record, and those of the records before it whose headers reach into the page
/// where its header begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recent(Vec<HeaderEnd>);

/// The page where a record's header ends.
#[derive(Debug, Clone, Copy)]
struct HeaderEnd {
    subject: Subject,
    segment: u32,
    last_page: usize,
}

impl Recent {
    /// The state before the first record after `point`.
    pub(crate) fn at(point: &ReplayPoint) -> Recent {
        let last_page = (count(point.block) * LOG_BLOCK).saturating_sub(1) / PAGE_BYTES;
        let header = HeaderEnd { subject: point.prior, segment: point.segment, last_page };
        Recent(point.prior.kind.map(|_| header).into_iter().collect())
    }

    /// Note `record`, of `bytes` bytes on the disk, as the next one. Its checksums may be missing.
    pub(crate) fn push(&mut self, record: &Record, bytes: u64) {
        let begin = count(record.block) * LOG_BLOCK;
        let header = bytes - padded_u64(u64::from(record.payload_bytes));
        let last_page = (begin + usize::try_from(header).expect("bounded") - 1) / PAGE_BYTES;
        let goes_along =
            |header: &HeaderEnd| header.segment == record.segment && header.last_page >= begin / PAGE_BYTES;
        self.0.retain(goes_along);
        self.0.push(HeaderEnd { subject: record.subject(), segment: record.segment, last_page });
        debug_assert!(self.0.len() <= TOGETHER_MAX, "a page has no more blocks");
    }

    /// Forget all records, as the next record's number does not follow: the records before it are unknown.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The newest record's subject.
    pub(crate) fn newest(&self) -> Subject {
        self.0.last().map(|header| header.subject).unwrap_or_default()
    }

    /// The subjects of the records before the newest, newest first.
    pub(crate) fn before(&self) -> impl Iterator<Item = Subject> {
        self.0.iter().rev().skip(1).map(|header| header.subject)
    }
}

fn count(blocks: u32) -> usize {
    usize::try_from(blocks).expect("at least 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::Kind;

    /// Push a record with `blocks` blocks of header at a block of a segment.
    fn push(recent: &mut Recent, unit: u64, segment: u32, block: u32, blocks: usize) {
        let mut record = Record::new(Kind::SettledTo);
        (record.unit, record.segment, record.block) = (unit, segment, block);
        record.inline = vec![0; (blocks - 1) * LOG_BLOCK];
        recent.push(&record, record.disk_bytes());
    }

    fn units(recent: &Recent) -> Vec<u64> {
        recent
            .newest()
            .kind
            .map(|_| recent.newest().unit)
            .into_iter()
            .chain(recent.before().map(|s| s.unit))
            .collect()
    }

    #[test]
    fn those_are_named_whose_headers_are_on_the_page_where_the_newest_begins() {
        let mut recent = Recent::default();
        assert_eq!(units(&recent), []);
        // Across the page's end, then seven that fill the next page.
        push(&mut recent, 1, 3, 7, 2);
        for unit in 2..=8 {
            push(&mut recent, unit, 3, 7 + u32::try_from(unit).expect("small"), 1);
        }
        assert_eq!(units(&recent), [8, 7, 6, 5, 4, 3, 2, 1]);
        push(&mut recent, 9, 3, 16, 1);
        assert_eq!(units(&recent), [9], "alone on its page");
        push(&mut recent, 10, 4, 16, 1);
        assert_eq!(units(&recent), [10], "another file");
        recent.clear();
        assert_eq!(recent.newest(), Subject::default());
    }

    #[test]
    fn of_those_before_a_checkpoint_the_last_is_known() {
        let prior = Subject { unit: 5, ..Record::new(Kind::SettledTo).subject() };
        let mut recent = Recent::at(&ReplayPoint { segment: 3, block: 18, sequence: 7, prior });
        assert_eq!(units(&recent), [5]);
        push(&mut recent, 6, 3, 18, 1);
        assert_eq!(units(&recent), [6, 5]);
        assert_eq!(units(&Recent::at(&ReplayPoint::default())), []);
    }
}
