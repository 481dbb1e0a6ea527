//! Requests about reservations: ask, list, extend, end, report.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::ReservationId;
use braid_meta::records::schema::{ReservationRecord, key};
use braid_meta::records::tx::Tx;
use braid_meta::rules::grants::CAPABILITY_MS;
use braid_meta::rules::operations::{Once, Operation, OperationResult};
use braid_meta::rules::reservations::{Reservation, Target};
use braid_meta::tree::volumes;
use braid_wire::codec::Wire;
use braid_wire::control::{
    ENDED_WAIT_MS, EndReservation, ExtendReservation, LatenessReport, RESERVATIONS_MAX, RateReserved,
    ReservationReply, ReservationRow, ReserveRate,
};
use braid_wire::frame::BODY_BYTES_MAX;
use braid_wire::{Reason, Refusal};
use tokio::time::sleep;

use crate::core::Core;
use crate::rates::booking::{self, Decision};
use crate::rates::books::Books;
use crate::rates::follow::follow;

/// Time in which something must be opened under a reservation that names none, in milliseconds.
const CLAIM_MS: u64 = 600_000;
/// Interval between two looks whether drives were told of reservations that have ended.
const ENDED_LOOK: Duration = Duration::from_millis(100);
/// Bytes of a reply's body in which rows of reservations are, and of drives; one row more is there at least.
const LISTED_BYTES_MAX: usize = BODY_BYTES_MAX as usize / 2;
/// The longest time for which a rate is reserved, in milliseconds: a year.
const DURATION_MAX_MS: u64 = 365 * 86_400_000;
/// The shortest and the longest period, in milliseconds.
const PERIOD_MS: std::ops::RangeInclusive<u32> = 10..=60_000;
/// The most streams of a reservation.
const STREAMS_MAX: u32 = 100_000;
/// The most drives that a reservation survives: the most parity columns that a file has.
const SURVIVE_MAX: u8 = 4;

/// Books a data rate, or says why not. A repeat of an operation that booked one is answered with it.
pub(crate) async fn reserve(
    core: &Arc<Core>,
    operation: Operation,
    request: ReserveRate,
) -> Result<RateReserved, Refusal> {
    check(&request)?;
    let began_ms = core.running_ms();
    let (mut books, decided) = loop {
        // One at a time: what is decided here is booked before the next is decided.
        let mut books = core.books.lock().await;
        let before = core.read(move |core, tx| core.recall(tx, operation)).await?;
        if let Some(OperationResult { number, .. }) = before {
            let id = ReservationId(number);
            return Ok(admitted(row(core, &books, id).await?, Vec::new()));
        }
        complete(core, &mut books).await?;
        let decided = booking::decide(core, &mut books, request.clone()).await?;
        let may_fit = matches!(decided, Decision::Refused(..)) && core.ended_rates().is_waiting();
        if !may_fit || core.running_ms().saturating_sub(began_ms) >= ENDED_WAIT_MS {
            break (books, decided);
        }
        drop(books);
        sleep(ENDED_LOOK).await;
    };
    let (record, booking, explanation) = match decided {
        Decision::Refused(refused, explanation) => {
            return Ok(RateReserved { admitted: None, refused: Some(refused), explanation });
        }
        Decision::Admitted { record, booking, explanation } => (*record, booking, explanation),
    };
    if request.trial {
        let now_ms = core.now_ms();
        let ends_ms = now_ms.saturating_add(request.duration_ms);
        let record = ReservationRecord { begun_ms: now_ms, ends_ms, ..record };
        let row = row_of(core, &books, Reservation::new(record), Some(&booking)).await?;
        return Ok(admitted(row, explanation));
    }
    let book = move |core: &Core, tx: &mut Tx| {
        let id = ReservationId(tx.next_number()?);
        let now_ms = core.now_ms();
        let claim_ms = if request.claim_ms == 0 { CLAIM_MS } else { request.claim_ms };
        let record = ReservationRecord {
            reservation: id,
            begun_ms: now_ms,
            ends_ms: now_ms.saturating_add(request.duration_ms),
            claim_until_ms: now_ms.saturating_add(claim_ms.min(request.duration_ms)),
            ..record
        };
        tx.set(key::reservation(id), &record);
        Ok((OperationResult { number: id.0, ..OperationResult::DONE }, record))
    };
    let keep = |core: &Core, record: &ReservationRecord| core.reservations().put(record.clone());
    let id = match core.once_then(operation, book, keep).await? {
        Once::Now(record) => {
            books.add(record.reservation, booking);
            record.reservation
        }
        Once::Before(OperationResult { number, .. }) => ReservationId(number),
    };
    Ok(admitted(row(core, &books, id).await?, explanation))
}

fn admitted(row: ReservationRow, explanation: Vec<String>) -> RateReserved {
    RateReserved { admitted: Some(row), refused: None, explanation }
}

/// Makes sure that all reservations are in the books, as after a start. Refused while one cannot be priced:
/// what is free is not known then.
async fn complete(core: &Arc<Core>, books: &mut Books) -> Result<(), Refusal> {
    books.refresh(&core.drives(), &mut core.ended_rates(), core.now_ms());
    let records: Vec<ReservationRecord> =
        core.reservations().iter().map(|known| known.record.clone()).collect();
    for record in records {
        let id = record.reservation;
        if books.booking(id).is_none() {
            follow(core, books, record).await?;
        }
        let has_drives = core.reservations().get(id).is_ok_and(|known| !known.record.booked.is_empty());
        if books.booking(id).is_none() && has_drives {
            let detail = format!(
                "reservation {id} cannot be priced before more drives are heard: try again, or end it (braid \
                 reserve rm {id})"
            );
            return Err(Refusal::new(Reason::Busy, detail));
        }
    }
    Ok(())
}

/// Refuses what no cluster could keep.
fn check(request: &ReserveRate) -> Result<(), Refusal> {
    let wrong = |detail: String| Err(Refusal::new(Reason::Range, detail));
    if request.rate == 0 {
        return wrong("a rate of 0 needs no reservation: ask for at least 1 byte a second".to_owned());
    }
    if request.streams == 0 || request.streams > STREAMS_MAX {
        return wrong(format!("a reservation has 1 to {STREAMS_MAX} streams, not {}", request.streams));
    }
    if !PERIOD_MS.contains(&request.period_ms) {
        return wrong(format!("a period is 10 ms to 60 s, not {} ms", request.period_ms));
    }
    if request.survive > SURVIVE_MAX {
        return wrong(format!(
            "files survive the loss of at most {SURVIVE_MAX} drives, not {}",
            request.survive
        ));
    }
    if request.duration_ms == 0 || request.duration_ms > DURATION_MAX_MS {
        return wrong("a rate is reserved for at least 1 ms and at most 365 days".to_owned());
    }
    Ok(())
}

/// Refuses a second reservation of the same target, and more than there may be.
pub(crate) fn refuse_second(core: &Core, request: &ReserveRate, target: &Target) -> Result<(), Refusal> {
    let reservations = core.reservations();
    if let Some(Reservation { record, .. }) = reservations.at(request.direction, target) {
        let id = record.reservation;
        let detail = format!(
            "reservation {id} is for the same name and direction: end it first (braid reserve rm {id}), or let it \
             end later (braid reserve extend {id})"
        );
        return Err(Refusal::new(Reason::Exists, detail));
    }
    if reservations.iter().count() >= RESERVATIONS_MAX {
        let detail =
            format!("there are {RESERVATIONS_MAX} reservations, as many as there may be: end some first");
        return Err(Refusal::new(Reason::Busy, detail));
    }
    Ok(())
}

/// The reservations after this one, as many as a reply takes, and what is booked on each drive.
pub(crate) async fn list(core: &Arc<Core>, after: ReservationId) -> Result<ReservationReply, Refusal> {
    let mut books = core.books.lock().await;
    books.refresh(&core.drives(), &mut core.ended_rates(), core.now_ms());
    let ids: Vec<ReservationId> = core.reservations().after(after).collect();
    let drives = books.drives(&core.drives());
    let mut reply = ReservationReply {
        reservations: Vec::new(),
        more: false,
        drives,
        share_permille: books.share_permille(),
    };
    let mut bytes = reply.to_bytes().len();
    for id in ids {
        // One that has just ended is left out.
        let Ok(row) = row(core, &books, id).await else { continue };
        bytes += row.to_bytes().len();
        if bytes > LISTED_BYTES_MAX && !reply.reservations.is_empty() {
            reply.more = true;
            break;
        }
        reply.reservations.push(row);
    }
    Ok(reply)
}

/// Sets a reservation's end. It was admitted with what it has, so its time needs no second decision.
pub(crate) async fn extend(core: &Arc<Core>, request: ExtendReservation) -> Result<RateReserved, Refusal> {
    if request.duration_ms == 0 || request.duration_ms > DURATION_MAX_MS {
        let detail = "a reservation goes on for at least 1 ms and at most 365 days: braid reserve rm ends it";
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    let books = core.books.lock().await;
    let id = request.reservation;
    core.reservations().get(id)?;
    let extend = move |core: &Core, tx: &mut Tx| {
        let record: Option<ReservationRecord> = tx.record(&key::reservation(id))?;
        let Some(record) = record else { return Ok(None) };
        let now_ms = core.now_ms();
        // Capabilities that are out are good until they expire.
        let given_out_ms = if record.claim_until_ms == 0 { now_ms + CAPABILITY_MS } else { now_ms };
        let ends_ms = now_ms.saturating_add(request.duration_ms).max(record.ends_ms.min(given_out_ms));
        let record = ReservationRecord { ends_ms, ..record };
        tx.set(key::reservation(id), &record);
        Ok(Some(record))
    };
    let keep = |core: &Core, record: &Option<ReservationRecord>| {
        record.iter().for_each(|record| core.reservations().put(record.clone()));
    };
    core.write_then(extend, keep).await?;
    Ok(admitted(row(core, &books, id).await?, Vec::new()))
}

/// Ends a reservation. A repeat finds it ended.
pub(crate) async fn end(
    core: &Arc<Core>,
    operation: Operation,
    request: EndReservation,
) -> Result<(), Refusal> {
    let id = request.reservation;
    let mut books = core.books.lock().await;
    let end = move |core: &Core, tx: &mut Tx| {
        core.reservations().get(id)?;
        tx.delete(key::reservation(id));
        Ok((OperationResult::DONE, ()))
    };
    let known = core.reservations().get(id).map(|known| known.record.clone());
    core.once_then(operation, end, move |core, ()| drop(core.reservations().end(id))).await?;
    match known {
        Ok(record) if record.claim_until_ms == 0 => {
            // Drives honour the capabilities that are out until they are told.
            let until_ms = record.ends_ms.min(core.now_ms() + CAPABILITY_MS);
            core.ended_rates().end(id, until_ms, record.drives_booked());
        }
        _ => books.remove(id),
    }
    Ok(())
}

/// Takes a client's report of how late its handles were.
pub(crate) fn report(core: &Core, report: &LatenessReport) -> Result<(), Refusal> {
    core.reservations().report(report, core.now_ms())
}

/// A reservation as clients see it.
async fn row(core: &Arc<Core>, books: &Books, id: ReservationId) -> Result<ReservationRow, Refusal> {
    let known = core.reservations().get(id)?.clone();
    row_of(core, books, known, books.booking(id)).await
}

async fn row_of(
    core: &Arc<Core>,
    books: &Books,
    known: Reservation,
    booking: Option<&braid_admission::Booking>,
) -> Result<ReservationRow, Refusal> {
    let volume_id = known.record.volume;
    let volume = core.read(move |_, tx| Ok(volumes::by_number(tx, volume_id)?.name)).await?;
    let plan = books.plan(&core.drives(), &known.record, booking);
    let lateness = known.lateness();
    let Reservation { record, risk, .. } = known;
    Ok(ReservationRow {
        reservation: record.reservation,
        volume,
        path: record.path,
        volume_id,
        file: record.file,
        direction: record.direction,
        rate: record.rate,
        streams: record.streams,
        period_ms: record.period_ms,
        survive: record.survive,
        begun_ms: record.begun_ms,
        ends_ms: record.ends_ms,
        claim_until_ms: record.claim_until_ms,
        plan,
        risk,
        lateness,
    })
}
