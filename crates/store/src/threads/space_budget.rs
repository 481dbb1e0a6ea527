//! The space that is left for each purpose ([`crate::clean::reserve`]).

use braid_layout::Generation;

use crate::clean::reserve::Reserve;
use crate::error::Error;
use crate::format::LOG_BLOCK_U64;
use crate::format::body;
use crate::format::record::{Kind, Record, flags};
use crate::index::deciding::growth::ReservedChange;
use crate::threads::shared::Shared;

/// Bytes of the smallest checkpoint.
const CHECKPOINT_BYTES_MIN: u64 = 4096;
/// Estimate of the bytes that a record adds to the next checkpoint.
const ENTRY_BYTES: u64 = 256;
/// A file's first generation.
const FIRST: Generation = Generation(1);

/// Treatment of a mutation for which there is no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSpace {
    /// The mutation waits until space was freed.
    Wait,
    /// The mutation is refused, as nothing more can be freed.
    Refuse,
}

/// Bytes a commit may still take.
pub(crate) struct SpaceBudget {
    pub(crate) used: u64,
    /// Bytes that objects have reserved and do not hold yet.
    reserved: u64,
    capacity: u64,
    /// About the bytes of the next checkpoint.
    checkpoint: u64,
    reserve: Reserve,
    /// The reserve if only the disk limited the store.
    of_disk: Reserve,
}

impl Shared {
    /// The space there is now.
    pub(crate) fn space_budget(&self) -> SpaceBudget {
        let index = self.index.read();
        let log = index.segments.used();
        let next = index.head.sequence;
        let reserved = with_headers(index.reserved);
        let longest = index.segments.longest();
        drop(index);
        let used = log.saturating_add(self.checkpointer.bytes());
        // Recycled files count as free: they are used for new segments, or removed if space is short.
        let recycled = self.files.recycled().bytes();
        let disk = self
            .files
            .space()
            .map_or(u64::MAX, |space| used.saturating_add(space.free).saturating_add(recycled));
        let capacity = self.capacity.unwrap_or(u64::MAX).min(disk);
        // The last commit of a segment may be as long as the segment's target, and that of a long unit
        // longer.
        let segment = self.segment_bytes.saturating_mul(2).max(longest);
        // The next checkpoint may be somewhat longer than the last, and also has the records since then.
        let (last, counted) =
            self.checkpointer.newest().map_or((0, 1), |kept| (kept.bytes, kept.replay.sequence));
        // Damage skips record numbers, so there may be fewer records than numbers.
        let records = next.saturating_sub(counted).min(log / LOG_BLOCK_U64);
        let news = records.saturating_mul(ENTRY_BYTES);
        let checkpoint = (last + last / 4 + CHECKPOINT_BYTES_MIN).saturating_add(news);
        let reserve = |capacity| Reserve::new(capacity, segment, checkpoint);
        SpaceBudget {
            used,
            reserved,
            capacity,
            checkpoint,
            reserve: reserve(capacity),
            of_disk: reserve(disk),
        }
    }
}

/// Bytes of the log that these reserved bytes need with the headers of their records: a block for each unit,
/// for units of 32 KiB and more.
fn with_headers(reserved: u64) -> u64 {
    reserved.saturating_add(reserved / 8)
}

impl SpaceBudget {
    /// Take what `record` needs. The reserve is for records that lead to freed space or keep order. When
    /// nothing more can be freed, they are limited by the disk, not by the configured capacity, which a
    /// checkpoint or an opening with a lower capacity may have exceeded.
    pub(crate) fn take(
        &mut self,
        record: &Record,
        change: ReservedChange,
        no_space: NoSpace,
    ) -> Result<(), Error> {
        let reserve = match no_space {
            NoSpace::Wait => &self.reserve,
            NoSpace::Refuse => &self.of_disk,
        };
        let bytes = record.disk_bytes_max();
        let reserved = self.reserved.saturating_sub(with_headers(change.less));
        let more = with_headers(change.more);
        let others = self.used.saturating_add(reserved);
        let (need, free) = match Purpose::of(record, change) {
            Purpose::Order => (bytes, reserve.free_for_fences(self.used)),
            Purpose::Room => (bytes, reserve.free_for_removes(self.used)),
            Purpose::Bytes => (bytes.saturating_add(more), self.reserve.free_for_writes(others)),
        };
        if need > free {
            return Err(self.full());
        }
        self.used += bytes;
        self.reserved = reserved.saturating_add(more);
        Ok(())
    }

    /// Bytes that writes may take.
    pub(crate) fn free(&self) -> u64 {
        self.reserve.free_for_writes(self.used.saturating_add(self.reserved))
    }

    /// Returns true if there is space for the cleaner to write `bytes`, and for the checkpoint after which
    /// their old segments are freed.
    pub(crate) fn fits_moves(&self, bytes: u64) -> bool {
        self.used.saturating_add(bytes).saturating_add(self.checkpoint) <= self.capacity
    }

    /// The error for a record that does not fit.
    pub(crate) fn full(&self) -> Error {
        let used = self.used.saturating_add(self.reserved).min(self.used.max(self.capacity));
        Error::Full { used, capacity: self.capacity }
    }
}

/// Purpose of a record, which decides how much of the reserve it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The record stores something.
    Bytes,
    /// The record leads to freed space.
    Room,
    /// The record keeps order, so that other requests can free space.
    Order,
}

fn is_still(record: &Record) -> bool {
    body::attributes(record).is_ok_and(|attributes| attributes.base.is_some())
}

impl Purpose {
    fn of(record: &Record, change: ReservedChange) -> Purpose {
        match record.kind {
            Kind::Fence | Kind::Verdict => Purpose::Order,
            // A fence makes what it does not find, and says where columns are by now. The writer of a new
            // file makes its objects in the first generation.
            Kind::PartitionCreate | Kind::PartitionSet => Purpose::Order,
            Kind::ObjectCreate if record.g > FIRST && change.more == 0 => Purpose::Order,
            // Without a still, a file that a snapshot covers cannot be written, not even to be cut short.
            Kind::Snapshot => Purpose::Order,
            Kind::ObjectCreate if is_still(record) => Purpose::Order,
            Kind::ObjectAttributes if change.more == 0 => Purpose::Order,
            Kind::ObjectRemove | Kind::PartitionRemove | Kind::SettledTo | Kind::SnapshotDrop => {
                Purpose::Room
            }
            kind if kind.writes() && record.is(flags::HOLE) => Purpose::Room,
            _ => Purpose::Bytes,
        }
    }
}
