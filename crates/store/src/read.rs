//! Reading units: the methods of [`Store`] for their bytes.

use std::ops::Range;

use braid_layout::{ClientId, ColumnMask, ObjectId, OperationNumber, PartitionId, Version};
use bytes::Bytes;

use crate::crc::block_crcs;
use crate::error::Error;
use crate::index::Object;
use crate::index::extent::{Few, bytes_end, clip, overlay};
use crate::index::found::Found;
use crate::index::list::{Listed, Listing};
use crate::index::locked::Reading;
use crate::index::query::Want;
use crate::index::slot::Slot;
use crate::index::unit::Unit;
use crate::mutation::WriteKind;
use crate::store::Store;
use crate::stored_extent::{self, Patience, ViewExtent, Whose, stored};
use crate::view::{View, ViewBytes};

/// The change that an owed version makes, for the parity columns (PROTOCOL R3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwedDelta {
    /// The version before the owed one.
    pub from_version: Version,
    /// The owed version.
    pub to_version: Version,
    /// One past the last byte of the unit in that version that is not in a hole; 0: it has only holes.
    pub end: u32,
    /// First byte in the unit.
    pub from: u32,
    /// One past the last byte.
    pub to: u32,
    pub client: ClientId,
    /// The writer's operation.
    pub operation: OperationNumber,
    /// The old bytes xor the new ones.
    pub bytes: Bytes,
    /// CRC32C of each 4 KiB block of `bytes`.
    pub crcs: Vec<u32>,
}

impl Store {
    /// Look up `range` of a unit. The bytes themselves are read through the view. A unit that was never
    /// written reads as one hole at version zero. [`Error::Malformed`] if the range is empty or exceeds the
    /// unit's size; [`Error::InDoubt`] if the unit's owed versions are in doubt.
    pub fn read(
        &self,
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
        range: Range<u32>,
        want: Want,
    ) -> Result<View, Error> {
        self.look_up(partition, object, unit, &range, Patience::Waits, self.index(), |owner, slot| {
            slot.wanted(want, &range, owner.attributes.unit_bytes)
        })
    }

    /// Like [`Store::read`], but never waits for a lock, a file or a byte: for callers that must not block.
    /// If it would have to wait: [`Error::WouldWait`]. After any error it is worth asking again by the call
    /// that waits. Read the bytes by [`View::read_at_once_into`].
    pub fn read_at_once(
        &self,
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
        range: Range<u32>,
        want: Want,
    ) -> Result<View, Error> {
        let index = self.try_index().ok_or(Error::WouldWait)?;
        self.look_up(partition, object, unit, &range, Patience::AtOnce, index, |owner, slot| {
            slot.wanted(want, &range, owner.attributes.unit_bytes)
        })
    }

    /// Like [`Store::read`] for a parity unit, with exactly the versions of `cover`: one per data unit of the
    /// stripe. [`Error::Gone`] if one of them is not on its chain here.
    pub fn read_cover(
        &self,
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
        range: Range<u32>,
        cover: &[Version],
    ) -> Result<View, Error> {
        self.look_up(partition, object, unit, &range, Patience::Waits, self.index(), |owner, slot| {
            slot.unit().covered(cover, &range, owner.attributes.unit_bytes)
        })
    }

    /// Up to `limit` units that match a listing. The search stops after looking at `looked_at` units, so that
    /// a call stays short however many do not match.
    pub fn list(
        &self,
        partition: PartitionId,
        object: ObjectId,
        list: Listing,
        limit: usize,
        looked_at: usize,
    ) -> Result<Listed, Error> {
        Ok(self.index().shown(partition, object)?.list(list, limit, looked_at))
    }

    fn look_up(
        &self,
        partition: PartitionId,
        object: ObjectId,
        number: u64,
        range: &Range<u32>,
        patience: Patience,
        index: Reading<'_>,
        find: impl FnOnce(&Object, &Slot) -> Result<Option<Found>, Error>,
    ) -> Result<View, Error> {
        let shown = index.shown(partition, object)?;
        let owner = shown.own;
        if range.is_empty() || range.end > owner.attributes.unit_bytes {
            return Err(Error::Malformed("a read's range is empty or past the unit's end"));
        }
        let mut view = View {
            version: Version::ZERO,
            pending: false,
            kind: WriteKind::Data,
            columns: ColumnMask::EMPTY,
            cover: Vec::new(),
            ends: Vec::new(),
            extents: Few::new(),
            held: ViewBytes::Files { pieces: Few::new(), blocks: Few::new() },
            g: owner.attributes.g,
            set: owner.attributes.set,
            joining: owner.attributes.joining,
        };
        let mut parts = Few::new();
        let mut layers = Few::new();
        let slot = shown.slot(number);
        let holder = slot.as_ref().map_or(object, |slot| slot.holder);
        if let Some(found) = find(owner, slot.as_deref().unwrap_or(&Slot::EMPTY))? {
            (view.version, view.pending, view.kind) = (found.version, found.pending, found.kind);
            (view.columns, view.cover, view.ends) = (found.columns, found.cover, found.ends.to_vec());
            parts = stored(self.files(), &found.extents, patience)?;
            layers = stored(self.files(), &found.layers, patience)?;
        }
        // The parts hold their files from here on, so the segments may be freed meanwhile.
        drop(slot);
        drop(index);
        let whose = self.whose(partition, holder, number);
        let parts = stored_extent::load(parts, whose, Some(self.headers()))?;
        let layers = stored_extent::load(layers, whose, None)?;
        if !layers.is_empty() {
            let bytes = stored_extent::bytes_of(&parts, &layers, range)?;
            view.extents.push(ViewExtent::Stored { from: range.start, to: range.end });
            let blocks = block_crcs(range.start, &bytes).into();
            view.held = ViewBytes::Memory { bytes: bytes.into(), blocks };
            return Ok(view);
        }
        view.extents = stored_extent::extents(&parts, range);
        if stored_extent::is_at_hand(&parts) {
            let bytes = stored_extent::gather(&parts)?;
            let blocks = view.stored_crcs(&bytes);
            view.held = ViewBytes::Memory { bytes: bytes.into(), blocks };
        } else {
            let blocks = stored_extent::block_crcs(&parts, &view.extents)?;
            view.held = ViewBytes::Files { pieces: stored_extent::pieces(parts), blocks };
        }
        Ok(view)
    }

    /// The change that the owed version `version` of a data unit makes. [`Error::Chain`] if it is not owed
    /// (any more).
    pub fn delta(
        &self,
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
        version: Version,
    ) -> Result<OwedDelta, Error> {
        self.owed_delta(partition, object, unit, version, Patience::Waits, self.index())
    }

    /// Like [`Store::delta`], but never waits: see [`Store::read_at_once`].
    pub fn delta_at_once(
        &self,
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
        version: Version,
    ) -> Result<OwedDelta, Error> {
        let index = self.try_index().ok_or(Error::WouldWait)?;
        self.owed_delta(partition, object, unit, version, Patience::AtOnce, index)
    }

    fn owed_delta(
        &self,
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
        version: Version,
        patience: Patience,
        index: Reading<'_>,
    ) -> Result<OwedDelta, Error> {
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
        let end = bytes_end(&overlay(&step.under, own));
        let under = stored(self.files(), &clip(&step.under, &range), patience)?;
        let over = stored(self.files(), &[own], patience)?;
        drop(found);
        drop(index);
        let whose = self.whose(partition, object, unit);
        let under = stored_extent::load(under, whose, None)?;
        let over = stored_extent::load(over, whose, None)?;
        let bytes = stored_extent::bytes_of(&under, &over, &range)?;
        Ok(OwedDelta {
            from_version: step.from,
            to_version: version,
            end,
            from: own.from,
            to: own.to,
            client: step.owed.client,
            operation: step.owed.operation,
            crcs: block_crcs(own.from, &bytes),
            bytes: bytes.into(),
        })
    }

    /// Read all stored bytes of a unit, of every version, from the medium, and verify their checksums. As far
    /// as the system allows, they are first dropped from the page cache. Returns the bytes read. What only
    /// stills show is not the object's: the stills are verified for it.
    pub fn verify_unit(&self, partition: PartitionId, object: ObjectId, unit: u64) -> Result<u64, Error> {
        let index = self.index();
        let shown = index.shown(partition, object)?;
        let Some(slot) = shown.slot(unit) else { return Ok(0) };
        let found = slot.unit();
        found.wanted(Want::Exactly(found.tip_version()), &(0..0), shown.own.attributes.unit_bytes)?;
        let pins = if found.kept.is_empty() {
            found.pins()
        } else {
            Unit { kept: Vec::new(), ..found.clone().into_owned() }.pins()
        };
        let parts = stored(self.files(), &pins, Patience::Waits)?;
        let whose = self.whose(partition, slot.holder, unit);
        drop(found);
        drop(slot);
        drop(index);
        for part in &parts {
            self.present(part.extent.segment)?;
        }
        stored_extent::drop_headers(&parts);
        let parts = stored_extent::load(parts, whose, None)?;
        stored_extent::drop_payloads(&parts);
        stored_extent::verify(&parts)
    }

    fn whose(&self, partition: PartitionId, object: ObjectId, unit: u64) -> Whose {
        Whose { salt: self.salt(), partition, object, unit }
    }
}
