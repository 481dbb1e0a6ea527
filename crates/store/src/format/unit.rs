//! The body of a `unit` entry: a unit's complete state (PROTOCOL section 2), version by version.

use braid_layout::Version;

use super::entry::{self, RESERVED, SHORT};
use super::extent::{EXTENT_BYTES, Extent, LogPosition};
use super::{DecodeError, FieldReader, VERSION_BYTES, fields, put, version_at, version_bytes};

/// Bytes of the fixed part of the body; the contents follow.
pub const UNIT_BYTES: usize = 32;
/// Bytes of the fixed part of a content; its step, cover and extents follow.
pub const CONTENT_BYTES: usize = 40;
/// Bytes of a step.
pub const STEP_BYTES: usize = 48;
/// Bytes of what says which snapshots see a content.
pub const KEEPING_BYTES: usize = 16;

fields! {
    /// The fixed part of a unit's body.
    UNIT_FIELDS:
    U_UNIT "unit" 0..8,
    U_LOST_SEGMENT "lost segment" 8..12,
    U_LOST_BLOCK "lost block" 12..16,
    U_CONTENTS "contents" 16..20,
    U_LOST "lost" 20..21,
    U_RESERVED "reserved" 21..24,
    U_EPOCH "epoch" 24..28,
    U_RESERVED_2 "reserved" 28..32,
}

fields! {
    /// The fixed part of a content.
    CONTENT_FIELDS:
    C_ROLE "role" 0..1,
    C_KIND "kind" 1..2,
    C_COVER_COUNT "cover count" 2..3,
    C_RESERVED_1 "reserved" 3..4,
    C_EXTENTS "extents" 4..8,
    C_VERSION "version" 8..24,
    C_COLUMNS "columns" 24..32,
    C_COLUMN "column" 32..33,
    C_DATA "data unit" 33..34,
    C_SETTLED "settled" 34..35,
    C_RESERVED_2 "reserved" 35..40,
}

fields! {
    /// A step: what one write added.
    STEP_FIELDS:
    S_PREVIOUS "previous" 0..16,
    S_CLIENT "client" 16..24,
    S_OPERATION "operation" 24..32,
    S_OWN "own" 32..48,
}

fields! {
    /// Which snapshots see a kept content.
    KEEPING_FIELDS:
    K_EPOCH "epoch" 0..4,
    K_UNTIL "until" 4..8,
    K_LOST_SEGMENT "lost segment" 8..12,
    K_LOST_BLOCK "lost block" 12..16,
}

/// The role of a content in its unit. The number is part of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The settled version.
    Settled,
    /// The pending version on top of the settled one; it has a step.
    Pending,
    /// An owed version, after those that it builds on; it has a step.
    Owed,
    /// A parity delta, after those that it builds on; it has a step.
    Delta,
    /// A delta that the settled or kept version before it counts in, to xor to its bytes: one extent.
    Layer,
    /// A replaced settled version that snapshots still see; it says which ones.
    Kept,
}

impl Role {
    /// All roles with their numbers and names in the document.
    pub const ALL: &[(Role, u8, &str)] = &[
        (Role::Settled, 1, "settled"),
        (Role::Pending, 2, "pending"),
        (Role::Owed, 3, "owed"),
        (Role::Delta, 4, "delta"),
        (Role::Layer, 5, "layer"),
        (Role::Kept, 6, "kept"),
    ];

    fn number(self) -> u8 {
        match self {
            Role::Settled => 1,
            Role::Pending => 2,
            Role::Owed => 3,
            Role::Delta => 4,
            Role::Layer => 5,
            Role::Kept => 6,
        }
    }

    fn has_step(self) -> bool {
        matches!(self, Role::Pending | Role::Owed | Role::Delta)
    }
}

/// A unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnitEntry {
    /// Which.
    pub unit: u64,
    /// Where damage was found that hit it; `None`: it is not lost.
    pub lost: Option<LogPosition>,
    /// The newest live snapshot when the settled version became settled; 0: there was none.
    pub epoch: u32,
    /// Its versions.
    pub contents: Vec<ContentEntry>,
}

/// One version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentEntry {
    /// Its role in the unit.
    pub role: Role,
    /// The kind of the record that wrote it: 1 to 4, as in the record.
    pub kind: u8,
    /// Identifies the version.
    pub version: Version,
    /// The columns its write touched, as a mask.
    pub columns: u64,
    /// A delta's data column.
    pub column: u8,
    /// The index of a delta's version in a cover.
    pub data: u8,
    /// Whether a delta is known to be settled.
    pub settled: bool,
    /// What its own write added. Only for pending and owed versions and deltas.
    pub step: Option<StepEntry>,
    /// Which snapshots see it. Only for kept versions.
    pub keeping: Option<KeepingEntry>,
    /// Parity: the version counted in per data column.
    pub cover: Vec<Version>,
    /// Where its bytes are.
    pub extents: Vec<Extent>,
}

/// What one write added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepEntry {
    /// The version below it when it was written.
    pub previous: Version,
    /// The client that wrote it.
    pub client: u64,
    /// The client's operation.
    pub operation: u64,
    /// The bytes of the write itself.
    pub own: Extent,
}

/// Which snapshots see a kept version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepingEntry {
    /// Snapshots after this one, ...
    pub epoch: u32,
    /// ... up to this one.
    pub until: u32,
    /// Where damage was found that had hit the unit. The version's content is then unknown.
    pub lost: Option<LogPosition>,
}

impl UnitEntry {
    /// Appends the entry to `to`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let at = entry::begin(to, entry::UNIT, UNIT_BYTES);
        let body = &mut to[at..];
        put(body, U_UNIT, self.unit.to_le_bytes());
        if let Some(place) = self.lost {
            put(body, U_LOST_SEGMENT, place.segment.to_le_bytes());
            put(body, U_LOST_BLOCK, place.block.to_le_bytes());
            put(body, U_LOST, [1]);
        }
        put(body, U_EPOCH, self.epoch.to_le_bytes());
        put(body, U_CONTENTS, u32::try_from(self.contents.len()).expect("bounded").to_le_bytes());
        self.contents.iter().for_each(|content| content.put(to));
        entry::end(to, at);
    }

    /// Decodes an entry's body and checks all of it.
    pub fn decode(body: &[u8]) -> Result<UnitEntry, DecodeError> {
        let (fixed, mut rest) = body.split_at_checked(UNIT_BYTES).ok_or(SHORT)?;
        let fixed = FieldReader(fixed);
        let place = LogPosition { segment: fixed.u32(U_LOST_SEGMENT), block: fixed.u32(U_LOST_BLOCK) };
        let lost = match fixed.u8(U_LOST) {
            0 if place.segment == 0 && place.block == 0 => None,
            1 => Some(place),
            _ => return Err(DecodeError::Malformed("a place of no damage")),
        };
        if !fixed.is_zero(U_RESERVED) || !fixed.is_zero(U_RESERVED_2) {
            return Err(RESERVED);
        }
        let mut contents = Vec::new();
        for _ in 0..fixed.u32(U_CONTENTS) {
            let (content, tail) = ContentEntry::take(rest)?;
            contents.push(content);
            rest = tail;
        }
        if !rest.is_empty() {
            return Err(SHORT);
        }
        Ok(UnitEntry { unit: fixed.u64(U_UNIT), lost, epoch: fixed.u32(U_EPOCH), contents })
    }
}

impl ContentEntry {
    fn put(&self, to: &mut Vec<u8>) {
        assert_eq!(self.step.is_some(), self.role.has_step(), "what is unsettled has a step");
        assert_eq!(self.keeping.is_some(), self.role == Role::Kept, "what is kept says for whom");
        let at = to.len();
        to.resize(at + CONTENT_BYTES, 0);
        let fixed = &mut to[at..];
        put(fixed, C_ROLE, [self.role.number()]);
        put(fixed, C_KIND, [self.kind]);
        put(fixed, C_COVER_COUNT, [u8::try_from(self.cover.len()).expect("at most 64")]);
        put(fixed, C_EXTENTS, u32::try_from(self.extents.len()).expect("bounded").to_le_bytes());
        put(fixed, C_VERSION, version_bytes(self.version));
        put(fixed, C_COLUMNS, self.columns.to_le_bytes());
        put(fixed, C_COLUMN, [self.column]);
        put(fixed, C_DATA, [self.data]);
        put(fixed, C_SETTLED, [u8::from(self.settled)]);
        if let Some(step) = &self.step {
            step.put(to);
        }
        if let Some(keeping) = &self.keeping {
            keeping.put(to);
        }
        self.cover.iter().for_each(|&version| to.extend_from_slice(&version_bytes(version)));
        self.extents.iter().for_each(|extent| extent.put(to));
    }

    fn take(bytes: &[u8]) -> Result<(ContentEntry, &[u8]), DecodeError> {
        let (fixed, mut rest) = bytes.split_at_checked(CONTENT_BYTES).ok_or(SHORT)?;
        let fixed = FieldReader(fixed);
        let role = fixed.u8(C_ROLE);
        let role = Role::ALL.iter().find(|(_, number, _)| *number == role).map(|&(role, _, _)| role);
        let role = role.ok_or(DecodeError::Malformed("unknown role"))?;
        if !fixed.is_zero(C_RESERVED_1) || !fixed.is_zero(C_RESERVED_2) {
            return Err(RESERVED);
        }
        let past = fixed.u8(C_COLUMN) >= 64 || fixed.u8(C_DATA) >= 64 || fixed.u8(C_SETTLED) > 1;
        if !(1..=4).contains(&fixed.u8(C_KIND)) || past {
            return Err(DecodeError::Malformed("a content's kind"));
        }
        let mut step = None;
        if role.has_step() {
            let (bytes, tail) = rest.split_at_checked(STEP_BYTES).ok_or(SHORT)?;
            (step, rest) = (Some(StepEntry::decode(&FieldReader(bytes))?), tail);
        }
        let mut keeping = None;
        if role == Role::Kept {
            let (bytes, tail) = rest.split_at_checked(KEEPING_BYTES).ok_or(SHORT)?;
            (keeping, rest) = (Some(KeepingEntry::decode(&FieldReader(bytes))?), tail);
        }
        let covers = usize::from(fixed.u8(C_COVER_COUNT)) * VERSION_BYTES;
        let (covers, rest) = rest.split_at_checked(covers).ok_or(SHORT)?;
        let extents = usize::try_from(fixed.u32(C_EXTENTS)).unwrap_or(usize::MAX).checked_mul(EXTENT_BYTES);
        let (extents, rest) = extents.and_then(|bytes| rest.split_at_checked(bytes)).ok_or(SHORT)?;
        let cover: Vec<Version> = covers.chunks_exact(VERSION_BYTES).map(version_at).collect();
        let extents =
            extents.chunks_exact(EXTENT_BYTES).map(Extent::decode).collect::<Result<Vec<_>, _>>()?;
        if cover.len() > 64 || extents.windows(2).any(|pair| pair[0].to > pair[1].from) {
            return Err(DecodeError::Malformed("a content's lists"));
        }
        let content = ContentEntry {
            role,
            kind: fixed.u8(C_KIND),
            version: fixed.version(C_VERSION),
            columns: fixed.u64(C_COLUMNS),
            column: fixed.u8(C_COLUMN),
            data: fixed.u8(C_DATA),
            settled: fixed.u8(C_SETTLED) == 1,
            step,
            keeping,
            cover,
            extents,
        };
        Ok((content, rest))
    }
}

impl StepEntry {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&version_bytes(self.previous));
        to.extend_from_slice(&self.client.to_le_bytes());
        to.extend_from_slice(&self.operation.to_le_bytes());
        self.own.put(to);
    }

    fn decode(view: &FieldReader<'_>) -> Result<StepEntry, DecodeError> {
        Ok(StepEntry {
            previous: view.version(S_PREVIOUS),
            client: view.u64(S_CLIENT),
            operation: view.u64(S_OPERATION),
            own: Extent::decode(&view.0[S_OWN])?,
        })
    }
}

impl KeepingEntry {
    fn put(&self, to: &mut Vec<u8>) {
        let mut bytes = [0; KEEPING_BYTES];
        put(&mut bytes, K_EPOCH, self.epoch.to_le_bytes());
        put(&mut bytes, K_UNTIL, self.until.to_le_bytes());
        if let Some(place) = self.lost {
            put(&mut bytes, K_LOST_SEGMENT, place.segment.to_le_bytes());
            put(&mut bytes, K_LOST_BLOCK, place.block.to_le_bytes());
        }
        to.extend_from_slice(&bytes);
    }

    fn decode(view: &FieldReader<'_>) -> Result<KeepingEntry, DecodeError> {
        let (epoch, until) = (view.u32(K_EPOCH), view.u32(K_UNTIL));
        let place = LogPosition { segment: view.u32(K_LOST_SEGMENT), block: view.u32(K_LOST_BLOCK) };
        if epoch >= until || (place.segment == 0 && place.block > 0) {
            return Err(DecodeError::Malformed("a kept version"));
        }
        Ok(KeepingEntry { epoch, until, lost: (place.segment > 0).then_some(place) })
    }
}
