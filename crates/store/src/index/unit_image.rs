//! Converts a unit to an entry of a checkpoint's page, and back.

use braid_layout::{Column, ColumnMask, Version};

use super::extent::Few;
use super::owed::Owed;
use super::parity::Delta;
use super::snapshots::Kept;
use super::unit::{Content, Pending, Unit};
use crate::format::DecodeError;
use crate::format::extent::Extent;
use crate::format::unit::{ContentEntry, KeepingEntry, Role, StepEntry, UnitEntry};
use crate::mutation::WriteKind;

/// A unit's entry.
pub(super) fn unit_entry(number: u64, unit: &Unit) -> UnitEntry {
    let settled = unit.settled.iter().flat_map(|content| whole_entries(Role::Settled, content));
    let kept = unit.kept.iter().flat_map(kept_entries);
    let pending = unit.pending.iter().map(|pending| ContentEntry {
        step: Some(step_entry(unit.settled_version(), (0, 0), &pending.own)),
        cover: pending.cover.to_vec(),
        ..content_entry(Role::Pending, kind_number(pending.kind), pending.version, pending.columns)
    });
    let mut previous = unit.settled_version();
    let owed = unit.owed.iter().map(|owed| {
        let from = std::mem::replace(&mut previous, owed.version);
        let step = Some(step_entry(from, (owed.client, owed.operation), &owed.own));
        ContentEntry { step, ..content_entry(Role::Owed, DATA, owed.version, ColumnMask::EMPTY) }
    });
    let deltas = unit.deltas.iter().map(|delta| ContentEntry {
        column: delta.column.0,
        data: delta.data,
        settled: delta.settled,
        step: Some(step_entry(delta.from, (delta.client, delta.operation), &delta.own)),
        ..content_entry(Role::Delta, DELTA, delta.to, ColumnMask::EMPTY)
    });
    let contents = settled.chain(kept).chain(pending).chain(owed).chain(deltas).collect();
    UnitEntry { unit: number, lost: unit.lost, epoch: unit.epoch, contents }
}

/// A version with all its extents, and its layers.
fn whole_entries(role: Role, content: &Content) -> Vec<ContentEntry> {
    let whole = ContentEntry {
        cover: content.cover.to_vec(),
        extents: content.extents.to_vec(),
        ..content_entry(role, kind_number(content.kind), content.version, content.columns)
    };
    let layers = content.layers.iter().map(|layer| ContentEntry {
        extents: vec![*layer],
        ..content_entry(Role::Layer, DELTA, Version::ZERO, ColumnMask::EMPTY)
    });
    std::iter::once(whole).chain(layers).collect()
}

fn kept_entries(kept: &Kept) -> Vec<ContentEntry> {
    let mut entries = match &kept.content {
        Ok(content) => whole_entries(Role::Kept, content),
        Err(_) => vec![content_entry(Role::Kept, DATA, Version::ZERO, ColumnMask::EMPTY)],
    };
    let lost = kept.content.as_ref().err().copied();
    entries[0].keeping = Some(KeepingEntry { epoch: kept.epoch, until: kept.until, lost });
    entries
}

/// A content entry with nothing but its role, kind, version and columns.
fn content_entry(role: Role, kind: u8, version: Version, columns: ColumnMask) -> ContentEntry {
    ContentEntry {
        role,
        kind,
        version,
        columns: columns.0,
        column: 0,
        data: 0,
        settled: false,
        step: None,
        keeping: None,
        cover: Vec::new(),
        extents: Vec::new(),
    }
}

fn step_entry(previous: Version, (client, operation): (u64, u64), own: &Extent) -> StepEntry {
    StepEntry { previous, client, operation, own: *own }
}

/// Numbers of record kinds.
const DATA: u8 = 1;
const DELTA: u8 = 4;

fn kind_number(kind: WriteKind) -> u8 {
    match kind {
        WriteKind::Data => DATA,
        WriteKind::ParityBase => 2,
        WriteKind::StripeParity => 3,
    }
}

/// The number and unit of an entry.
pub(super) fn unit(entry: &UnitEntry) -> Result<(u64, Unit), DecodeError> {
    let mut unit = Unit { lost: entry.lost, epoch: entry.epoch, ..Unit::default() };
    for content in &entry.contents {
        let kind = match content.kind {
            DATA => WriteKind::Data,
            2 => WriteKind::ParityBase,
            _ => WriteKind::StripeParity,
        };
        let (version, columns) = (content.version, ColumnMask(content.columns));
        let cover = content.cover.clone().into_boxed_slice();
        match (content.role, &content.step) {
            (Role::Settled, None) if unit.settled.is_none() => {
                let extents = Few::from_slice(&content.extents);
                let layers = Vec::new();
                unit.settled = Some(Content { version, kind, columns, cover, extents, layers });
            }
            (Role::Layer, None) if content.extents.len() == 1 => {
                let last = unit.kept.last_mut().map(|kept| kept.content.as_mut().ok());
                let base = last.unwrap_or(unit.settled.as_mut()).ok_or(MISPLACED)?;
                base.layers.extend(&content.extents);
            }
            (Role::Kept, None) => {
                let KeepingEntry { epoch, until, lost } = content.keeping.ok_or(MISPLACED)?;
                let extents = Few::from_slice(&content.extents);
                let whole = Content { version, kind, columns, cover, extents, layers: Vec::new() };
                let content = lost.map_or(Ok(whole), Err);
                unit.kept.push(Kept { content, epoch, until });
            }
            (Role::Pending, Some(step)) if unit.pending.is_none() => {
                let own = step.own;
                unit.pending = Some(Box::new(Pending { version, kind, columns, cover, own }));
            }
            (Role::Owed, Some(step)) if unit.pending.is_none() => {
                let (client, operation, own) = (step.client, step.operation, step.own);
                unit.owed.push(Owed { version, client, operation, own, doubt: true });
            }
            (Role::Delta, Some(step)) => unit.deltas.push(Delta {
                column: Column(content.column),
                data: content.data,
                from: step.previous,
                to: version,
                client: step.client,
                operation: step.operation,
                own: step.own,
                settled: content.settled,
            }),
            _ => return Err(MISPLACED),
        }
    }
    Ok((entry.unit, unit))
}

const MISPLACED: DecodeError = DecodeError::Malformed("a unit's versions do not go together");
