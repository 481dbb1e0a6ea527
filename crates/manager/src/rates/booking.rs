//! The books: the bookings of all drives. Reservations on record are entered here at a start, and again when
//! drives or layouts have changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_admission::{About, Answer, Ask, Ledger, NewFiles, Offer, Part, Refused, Resource, Wish};
use braid_layout::{Component, DriveId, ObjectId, ReservationId, Segment, Shape};
use braid_meta::records::inodes;
use braid_meta::records::schema::{DriveShare, InodeRecord, ReservationRecord, key};
use braid_meta::records::tx::Tx;
use braid_meta::rules::reservations::Target;
use braid_meta::tree::directories;
use braid_meta::tree::layouts::in_force;
use braid_meta::tree::shapes::from_spec;
use braid_wire::capability::DataDirection;
use braid_wire::control::{CounterOffer, EntryKind, NotAdmitted, ReserveRate, ShapeSpec};
use braid_wire::{Reason, Refusal};

use crate::asker::asker;
use crate::core::Core;
use crate::rates::books::{Books, SHARE_PERMILLE, client_parts, cost_of, lateness_ns, policy, rail, terms};
use crate::rates::reserve::refuse_second;

/// The most files and directories below a directory that a rate for reading can be for.
const FILES_MAX: usize = 10_000;
/// Shortest time after which a reader gives up a drive that is silent, as clients have it.
const FAILOVER_READ_US: u64 = 50_000;
/// Time for a procedure on a file whose drives keep their promises, and for what was under way to be sent
/// again.
const PROCEDURE_US: u64 = 1_000_000;

/// The decision on a request for a rate.
pub(crate) enum Decision {
    Admitted { record: Box<ReservationRecord>, booking: braid_admission::Booking, explanation: Vec<String> },
    Refused(NotAdmitted, Vec<String>),
}

/// The subject of a rate: its target, and the files there.
struct Subject {
    target: Target,
    volume: braid_layout::VolumeId,
    /// Redundancy of new files of the volume.
    parity: u8,
    about: What,
}

/// The files that are read or written under a reservation.
enum What {
    /// Files that exist.
    Segments(Vec<Segment>),
    /// A file that exists, and those that take its place: in its layout, on its drives.
    Again(NewFiles),
    /// Files that are to be made.
    New,
}

/// Decides on a request for a rate. Nothing is booked yet.
pub(crate) async fn decide(
    core: &Arc<Core>,
    books: &mut Books,
    request: ReserveRate,
) -> Result<Decision, Refusal> {
    let asked = request.clone();
    let subject = core.read(move |core, tx| subject(core, tx, &asked)).await?;
    refuse_second(core, &request, &subject.target)?;
    books.refresh(&core.drives(), &mut core.ended_rates(), core.now_ms());
    let about = match &subject.about {
        What::Segments(segments) => About::Segments(segments.clone()),
        What::Again(files) => About::Planned(files.clone()),
        What::New => About::New(wish(&request.shape, subject.parity)?),
    };
    let Books { ledger, prices, .. } = books;
    let ask = Ask {
        terms: terms(request.direction, request.rate, request.streams, request.period_ms, request.survive),
        about,
        client: client_parts(asker(), request.rail),
        now_ms: core.now_ms(),
        duration_ms: Some(request.duration_ms),
    };
    let answer = braid_admission::answer(ledger, prices, &policy(), &ask);
    let answer = answer.map_err(|error| Refusal::new(Reason::Malformed, error.to_string()))?;
    match answer {
        Answer::Refused(refused) => {
            let mut explanation = lines(&refused.explanation);
            explanation.extend(uncalibrated(core));
            Ok(Decision::Refused(not_admitted(core, ledger, &request, *refused), explanation))
        }
        Answer::Admitted(admitted) => {
            let mut explanation = lines(&admitted.explanation);
            explanation.extend(uncalibrated(core));
            let carried = Carried::of(&admitted, request.direction, request.streams);
            let lateness_ns = lateness_ns(ledger, request.direction, &carried);
            let failover_us = failover_us(core, &request, lateness_ns);
            let record = record_of(&request, &subject, &admitted, carried, [lateness_ns, failover_us]);
            Ok(Decision::Admitted { record: Box::new(record), booking: admitted.booking, explanation })
        }
    }
}

/// The subject of a request, as the state has it.
fn subject(core: &Core, tx: &Tx, request: &ReserveRate) -> Result<Subject, Refusal> {
    let target = Target::find(tx, &request.at, request.direction)?;
    let mut written = None;
    let found = match &target {
        Target::Node(_) => directories::resolve_to_end(tx, &request.at)?,
        Target::Name(..) => {
            let slot = directories::slot(tx, &request.at)?;
            written = slot.entry.map(|entry| entry.file);
            slot.directory
        }
    };
    let about = match (&target, request.direction) {
        // With a shape of its own, the request is for what takes the file's place.
        (Target::Name(..), _) => match written.filter(|_| request.shape.k == 0) {
            Some(file) => What::Again(layout_of(core, tx, file)?),
            None => What::New,
        },
        (Target::Node(_), DataDirection::Write) if found.inode.kind == EntryKind::Directory => What::New,
        (Target::Node(file), _) => What::Segments(segments_under(core, tx, *file)?),
    };
    let parity = match found.inode.kind {
        EntryKind::Directory => in_force(tx, &found.volume, found.file, &found.inode)?.shape.m,
        _ => found.volume.shape.m,
    };
    Ok(Subject { target, volume: found.volume.volume, parity, about })
}

/// The layout of a file that is to be written again.
fn layout_of(core: &Core, tx: &Tx, file: braid_layout::FileId) -> Result<NewFiles, Refusal> {
    let segments = segments_under(core, tx, file)?;
    let [segment] = segments.as_slice() else {
        let detail = "parts of the file lie in different ways: braid relayout it, or reserve with --scheme for what \
                      takes its place";
        return Err(Refusal::new(Reason::Malformed, detail));
    };
    let drives = segment.components.iter().map(|component| component.drive).collect();
    Ok(NewFiles { shape: segment.shape, drives })
}

/// The segments of a file, or of all files below a directory.
pub(crate) fn segments_under(
    core: &Core,
    tx: &Tx,
    file: braid_layout::FileId,
) -> Result<Vec<Segment>, Refusal> {
    let mut segments: BTreeMap<(String, Vec<DriveId>), Segment> = BTreeMap::new();
    let mut seen = 0;
    let mut left = vec![file];
    while let Some(next) = left.pop() {
        seen += 1;
        if seen + left.len() > FILES_MAX {
            let detail = format!(
                "there are more than {FILES_MAX} files and directories below it: reserve the rate for a smaller directory"
            );
            return Err(Refusal::new(Reason::Malformed, detail));
        }
        let inode = inodes::get(tx, next)?;
        match inode.kind {
            EntryKind::Directory => left.extend(directories::files_in(tx, next)?),
            EntryKind::File => add_segments(core, &inode, &mut segments)?,
            _ => {}
        }
    }
    if segments.is_empty() {
        let detail = "there is no file to read: reserve a rate once there is, or a rate for writing";
        return Err(Refusal::new(Reason::NotFound, detail));
    }
    Ok(segments.into_values().collect())
}

/// Adds the segments of a file that are in force, those on the same drives in the same shape once.
fn add_segments(
    core: &Core,
    inode: &InodeRecord,
    to: &mut BTreeMap<(String, Vec<DriveId>), Segment>,
) -> Result<(), Refusal> {
    let table = core.drives();
    for record in inode.in_force() {
        let wrong = |error: braid_layout::SchemeError| Refusal::new(Reason::BadScheme, error.to_string());
        let shape = record.shape.shape().map_err(wrong)?;
        // A replaced drive's columns are to be on its successor.
        let drives: Vec<DriveId> = record.drives.iter().map(|&drive| table.successor(drive)).collect();
        let key = (format!("{shape} {}", shape.unit_bytes()), drives.clone());
        to.entry(key).or_insert_with(|| segment_on(shape, &drives));
    }
    Ok(())
}

/// A segment of this shape, on these drives.
pub(crate) fn segment_on(shape: Shape, drives: &[DriveId]) -> Segment {
    let component = |&drive: &DriveId| Component { drive, object: ObjectId(1) };
    Segment { start: 0, end: u64::MAX, shape, components: drives.iter().map(component).collect() }
}

/// The wish for new files: the shape that was asked for, or the volume's redundancy in whatever shape.
fn wish(asked: &ShapeSpec, parity: u8) -> Result<Wish, Refusal> {
    if asked.k == 0 {
        return Ok(Wish::Free { m: parity });
    }
    let shape = from_spec(asked, asked)?;
    Ok(Wish::Shape(shape))
}

/// The longest pause at a drive's death, in microseconds. A reader gives up a drive that is silent for the
/// bound, and what it asks the others for instead keeps to the bound. A writer waits until the drive has
/// surely stopped, and for the procedure on its file.
fn failover_us(core: &Core, request: &ReserveRate, lateness_ns: u64) -> u64 {
    match request.direction {
        _ if request.survive == 0 => 0,
        DataDirection::Read => lateness_ns.div_ceil(1000).max(FAILOVER_READ_US),
        DataDirection::Write => {
            let table = core.drives();
            (table.lease_ms() + table.margin_ms()) * 1000 + PROCEDURE_US
        }
    }
}

fn bytes_in(rate: u64, time_us: u64) -> u64 {
    let bytes = u128::from(rate) * u128::from(time_us) / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn record_of(
    request: &ReserveRate,
    subject: &Subject,
    admitted: &braid_admission::Admitted,
    carried: Carried,
    [lateness_ns, failover_us]: [u64; 2],
) -> ReservationRecord {
    let (file, parent, name) = match &subject.target {
        Target::Node(file) => (*file, braid_layout::FileId(0), Vec::new()),
        Target::Name(parent, name) => (braid_layout::FileId(0), *parent, name.clone()),
    };
    let shape = match (&admitted.plan, &subject.about) {
        (Some(new), _) => ShapeSpec::from(new.shape),
        (None, What::Segments(segments)) => {
            segments.first().map_or(ShapeSpec::DEFAULT, |segment| ShapeSpec::from(segment.shape))
        }
        (None, What::New | What::Again(_)) => ShapeSpec::DEFAULT,
    };
    ReservationRecord {
        reservation: ReservationId::NONE,
        volume: subject.volume,
        file,
        parent,
        name,
        path: request.at.path.clone(),
        direction: request.direction,
        rate: request.rate,
        streams: request.streams,
        period_ms: request.period_ms,
        survive: request.survive,
        rail: request.rail,
        client: asker(),
        begun_ms: 0,
        ends_ms: request.duration_ms,
        claim_until_ms: 0,
        shape,
        drives: admitted.plan.as_ref().map(|new| new.drives.clone()).unwrap_or_default(),
        booked: carried.shares,
        operation_bytes: carried.operation_bytes,
        buffer_bytes: admitted.buffer_bytes.saturating_add(bytes_in(request.rate, failover_us)),
        lateness_us: lateness_ns.div_ceil(1000),
        failover_us,
        start_us: (admitted.start_latency_ns + lateness_ns).div_ceil(1000),
    }
}

/// The part of a promise that capabilities carry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Carried {
    /// To each drive what was booked for it, of those that were priced.
    pub(crate) shares: Vec<DriveShare>,
    /// Bytes of the operations that were priced, on whichever drive.
    pub(crate) operation_bytes: u32,
}

impl Carried {
    /// The part of a price that capabilities carry.
    pub(crate) fn of(
        admitted: &braid_admission::Admitted,
        direction: DataDirection,
        streams: u32,
    ) -> Carried {
        let of = |promise: &braid_admission::DrivePromise| match direction {
            DataDirection::Read => promise.read,
            DataDirection::Write => promise.write,
        };
        let promises = || admitted.promises.iter().filter_map(of);
        let operation = promises().map(|promise| promise.operation_bytes).max().unwrap_or(0);
        // Streams may all begin at the same time.
        let others = operation.saturating_mul(u64::from(streams.saturating_sub(1)));
        let share = |drive: &braid_admission::DrivePromise| {
            let promise = of(drive);
            DriveShare {
                drive: drive.drive,
                rate: promise.map_or(0, |promise| promise.bytes_per_second),
                burst: promise.map_or(0, |promise| promise.burst_bytes.saturating_add(others)),
            }
        };
        Carried {
            shares: admitted.promises.iter().map(share).collect(),
            operation_bytes: u32::try_from(operation).unwrap_or(u32::MAX),
        }
    }

    /// True if something is asked of a drive.
    pub(crate) fn is_some(&self) -> bool {
        self.shares.iter().any(|share| share.rate > 0)
    }
}

fn lines(explanation: &braid_admission::Explanation) -> Vec<String> {
    explanation.candidates.iter().map(ToString::to_string).collect()
}

/// A line for the drives of which it is not known what they can do.
fn uncalibrated(core: &Core) -> Option<String> {
    let table = core.drives();
    let of = table.iter().filter(|drive| drive.record.replaced_by == DriveId(0));
    let without = of.filter(|drive| cost_of(drive).is_none());
    let names: Vec<String> = without.map(|drive| table.name(drive.record.drive)).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: not calibrated, and left out (braid drive calibrate {})",
            names.join(", "),
            names.join(" ")
        )
    })
}

fn not_admitted(core: &Core, ledger: &Ledger, request: &ReserveRate, refused: Refused) -> NotAdmitted {
    let Refused { resource, needed, free, offers, .. } = refused;
    let capacity = match resource {
        Resource::Drive { drive, part, .. } => ledger.capacity(drive).map_or(0, |all| all.on(part)),
        Resource::Client { .. } => {
            rail(request.rail).in_bytes_per_second.unwrap_or(0) / 1000 * u64::from(SHARE_PERMILLE)
        }
        Resource::Space { .. } | Resource::Drives | Resource::Survive { .. } => 0,
    };
    // Without a capacity, the need itself is the whole.
    let whole = if capacity == 0 { needed } else { capacity / u64::from(SHARE_PERMILLE) * 1000 };
    let of =
        |amount: u64| u64::try_from(u128::from(amount) * 1000 / u128::from(whole.max(1))).unwrap_or(u64::MAX);
    let shown = show(core, resource);
    let detail = match (resource, uncalibrated(core)) {
        (Resource::Drives, line) => {
            let line = line.map(|line| format!("; {line}")).unwrap_or_default();
            let are = if free == 1 { "drive is" } else { "drives are" };
            format!("{free} {are} in service and calibrated, and the plan needs {needed}{line}")
        }
        (Resource::Survive { .. }, Some(line)) => {
            format!("{shown} do not suffice; {line}")
        }
        (Resource::Survive { .. }, None) => format!("{shown} do not suffice"),
        _ => format!("{shown} has too little left"),
    };
    NotAdmitted {
        resource: shown,
        needed_permille: of(needed),
        free_permille: of(free),
        detail,
        offers: offers.into_iter().map(|offer| counter_offer(request, offer)).collect(),
    }
}

/// A resource in words, with the drives' names.
fn show(core: &Core, resource: Resource) -> String {
    let table = core.drives();
    match resource {
        Resource::Drive { drive, part, lost } => {
            let lost = lost.map(|lost| format!(" while {} is lost", table.name(lost))).unwrap_or_default();
            format!("the {part} of {}{lost}", table.name(drive))
        }
        Resource::Space { drive } => format!("the space on {}", table.name(drive)),
        Resource::Survive { missing: Some(drive) } => {
            format!("the losses that the files survive while {} is out", table.name(drive))
        }
        Resource::Client { part: Part::RailIn | Part::RailOut } => "the client's rail".to_owned(),
        other => other.to_string(),
    }
}

fn counter_offer(request: &ReserveRate, offer: Offer) -> CounterOffer {
    let as_asked = CounterOffer {
        rate: request.rate,
        begins_ms: 0,
        survive: request.survive,
        shape: ShapeSpec::DEFAULT,
        detail: String::new(),
    };
    match offer {
        Offer::Rate(rate) => {
            CounterOffer { rate, detail: "the greatest rate that is free".into(), ..as_asked }
        }
        Offer::From(begins_ms) => {
            CounterOffer { begins_ms, detail: "when other reservations have ended".into(), ..as_asked }
        }
        Offer::Shape(shape) => {
            CounterOffer { shape: ShapeSpec::from(shape), detail: "in another shape".into(), ..as_asked }
        }
        Offer::Survive(survive) => {
            CounterOffer { survive, detail: "surviving fewer losses".into(), ..as_asked }
        }
    }
}

/// The record of a reservation, if it is still on record.
pub(crate) fn on_record(tx: &Tx, id: ReservationId) -> Result<Option<ReservationRecord>, Refusal> {
    Ok(tx.record(&key::reservation(id))?)
}
