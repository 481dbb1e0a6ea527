//! Reading ahead: where the bytes lie that a sequential reader will ask for next, and having them read into
//! the system's cache.
//!
//! Nothing is served from here. A reader looks its unit up in the index as always, and finds the bytes in the
//! cache if they are still the unit's content. So what was read ahead cannot be stale: if the unit was
//! written meanwhile, its bytes lie elsewhere in the log.

use std::ops::Range;
use std::sync::Arc;

use braid_layout::{ObjectId, PartitionId};

use crate::clean::clusters::OBJECT_BYTES_MAX;
use crate::crc::BLOCK_BYTES;
use crate::error::Error;
use crate::files::Open;
use crate::format::extent::Extent;
use crate::format::record::{FIXED_BYTES, PAGE_BYTES};
use crate::format::{LOG_BLOCK_U64, padded_u64};
use crate::index::query::Want;
use crate::mutation::WriteKind;
use crate::store::Store;
use crate::stored_extent::{Patience, stored};

/// Stretches that one look finds at most: an object in more pieces is not worth reading ahead.
const STRETCHES_MAX: usize = 256;

/// The units that a sequential reader asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Those of data: where columns rotate, a reader passes over the parity between them.
    Data,
    All,
}

/// Bytes of a file that are read ahead in one piece.
#[derive(Debug, Clone)]
pub struct Stretch {
    file: Arc<Open>,
    range: Range<u64>,
}

impl Stretch {
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns true if reading it would not wait for the disk, as far as the system tells.
    pub fn is_cached(&self) -> bool {
        self.file.is_cached(self.range.clone())
    }

    /// Tells the disk that it will be read, without waiting.
    pub fn begin(&self) {
        self.file.will_read(self.range.clone());
    }

    /// Reads it into the system's cache, and waits for the disk.
    pub fn read(&self) -> Result<(), Error> {
        self.file.read_ahead(self.range.clone()).map_err(|error| Error::io("read ahead", error))
    }
}

/// A part of the log that is read in one sweep, for the small objects of a cluster that lie in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Area {
    /// The segment of the log.
    pub segment: u32,
    /// Number of the area in it.
    pub number: u64,
    /// Bytes of the area.
    pub bytes: u64,
}

impl Store {
    /// The area, of this many bytes, with the first bytes of a small object that has a cluster. `None`: it
    /// has no cluster, is large, or holds nothing.
    pub fn area_of(&self, partition: PartitionId, object: ObjectId, bytes: u64) -> Option<Area> {
        let index = self.index();
        let shown = index.shown(partition, object).ok()?;
        if shown.own.attributes.cluster() == 0 || shown.own.bytes > OBJECT_BYTES_MAX || bytes == 0 {
            return None;
        }
        let unit = shown.own.attributes.unit_bytes;
        let content = shown.slot(0)?.wanted(Want::Newest, &(0..unit), unit).ok()??;
        let extent = content.extents.iter().find(|extent| !extent.is_hole())?;
        let number = u64::from(extent.block) * LOG_BLOCK_U64 / bytes;
        Some(Area { segment: extent.segment, number, bytes })
    }

    /// The bytes of an area, as far as the log has them.
    pub fn area(&self, area: Area) -> Result<Stretch, Error> {
        let file = self.files().get(area.segment)?;
        let begin = area.number * area.bytes;
        let length = file.length().map_err(|error| Error::io("look at a segment", error))?;
        Ok(Stretch { file, range: begin..(begin + area.bytes).min(length) })
    }

    /// The places of the disk that have the newest content of the object's bytes `range`, its units one after
    /// the other, with the headers of their records. Places less than `gap_bytes` apart are one stretch: to
    /// read what lies between is less work than to go there. Where a record was written over in part, the
    /// places are estimates. Empty if nothing is stored there.
    pub fn ahead(
        &self,
        partition: PartitionId,
        object: ObjectId,
        range: Range<u64>,
        wanted: Wanted,
        gap_bytes: u64,
    ) -> Result<Vec<Stretch>, Error> {
        let index = self.index();
        let shown = index.shown(partition, object)?;
        let unit = shown.own.attributes.unit_bytes;
        let unit_bytes = u64::from(unit);
        let mut found = Vec::new();
        for number in range.start / unit_bytes..range.end.div_ceil(unit_bytes) {
            let Some(slot) = shown.slot(number) else { continue };
            // The whole unit: a piece begins where its record does, unless it was written over.
            let Ok(Some(content)) = slot.wanted(Want::Newest, &(0..unit), unit) else { continue };
            if wanted == Wanted::Data && content.kind != WriteKind::Data {
                continue;
            }
            let begin = number * unit_bytes;
            let within =
                |at: u64| u32::try_from(at.saturating_sub(begin).min(unit_bytes)).unwrap_or(u32::MAX);
            let within = within(range.start)..within(range.end);
            for part in stored(self.files(), &content.extents, Patience::Waits)? {
                if let Some(range) = place(&part.extent, &within) {
                    found.push(Stretch { file: part.file, range });
                }
            }
            if found.len() >= STRETCHES_MAX {
                break;
            }
        }
        drop(index);
        Ok(merged(found, gap_bytes))
    }
}

/// The place of the unit's bytes `within` that the extent has, in its segment; with its record's header, if
/// the extent's first byte is among them. `None`: it has none of them.
fn place(extent: &Extent, within: &Range<u32>) -> Option<Range<u64>> {
    let part = extent.clip(within)?;
    let blocks = (extent.to - extent.from).div_ceil(BLOCK_BYTES) + 1;
    let fixed = u64::try_from(FIXED_BYTES).expect("small");
    // Long payloads begin at the next page.
    let page = u64::try_from(PAGE_BYTES).expect("small");
    let header = padded_u64(fixed + u64::from(blocks) * 4) + page;
    let record = u64::from(extent.block) * LOG_BLOCK_U64;
    let begin = record + if part.from == extent.from { 0 } else { u64::from(part.from - extent.from) };
    Some(begin..record + header + u64::from(part.to - extent.from))
}

/// The stretches in the order in which they lie, with those merged that are less than `gap_bytes` apart.
fn merged(mut found: Vec<Stretch>, gap_bytes: u64) -> Vec<Stretch> {
    found.sort_by_key(|stretch| (stretch.file.number, stretch.range.start));
    found.dedup_by(|next, last| {
        let is_near = next.file.number == last.file.number
            && next.range.start <= last.range.end.saturating_add(gap_bytes);
        if is_near {
            last.range.end = last.range.end.max(next.range.end);
        }
        is_near
    });
    found.truncate(STRETCHES_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_has_its_header_if_it_begins_the_record() {
        let extent = Extent { from: 0, to: 64 << 10, segment: 1, block: 8 };
        // 256 bytes and 17 checksums are one block of the log.
        assert_eq!(place(&extent, &(0..4096)), Some(4096..4096 + 512 + 4096 + 4096));
        assert_eq!(place(&extent, &(4096..65_536)), Some(8192..4096 + 512 + 4096 + 65_536));
        assert_eq!(place(&extent, &(65_536..70_000)), None);
    }
}
