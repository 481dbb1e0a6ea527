//! The body of a `unit` entry: a unit's complete state (PROTOCOL section 2), version by version.

use braid_layout::{ClientId, Column, ColumnMask, EndBound, OperationNumber, Version};

use super::extent::{Extent, LogPosition};
use super::field::{
    SHORT, append, append_list, count, fields, get, length, numbered, put, split, split_list,
};
use super::record::Kind;
use super::{DecodeError, entry};

/// Bytes of the fixed part of the body; the contents follow.
pub const UNIT_BYTES: usize = 32;
/// Bytes of the fixed part of a content; its step, cover, ends and extents follow.
pub const CONTENT_BYTES: usize = 40;
/// Bytes of a step.
pub const STEP_BYTES: usize = 48;
/// Bytes of the fields that tell which snapshots see a content.
pub const KEEPING_BYTES: usize = 16;

fields! {
    /// The fixed part of a unit's body.
    UNIT_FIELDS of UnitEntry:
    .unit "unit" 0..8,
    U_LOST_AT "lost at" 8..16,
    U_CONTENTS "contents" 16..20,
    U_LOST "lost" 20..21,
    "reserved" 21..24,
    .epoch "epoch" 24..28,
    "reserved" 28..32,
}

fields! {
    /// The fixed part of a content.
    CONTENT_FIELDS of ContentEntry:
    .role "role" 0..1,
    .kind "kind" 1..2,
    C_COVER_COUNT "cover count" 2..3,
    "reserved" 3..4,
    C_EXTENTS "extents" 4..8,
    .version "version" 8..24,
    .columns "columns" 24..32,
    .column "column" 32..33,
    .data "data unit" 33..34,
    .settled "settled" 34..35,
    .whole "whole" 35..36,
    .end "end" 36..40,
}

fields! {
    /// A step: the addition by one write.
    STEP_FIELDS of StepEntry:
    .previous "previous" 0..16,
    .client "client" 16..24,
    .operation "operation" 24..32,
    .own "own" 32..48,
}

fields! {
    /// The snapshots that see a kept content.
    KEEPING_FIELDS of KeepingEntry:
    .epoch "epoch" 0..4,
    .until "until" 4..8,
    K_LOST_AT "lost at" 8..16,
}

numbered! {
    /// The role of a content in its unit. The number is part of the format.
    Role:
    /// The settled version.
    #[default]
    Settled = 1 "settled",
    /// The pending version on top of the settled one; it has a step.
    Pending = 2 "pending",
    /// An owed version, after those that it builds on; it has a step.
    Owed = 3 "owed",
    /// A parity delta, after those that it builds on; it has a step.
    Delta = 4 "delta",
    /// A delta that the settled or kept version before it counts in, to xor to its bytes: one extent.
    Layer = 5 "layer",
    /// A replaced settled version that snapshots still see; its entry tells which ones.
    Kept = 6 "kept",
}

impl Role {
    fn has_step(self) -> bool {
        matches!(self, Role::Pending | Role::Owed | Role::Delta)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnitEntry {
    pub unit: u64,
    /// Position of the damage that hit the unit; `None`: the unit is not lost.
    pub lost: Option<LogPosition>,
    /// The newest live snapshot when the settled version became settled; 0: there was none.
    pub epoch: u32,
    pub contents: Vec<ContentEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContentEntry {
    /// Role of the content in the unit.
    pub role: Role,
    /// The kind of the record that wrote the content: data, parity base, stripe parity or delta.
    pub kind: Kind,
    /// Identifies the version.
    pub version: Version,
    /// The columns that the write touched.
    pub columns: ColumnMask,
    /// A delta's data column.
    pub column: Column,
    /// The index of a delta's version in a cover.
    pub data: u8,
    /// True if a delta is known to be settled.
    pub settled: bool,
    /// True if a pending version is the unit's whole content: the content below it does not show.
    pub whole: bool,
    /// End of the data unit's bytes in a delta's version.
    pub end: u32,
    /// The step that the version's own write added. Only for pending and owed versions and deltas.
    pub step: Option<StepEntry>,
    /// The snapshots that see the version. Only for kept versions.
    pub keeping: Option<KeepingEntry>,
    /// Parity: the version counted in per data column.
    pub cover: Vec<Version>,
    /// For each version of the cover: bounds of the end of that data unit's bytes.
    pub ends: Vec<EndBound>,
    /// The places of the version's bytes.
    pub extents: Vec<Extent>,
}

/// The step that one write added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepEntry {
    /// The version below the step when it was written.
    pub previous: Version,
    /// The client that wrote the step.
    pub client: ClientId,
    /// The client's operation.
    pub operation: OperationNumber,
    /// The bytes of the write itself.
    pub own: Extent,
}

/// The range of snapshots that see a kept version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeepingEntry {
    /// The snapshots above this number, up to `until`, see the version.
    pub epoch: u32,
    /// The last snapshot that can see the version.
    pub until: u32,
    /// Position of damage that had hit the unit. The version's content is then unknown.
    pub lost: Option<LogPosition>,
}

impl UnitEntry {
    /// Appends the entry to `to`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let at = entry::begin(to, entry::UNIT);
        append(to, self);
        put(&mut to[at..], U_LOST_AT, self.lost.unwrap_or_default());
        put(&mut to[at..], U_LOST, self.lost.is_some());
        put(&mut to[at..], U_CONTENTS, length(self.contents.len()));
        self.contents.iter().for_each(|content| content.put(to));
        entry::end(to, at);
    }

    /// Decodes an entry's body and checks all of it.
    pub fn decode(body: &[u8]) -> Result<UnitEntry, DecodeError> {
        let (mut unit, mut rest) = split::<UnitEntry>(body)?;
        let is_lost = get(body, U_LOST)?;
        let lost = get(body, U_LOST_AT)?;
        unit.lost = if is_lost { Some(lost) } else { entry::not_lost(lost)? };
        for _ in 0..get::<u32>(body, U_CONTENTS)? {
            let (content, tail) = ContentEntry::take(rest)?;
            unit.contents.push(content);
            rest = tail;
        }
        if rest.is_empty() { Ok(unit) } else { Err(SHORT) }
    }
}

impl ContentEntry {
    fn put(&self, to: &mut Vec<u8>) {
        assert_eq!(self.step.is_some(), self.role.has_step(), "what is unsettled has a step");
        assert_eq!(self.cover.len(), self.ends.len(), "each data unit that is counted ends somewhere");
        assert_eq!(self.keeping.is_some(), self.role == Role::Kept, "what is kept says for whom");
        let at = to.len();
        append(to, self);
        put(&mut to[at..], C_COVER_COUNT, u8::try_from(self.cover.len()).expect("at most 64"));
        put(&mut to[at..], C_EXTENTS, length(self.extents.len()));
        self.step.iter().for_each(|step| append(to, step));
        if let Some(keeping) = &self.keeping {
            let at = to.len();
            append(to, keeping);
            put(&mut to[at..], K_LOST_AT, keeping.lost.unwrap_or_default());
        }
        append_list(to, &self.cover);
        append_list(to, &self.ends);
        append_list(to, &self.extents);
    }

    fn take(bytes: &[u8]) -> Result<(ContentEntry, &[u8]), DecodeError> {
        let (mut content, mut rest) = split::<ContentEntry>(bytes)?;
        if !content.kind.writes()
            || content.data >= 64
            || content.whole && content.role != Role::Pending
            || content.end > 0 && content.role != Role::Delta
        {
            return Err(DecodeError::Malformed("a content's kind"));
        }
        if content.role.has_step() {
            let (step, tail) = split::<StepEntry>(rest)?;
            step.own.check()?;
            (content.step, rest) = (Some(step), tail);
        }
        if content.role == Role::Kept {
            let (mut keeping, tail) = split::<KeepingEntry>(rest)?;
            let place: LogPosition = get(rest, K_LOST_AT)?;
            keeping.lost = if place.segment > 0 { Some(place) } else { entry::not_lost(place)? };
            if keeping.epoch >= keeping.until {
                return Err(DecodeError::Malformed("a kept version"));
            }
            (content.keeping, rest) = (Some(keeping), tail);
        }
        let (cover, rest) = split_list(rest, usize::from(get::<u8>(bytes, C_COVER_COUNT)?))?;
        let (ends, rest) = split_list::<EndBound>(rest, cover.len())?;
        let (extents, rest) = split_list::<Extent>(rest, count(get(bytes, C_EXTENTS)?))?;
        extents.iter().try_for_each(Extent::check)?;
        if cover.len() > 64
            || ends.iter().any(|end| !end.is_possible() || content.role != Role::Pending && !end.is_exact())
            || extents.windows(2).any(|pair| pair[0].to > pair[1].from)
        {
            return Err(DecodeError::Malformed("a content's lists"));
        }
        (content.cover, content.ends, content.extents) = (cover, ends, extents);
        Ok((content, rest))
    }
}
