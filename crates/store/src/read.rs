//! Reading units: what [`Store`] offers for their bytes.

use std::ops::Range;

use braid_layout::{ColumnMask, ObjectId, PartitionId, Version};
use bytes::Bytes;

use crate::crc::{block_crcs, crc32c};
use crate::error::Error;
use crate::files::Files;
use crate::index::Object;
use crate::index::extent::{Extent, clip};
use crate::index::query::Found;
use crate::index::slot::Slot;
use crate::mutation::WriteKind;
use crate::part::{self, Few, Stored, Whose};
use crate::store::Store;
use crate::view::{Held, View, ViewExtent, Want};

/// What an owed version changes, for the parity columns (PROTOCOL R3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwedDelta {
    /// The version it leads from.
    pub from_version: Version,
    /// The owed version.
    pub to_version: Version,
    /// First byte in the unit.
    pub from: u32,
    /// One past the last byte.
    pub to: u32,
    /// Who wrote.
    pub client: u64,
    /// The writer's operation.
    pub operation: u64,
    /// Old xor new.
    pub bytes: Bytes,
    /// Their CRC32C per block.
    pub crcs: Vec<u32>,
}

impl Store {
    /// Look up `range` of a unit; the bytes themselves are read through the view. A unit that was never written reads as
    /// one hole at version zero. A range past the unit's size, or an empty one, is [`Error::Malformed`]; a unit whose owed
    /// versions are in doubt [`Error::InDoubt`].
    pub fn read(
        &self,
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
        range: Range<u32>,
        want: Want,
    ) -> Result<View, Error> {
        self.look_up((partition, object), unit, &range, |owner, slot| {
            slot.wanted(want, &range, owner.attributes.unit_bytes)
        })
    }

    /// Like [`Store::read`], of a parity unit, the bytes for exactly the versions of `cover`: one per data unit of the stripe.
    /// [`Error::Gone`] if one of them is not on its chain here.
    pub fn read_cover(
        &self,
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
        range: Range<u32>,
        cover: &[Version],
    ) -> Result<View, Error> {
        self.look_up((partition, object), unit, &range, |owner, slot| {
            slot.unit().covered(cover, &range, owner.attributes.unit_bytes)
        })
    }

    /// Like [`Store::read`], what the snapshot `number` of the object sees. One that is not there (any more) is
    /// [`Error::NoSnapshot`]; a unit that had not been written reads as one hole at version zero.
    pub fn read_snapshot(
        &self,
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
        range: Range<u32>,
        number: u32,
    ) -> Result<View, Error> {
        self.look_up((partition, object), unit, &range, |owner, slot| {
            if !owner.has_snapshot(number) {
                return Err(Error::NoSnapshot { partition, object, number });
            }
            slot.unit().seen_by(number, &range)
        })
    }

    fn look_up(
        &self,
        (partition, object): (PartitionId, ObjectId),
        number: u64,
        range: &Range<u32>,
        find: impl FnOnce(&Object, &Slot) -> Result<Option<Found>, Error>,
    ) -> Result<View, Error> {
        let index = self.index();
        let owner = index.whole_object(partition, object)?;
        if range.is_empty() || range.end > owner.attributes.unit_bytes {
            return Err(Error::Malformed("a read's range is empty or past the unit's end"));
        }
        let mut view = View {
            version: Version::ZERO,
            pending: false,
            kind: WriteKind::Data,
            columns: ColumnMask::EMPTY,
            cover: Vec::new(),
            extents: Few::new(),
            held: Held::Files { pieces: Few::new(), blocks: Few::new() },
            g: owner.attributes.g,
            set: owner.attributes.set,
            joining: owner.attributes.joining,
        };
        let (mut parts, mut layers) = (Few::new(), Few::new());
        if let Some(found) = find(owner, owner.units.get(number).unwrap_or(&Slot::EMPTY))? {
            (view.version, view.pending, view.kind) = (found.version, found.pending, found.kind);
            (view.columns, view.cover) = (found.columns, found.cover);
            if let ([extent], []) = (&found.extents[..], &found.layers[..])
                && (extent.from, extent.to) == (range.start, range.end)
                && let Some(file) = self.files().look(extent.segment)
                && let Some((header, blocks)) = self.headers().find(extent, range)
            {
                let all = ViewExtent::Stored { from: range.start, to: range.end };
                if header.stored_blocks(range) == *range {
                    view.extents.push(all);
                    view.held = Held::Record { file, offset: header.offset_of(range.start), blocks };
                    return Ok(view);
                }
                if let [crc] = blocks[..] {
                    drop(index);
                    view.extents.push(all);
                    let bytes = part::read_in_block(&file, &header, crc, range)?;
                    let blocks = Few::from_elem(crc32c(&bytes), 1);
                    view.held = Held::Memory { bytes, blocks };
                    return Ok(view);
                }
            }
            (parts, layers) = (stored(self.files(), &found.extents)?, stored(self.files(), &found.layers)?);
        }
        // From here on the parts hold their files: the segments may be freed meanwhile.
        drop(index);
        let whose = self.whose(partition, object, number);
        let (parts, layers) =
            (part::load(parts, whose, Some(self.headers()))?, part::load(layers, whose, None)?);
        if !layers.is_empty() {
            let bytes = part::bytes_of(&parts, &layers, range)?;
            view.extents.push(ViewExtent::Stored { from: range.start, to: range.end });
            let blocks = block_crcs(range.start, &bytes).into();
            view.held = Held::Memory { bytes: bytes.into(), blocks };
            return Ok(view);
        }
        view.extents = part::extents(&parts, range);
        if part::is_at_hand(&parts) {
            let bytes = part::gather(&parts)?;
            let blocks = view.stored_crcs(&bytes);
            view.held = Held::Memory { bytes: bytes.into(), blocks };
        } else {
            let blocks = part::block_crcs(&parts, &view.extents)?;
            view.held = Held::Files { pieces: part::pieces(parts), blocks };
        }
        Ok(view)
    }

    /// What the owed version `version` of a data unit changes. [`Error::Chain`] if it is not owed (any more).
    pub fn delta(
        &self,
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
        version: Version,
    ) -> Result<OwedDelta, Error> {
        let index = self.index();
        let owner = index.whole_object(partition, object)?;
        let found = owner.unit(unit);
        found.wanted(Want::Exactly(version), &(0..0), owner.attributes.unit_bytes).map_err(|error| {
            match error {
                Error::Gone { tip, .. } => Error::Chain { tip },
                other => other,
            }
        })?;
        let step = found.owed_step(version).ok_or(Error::Chain { tip: found.tip_version() })?;
        let own = step.owed.own;
        let range = own.from..own.to;
        let under = stored(self.files(), &clip(&step.under, &range))?;
        let over = stored(self.files(), &[own])?;
        drop(found);
        drop(index);
        let whose = self.whose(partition, object, unit);
        let (under, over) = (part::load(under, whose, None)?, part::load(over, whose, None)?);
        let bytes = part::bytes_of(&under, &over, &range)?;
        Ok(OwedDelta {
            from_version: step.from,
            to_version: version,
            from: own.from,
            to: own.to,
            client: step.owed.client,
            operation: step.owed.operation,
            crcs: block_crcs(own.from, &bytes),
            bytes: bytes.into(),
        })
    }

    /// Read all of a unit's stored bytes, of every version, from the medium, and check them against their checksums: what the
    /// page cache has of them is dropped first, as far as the system does that. Gives the bytes read.
    pub fn verify_unit(&self, partition: PartitionId, object: ObjectId, unit: u64) -> Result<u64, Error> {
        let index = self.index();
        let owner = index.whole_object(partition, object)?;
        let found = owner.unit(unit);
        found.wanted(Want::Exactly(found.tip_version()), &(0..0), owner.attributes.unit_bytes)?;
        let pins = found.pins();
        let parts = stored(self.files(), &pins)?;
        drop(found);
        drop(index);
        for part in &parts {
            self.present(part.extent.segment)?;
        }
        part::drop_headers(&parts);
        let parts = part::load(parts, self.whose(partition, object, unit), None)?;
        part::drop_payloads(&parts);
        part::verify(&parts)
    }

    fn whose(&self, partition: PartitionId, object: ObjectId, unit: u64) -> Whose {
        Whose { salt: self.salt(), partition, object, unit }
    }
}

/// The stored extents with their files. The index must be locked, so that no file goes meanwhile.
pub(crate) fn stored(files: &Files, extents: &[Extent]) -> Result<Few<Stored>, Error> {
    let mut stored = Few::new();
    for &extent in extents.iter().filter(|extent| !extent.is_hole()) {
        stored.push(Stored { extent, file: files.get(extent.segment)? });
    }
    Ok(stored)
}
