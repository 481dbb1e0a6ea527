//! The live payload bytes of each segment, to which units refer. A segment without any is *idle*.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::extent::Extent;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The sequence number of the segment's first record.
    pub(crate) first_sequence: u64,
    /// Length of the segment's file in bytes.
    pub(crate) bytes: u64,
    /// Payload bytes that units refer to.
    pub(crate) payload: u64,
    /// True if damage was found in the segment.
    pub(crate) damaged: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Segments {
    pub(crate) all: BTreeMap<u32, Segment>,
    idle: BTreeSet<u32>,
    live: u64,
    used: u64,
    /// Length of the longest segment so far.
    longest: u64,
}

impl Segments {
    /// Adds a segment's file. Units may refer to it already.
    pub(crate) fn add(&mut self, number: u32, first_sequence: u64, bytes: u64) {
        let segment = self.all.entry(number).or_default();
        self.used = self.used - segment.bytes + bytes;
        (segment.first_sequence, segment.bytes) = (first_sequence, bytes);
        self.longest = self.longest.max(bytes);
        if segment.payload == 0 {
            self.idle.insert(number);
        }
    }

    /// Removes a segment. Returns the length of its file, if it was there.
    pub(crate) fn remove(&mut self, number: u32) -> Option<u64> {
        self.idle.remove(&number);
        let segment = self.all.remove(&number)?;
        self.used -= segment.bytes;
        Some(segment.bytes)
    }

    /// Counts the file of a removed segment that could not be deleted: it takes `bytes` until the store is
    /// closed.
    pub(crate) fn leave(&mut self, bytes: u64) {
        self.used += bytes;
    }

    pub(crate) fn set_bytes(&mut self, number: u32, bytes: u64) {
        if let Some(segment) = self.all.get_mut(&number) {
            self.used = self.used - segment.bytes + bytes;
            segment.bytes = bytes;
            self.longest = self.longest.max(bytes);
        }
    }

    /// Length of the longest segment since the store was opened.
    pub(crate) fn longest(&self) -> u64 {
        self.longest
    }

    pub(crate) fn entry(&mut self, number: u32) -> &mut Segment {
        self.all.entry(number).or_default()
    }

    /// Total length of the log's files.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Payload bytes that units refer to.
    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    /// Counts `extent`, to which a unit now refers.
    pub(crate) fn charge(&mut self, extent: &Extent) {
        self.charge_bytes(extent.segment, extent.stored_bytes());
    }

    /// Counts `bytes` more of a segment, to which units now refer.
    pub(crate) fn charge_bytes(&mut self, number: u32, bytes: u64) {
        if bytes > 0 {
            let segment = self.all.entry(number).or_default();
            if segment.payload == 0 {
                self.idle.remove(&number);
            }
            segment.payload += bytes;
            self.live += bytes;
        }
    }

    /// Subtracts `extent`, to which a unit no longer refers.
    pub(crate) fn release(&mut self, extent: &Extent) {
        if extent.is_hole() {
            return;
        }
        let segment = self.all.entry(extent.segment).or_default();
        segment.payload -= extent.stored_bytes();
        self.live -= extent.stored_bytes();
        if segment.payload == 0 {
            self.idle.insert(extent.segment);
        }
    }

    /// The idle segments below `before`, in order.
    pub(crate) fn idle_before(&self, before: u32) -> impl Iterator<Item = u32> {
        self.idle.range(..before).copied()
    }

    /// Bytes of all idle segments except the last segment.
    pub(crate) fn idle_bytes(&self) -> u64 {
        let last = self.all.last_key_value().map_or(0, |(&last, _)| last);
        self.idle_before(last).filter_map(|number| self.all.get(&number)).map(|segment| segment.bytes).sum()
    }

    /// Segments to which units refer although their files are missing.
    pub(crate) fn missing(&self) -> impl Iterator<Item = u32> {
        let missing = self.all.iter().filter(|(_, segment)| segment.bytes == 0 && segment.payload > 0);
        missing.map(|(&number, _)| number)
    }

    /// Returns true if a segment is idle.
    pub(crate) fn is_idle(&self, number: u32) -> bool {
        self.idle.contains(&number)
    }

    /// Bytes of the log from a position on.
    pub(crate) fn bytes_since(&self, segment: u32, offset: u64) -> u64 {
        let all: u64 = self.all.range(segment..).map(|(_, segment)| segment.bytes).sum();
        if self.all.contains_key(&segment) { all.saturating_sub(offset) } else { all }
    }
}
