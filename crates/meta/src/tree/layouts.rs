//! The layouts of new files, and which of them are placed near each other.
//!
//! A new file lies as its maker says; else as the plan of the reservation over its place says; else as
//! the nearest directory above it that has a layout says; else as the volume says.
//!
//! A directory's own layout is in its record, and nothing is kept of it below. A layout is looked up
//! when a file is made, from the file's directory upwards, in as many steps as the tree is deep. So a
//! directory that is moved passes on what holds at its new place, and a change needs to touch one record
//! only. A volume's root has no layout of its own: what is set there is the volume's.

use braid_layout::{ColumnMask, FileId, ObjectId, Shape};
use braid_wire::control::{
    Clustering, EntryKind, LAYOUT_XATTR, LayoutFrom, LayoutReply, NamePlace, SetLayout, SetXattr, ShapeSpec,
    XattrHow,
};
use braid_wire::{Reason, Refusal};

use crate::records::inodes;
use crate::records::schema::{InodeRecord, SegmentRecord, VolumeRecord, key};
use crate::records::tx::Tx;
use crate::tree::directories::{Found, resolve_to_end};
use crate::tree::names::show;
use crate::tree::seen;
use crate::tree::shapes::{ChooseDrives, check_width, from_spec};
use crate::tree::volumes::{self, path_of};

/// The layout that counts for new files at a place, if their makers do not say otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// The shape, in full.
    pub shape: ShapeSpec,
    /// The directory that has it; `None`: it is the volume's.
    pub of: Option<FileId>,
    /// The small files that are placed near each other.
    pub clustering: Clustering,
    /// Number of the cluster of files made there; 0: none.
    pub cluster: u64,
}

/// The layout in force in a directory.
pub fn in_force(
    tx: &Tx,
    volume: &VolumeRecord,
    directory: FileId,
    inode: &InodeRecord,
) -> Result<InForce, Refusal> {
    let said = |inode: &InodeRecord, at: FileId| {
        let clustering = inode.clustering.map(|clustering| (at, clustering));
        (inode.layout.clone().map(|shape| (at, shape)), clustering)
    };
    let (mut layout, mut clustering) = said(inode, directory);
    let mut parent = inode.parent;
    while (layout.is_none() || clustering.is_none()) && parent != FileId(0) {
        let above = inodes::get(tx, parent)?;
        let found = said(&above, parent);
        layout = layout.or(found.0);
        clustering = clustering.or(found.1);
        parent = above.parent;
    }
    let of = layout.as_ref().map(|(at, _)| *at);
    let shape = layout.map_or_else(|| volume.shape.clone(), |(_, shape)| shape);
    let (at, clustering) = clustering.unwrap_or((FileId(0), Clustering::Nothing));
    let cluster = match clustering {
        Clustering::Nothing => 0,
        Clustering::Directory => directory.0,
        Clustering::Tree => at.0,
    };
    Ok(InForce { shape, of, clustering, cluster })
}

/// The layout of a new file in a directory, or in no directory: the shape that was asked for, with what it
/// leaves open from the plan of a reservation, or else from the layout in force.
pub fn for_new(
    tx: &Tx,
    volume: &VolumeRecord,
    directory: Option<&Found>,
    asked: &ShapeSpec,
    plan: Option<&ShapeSpec>,
) -> Result<InForce, Refusal> {
    let shape = volume.shape.clone();
    let of_volume = InForce { shape, of: None, clustering: Clustering::Nothing, cluster: 0 };
    let there = directory.map(|found| in_force(tx, volume, found.file, &found.inode)).transpose()?;
    let there = there.unwrap_or(of_volume);
    let base = match plan {
        _ if asked.k != 0 => InForce { shape: asked.clone(), of: None, ..there },
        Some(plan) => InForce { shape: plan.clone(), of: None, ..there },
        None => there,
    };
    let shape = ShapeSpec::from(from_spec(asked, &base.shape)?);
    Ok(InForce { shape, ..base })
}

/// Sets which small files are placed near each other in a directory and below it.
pub fn set_clustering(
    tx: &mut Tx,
    directory: FileId,
    clustering: Option<Clustering>,
    now_ms: u64,
) -> Result<(), Refusal> {
    let mut inode = inodes::get(tx, directory)?;
    if inode.kind != EntryKind::Directory {
        let detail =
            format!("{:?} is no directory: which files lie near each other is set there", show(&inode.name));
        return Err(Refusal::new(Reason::NotDirectory, detail));
    }
    if inode.clustering == clustering {
        return Ok(());
    }
    inode.clustering = clustering;
    inode.times.changed(now_ms);
    Ok(tx.set_inode(directory, &inode)?)
}

/// A refusal of a new file's drives that also names the directory whose layout needs so many.
pub fn blame(tx: &Tx, refusal: Refusal, of: Option<FileId>) -> Refusal {
    let Some(directory) = of.filter(|_| refusal.reason == Reason::TooFewDrives) else { return refusal };
    let path = inodes::get(tx, directory).and_then(|inode| path_of(tx, &inode));
    let Ok(path) = path else { return refusal };
    let detail = format!("{}, with braid layout set {path}, which says so", refusal.detail);
    Refusal { detail, ..refusal }
}

/// A change of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The new layout; with `k` 0 the one in force, in this unit. Of no meaning with [`XattrHow::Remove`].
    pub shape: ShapeSpec,
    /// The expectation of a directory's own layout, and whether it is taken away.
    pub how: XattrHow,
}

impl Change {
    /// The change that a value of the extended attribute [`LAYOUT_XATTR`] stands for; `None` if the request
    /// is for another attribute.
    pub fn of_xattr(set: &SetXattr) -> Result<Option<Change>, Refusal> {
        if set.name != LAYOUT_XATTR {
            return Ok(None);
        }
        if set.how == XattrHow::Remove {
            return Ok(Some(Change { shape: ShapeSpec::DEFAULT, how: set.how }));
        }
        let text = show(&set.value);
        let shape = Shape::from_text(&text)
            .map_err(|error| Refusal::new(Reason::BadScheme, format!("{text:?} is no layout: {error}")))?;
        Ok(Some(Change { shape: shape.into(), how: set.how }))
    }
}

impl From<&SetLayout> for Change {
    fn from(set: &SetLayout) -> Change {
        match &set.shape {
            Some(shape) => Change { shape: shape.clone(), how: XattrHow::Any },
            None => Change { shape: ShapeSpec::DEFAULT, how: XattrHow::Remove },
        }
    }
}

/// Changes the layout of a directory, or of its volume if it is the root. `drives` is the number of drives
/// that the cluster has.
pub fn set(
    tx: &mut Tx,
    directory: FileId,
    change: &Change,
    drives: usize,
    now_ms: u64,
) -> Result<(), Refusal> {
    let mut inode = inodes::get(tx, directory)?;
    if inode.kind != EntryKind::Directory {
        return Err(no_layout(&inode));
    }
    let mut volume = volumes::by_number(tx, inode.volume)?;
    if directory == volume.root {
        if change.how == XattrHow::Remove {
            let detail = format!(
                "volume {} always has a layout: give it another, with braid volume set {}",
                volume.name, volume.name
            );
            return Err(Refusal::new(Reason::NoXattr, detail));
        }
        volume.shape = fitting(&change.shape, &volume.shape, drives)?.into();
        tx.set(key::volume(volume.volume), &volume);
        return Ok(());
    }
    match (change.how, &inode.layout) {
        (XattrHow::Create, Some(_)) => {
            let detail = format!("{:?} has a layout of its own", show(&inode.name));
            return Err(Refusal::new(Reason::Exists, detail));
        }
        (XattrHow::Replace | XattrHow::Remove, None) => {
            let from = source(tx, &volume, in_force(tx, &volume, directory, &inode)?.of)?;
            let detail = format!("{:?} has no layout of its own: it has that of {from}", show(&inode.name));
            return Err(Refusal::new(Reason::NoXattr, detail));
        }
        (XattrHow::Remove, Some(_)) => inode.layout = None,
        _ => {
            let present = in_force(tx, &volume, directory, &inode)?.shape;
            inode.layout = Some(fitting(&change.shape, &present, drives)?.into());
        }
    }
    inode.times.changed(now_ms);
    Ok(tx.set_inode(directory, &inode)?)
}

/// Gives a file that was never written another layout. The caller has made sure that nobody holds its lease.
pub fn give(
    tx: &mut Tx,
    file: FileId,
    change: &Change,
    place: ChooseDrives<'_>,
    now_ms: u64,
) -> Result<(), Refusal> {
    let mut inode = inodes::get(tx, file)?;
    let name = show(&inode.name);
    let [old] = inode.segments.as_slice() else { return Err(has_bytes(&name)) };
    if inode.kind != EntryKind::File {
        return Err(no_layout(&inode));
    }
    if change.how == XattrHow::Remove {
        let detail =
            format!("{name:?} is a file, which always has a layout: braid relayout gives it another");
        return Err(Refusal::new(Reason::NotDirectory, detail));
    }
    let shape = from_spec(&change.shape, &old.shape)?;
    if ShapeSpec::from(shape) == old.shape {
        return Ok(());
    }
    if inode.size > 0 || inode.reserved > 0 || inode.all_touched() != Some(ColumnMask::EMPTY) {
        return Err(has_bytes(&name));
    }
    if old.ready() != old.all() || !inodes::moves(tx, file)?.is_empty() {
        let detail = format!(
            "a drive of {name:?} is away, or is being emptied: try again when it is back, or make the file anew"
        );
        return Err(Refusal::new(Reason::Leased, detail));
    }
    // Nothing was ever sent to its drives, so they have nothing to free.
    for place in inode.places(file).collect::<Vec<_>>() {
        inodes::vacate(tx, place)?;
    }
    let segment = first_segment(tx, file, &shape, place)?;
    inode.segments = vec![segment];
    inode.times.changed(now_ms);
    inodes::create(tx, file, &inode)
}

/// A new file's only segment.
pub fn first_segment(
    tx: &mut Tx,
    file: FileId,
    shape: &Shape,
    place: ChooseDrives<'_>,
) -> Result<SegmentRecord, Refusal> {
    let object = ObjectId(tx.next_number()?);
    let (drives, out) = place(file.0, shape)?;
    Ok(SegmentRecord {
        number: 0,
        start: 0,
        end: u64::MAX,
        shape: (*shape).into(),
        object,
        drives,
        set: ColumnMask::all(shape.width()).minus(out),
        joining: ColumnMask::EMPTY,
        filling: None,
    })
}

/// The layout of the file at a place, or of new files in the directory there.
pub fn of(tx: &Tx, at: &NamePlace) -> Result<LayoutReply, Refusal> {
    let mut found = resolve_to_end(tx, at)?;
    match found.inode.kind {
        EntryKind::Directory => {
            let found = found.changeable(at)?;
            let InForce { shape, of, clustering, .. } =
                in_force(tx, &found.volume, found.file, &found.inode)?;
            let from = if of.is_some() { LayoutFrom::Directory } else { LayoutFrom::Volume };
            let path = source(tx, &found.volume, of)?;
            Ok(LayoutReply { shape, from, of: of.unwrap_or_default(), path, clustering })
        }
        EntryKind::File => {
            if let Some(within) = found.within {
                found.inode = seen::with_bytes(tx, found.file, &found.inode, within.number)?.1;
            }
            let shape = found.inode.in_force().next().map(|segment| segment.shape.clone());
            let shape = shape.ok_or_else(|| inodes::damaged(found.file, "it has no segment"))?;
            let path = path_of(tx, &found.inode)?;
            let is_clustered = found.inode.cluster != 0;
            let clustering = if is_clustered { Clustering::Directory } else { Clustering::Nothing };
            Ok(LayoutReply { shape, from: LayoutFrom::File, of: found.file, path, clustering })
        }
        _ => Err(no_layout(&found.inode)),
    }
}

/// The directory that has a layout, or the volume, as users write them.
fn source(tx: &Tx, volume: &VolumeRecord, of: Option<FileId>) -> Result<String, Refusal> {
    match of {
        Some(directory) => path_of(tx, &inodes::get(tx, directory)?),
        None => Ok(format!("braid://{}", volume.name)),
    }
}

/// The shape that was asked for; refused if it needs more drives than there are.
fn fitting(asked: &ShapeSpec, present: &ShapeSpec, drives: usize) -> Result<Shape, Refusal> {
    let shape = from_spec(asked, present)?;
    check_width(&shape, drives)?;
    Ok(shape)
}

fn no_layout(inode: &InodeRecord) -> Refusal {
    let detail = format!("{:?} is neither file nor directory, and has no layout", show(&inode.name));
    Refusal::new(Reason::NotFile, detail)
}

fn has_bytes(name: &str) -> Refusal {
    let detail = format!("{name:?} has been written: braid relayout lays it out anew");
    Refusal::new(Reason::Written, detail)
}
