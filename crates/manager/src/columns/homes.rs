//! Drives that may take a column of a segment, and the choice among them.

use braid_layout::placement::{Candidate, PlacementVersion, equals_beside};
use braid_layout::{Column, DriveId};
use braid_meta::records::frozen;
use braid_meta::records::inodes::{self, segment_of};
use braid_meta::records::schema::{ComponentPlace, InodeRecord, SegmentRecord, key};
use braid_meta::records::tx::Tx;
use braid_meta::rules::drives::Drive;
use braid_meta::rules::space::{candidate, takes_columns};
use braid_meta::rules::spread::Spread;
use braid_wire::{Reason, Refusal};

use crate::core::Core;

/// Chooses the drive that takes a column: one that is up, has room, holds nothing of the file, and whose host
/// does not get more columns of the file than one has now. Of equally good drives, the one that was given the
/// least.
pub(crate) fn choose(
    core: &Core,
    tx: &Tx,
    place: ComponentPlace,
    inode: &InodeRecord,
    spread: &Spread,
) -> Result<DriveId, Refusal> {
    let clean = candidates(core, tx, place, inode)?;
    let kept = kept(core, place, inode);
    let equals = equals_beside(PlacementVersion::V1, place.file.0, &kept, &clean).unwrap_or_default();
    let k = segment_of(inode, place).map_or(1, |segment| u64::from(segment.shape.k));
    spread.give(&equals, inode.size / k).ok_or_else(|| nowhere(core, place, inode))
}

pub(crate) fn nowhere(core: &Core, place: ComponentPlace, inode: &InodeRecord) -> Refusal {
    let detail = format!(
        "a column of {:?} (file {}) on {} can move nowhere: no other drive is up, has room, holds no other \
         column of it, nor of what snapshots show of it, and is on a host that has fewer: add a drive",
        braid_meta::tree::names::show_file(inode),
        place.file,
        core.drives().name(place.drive),
    );
    Refusal::new(Reason::TooFewDrives, detail)
}

/// The drives of the file's other columns.
pub(crate) fn kept(core: &Core, place: ComponentPlace, inode: &InodeRecord) -> Vec<Candidate> {
    let table = core.drives();
    let drives = segment_of(inode, place).map_or(&[][..], |segment| &segment.drives);
    let others = drives.iter().filter(|drive| **drive != place.drive);
    others.filter_map(|drive| table.drive(*drive)).map(candidate).collect()
}

/// The drives that may take a column now: fitting ones that hold nothing of its file.
pub(crate) fn candidates(
    core: &Core,
    tx: &Tx,
    place: ComponentPlace,
    inode: &InodeRecord,
) -> Result<Vec<Candidate>, Refusal> {
    let object = segment_of(inode, place).map(|segment| segment.object).unwrap_or_default();
    let mut clean = Vec::new();
    for candidate in fitting(core, place, inode)? {
        // Components of the file that are still to be freed there would be freed under the new column.
        // No column can be made where its object was removed and stills of it are left.
        if inodes::holds_nothing(tx, candidate.drive, place.file)?
            && !frozen::has_stills(tx, candidate.drive, place.file)?
            && tx.get(&key::remove(candidate.drive, place.file, object))?.is_none()
        {
            clean.push(candidate);
        }
    }
    Ok(clean)
}

/// The drives that may take a column, once they have freed all else of its file: they are up, have room and
/// no column of the segment, and no host gets more columns of it than one has now.
pub(crate) fn fitting(
    core: &Core,
    place: ComponentPlace,
    inode: &InodeRecord,
) -> Result<Vec<Candidate>, Refusal> {
    let Some(segment) = segment_of(inode, place) else {
        return Err(Refusal::new(Reason::NotFound, format!("file {} has no such segment", place.file)));
    };
    let kept = kept(core, place, inode);
    let now_ms = core.now_ms();
    let table = core.drives();
    let old = table.drive(place.drive).map(candidate);
    let on_host = |of: &Candidate| kept.iter().filter(|kept| kept.domain == of.domain).count();
    let most_now = kept
        .iter()
        .chain(&old)
        .map(|of| on_host(of) + usize::from(old.as_ref().is_some_and(|old| old.domain == of.domain)));
    let most_now = most_now.max().unwrap_or(1).max(1);
    let takes = |drive: &&Drive| takes_columns(drive) && !segment.drives.contains(&drive.record.drive);
    let takers = table.up(now_ms).into_iter().filter_map(|drive| table.drive(drive)).filter(takes);
    Ok(takers.map(candidate).filter(|candidate| on_host(candidate) < most_now).collect())
}

/// Returns true if a column can be made from the segment's other ready columns, also without one that is
/// lost.
pub(crate) fn can_be_made(segment: &SegmentRecord, column: Column, lost: Option<Column>) -> bool {
    let others = segment.ready().without(column);
    lost.map_or(others, |lost| others.without(lost)).count() >= u32::from(segment.shape.k)
}
