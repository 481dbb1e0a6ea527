//! Calibration: the drive measures what its disk and processor cost, and keeps the last good result.
//!
//! - It runs by itself once, at a start at which there is no result of this disk, before anything is served;
//!   later only when an operator asks, and never while clients read or write.
//! - A result that is nonsense, or far from the last one in either direction, is refused: the last good one
//!   stays, with its date, and the drive says why.
//! - The result of a modelled disk is not that of the real one, nor of one that is modelled otherwise.
//!
//! [`Calibration`] and [`judge`] are pure; [`measure`] uses a disk, and [`task`] connects them.

mod derate;
mod foreign;
mod measure;
mod record;
pub(crate) mod task;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use braid_schedule::drift::InFlight;
use braid_schedule::fit::{FarOff, NoFit, Point, far_off, fit};
use braid_schedule::{Charge, DeviceCost, Direction, DirectionCost};
use braid_wire::data::{
    CalibrateAct, CalibrateReply, CurvePoint, DiskCharge, DiskCost, DiskWay, DriveCost, DriveParts,
};
use braid_wire::{Reason, Refusal};

use crate::life::clock::Moment;
use derate::Derating;
pub(crate) use derate::Work;
pub(crate) use foreign::Counters;
use measure::Measured;

/// Clients that have read or written within this time use the drive, in milliseconds.
const IN_USE_MS: u64 = 3000;
/// Bytes of clients during a run that do not matter to it.
const BESIDE_BYTES_MAX: u64 = 1 << 20;

/// Treatment of the last good result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// A result that is far from it is refused.
    Counts,
    /// It is of another disk.
    Other,
}

/// Bytes that clients have read and written since the drive's start.
pub(crate) type Traffic = (u64, u64);

/// State of a drive's calibration.
#[derive(Debug)]
pub(crate) struct Calibration {
    cost: Option<DriveCost>,
    refused: String,
    derating: Derating,
    /// Number of the device of the drive's directory; `None`: it is not looked at.
    device: Option<u64>,
    model: Option<DiskCost>,
    rail_bytes_per_second: u64,
    /// A run that is to begin.
    asked: Option<Before>,
    running: bool,
    done: Arc<AtomicU32>,
    ended: u64,
    traffic: Traffic,
    /// When clients were last seen to have read or written.
    used: Option<Moment>,
}

impl Calibration {
    pub(crate) fn new(
        cost: Option<DriveCost>,
        model: Option<&DeviceCost>,
        rail_bytes_per_second: u64,
    ) -> Calibration {
        Calibration {
            cost,
            refused: String::new(),
            derating: Derating::default(),
            device: None,
            model: model.map(told),
            rail_bytes_per_second,
            asked: None,
            running: false,
            done: Arc::default(),
            ended: 0,
            traffic: (0, 0),
            used: None,
        }
    }

    /// Costs of the parts, as the drive tells them.
    pub(crate) fn parts(&self) -> DriveParts {
        let (derate, derate_cause) = self.derating.told();
        DriveParts {
            cost: self.cost.clone(),
            derate,
            derate_cause,
            model: self.model,
            rail_bytes_per_second: self.rail_bytes_per_second,
            refused: self.refused.clone(),
        }
    }

    pub(crate) fn state(&self) -> CalibrateReply {
        CalibrateReply {
            running: self.running,
            done: if self.running { self.done.load(Ordering::Relaxed) } else { 0 },
            ended: self.ended,
            parts: self.parts(),
        }
    }

    /// The device whose counters each heartbeat brings; `None`: none.
    pub(crate) fn device(&self) -> Option<u64> {
        self.device
    }

    /// Takes the disk's work since the start. It is called with each heartbeat. Returns true if the drive is
    /// derated otherwise now.
    pub(crate) fn handle_work(&mut self, work: Work, now: Moment) -> bool {
        let before = self.derating.told();
        if let Some(cost) = self.whole() {
            self.derating.handle_work(now, &cost, work);
        }
        self.derating.told() != before
    }

    /// Takes a read that went to the disk: its time, and what was in flight with it.
    pub(crate) fn handle_read(&mut self, took_ns: u64, in_flight: InFlight, now: Moment) {
        if let Some(cost) = self.whole() {
            self.derating.handle_read(now, &cost, took_ns, in_flight);
        }
    }

    /// The cost of the disk by a whole run: that of a short one is too rough for what the disk does to be
    /// compared with it.
    fn whole(&self) -> Option<DeviceCost> {
        self.cost.as_ref().filter(|cost| is_whole(cost)).map(|cost| cost_of(&cost.disk))
    }

    /// Takes the traffic of clients. It is called with each heartbeat.
    pub(crate) fn handle_traffic(&mut self, traffic: Traffic, now: Moment) {
        if traffic != self.traffic {
            self.traffic = traffic;
            self.used = Some(now);
        }
    }

    /// An operator asks. While a run is under way nothing changes.
    pub(crate) fn handle_request(
        &mut self,
        act: CalibrateAct,
        traffic: Traffic,
        now: Moment,
    ) -> Result<(), Refusal> {
        if act == CalibrateAct::Look || self.running {
            return Ok(());
        }
        self.handle_traffic(traffic, now);
        if self.used.is_some_and(|used| now.since(used) < IN_USE_MS) {
            let detail = "clients read or write on the drive: it is calibrated only while nobody does";
            return Err(Refusal::new(Reason::DriveInUse, detail));
        }
        self.asked = Some(if act == CalibrateAct::StartAnew { Before::Other } else { Before::Counts });
        self.running = true;
        self.done.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// The run to begin now, if any, and where it tells its progress.
    fn poll(&mut self) -> Option<(Before, Arc<AtomicU32>)> {
        self.asked.take().map(|before| (before, Arc::clone(&self.done)))
    }

    /// Takes the end of a run.
    fn handle_end(&mut self, result: Result<DriveCost, String>) {
        self.running = false;
        self.ended += 1;
        match result {
            Ok(cost) => {
                (self.cost, self.refused) = (Some(cost), String::new());
                // The new cost is what it does now.
                self.derating = Derating::default();
            }
            Err(why) => self.refused = why,
        }
    }
}

/// The cost that was measured, or why it is refused. `before` is the last good result of the same disk.
fn judge(
    measured: &Measured,
    before: Option<&DriveCost>,
    hint: Option<Charge>,
    now_ms: u64,
) -> Result<DriveCost, String> {
    let cost = fit(&measured.curves, hint).map_err(no_fit)?;
    // A short run is too rough to be compared with.
    if let Some(before) = before.filter(|before| is_whole(before))
        && let Some(off) = far_off(&cost_of(&before.disk), &cost)
    {
        return Err(too_far(&off));
    }
    let points = |write, points: &[Point]| {
        let point =
            move |point: &Point| CurvePoint { write, bytes: point.bytes, operation_ns: point.operation_ns };
        points.iter().map(point).collect::<Vec<_>>()
    };
    let mut curve = points(false, &measured.curves.read);
    curve.extend(points(true, &measured.curves.write));
    Ok(DriveCost {
        disk: told(&cost),
        read_processor: measured.read_processor,
        write_processor: measured.write_processor,
        measured_ms: now_ms,
        points: curve,
    })
}

/// Returns true for the result of a run that measured all sizes.
fn is_whole(cost: &DriveCost) -> bool {
    cost.points.len() >= 2 * measure::WHOLE.sizes.len()
}

fn way_name(direction: Direction) -> &'static str {
    if direction == Direction::Read { "reads" } else { "writes" }
}

fn no_fit(no: NoFit) -> String {
    match no {
        NoFit::TooFew(way) => format!("too few sizes of {} were measured", way_name(way)),
        NoFit::NoLine(way) => {
            format!("the times of {} are those of no disk: they follow no line", way_name(way))
        }
        NoFit::OutOfBounds(way) => {
            format!("the times of {} are those of no disk: out of all bounds", way_name(way))
        }
        NoFit::Sync => "a sync takes longer than on any disk".to_owned(),
    }
}

fn too_far(off: &FarOff) -> String {
    let what = match off.operation {
        None => "a sync".to_owned(),
        Some((way, bytes)) => format!("{} of {} KiB", way_name(way), bytes >> 10),
    };
    let us = |ns: u64| ns / 1000;
    format!(
        "{what} took {} us and takes {} us now, more than four times apart: if the disk is another, \
         `braid drive calibrate --anew`",
        us(off.before_ns),
        us(off.now_ns)
    )
}

/// A cost as it is told to others.
pub(crate) fn told(cost: &DeviceCost) -> DiskCost {
    let way = |way: &DirectionCost| DiskWay {
        operation_ns: way.operation_ns,
        bytes_per_second: way.bytes_per_second,
    };
    let charge = if cost.charge == Charge::Sum { DiskCharge::Sum } else { DiskCharge::Larger };
    DiskCost { charge, read: way(&cost.read), write: way(&cost.write), sync_ns: cost.sync_ns }
}

/// The cost of a drive's disk by its parts: as calibrated, or else that of the device it was made as slow as.
pub fn device_cost(parts: &DriveParts) -> Option<DeviceCost> {
    let calibrated = parts.cost.as_ref().map(|cost| &cost.disk);
    calibrated.or(parts.model.as_ref()).map(cost_of)
}

/// A cost that was told.
fn cost_of(told: &DiskCost) -> DeviceCost {
    let way = |way: &DiskWay| DirectionCost {
        operation_ns: way.operation_ns,
        bytes_per_second: way.bytes_per_second,
    };
    let charge = if told.charge == DiskCharge::Sum { Charge::Sum } else { Charge::Larger };
    DeviceCost { charge, read: way(&told.read), write: way(&told.write), sync_ns: told.sync_ns }
}

#[cfg(test)]
mod tests;
