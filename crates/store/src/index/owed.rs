//! Owed versions of a data column's unit (PROTOCOL R2 to R4): unit writes that a parity column may not have yet.
//!
//! Each stays a step of its own until it is settled, so that every parity column can be cut at the same versions.

use braid_layout::Version;

use super::extent::{Extent, lay_over, overlay};
use super::unit::{Content, Place, Unit, own_extent};
use crate::format::record::Record;
use crate::mutation::WriteKind;
use crate::part::Few;

/// An owed version, on top of the settled one or of the owed one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owed {
    /// Its name.
    pub(crate) version: Version,
    /// Who wrote.
    pub(crate) client: u64,
    /// The writer's operation.
    pub(crate) operation: u64,
    /// What its own write brought.
    pub(crate) own: Extent,
    /// It was owed when the store was opened: it may have been acknowledged (PROTOCOL R4).
    pub(crate) doubt: bool,
}

/// What one owed version changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwedStep {
    /// The version below it.
    pub(crate) from: Version,
    /// The owed version.
    pub(crate) owed: Owed,
    /// The bytes below it.
    pub(crate) under: Vec<Extent>,
}

impl Unit {
    /// Take in a unit write that the log holds. A pending tip is settled by it (C1).
    pub(crate) fn owe(&mut self, record: &Record, place: Place, unit_bytes: u32, doubt: bool) {
        self.settle(unit_bytes);
        if record.previous != self.tip_version() && self.lost.is_none() {
            self.lost = Some(place);
        }
        let (version, client, operation) = (record.version, record.client, record.operation);
        self.owed.push(Owed { version, client, operation, own: own_extent(record, place), doubt });
    }

    /// Every parity column has the owed versions up to this one.
    pub(crate) fn settle_owed(&mut self, up_to: Version, unit_bytes: u32) {
        let Some(last) = self.owed.iter().position(|owed| owed.version == up_to) else { return };
        let columns = self.settled.as_ref().map_or(Default::default(), |content| content.columns);
        let mut extents = Few::from_slice(self.settled_extents());
        let settled: Vec<Extent> = self.owed.drain(..=last).map(|owed| owed.own).collect();
        for own in settled {
            self.heal(own, unit_bytes);
            lay_over(&mut extents, own);
        }
        let (kind, cover, layers) = (WriteKind::Data, Box::default(), Vec::new());
        self.settled = Some(Content { version: up_to, kind, columns, cover, extents, layers });
    }

    /// An owed version and all above it are taken back; they are returned.
    pub(crate) fn drop_owed(&mut self, from: Version) -> Vec<Owed> {
        match self.owed.iter().position(|owed| owed.version == from) {
            Some(first) => self.owed.split_off(first),
            None => Vec::new(),
        }
    }

    /// The owed version `version`, and what it was written on.
    pub(crate) fn owed_step(&self, version: Version) -> Option<OwedStep> {
        let at = self.owed.iter().position(|owed| owed.version == version)?;
        let (below, owed) = (&self.owed[..at], self.owed[at].clone());
        let from = below.last().map_or_else(|| self.settled_version(), |owed| owed.version);
        let settled = self.settled_extents().to_vec();
        let under = below.iter().fold(settled, |under, owed| overlay(&under, owed.own));
        Some(OwedStep { from, owed, under })
    }

    /// Whether an owed version is in doubt since the store was opened.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.owed.iter().any(|owed| owed.doubt)
    }
}
