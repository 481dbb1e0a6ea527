//! Owed versions of a data column's unit (PROTOCOL R2 to R4): unit writes that some parity column may not
//! have yet.
//!
//! Each owed version stays a separate step until it is settled, so that all parity columns can be cut at the
//! same versions.

use braid_layout::{ClientId, OperationNumber, Version};

use crate::format::extent::Extent;
use crate::format::record::Record;
use crate::index::extent::{Few, lay_over, overlay};
use crate::index::unit::{Content, Unit, own_extent};
use crate::mutation::WriteKind;

/// An owed version, on top of the settled version or of the owed one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owed {
    /// Identifies the version.
    pub(crate) version: Version,
    /// The client that wrote the version.
    pub(crate) client: ClientId,
    /// The client's operation.
    pub(crate) operation: OperationNumber,
    /// The bytes of the version's own write.
    pub(crate) own: Extent,
    /// Doubt whether parity columns acknowledged the version without this store's knowledge.
    pub(crate) doubt: Doubt,
}

/// Doubt about an owed version: a parity column's acknowledgement may have been lost (PROTOCOL R4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// No doubt: the store has been open since the version was written.
    None,
    /// The version was owed when the store was opened.
    Reopened,
}

/// One owed version, and the content that it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwedStep {
    /// The version below the owed one.
    pub(crate) from: Version,
    /// The owed version.
    pub(crate) owed: Owed,
    /// The content below the owed version.
    pub(crate) under: Vec<Extent>,
}

impl Unit {
    /// Applies a unit write from the log. A pending tip is settled by it (C1).
    pub(crate) fn owe(&mut self, record: &Record, unit_bytes: u32, doubt: Doubt) {
        self.settle(unit_bytes);
        if record.previous != self.tip_version() && self.lost.is_none() {
            self.lost = Some(record.position());
        }
        let version = record.version;
        let client = record.client;
        let operation = record.operation;
        self.owed.push(Owed { version, client, operation, own: own_extent(record), doubt });
    }

    /// Settles the owed versions up to this one, as every parity column has them.
    pub(crate) fn settle_owed(&mut self, up_to: Version, unit_bytes: u32) {
        let Some(last) = self.owed.iter().position(|owed| owed.version == up_to) else { return };
        let columns = self.settled.as_ref().map_or(Default::default(), |content| content.columns);
        let mut extents = Few::from_slice(self.settled_extents());
        let settled: Vec<Extent> = self.owed.drain(..=last).map(|owed| owed.own).collect();
        for own in settled {
            self.heal(own, unit_bytes);
            lay_over(&mut extents, own);
        }
        let kind = WriteKind::Data;
        let cover = Box::default();
        let ends = Box::default();
        let layers = Vec::new();
        self.settled = Some(Content { version: up_to, kind, columns, cover, ends, extents, layers });
    }

    /// Takes back an owed version and all above it, and returns them.
    pub(crate) fn drop_owed(&mut self, from: Version) -> Vec<Owed> {
        match self.owed.iter().position(|owed| owed.version == from) {
            Some(first) => self.owed.split_off(first),
            None => Vec::new(),
        }
    }

    /// The owed version `version`, with the version and content that it was written on.
    pub(crate) fn owed_step(&self, version: Version) -> Option<OwedStep> {
        let at = self.owed.iter().position(|owed| owed.version == version)?;
        let below = &self.owed[..at];
        let owed = self.owed[at].clone();
        let from = below.last().map_or_else(|| self.settled_version(), |owed| owed.version);
        let settled = self.settled_extents().to_vec();
        let under = below.iter().fold(settled, |under, owed| overlay(&under, owed.own));
        Some(OwedStep { from, owed, under })
    }

    /// Returns true if an owed version is in doubt because the store was reopened.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.owed.iter().any(|owed| owed.doubt == Doubt::Reopened)
    }
}
