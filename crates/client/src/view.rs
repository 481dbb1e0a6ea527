//! The manager's answer for an open file: its layout, the state of its columns, and a grant for each. A view
//! is immutable: a refresh makes a new one, and a request in flight keeps its own until a drive says that it
//! is stale.

use braid_layout::{
    Column, ColumnMask, Component, DriveId, FileId, Generation, Layout, Lease, ObjectId, PartitionId,
    Segment, Stripe, Version, VolumeId,
};
use braid_plan::{Health, Target};
use braid_wire::Addresses;
use braid_wire::capability::Protection;
use braid_wire::control::{
    ByteRange, DriveState, EntryKind, Grant, HandlePromise, Opened, SegmentRow, StatRow,
};
use braid_wire::data::{Address, Attributes, ColumnMap};

use crate::data::quick::Templates;
use crate::data::recent::At;
use crate::error::{Error, Result};

/// An open file, as of one answer of the manager.
#[derive(Debug)]
pub(crate) struct FileView {
    pub(crate) file: FileId,
    pub(crate) volume: VolumeId,
    pub(crate) g: Generation,
    pub(crate) layout: Layout,
    pub(crate) segments: Vec<SegmentView>,
    /// The handle's lease; 0 for a reader.
    pub(crate) lease: Lease,
    /// True if other handles may write the same bytes too. For a heal: true if any handle writes.
    pub(crate) shared: bool,
    /// Bytes that the lease is for, while other handles write other bytes; `None` if it is for the whole
    /// file.
    pub(crate) range: Option<ByteRange>,
    /// Lease under which the file was cut last. Writes acknowledged under an earlier lease say nothing about
    /// the size.
    pub(crate) cut_at: Lease,
    /// Version of all units of a new layout that is being filled; `None` for any other layout.
    pub(crate) filling: Option<Version>,
    pub(crate) lease_ms: u32,
    pub(crate) expires_ms: u64,
    /// The reserved rate under which the file is open.
    pub(crate) promise: Option<HandlePromise>,
    /// Under a quota: one past the last byte that the handle may write before it asks for more.
    pub(crate) reach: Option<u64>,
    /// Number of the cluster that the file's objects are in; 0: none.
    pub(crate) cluster: u64,
    /// The other facts in the answer.
    pub(crate) stat: StatRow,
}

/// The columns of a segment.
#[derive(Debug)]
pub(crate) struct SegmentView {
    /// The segment's number at the manager and the drives.
    pub(crate) number: u32,
    pub(crate) set: ColumnMask,
    pub(crate) joining: ColumnMask,
    pub(crate) columns: Vec<ColumnView>,
    pub(crate) templates: Templates,
}

/// A column's drive, and the access to it.
#[derive(Debug)]
pub(crate) struct ColumnView {
    pub(crate) drive: DriveId,
    pub(crate) name: String,
    pub(crate) addresses: Addresses,
    /// The manager has not heard from the drive lately.
    pub(crate) listed_away: bool,
    /// Absent if the column is out.
    pub(crate) grant: Option<Grant>,
}

impl FileView {
    /// Checks that the answer is consistent. `subject` names the file in errors.
    pub(crate) fn new(subject: &str, opened: Opened) -> Result<FileView> {
        let wrong = |why: String| Error::Answer { subject: subject.to_owned(), why };
        let stat = opened.stat;
        if stat.kind() != EntryKind::File {
            return Err(wrong("a directory was opened as a file".to_owned()));
        }
        if opened.grants.len() != stat.segments.len() {
            return Err(wrong(format!(
                "grants for {} of {} segments",
                opened.grants.len(),
                stat.segments.len()
            )));
        }
        let layout = layout_of(&stat).map_err(wrong)?;
        let mut segments = Vec::with_capacity(stat.segments.len());
        for (row, grants) in stat.segments.iter().zip(opened.grants) {
            if grants.len() != row.columns.len() {
                return Err(wrong(format!("grants for {} of {} columns", grants.len(), row.columns.len())));
            }
            segments.push(SegmentView::new(row, grants));
        }
        Ok(FileView {
            file: stat.file,
            volume: stat.volume,
            g: stat.g,
            layout,
            segments,
            lease: opened.lease,
            shared: opened.shared,
            range: opened.range,
            cut_at: opened.cut_at,
            cluster: opened.cluster,
            filling: opened.filling,
            lease_ms: opened.lease_ms,
            expires_ms: opened.expires_ms,
            promise: opened.promise,
            reach: opened.reach,
            stat,
        })
    }

    /// Returns true if other handles write the file too.
    pub(crate) fn has_others(&self) -> bool {
        self.shared || self.range.is_some()
    }

    /// Returns true if the handle may write up to byte `end`.
    pub(crate) fn may_reach(&self, end: u64) -> bool {
        self.reach.is_none_or(|reach| end <= reach)
    }

    /// A stripe, under this view's lease and generation.
    pub(crate) fn at(&self, segment: usize, stripe: Stripe) -> At<'_> {
        let layout = &self.layout.segments()[segment];
        At { lease: self.lease, g: self.g, segment, layout, stripe }
    }

    /// The segment as the planner sees it, with the columns in `away` away.
    pub(crate) fn target(&self, segment: usize, away: ColumnMask) -> Target<'_> {
        let columns = &self.segments[segment];
        let health =
            Health { g: self.g, set: columns.set, joining: columns.joining, away: away.and(columns.set) };
        Target { segment: &self.layout.segments()[segment], index: segment, health }
    }

    /// Columns for which there is no grant.
    pub(crate) fn without_grant(&self, segment: usize) -> ColumnMask {
        let columns = self.segments[segment].columns.iter();
        (0..).map(Column).zip(columns).filter(|(_, c)| c.grant.is_none()).map(|(column, _)| column).collect()
    }

    /// The address of the column's object.
    pub(crate) fn address(&self, segment: usize, column: Column) -> Address {
        Address { partition: PartitionId::from(self.volume), object: self.object(segment, column) }
    }

    fn object(&self, segment: usize, column: Column) -> ObjectId {
        self.layout.segments()[segment].components[column.index()].object
    }

    /// The attributes with which the column's object is created.
    pub(crate) fn attributes(&self, segment: usize, column: Column) -> Attributes {
        let columns = &self.segments[segment];
        let shape = self.layout.segments()[segment].shape;
        let components = &self.layout.segments()[segment].components;
        Attributes {
            g: self.g,
            set: columns.set,
            joining: columns.joining,
            map: ColumnMap {
                file: self.file,
                segment: columns.number,
                scheme: shape.scheme().number(),
                k: shape.k(),
                m: shape.m(),
                unit_bytes: shape.unit_bytes(),
                column,
                drives: components.iter().map(|component| component.drive).collect(),
                objects: components.iter().map(|component| component.object).collect(),
            },
            size: 0,
            reach: 0,
            stored_bytes: 0,
            created_ms: self.stat.created_ms(),
            modified_ms: self.stat.created_ms(),
            reserve_bytes: 0,
            cluster: self.cluster,
            opaque: Vec::new(),
            base: ObjectId(0),
        }
    }
}

impl SegmentView {
    /// Columns whose drives the manager had not heard from lately.
    pub(crate) fn listed_away(&self) -> ColumnMask {
        let columns = (0..).map(Column).zip(&self.columns);
        columns.filter(|(_, one)| one.listed_away).map(|(column, _)| column).collect()
    }

    fn new(row: &SegmentRow, grants: Vec<Option<Grant>>) -> SegmentView {
        let columns = row.columns.iter().zip(grants).map(|(column, grant)| ColumnView {
            drive: column.drive,
            name: column.drive_name.clone(),
            addresses: match &grant {
                Some(grant) if grant.capability.protection != Protection::Integrity => {
                    column.addresses.in_tls()
                }
                _ => column.addresses.clone(),
            },
            listed_away: column.state != DriveState::Up,
            grant,
        });
        let columns = columns.collect();
        let templates = Templates::default();
        SegmentView { number: row.number, set: row.set, joining: row.joining, columns, templates }
    }
}

/// A file's layout, in the planner's form.
pub(crate) fn layout_of(stat: &StatRow) -> std::result::Result<Layout, String> {
    let mut segments = Vec::with_capacity(stat.segments.len());
    for row in &stat.segments {
        let shape = row.shape.shape().map_err(|error| error.to_string())?;
        let components = row.columns.iter().map(|c| Component { drive: c.drive, object: c.object }).collect();
        let outside = row.set.minus(ColumnMask::all(shape.width())).or(row.joining.minus(row.set));
        if !outside.is_empty() {
            return Err(format!("set {} and joining {} do not fit {shape}", row.set, row.joining));
        }
        segments.push(Segment { start: row.start, end: row.end, shape, components });
    }
    Layout::new(segments).map_err(|error| error.to_string())
}
