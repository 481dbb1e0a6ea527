//! Costs of a drive's parts: its disk in device time, its processor, its rail. And calibration, by which the
//! drive finds them out.

use crate::capability::DataDirection;

choice! {
    /// The way in which the fixed cost of an operation and the cost of its bytes make one cost.
    pub enum DiskCharge {
        /// Both: a disk with one head.
        Sum = 1,
        /// The larger of the two: flash, cloud disks.
        Larger = 2,
    }
}

record! {
    /// Cost of a disk's operations in one direction.
    #[derive(Copy)]
    pub struct DiskWay {
        /// Device time of an operation whatever its size, in nanoseconds: a second over the operations of a
        /// second that the disk does at most.
        operation_ns: u64,
        /// Bytes a second at most; never 0.
        bytes_per_second: u64,
    }
}

record! {
    /// Cost of a disk's operations, in device time.
    #[derive(Copy)]
    pub struct DiskCost {
        /// The way in which operations and bytes are charged.
        charge: DiskCharge,
        /// Cost of reads.
        read: DiskWay,
        /// Cost of writes.
        write: DiskWay,
        /// Time of a sync that has nothing to write, in nanoseconds.
        sync_ns: u64,
    }
}

record! {
    /// Processor time that a drive needs for its disk's operations in one direction.
    #[derive(Copy, Default)]
    pub struct ProcessorWay {
        /// Nanoseconds for each request.
        request_ns: u64,
        /// Picoseconds for each byte.
        byte_ps: u64,
    }
}

record! {
    /// One point of a measured curve.
    #[derive(Copy)]
    pub struct CurvePoint {
        /// True for writes, false for reads.
        write: bool,
        /// Size of the operations, in bytes.
        bytes: u64,
        /// Device time of one operation, in nanoseconds.
        operation_ns: u64,
    }
}

record! {
    /// A good result of a calibration.
    pub struct DriveCost {
        /// Cost of the disk's operations.
        disk: DiskCost,
        /// Processor time of reads.
        read_processor: ProcessorWay,
        /// Processor time of writes.
        write_processor: ProcessorWay,
        /// Time of the calibration by the clock of the drive's host, in milliseconds since 1970.
        measured_ms: u64,
        /// The curves that the cost was fitted to.
        points: Vec<CurvePoint>,
    }
}

record! {
    /// Costs of a drive's parts, as the drive tells.
    pub struct DriveParts {
        /// The last good result of a calibration; absent: there is none.
        cost: Option<DriveCost>,
        /// The part of the cost's capacity that the disk is believed to have now, in thousandths; at most
        /// 1000. Operations take longer by its inverse.
        derate: u32,
        /// The cause of a `derate` below 1000, for people; else empty.
        derate_cause: String,
        /// The device that the disk was made as slow as; absent: the disk is not modelled.
        model: Option<DiskCost>,
        /// Bytes a second of the drive's rail, as the operator told; 0: not told.
        rail_bytes_per_second: u64,
        /// The reason why a newer result was refused, for people; empty: the last one is good.
        refused: String,
    }
}

impl DriveParts {
    /// Bytes a second that the disk and the rail do in a direction; `None`: the disk was not calibrated.
    pub fn bytes_per_second(&self, direction: DataDirection) -> Option<u64> {
        let disk = &self.cost.as_ref()?.disk;
        let way = match direction {
            DataDirection::Read => &disk.read,
            DataDirection::Write => &disk.write,
        };
        let rail = Some(self.rail_bytes_per_second).filter(|rate| *rate > 0);
        Some(rail.map_or(way.bytes_per_second, |rail| rail.min(way.bytes_per_second)))
    }
}

choice! {
    /// The action that a [`Calibrate`] asks for.
    pub enum CalibrateAct {
        /// Only report the state.
        Look = 0,
        /// Start a calibration. Refused with [`DriveInUse`](crate::Reason::DriveInUse) while clients read or
        /// write.
        Start = 1,
        /// Start a calibration whose result is not compared with the last good one, as the disk is another.
        StartAnew = 2,
    }
}

record! {
    /// Asks the drive's own object to measure what its parts cost, or for the state of that.
    pub struct Calibrate {
        /// The action asked for.
        act: CalibrateAct,
        /// The manager's term.
        term: u64,
    }
}

record! {
    /// The state of a drive's calibration.
    pub struct CalibrateReply {
        /// True while a calibration runs.
        running: bool,
        /// Progress of the calibration that runs, in thousandths.
        done: u32,
        /// Number of calibrations that have ended since the drive's start.
        ended: u64,
        /// Costs of the drive's parts.
        parts: DriveParts,
    }
}
