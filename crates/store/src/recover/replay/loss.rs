//! What is lost where records are.
//!
//! Who was hit by bad headers is told by the record after them, which names the subjects of those before it that one bad page may
//! take together. If more are missing, any object may have been hit whose page does not count them in, and all of these
//! read as lost: stale bytes are never returned, and what may have been made meanwhile is damaged, not absent.

use super::Replay;
use crate::checkpoint::load::PageRange;
use crate::format::LOG_BLOCK_U64;
use crate::format::entry::LostRange;
use crate::format::page::Key;
use crate::format::record::{Kind, Record};
use crate::format::subject::Subject;
use crate::index::unit::Place;

impl Replay<'_> {
    /// A partition was removed, and with it what was lost of its objects; but not what is on pages made since.
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

    /// `missing` records before `next` are gone.
    pub(super) fn lose(&mut self, next: &Record, missing: u64, place: Place) {
        // Where a number did not follow on the one before, nobody is named.
        let named = std::iter::once(&next.prior).chain(&next.before);
        let named = named.map_while(|subject| subject.kind.map(|kind| (kind, subject)));
        let mut left = missing;
        for ((kind, subject), sequence) in named.zip((next.sequence - missing..next.sequence).rev()) {
            self.lose_one(kind, subject, sequence, place);
            left -= 1;
        }
        if left > 0 {
            self.lose_all(place, next.sequence - 1 - (missing - left));
            let offset = u64::from(place.block) * LOG_BLOCK_U64;
            let what = format!("{left} more records are lost before it: any object may be hit");
            self.damage(place.segment, offset, what);
        }
    }

    /// The record with this number, which was about `subject`, is gone.
    pub(super) fn lose_one(&mut self, kind: Kind, subject: &Subject, sequence: u64, place: Place) {
        let &Subject { partition, object, unit, .. } = subject;
        let counted = self.as_of(subject.key()).is_some_and(|as_of| as_of >= sequence);
        let hit = match kind {
            _ if counted => "nothing, the checkpoint counts it in".to_owned(),
            kind if kind.has_range() => {
                self.index.mark_lost(partition, object, Some(unit), place);
                format!("unit {unit} of object {object} in partition {partition}")
            }
            Kind::SettledTo | Kind::Mark | Kind::Ready => "nothing that matters".to_owned(),
            Kind::PartitionCreate | Kind::PartitionSet | Kind::PartitionRemove => {
                let key = Key::At(partition, None);
                self.lose_range(key, key.next(), place);
                format!("the values of partition {partition}")
            }
            _ => {
                self.index.mark_lost(partition, object, None, place);
                format!("object {object} in partition {partition}")
            }
        };
        let offset = u64::from(place.block) * LOG_BLOCK_U64;
        self.damage(place.segment, offset, format!("record {sequence} is lost: {hit}"));
    }

    /// Damage that cannot be told: anything may have been hit whose page does not count in record `last`.
    pub(super) fn lose_all(&mut self, place: Place, last: u64) {
        let everything = [PageRange { from: Key::FIRST, to: Key::End, as_of: None }];
        let ranges = if self.ranges.is_empty() { everything.to_vec() } else { self.ranges.clone() };
        for range in ranges.iter().filter(|range| range.as_of.is_none_or(|as_of| as_of < last)) {
            self.lose_range(range.from, range.to, place);
        }
    }

    fn lose_range(&mut self, from: Key, to: Key, place: Place) {
        let offset = u64::from(place.block) * LOG_BLOCK_U64;
        self.index.lost.add(LostRange { from, to, checkpoint: 0, segment: place.segment, offset });
        self.index.mark_range_lost(from, to, place);
    }
}
