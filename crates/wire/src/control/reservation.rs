//! Reservations of data rates: the request, its plan or the refusal, bookings of drives, lateness of clients.
//!
//! A reservation is about a file, a directory or a volume, in one direction. Everything opened under it in
//! that direction shares its rate.

use braid_layout::{DriveId, FileId, ReservationId, VolumeId};

use super::names::NamePlace;
use super::shape::ShapeSpec;
use crate::capability::DataDirection;

/// Maximum number of reservations of which a drive tells in a heartbeat.
pub const PROMISES_TOLD_MAX: usize = 1000;
/// Maximum number of ended reservations in one heartbeat or its answer.
pub const ENDED_TOLD_MAX: usize = 1000;
/// The longest time, in milliseconds, that the answer to a [`ReserveRate`] waits for drives to be told of
/// reservations that have ended, if what is asked for does not fit beside them.
pub const ENDED_WAIT_MS: u64 = 5000;
/// Maximum number of reservations that are in force at a time.
pub const RESERVATIONS_MAX: usize = 10_000;
/// Maximum length of the text that says who measured the whole, in bytes.
pub const MEASURED_BY_BYTES_MAX: usize = 1000;

record! {
    /// Asks for a data rate. The rate is admitted whole, or refused with the reason and other offers. The
    /// answer takes up to 5 s if the share of reservations that have ended is not free yet.
    pub struct ReserveRate {
        /// The file, directory or volume (an empty path) that the rate is for. A file that does not exist may
        /// be reserved for writing: it gets its layout from the plan when it is made.
        at: NamePlace,
        /// The direction of the data.
        direction: DataDirection,
        /// Bytes of file data a second, of all streams together.
        rate: u64,
        /// Number of streams that share the rate, from 1.
        streams: u32,
        /// Milliseconds in which the rate's bytes must have arrived.
        period_ms: u32,
        /// Number of drives that may be lost while the rate is kept.
        survive: u8,
        /// Milliseconds for which the rate is kept, from now.
        duration_ms: u64,
        /// Milliseconds in which something must be opened under the reservation, or it is given back; 0: the
        /// manager's own choice.
        claim_ms: u64,
        /// Rate of the client's rail, in bytes a second; 0: not known, and not checked.
        rail: u64,
        /// Shape of new files, with fields left open. With all open, the name of a file that exists means its
        /// own.
        shape: ShapeSpec,
        /// True to book nothing: the answer tells what would be booked.
        trial: bool,
    }
}

record! {
    /// The answer to [`ReserveRate`] and [`ExtendReservation`]: exactly one of `admitted` and `refused`.
    pub struct RateReserved {
        /// The reservation. A trial has number 0.
        admitted: Option<ReservationRow>,
        /// The reason why nothing was booked.
        refused: Option<NotAdmitted>,
        /// The choices that led to the plan, a sentence each.
        explanation: Vec<String>,
    }
}

record! {
    /// A refusal of a rate: the resource that is scarce, and what could be had.
    pub struct NotAdmitted {
        /// The scarce resource, for people: `drive-3's disk`, `the client's rail`.
        resource: String,
        /// Share of the resource that the rate needs, in thousandths of what is there.
        needed_permille: u64,
        /// Share of the resource that is free to be booked, in thousandths of what is there.
        free_permille: u64,
        /// The reason in a sentence, for people.
        detail: String,
        /// Rates that would be admitted now, or later; the best first.
        offers: Vec<CounterOffer>,
    }
}

record! {
    /// A rate that would be admitted.
    pub struct CounterOffer {
        /// Bytes a second.
        rate: u64,
        /// Manager time from which it would be admitted, in milliseconds; 0: at once.
        begins_ms: u64,
        /// Number of drives that it would survive.
        survive: u8,
        /// The shape of new files under it; all fields open: as asked.
        shape: ShapeSpec,
        /// The offer in a few words, for people.
        detail: String,
    }
}

record! {
    /// The plan of a reservation.
    pub struct RatePlan {
        /// Shape of the files under it.
        shape: ShapeSpec,
        /// The drives on which something is booked. New files are placed on these.
        drives: Vec<DrivePromise>,
        /// Bytes of memory that the client needs.
        buffer_bytes: u64,
        /// Most time by which an operation is done after it is due, in microseconds.
        lateness_us: u64,
        /// The longest pause when a drive dies, once for each that is survived, in microseconds; 0: none is.
        failover_us: u64,
        /// Most time from the first request to the first data in time, in microseconds.
        start_us: u64,
    }
}

record! {
    /// A reservation's promise at one drive.
    pub struct DrivePromise {
        /// The drive that keeps the promise.
        drive: DriveId,
        /// The drive's name.
        name: String,
        /// Bytes a second that its capabilities carry.
        rate: u64,
        /// Bytes that may come at once.
        burst: u64,
        /// Bytes of an operation.
        operation_bytes: u32,
        /// Thousandths of what the drive can do that are booked while nothing is lost.
        healthy_permille: u32,
        /// Thousandths of what the drive can do that are booked at worst.
        worst_permille: u32,
    }
}

record! {
    /// A reservation in force.
    pub struct ReservationRow {
        /// The number of the reservation.
        reservation: ReservationId,
        /// The volume's name.
        volume: String,
        /// The path that it was asked for, relative to the volume's root.
        path: Vec<u8>,
        /// The volume's number.
        volume_id: VolumeId,
        /// The file or directory; 0: a file that was not made yet.
        file: FileId,
        /// The direction of the data.
        direction: DataDirection,
        /// Bytes of file data a second.
        rate: u64,
        /// Number of streams that share it.
        streams: u32,
        /// Milliseconds in which the rate's bytes must have arrived.
        period_ms: u32,
        /// Number of drives that may be lost while it is kept.
        survive: u8,
        /// Manager time of its admission, in milliseconds.
        begun_ms: u64,
        /// Manager time of its end, in milliseconds.
        ends_ms: u64,
        /// Manager time at which it is given back if nothing was opened under it, in milliseconds; 0:
        /// something was.
        claim_until_ms: u64,
        /// The plan of the reservation.
        plan: RatePlan,
        /// The reason why the rate may not be kept at present, for people; empty: it will be.
        risk: String,
        /// The sum of the clients' reports.
        lateness: Lateness,
    }
}

record! {
    /// The lateness of data. Data that was late, but not at a drive, was late on the way or at the client.
    pub struct Lateness {
        /// Number of bytes that were delivered.
        bytes: u64,
        /// Milliseconds in which they were; of several handles, those in which at least one was active.
        active_ms: u64,
        /// Number of periods in which something was due.
        periods: u64,
        /// Number of these in which something was late.
        late_periods: u64,
        /// Most time by which something was done after it was due, in microseconds, within the bound or
        /// not, but for pauses at a drive's death.
        worst_us: u64,
        /// Number of periods in which something was late by a drive's death, within the stated pause. These
        /// are not among the late ones.
        paused_periods: u64,
        /// Most time by which such data was done after it was due, in microseconds.
        paused_us: u64,
        /// Number of late requests at drives that had been held back, as they were beyond the rate.
        beyond_rate: u64,
        /// Number of late requests at drives that had waited for others.
        in_queue: u64,
        /// Number of late requests at drives that a disk took long for.
        at_disk: u64,
    }
}

impl Copy for Lateness {}

impl Lateness {
    /// The figures of no data: nothing was due, and nothing was late.
    pub const NONE: Lateness = Lateness {
        bytes: 0,
        active_ms: 0,
        periods: 0,
        late_periods: 0,
        worst_us: 0,
        paused_periods: 0,
        paused_us: 0,
        beyond_rate: 0,
        in_queue: 0,
        at_disk: 0,
    };
}

record! {
    /// Lists reservations, and the bookings of drives.
    pub struct Reservations {
        /// The number after which the list begins: only reservations with higher numbers are listed.
        after: ReservationId,
    }
}

record! {
    /// The answer to [`Reservations`].
    pub struct ReservationReply {
        /// Some of the reservations, by number.
        reservations: Vec<ReservationRow>,
        /// True if there are more reservations after the last.
        more: bool,
        /// All drives, by name.
        drives: Vec<DriveBooking>,
        /// Thousandths of a drive that may be booked at most.
        share_permille: u32,
    }
}

record! {
    /// The booking of a drive, by all reservations and background work.
    pub struct DriveBooking {
        /// The drive that is booked.
        drive: DriveId,
        /// The drive's name.
        name: String,
        /// Thousandths of what it can do while nothing is lost.
        healthy_permille: u32,
        /// Thousandths of what it can do at worst.
        worst_permille: u32,
        /// Thousandths of its measured rate that the drive can do at present; below 1000 it is slower.
        able_permille: u32,
    }
}

record! {
    /// The rates that all drives reach together, as a realistic run found them. Drives that took part share
    /// them equally: none is booked for more than its share, nor for more than its own parts can do.
    pub struct WholeRate {
        /// Bytes a second that the drives send, with nothing written.
        read_bytes_per_second: u64,
        /// Bytes a second that the drives take in, parity included, with nothing read.
        write_bytes_per_second: u64,
        /// Manager time of the result, in milliseconds. The manager sets it.
        measured_ms: u64,
        /// The drives that took part.
        drives: Vec<DriveId>,
        /// The machine or machines that read and wrote, for people.
        by: String,
    }
}

choice! {
    /// The action that a [`Qualify`] asks for.
    pub enum QualifyAct {
        /// Only tell the rates that are known.
        Look = 0,
        /// Keep new rates, unless they are far from the last ones, or from what the drives' parts can do.
        Keep = 1,
        /// Keep new rates, whatever they are.
        KeepAnyway = 2,
        /// Forget the rates: drives are booked by their parts alone.
        Forget = 3,
    }
}

record! {
    /// Keeps, tells or forgets the rates of the whole.
    pub struct Qualify {
        /// The action asked for.
        act: QualifyAct,
        /// The new rates, to be kept; none for another action.
        whole: Option<WholeRate>,
    }
}

record! {
    /// The answer to [`Qualify`].
    pub struct Qualified {
        /// The rates of the whole that are known now.
        whole: Option<WholeRate>,
        /// The reason why new rates were not kept, for people; empty: they were, or there were none.
        refused: String,
    }
}

record! {
    /// Sets the end of a reservation.
    pub struct ExtendReservation {
        /// The reservation that gets another end.
        reservation: ReservationId,
        /// Milliseconds from now to its end.
        duration_ms: u64,
    }
}

record! {
    /// Ends a reservation. Files that are open under it go on as best effort.
    pub struct EndReservation {
        /// The reservation to end.
        reservation: ReservationId,
    }
}

record! {
    /// The lateness of a handle since it was opened.
    pub struct LatenessReport {
        /// The reservation under which the handle was opened.
        reservation: ReservationId,
        /// Random number of the handle.
        handle: u64,
        /// The figures since the handle was opened. A later report replaces an earlier one.
        total: Lateness,
    }
}

record! {
    /// A drive's part in a reservation, since the drive's process began to serve it.
    pub struct PromiseRow {
        /// The reservation that the figures are of.
        reservation: ReservationId,
        /// Number of requests that were later than the drive's bound.
        late: u64,
        /// Number of these that had been held back, as they were beyond the rate.
        beyond_rate: u64,
        /// Number of these that had waited for others.
        in_queue: u64,
        /// Number of these that the disk took long for.
        at_disk: u64,
        /// Most time by which a request was done after it was due, in microseconds.
        worst_us: u64,
    }
}

record! {
    /// The promise that an open handle has.
    pub struct HandlePromise {
        /// The reservation under which the handle is open.
        reservation: ReservationId,
        /// The direction of the data.
        direction: DataDirection,
        /// Bytes of file data a second, of all handles together.
        rate: u64,
        /// Number of streams that share it.
        streams: u32,
        /// Milliseconds in which the rate's bytes must have arrived.
        period_ms: u32,
        /// Most time by which an operation is done after it is due, in microseconds.
        lateness_us: u64,
        /// The longest pause when a drive dies, in microseconds; 0: no loss is survived.
        failover_us: u64,
        /// Bytes of memory that the client needs.
        buffer_bytes: u64,
        /// Manager time of its end, in milliseconds.
        until_ms: u64,
    }
}

impl Copy for HandlePromise {}
