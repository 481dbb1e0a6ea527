//! Reservations over time: the books follow drives and layouts, and what is over ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_admission::{About, NewFiles};
use braid_layout::{DriveId, ReservationId};
use braid_meta::records::inodes;
use braid_meta::records::schema::{DriveShare, EntryRecord, InodeRecord, ReservationRecord, key};
use braid_meta::records::tx::Tx;
use braid_meta::rules::reservations::Target;
use braid_meta::tree::shapes::from_spec;
use braid_wire::control::EntryKind;
use braid_wire::{Reason, Refusal};

use crate::core::Core;
use crate::rates::booking::{on_record, segments_under};
use crate::rates::books::Books;

/// Returns true if a reservation's time is over, or nobody has claimed it in time.
pub(crate) fn is_over(record: &ReservationRecord, now_ms: u64) -> bool {
    record.ends_ms <= now_ms || record.claim_until_ms != 0 && record.claim_until_ms <= now_ms
}

/// Ends a reservation that is over, unless it was claimed meanwhile.
pub(crate) async fn end_over(core: &Arc<Core>, books: &mut Books, id: ReservationId) -> Result<(), Refusal> {
    end_if(core, books, id, is_over).await
}

/// Ends a reservation if this holds for its record, and the present time, when it is ended.
async fn end_if(
    core: &Arc<Core>,
    books: &mut Books,
    id: ReservationId,
    is_to_end: impl Fn(&ReservationRecord, u64) -> bool + Send + 'static,
) -> Result<(), Refusal> {
    let end = move |core: &Core, tx: &mut Tx| {
        let record: Option<ReservationRecord> = tx.record(&key::reservation(id))?;
        if record.is_some_and(|record| !is_to_end(&record, core.now_ms())) {
            return Ok(false);
        }
        tx.delete(key::reservation(id));
        Ok(true)
    };
    let keep = move |core: &Core, ended: &bool| {
        if *ended {
            drop(core.reservations().end(id));
        }
    };
    if core.write_then(end, keep).await? {
        books.remove(id);
    }
    Ok(())
}

/// Enters a reservation in the books as its files lie now, and notes what is at risk.
pub(crate) async fn follow(
    core: &Arc<Core>,
    books: &mut Books,
    record: ReservationRecord,
) -> Result<(), Refusal> {
    let id = record.reservation;
    let mut record = record;
    let before = record.clone();
    // A drive that took another's place takes its promises too.
    for drive in &mut record.drives {
        *drive = core.drives().successor(*drive);
    }
    let planned = record.drives.clone();
    let target = record.clone();
    if let Some(drives) = core.read(move |_, tx| lies_on(tx, &target)).await? {
        record.drives = drives;
    }
    let looked_at = record.clone();
    let about = match core.read(move |core, tx| about(core, tx, &looked_at)).await? {
        Found::Files(about) => about,
        Found::Nothing => {
            tracing::info!(reservation = %id, "what a rate was reserved for is gone: the reservation ends");
            return end_if(core, books, id, |_, _| true).await;
        }
        Found::Unknown(why) => {
            note_risk(
                core,
                id,
                format!("what lies below it cannot be priced, and what was booked stays: {why}"),
            );
            return Ok(());
        }
    };
    let entered = books.enter(&record, &about, core.now_ms());
    if entered.is_booked {
        // Drives that are only away hold the promise too: they come back.
        let known = on_successors(core, &record.booked);
        record.booked = entered.onto(&drives_of(&about), &known);
    } else {
        record.drives = planned;
    }
    if entered.is_whole {
        record.operation_bytes = entered.carried.operation_bytes;
    }
    if record != before {
        let drives = record.drives.clone();
        let booked = record.booked.clone();
        let operation_bytes = record.operation_bytes;
        let moved = move |_: &Core, tx: &mut Tx| {
            let record = on_record(tx, id)?;
            let record = record.map(|record| ReservationRecord { booked, drives, operation_bytes, ..record });
            record.iter().for_each(|record| tx.set(key::reservation(id), record));
            Ok(record)
        };
        let keep = |core: &Core, record: &Option<ReservationRecord>| {
            record.iter().for_each(|record| core.reservations().put(record.clone()));
        };
        core.write_then(moved, keep).await?;
    }
    let risk = if entered.is_booked {
        books.risk(&core.drives(), core.now_ms(), &record)
    } else {
        "files of it lie on drives that have no room for the rate: those are read and written as best effort"
            .to_owned()
    };
    note_risk(core, id, risk);
    Ok(())
}

/// The drives' shares, each at the drive that took its place.
fn on_successors(core: &Core, booked: &[DriveShare]) -> Vec<DriveShare> {
    let table = core.drives();
    let share = |share: &DriveShare| DriveShare { drive: table.successor(share.drive), ..share.clone() };
    booked.iter().map(share).collect()
}

/// Notes what is at risk for a reservation whose files were looked at not long ago.
pub(crate) fn look(core: &Core, books: &Books, record: &ReservationRecord) {
    let risk = books.risk(&core.drives(), core.now_ms(), record);
    note_risk(core, record.reservation, risk);
}

fn note_risk(core: &Core, id: ReservationId, risk: String) {
    let mut reservations = core.reservations();
    let Ok(known) = reservations.get(id) else { return };
    if known.risk != risk {
        match risk.as_str() {
            "" => tracing::info!(reservation = %id, "the rate is safe again"),
            risk => tracing::warn!(reservation = %id, risk, "the rate may not be kept"),
        }
        reservations.set_risk(id, risk);
    }
}

/// A reservation's files, as far as they can be told.
enum Found {
    /// The files, as the plan has them or as they exist. A directory may have none for a while.
    Files(About),
    /// Its place is gone.
    Nothing,
    /// There are too many, or they cannot be read; the text says why.
    Unknown(String),
}

/// The drives of a planned file that was made and lies on others now, as columns of it have moved: the plan
/// moves with them. `None`: it lies where it was planned, or what is there is no such file.
fn lies_on(tx: &Tx, record: &ReservationRecord) -> Result<Option<Vec<DriveId>>, Refusal> {
    if record.drives.is_empty() {
        return Ok(None);
    }
    let file = match Target::of(record) {
        Target::Node(file) => Some(file),
        Target::Name(directory, name) => {
            tx.record::<EntryRecord>(&key::entry(directory, &name))?.map(|entry| entry.file)
        }
    };
    let Some(file) = file else { return Ok(None) };
    let inode = inodes::find(tx, file)?.filter(|inode| inode.kind == EntryKind::File);
    let segments = inode.iter().flat_map(InodeRecord::in_force).collect::<Vec<_>>();
    let [segment] = segments.as_slice() else { return Ok(None) };
    let is_other = segment.shape == record.shape && segment.drives != record.drives;
    Ok(is_other.then(|| segment.drives.clone()))
}

/// The files of a reservation.
fn about(core: &Core, tx: &Tx, record: &ReservationRecord) -> Result<Found, Refusal> {
    let target = Target::of(record);
    let (Target::Node(at) | Target::Name(at, _)) = &target;
    let lives = inodes::find(tx, *at)?.is_some_and(|inode| inode.lives() && !inode.is_past());
    if !lives || tx.get(&key::volume(record.volume))?.is_none() {
        return Ok(Found::Nothing);
    }
    if record.drives.is_empty() {
        let segments = match target {
            Target::Node(file) => segments_under(core, tx, file),
            Target::Name(..) => Ok(Vec::new()),
        };
        return Ok(match segments {
            Ok(segments) => Found::Files(About::Segments(segments)),
            Err(refusal) if refusal.reason == Reason::NotFound => Found::Files(About::Segments(Vec::new())),
            Err(refusal) => Found::Unknown(refusal.detail),
        });
    }
    let shape = from_spec(&record.shape, &record.shape)?;
    Ok(Found::Files(About::Planned(NewFiles { shape, drives: record.drives.clone() })))
}

/// The drives that files have columns on, each once.
fn drives_of(about: &About) -> Vec<DriveId> {
    let drives: BTreeSet<DriveId> = match about {
        About::Segments(segments) => {
            segments.iter().flat_map(|segment| &segment.components).map(|component| component.drive).collect()
        }
        About::Planned(files) => files.drives.iter().copied().collect(),
        About::New(_) => BTreeSet::new(),
    };
    drives.into_iter().collect()
}
