//! Converts a unit to an entry of a checkpoint's page, and back.

use braid_layout::EndBound;

use crate::format::DecodeError;
use crate::format::record::Kind;
use crate::format::unit::{ContentEntry, KeepingEntry, Role, StepEntry, UnitEntry};
use crate::index::extent::Few;
use crate::index::owed::{Doubt, Owed};
use crate::index::parity::ChainDelta;
use crate::index::snapshots::KeptContent;
use crate::index::unit::{Content, Pending, Unit};

/// A unit's entry.
pub(super) fn unit_entry(number: u64, unit: &Unit) -> UnitEntry {
    let settled = unit.settled.iter().flat_map(|content| whole_entries(Role::Settled, content));
    let kept = unit.kept.iter().flat_map(kept_entries);
    let pending = unit.pending.iter().map(|pending| ContentEntry {
        role: Role::Pending,
        kind: pending.kind.into(),
        version: pending.version,
        columns: pending.columns,
        step: Some(StepEntry { previous: unit.settled_version(), own: pending.own, ..StepEntry::default() }),
        cover: pending.cover.to_vec(),
        ends: pending.ends.to_vec(),
        whole: pending.whole,
        ..ContentEntry::default()
    });
    let mut previous = unit.settled_version();
    let owed = unit.owed.iter().map(|owed| {
        let previous = std::mem::replace(&mut previous, owed.version);
        let step = StepEntry { previous, client: owed.client, operation: owed.operation, own: owed.own };
        let role = Role::Owed;
        let kind = Kind::Data;
        let version = owed.version;
        ContentEntry { role, kind, version, step: Some(step), ..ContentEntry::default() }
    });
    let deltas = unit.deltas.iter().map(|delta| ContentEntry {
        role: Role::Delta,
        kind: Kind::Delta,
        version: delta.to,
        column: delta.column,
        data: delta.data,
        settled: delta.settled,
        end: delta.end,
        step: Some(StepEntry {
            previous: delta.from,
            client: delta.client,
            operation: delta.operation,
            own: delta.own,
        }),
        ..ContentEntry::default()
    });
    let contents = settled.chain(kept).chain(pending).chain(owed).chain(deltas).collect();
    UnitEntry { unit: number, lost: unit.lost, epoch: unit.epoch, contents }
}

/// A version with all its extents, and its layers.
fn whole_entries(role: Role, content: &Content) -> Vec<ContentEntry> {
    let whole = ContentEntry {
        role,
        kind: content.kind.into(),
        version: content.version,
        columns: content.columns,
        cover: content.cover.to_vec(),
        ends: content.ends.iter().map(|&end| EndBound::exactly(end)).collect(),
        extents: content.extents.to_vec(),
        ..ContentEntry::default()
    };
    let layers = content.layers.iter().map(|layer| ContentEntry {
        role: Role::Layer,
        kind: Kind::Delta,
        extents: vec![*layer],
        ..ContentEntry::default()
    });
    std::iter::once(whole).chain(layers).collect()
}

fn kept_entries(kept: &KeptContent) -> Vec<ContentEntry> {
    let mut entries = match &kept.content {
        Ok(content) => whole_entries(Role::Kept, content),
        Err(_) => vec![ContentEntry { role: Role::Kept, kind: Kind::Data, ..ContentEntry::default() }],
    };
    let lost = kept.content.as_ref().err().copied();
    entries[0].keeping = Some(KeepingEntry { epoch: kept.epoch, until: kept.until, lost });
    entries
}

/// The number and unit of an entry.
pub(super) fn unit(entry: &UnitEntry) -> Result<(u64, Unit), DecodeError> {
    let mut unit = Unit { lost: entry.lost, epoch: entry.epoch, ..Unit::default() };
    for content in &entry.contents {
        let version = content.version;
        let kind = content.kind.write_kind();
        let columns = content.columns;
        let cover = content.cover.clone().into_boxed_slice();
        let ends = content.ends.iter().map(|end| end.after(0)).collect();
        match (content.role, &content.step) {
            (Role::Settled, None) if unit.settled.is_none() => {
                let extents = Few::from_slice(&content.extents);
                let layers = Vec::new();
                unit.settled = Some(Content { version, kind, columns, cover, ends, extents, layers });
            }
            (Role::Layer, None) if content.extents.len() == 1 => {
                let last = unit.kept.last_mut().map(|kept| kept.content.as_mut().ok());
                let base = last.unwrap_or(unit.settled.as_mut()).ok_or(MISPLACED)?;
                base.layers.extend(&content.extents);
            }
            (Role::Kept, None) => {
                let KeepingEntry { epoch, until, lost } = content.keeping.ok_or(MISPLACED)?;
                let extents = Few::from_slice(&content.extents);
                let layers = Vec::new();
                let whole = Content { version, kind, columns, cover, ends, extents, layers };
                let content = lost.map_or(Ok(whole), Err);
                unit.kept.push(KeptContent { content, epoch, until });
            }
            (Role::Pending, Some(step)) if unit.pending.is_none() => {
                let ends = content.ends.as_slice().into();
                let own = step.own;
                let whole = content.whole;
                unit.pending = Some(Box::new(Pending { version, kind, columns, cover, ends, own, whole }));
            }
            (Role::Owed, Some(step)) if unit.pending.is_none() => {
                let client = step.client;
                let operation = step.operation;
                let own = step.own;
                unit.owed.push(Owed { version, client, operation, own, doubt: Doubt::Reopened });
            }
            (Role::Delta, Some(step)) => unit.deltas.push(ChainDelta {
                column: content.column,
                data: content.data,
                from: step.previous,
                to: version,
                client: step.client,
                operation: step.operation,
                own: step.own,
                end: content.end,
                settled: content.settled,
            }),
            _ => return Err(MISPLACED),
        }
    }
    Ok((entry.unit, unit))
}

const MISPLACED: DecodeError = DecodeError::Malformed("a unit's versions do not go together");
