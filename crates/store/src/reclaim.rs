//! Freeing segments that nothing but metadata pins.
//!
//! The live metadata is written again at the head, durably, and only then is the file removed; a crash between the two
//! leaves both, and replay of both gives the same state. A tombstone goes along as long as an older segment could hold a
//! record of what it removed. (Moving live payloads is the cleaner's work; it is not in this release.)

use std::sync::PoisonError;

use bytes::Bytes;

use crate::commit::Committer;
use crate::format::body;
use crate::format::record::{Kind, Record, flags};
use crate::index::Index;
use crate::index::check::{object_record, partition_record};
use crate::index::live::Tombstone;
use crate::log::Entry;

/// The current segment is sealed early when nothing in it is live and it has at least this many bytes.
const EARLY_SEAL_BYTES: u64 = 1 << 20;
/// The most records of one commit that moves metadata.
const MOVE_LEN_MAX: usize = 1024;

impl Committer {
    /// Free one segment if one is worth it; whether it did.
    pub(crate) fn free_one_segment(&mut self) -> bool {
        if self.log.failed {
            return false;
        }
        let index = self.shared.index.read().unwrap_or_else(PoisonError::into_inner);
        let early = self.log.end >= EARLY_SEAL_BYTES.min(self.log.segment_bytes)
            && index.segments.worth_freeing(self.log.number);
        drop(index);
        if early && self.roll().is_err() {
            return false;
        }
        let index = self.shared.index.read().unwrap_or_else(PoisonError::into_inner);
        let Some(number) = index.segments.freeable(self.log.number) else { return false };
        let mut moved = live_metadata(&index, number);
        drop(index);
        for chunk in moved.chunks_mut(MOVE_LEN_MAX) {
            if self.append(chunk).is_err() {
                return false;
            }
            self.publish(chunk);
        }
        // Readers look up the file under the index's lock: after this, none finds it any more.
        self.shared.index.write().unwrap_or_else(PoisonError::into_inner).segments.remove(number);
        if let Err(error) = self.shared.files.remove(number, self.log.sync) {
            // Its records would come back at the next opening, when the tombstones that bury them may be gone.
            tracing::error!(%error, segment = number, "a freed segment could not be removed; the log takes no more writes");
            self.log.failed = true;
        }
        true
    }
}

/// The records that must be written again before `number` goes.
fn live_metadata(index: &Index, number: u32) -> Vec<Entry> {
    let Some(segment) = index.segments.all.get(&number) else { return Vec::new() };
    let owners = segment.meta.iter().filter_map(|&(partition, object)| {
        let owner = index.partitions.get(&partition)?;
        let Some(id) = object else {
            let (quota_bytes, key_epoch) = (owner.quota_bytes, owner.key_epoch);
            return Some(partition_record(
                Kind::PartitionSet,
                partition,
                quota_bytes,
                key_epoch,
                owner.birth,
            ));
        };
        let object = owner.objects.get(&id)?;
        let mut record = object_record(Kind::ObjectAttributes, partition, id, object);
        body::put_attributes(&mut record, &object.attributes);
        Some(record)
    });
    let needed = segment.tombstones.iter().filter(|(origin, _)| index.segments.is_needed(number, *origin));
    let tombstones = needed.map(|(origin, tombstone)| tombstone_record(*origin, tombstone));
    owners.chain(tombstones).map(|record| (record, Bytes::new())).collect()
}

fn tombstone_record(origin: u64, tombstone: &Tombstone) -> Record {
    let mut record = match tombstone {
        Tombstone::Object { partition, object, birth } => {
            let mut record = Record::new(Kind::ObjectRemove);
            (record.partition, record.object, record.birth) = (*partition, *object, *birth);
            record
        }
        Tombstone::Partition { partition, birth } => {
            let mut record = Record::new(Kind::PartitionRemove);
            (record.partition, record.birth) = (*partition, *birth);
            record
        }
    };
    record.flags |= flags::MOVED;
    record.origin = origin;
    record
}
