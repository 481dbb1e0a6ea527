//! Streams of a sizing that admission would let in, each with a promise of its rate.

use braid_admission::{
    About, Access, Answer, Ask as Question, DriveParts, Ledger, Policy, Prices, ProcessorCost, Terms, Wish,
    decide,
};
use braid_layout::Shape;
use braid_schedule::Direction;

use super::Ask;
use super::state::fullest;
use crate::model::ProcessorModel;
use crate::number::{real, whole};
use crate::promises::{drive_parts, policy};

/// Period of the promises, in nanoseconds.
const PERIOD_NS: u64 = 100_000_000;
/// Questions at most; then several streams ask together.
const QUESTIONS_MAX: u32 = 2000;

/// The number of streams that are let in one after another, all with files of this shape.
pub(super) fn admitted(prices: &mut Prices, ask: &Ask, shape: Shape, drives: u32) -> u32 {
    let parts = parts(ask, drives);
    let mut ledger = Ledger::default();
    let hosts = drives.div_ceil(ask.drives_per_host);
    for number in 0..drives {
        let host = format!("host-{}", number % hosts);
        let drive = drive_parts(number, &host, &ask.disk, &ask.link);
        ledger.set_drive(DriveParts { drive: drive.drive, domain: drive.domain, ..parts.clone() });
    }
    let policy = policy(&parts.cost, &[u64::from(shape.unit_bytes())]);
    let reads = u32::try_from(whole(f64::from(ask.streams) * ask.read)).unwrap_or(ask.streams);
    let ways = [(Direction::Read, reads), (Direction::Write, ask.streams - reads)];
    let mut office = Office { ledger, prices, policy, booked: 0 };
    ways.iter().map(|&(direction, streams)| office.streams(ask, shape, direction, streams)).sum()
}

/// The parts of each drive: its disk, and its share of its host's link and processors.
fn parts(ask: &Ask, drives: u32) -> DriveParts {
    let mut parts = drive_parts(0, "host", &ask.disk, &ask.link);
    let sharing = u64::from(fullest(drives, ask.drives_per_host).max(1));
    for rate in [&mut parts.rail.in_bytes_per_second, &mut parts.rail.out_bytes_per_second] {
        *rate = rate.map(|rate| rate / sharing);
    }
    parts.processor = Some(processor(&ask.processor, sharing));
    parts
}

/// The cost of work for a drive's share of the processors, as if it were one.
fn processor(model: &ProcessorModel, sharing: u64) -> ProcessorCost {
    const MEGABYTE: u64 = 1 << 20;
    let factor = real(sharing) / f64::from(model.cores);
    let request = model.time(0, true);
    let bytes = model.time(MEGABYTE, true) - request + model.checksum_time(MEGABYTE);
    ProcessorCost {
        request_ns: whole(request * factor),
        byte_ps: whole(bytes * factor * 1e3 / real(MEGABYTE)),
        arithmetic_byte_ps: 0,
        cores: 1,
    }
}

struct Office<'a> {
    ledger: Ledger,
    prices: &'a mut Prices,
    policy: Policy,
    booked: u64,
}

impl Office<'_> {
    fn streams(&mut self, ask: &Ask, shape: Shape, direction: Direction, streams: u32) -> u32 {
        let together = ask.streams.div_ceil(QUESTIONS_MAX);
        let mut admitted = 0;
        while admitted < streams {
            let count = together.min(streams - admitted);
            let terms = Terms {
                direction,
                bytes_per_second: whole(ask.rate.0 * f64::from(count)).max(1),
                streams: count,
                period_ns: PERIOD_NS,
                survive: ask.survive,
                access: Access::Whole,
            };
            let about = About::New(Wish::Shape(shape));
            let question = Question { terms, about, client: None, now_ms: 0, duration_ms: None };
            match decide(&self.ledger, self.prices, &self.policy, &question) {
                Ok(Answer::Admitted(one)) => {
                    self.ledger.add(self.booked, one.booking).expect("it is new, and its drives are known");
                    self.booked += 1;
                    admitted += count;
                }
                Ok(Answer::Refused(_)) | Err(_) => break,
            }
        }
        admitted
    }
}
