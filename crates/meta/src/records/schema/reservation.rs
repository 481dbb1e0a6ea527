//! The record of a reservation: the request, and the plan that it got.

use braid_layout::{ClientId, DriveId, FileId, ReservationId, VolumeId};
use braid_wire::capability::{DataDirection, Promise};
use braid_wire::control::{HandlePromise, ShapeSpec};
use braid_wire::record;

record! {
    /// A reservation's part at one drive: what the capabilities for the drive carry.
    pub struct DriveShare {
        drive: DriveId,
        /// Bytes a second; 0: nothing is asked of the drive, or it was not priced yet.
        rate: u64,
        /// Bytes that may come at once.
        burst: u64,
    }
}

record! {
    /// An admitted promise of a data rate.
    pub struct ReservationRecord {
        reservation: ReservationId,
        volume: VolumeId,
        /// The file or directory that the rate is for; 0: whatever has the name.
        file: FileId,
        /// The directory of the name, if the rate is for a name.
        parent: FileId,
        name: Vec<u8>,
        /// The path that was asked for, from the volume's root, for people.
        path: Vec<u8>,
        direction: DataDirection,
        /// Bytes of file data a second, of all streams together.
        rate: u64,
        streams: u32,
        /// Milliseconds in which the rate's bytes must have arrived.
        period_ms: u32,
        /// Number of drives that may be lost while the rate is kept.
        survive: u8,
        /// Rate of the client's rail in bytes a second; 0: not known.
        rail: u64,
        /// The client that asked, and has the rail; 0: it gave no number.
        client: ClientId,
        /// Manager time of the admission.
        begun_ms: u64,
        /// Manager time of the end.
        ends_ms: u64,
        /// Manager time at which the reservation is given back unless something was opened under it; 0:
        /// something was.
        claim_until_ms: u64,
        /// Shape of new files.
        shape: ShapeSpec,
        /// Drives of new files, one for each column; empty if only what exists is promised.
        drives: Vec<DriveId>,
        /// All drives on which something is booked: the promise holds on no other.
        booked: Vec<DriveShare>,
        /// Bytes of the operations that were priced.
        operation_bytes: u32,
        /// Bytes of memory that the client needs.
        buffer_bytes: u64,
        /// Bound on lateness, in microseconds.
        lateness_us: u64,
        /// The longest pause when a drive dies, in microseconds; 0: no loss is survived.
        failover_us: u64,
        /// Bound on the time to the first data, in microseconds.
        start_us: u64,
    }
}

impl ReservationRecord {
    /// The promise in the capabilities for a drive.
    pub fn promise(&self, drive: DriveId) -> Promise {
        match self.share(drive) {
            Some(share) if share.rate > 0 => Promise {
                reservation: self.reservation,
                direction: self.direction,
                rate: share.rate,
                burst: share.burst,
                operation_bytes: self.operation_bytes,
                until_ms: self.ends_ms,
            },
            _ => Promise::NONE,
        }
    }

    /// The part of a drive on which something is booked.
    pub fn share(&self, drive: DriveId) -> Option<&DriveShare> {
        self.booked.iter().find(|share| share.drive == drive)
    }

    /// The drives on which something is booked.
    pub fn drives_booked(&self) -> impl Iterator<Item = DriveId> {
        self.booked.iter().map(|share| share.drive)
    }

    /// The promise as a handle that is open under it is told.
    pub fn handle(&self) -> HandlePromise {
        HandlePromise {
            reservation: self.reservation,
            direction: self.direction,
            rate: self.rate,
            streams: self.streams,
            period_ms: self.period_ms,
            lateness_us: self.lateness_us,
            failover_us: self.failover_us,
            buffer_bytes: self.buffer_bytes,
            until_ms: self.ends_ms,
        }
    }
}
