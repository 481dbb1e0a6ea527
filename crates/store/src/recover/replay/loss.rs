//! Determines the state that is lost when records are lost.
//!
//! The record after bad headers tells what they hit: it names the subjects of the records before it, as many
//! as one bad page can destroy. If more are missing, they may have hit any object whose page does not count
//! them in. All of these read as lost: stale bytes are never returned, and objects that may have been created
//! meanwhile are damaged, not absent.

use super::Replay;
use crate::checkpoint::load::PageRange;
use crate::format::LOG_BLOCK_U64;
use crate::format::entry::LostRange;
use crate::format::extent::LogPosition;
use crate::format::page::Key;
use crate::format::record::{Kind, Record};
use crate::format::subject::Subject;

impl Replay<'_> {
    /// Forgets the losses of a removed partition and its objects, except those of keys on pages made since
    /// the removal.
    pub(super) fn forget_partition(&mut self, record: &Record) {
        let from = Key::At(record.partition, None);
        let to = Key::At(record.partition, Some(braid_layout::ObjectId(u64::MAX))).next();
        for range in &self.ranges {
            if range.as_of.is_none_or(|as_of| as_of < record.sequence) && range.from < to && from < range.to {
                self.index.lost.forget(range.from.max(from), range.to.min(to));
            }
        }
        if self.ranges.is_empty() {
            self.index.lost.forget(from, to);
        }
    }

    /// Handles the loss of `missing` records before `next`.
    pub(super) fn lose(&mut self, next: &Record, missing: u64, position: LogPosition) {
        // If a number did not follow the one before, no subjects are named.
        let named = std::iter::once(&next.prior).chain(&next.before);
        let named = named.map_while(|subject| subject.kind.map(|kind| (kind, subject)));
        let mut left = missing;
        for ((kind, subject), sequence) in named.zip((next.sequence - missing..next.sequence).rev()) {
            self.lose_one(kind, subject, sequence, position);
            left -= 1;
        }
        if left > 0 {
            self.lose_all(position, next.sequence - 1 - (missing - left));
            let offset = u64::from(position.block) * LOG_BLOCK_U64;
            let what = format!("{left} more records before this place are lost: any object may be affected");
            self.damage(position.segment, offset, what);
        }
    }

    /// Handles the loss of the record with this number, which was about `subject`.
    pub(super) fn lose_one(&mut self, kind: Kind, subject: &Subject, sequence: u64, position: LogPosition) {
        let &Subject { partition, object, unit, .. } = subject;
        let counted = self.as_of(subject.key()).is_some_and(|as_of| as_of >= sequence);
        self.index.lost_records |= !counted;
        let hit = match kind {
            _ if counted => "nothing is lost with it, as the checkpoint includes it".to_owned(),
            kind if kind.has_range() => {
                self.index.mark_lost(partition, object, Some(unit), position);
                format!("unit {unit} of object {object} in partition {partition}")
            }
            Kind::SettledTo | Kind::Mark | Kind::Ready => "nothing that matters".to_owned(),
            Kind::PartitionCreate | Kind::PartitionSet | Kind::PartitionRemove => {
                let key = Key::At(partition, None);
                self.lose_range(key, key.next(), position);
                format!("the values of partition {partition}")
            }
            _ => {
                self.index.mark_lost(partition, object, None, position);
                format!("object {object} in partition {partition}")
            }
        };
        let offset = u64::from(position.block) * LOG_BLOCK_U64;
        self.damage(position.segment, offset, format!("record {sequence} is lost: {hit}"));
    }

    /// Handles damage of unknown extent, which may have hit every key whose page does not count in record
    /// `last`.
    pub(super) fn lose_all(&mut self, position: LogPosition, last: u64) {
        self.index.lost_records = true;
        let everything = [PageRange { from: Key::FIRST, to: Key::End, as_of: None }];
        let ranges = if self.ranges.is_empty() { everything.to_vec() } else { self.ranges.clone() };
        for range in ranges.iter().filter(|range| range.as_of.is_none_or(|as_of| as_of < last)) {
            self.lose_range(range.from, range.to, position);
        }
    }

    fn lose_range(&mut self, from: Key, to: Key, position: LogPosition) {
        let offset = u64::from(position.block) * LOG_BLOCK_U64;
        self.index.lost.add(LostRange { from, to, checkpoint: 0, segment: position.segment, offset });
        self.index.mark_range_lost(from, to, position);
    }
}
