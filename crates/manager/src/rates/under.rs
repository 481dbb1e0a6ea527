//! The reservation under which a file is opened or made.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_layout::{ColumnMask, DriveId, FileId, ReservationId, Shape};
use braid_meta::records::schema::{InodeRecord, ReservationRecord, SegmentRecord, key};
use braid_meta::records::tx::Tx;
use braid_meta::rules::reservations::Target;
use braid_meta::rules::space::takes_columns;
use braid_meta::tree::view::Opener;
use braid_wire::Refusal;
use braid_wire::capability::DataDirection;
use braid_wire::control::{DriveState, NamePlace, ShapeSpec};

use crate::core::Core;
use crate::rates::follow::follow;

/// The reservation that an open is under. The first open claims it.
pub(crate) async fn over(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    opener: Opener,
) -> Result<Option<ReservationRecord>, Refusal> {
    let direction = match opener {
        Opener::Reader => DataDirection::Read,
        Opener::Writer(_) => DataDirection::Write,
        Opener::Filler(_) | Opener::Healer(_) => return Ok(None),
    };
    if core.reservations().is_empty() {
        return Ok(None);
    }
    let looked_at = inode.clone();
    let found = core
        .read(move |core, tx| {
            let reservations = core.reservations();
            Ok(reservations.over_file(tx, direction, file, &looked_at)?.cloned())
        })
        .await?;
    let now_ms = core.now_ms();
    let found = match found.filter(|record| record.ends_ms > now_ms) {
        Some(record) if record.claim_until_ms != 0 => claim(core, record.reservation).await?,
        found => found,
    };
    match found {
        Some(record) if has_moved(&record, file, inode) && is_safe(core, &record) => {
            follow_now(core, record).await
        }
        found => Ok(found),
    }
}

/// Returns true if the reservation is for this file alone, and it has columns on drives that promise nothing:
/// they have moved there.
fn has_moved(record: &ReservationRecord, file: FileId, inode: &InodeRecord) -> bool {
    let is_it = match Target::of(record) {
        Target::Node(node) => node == file,
        Target::Name(directory, name) => (inode.parent, &inode.name) == (directory, &name),
    };
    let has_other = |segment: &SegmentRecord| {
        segment.set.iter().any(|column| record.share(segment.drive(column)).is_none())
    };
    is_it && inode.in_force().any(has_other)
}

/// Returns true if nothing is known to be wrong with the reservation: else the books follow it in the
/// background, and not at each open.
fn is_safe(core: &Core, record: &ReservationRecord) -> bool {
    core.reservations().get(record.reservation).is_ok_and(|known| known.risk.is_empty())
}

/// Has the books follow a file now: who opens it gets the promise of the drives that its columns moved to.
async fn follow_now(
    core: &Arc<Core>,
    record: ReservationRecord,
) -> Result<Option<ReservationRecord>, Refusal> {
    let id = record.reservation;
    let mut books = core.books.lock().await;
    follow(core, &mut books, record).await?;
    Ok(core.reservations().get(id).ok().map(|known| known.record.clone()))
}

/// Notes durably that something was opened under a reservation: it is not given back before its end.
async fn claim(core: &Arc<Core>, id: ReservationId) -> Result<Option<ReservationRecord>, Refusal> {
    let claim = move |_: &Core, tx: &mut Tx| {
        let record: Option<ReservationRecord> = tx.record(&key::reservation(id))?;
        let claimed = record.map(|record| ReservationRecord { claim_until_ms: 0, ..record });
        if let Some(claimed) = &claimed {
            tx.set(key::reservation(id), claimed);
        }
        Ok(claimed)
    };
    let keep = |core: &Core, claimed: &Option<ReservationRecord>| {
        claimed.iter().for_each(|record| core.reservations().put(record.clone()));
    };
    core.write_then(claim, keep).await
}

/// The reservation that a file made at this place will be under.
pub(crate) fn over_new(core: &Core, tx: &Tx, at: &NamePlace) -> Result<Option<ReservationRecord>, Refusal> {
    let now_ms = core.now_ms();
    let reservations = core.reservations();
    Ok(reservations.over_new(tx, at)?.filter(|record| record.ends_ms > now_ms).cloned())
}

/// The shape that a reservation's plan has for new files; `None` if it has none.
pub(crate) fn plan_of(reserved: Option<&ReservationRecord>) -> Option<&ShapeSpec> {
    reserved.filter(|record| !record.drives.is_empty()).map(|record| &record.shape)
}

/// The drives of a file that is made under a reservation: those of its plan, if as many of them are up as its
/// shape can do with. `None`: the file is placed like any other, as it was given a layout of another width,
/// or one of the drives is to be avoided: it is drained, has no room, or has refused the file's bytes.
pub(crate) fn place(
    core: &Core,
    reserved: Option<&ReservationRecord>,
    shape: &Shape,
    avoid: &BTreeSet<DriveId>,
) -> Option<(Vec<DriveId>, ColumnMask)> {
    let record = reserved.filter(|record| record.drives.len() == usize::from(shape.width()))?;
    let now_ms = core.now_ms();
    let table = core.drives();
    let takes = |drive: &DriveId| {
        !avoid.contains(drive)
            && table
                .drive(*drive)
                .is_some_and(|known| table.state(*drive, now_ms) == DriveState::Away || takes_columns(known))
    };
    if !record.drives.iter().all(takes) {
        return None;
    }
    let states = || record.drives.iter().map(|&drive| table.state(drive, now_ms));
    let is_there = |state| matches!(state, DriveState::Up | DriveState::Away);
    if !states().all(is_there) {
        return None;
    }
    let columns = (0..shape.width()).map(braid_layout::Column);
    let out: ColumnMask = columns
        .zip(states())
        .filter(|(_, state)| *state != DriveState::Up)
        .map(|(column, _)| column)
        .collect();
    // After a restart a drive that was not heard from yet is not known to be away.
    if !out.is_empty() && !table.may_judge(now_ms) {
        return None;
    }
    (out.count() <= u32::from(shape.m())).then(|| (record.drives.clone(), out))
}
