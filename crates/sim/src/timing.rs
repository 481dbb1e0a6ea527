//! The time of each instruction of a plan set that runs alone: what `braid plan --time` prints.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_layout::Segment;
use braid_plan::PlanSet;
use serde::Serialize;

use crate::Spec;
use crate::engine::{NodeTimes, run_alone};
use crate::model::CostModel;
use crate::number::{narrow, real};
use crate::program::Program;
use crate::spec::{Cluster, Files, Load, Run};
use crate::units::Bytes;

/// Number of runs whose mean is taken, if the parts' times are random.
const RUNS: u64 = 400;
/// Most instructions of all runs together; but there are never fewer than [`RUNS_MIN`] runs.
const INSTRUCTIONS_MAX: u64 = 400_000;
const RUNS_MIN: u64 = 20;

/// Mean times, in milliseconds from the beginning, at which a plan set and each of its instructions and
/// steps are done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timed {
    /// Time at which the whole plan set is done.
    pub done_ms: f64,
    pub instructions: Vec<Times>,
}

/// An instruction's or a step's times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    /// Id of the instruction or step in the plan set.
    pub id: u32,
    /// Time from which it waits for nothing any more.
    pub begins_ms: f64,
    /// Time at which its bytes are in memory, or durable.
    pub done_ms: f64,
}

/// Times a plan set on parts that are otherwise idle, with nothing cached, each drive on a host of its own.
/// The same plan set and parts have the same times. Returns `None` if `stop` was set before the end.
pub fn time(set: &PlanSet, segment: &Segment, parts: &CostModel, stop: &AtomicBool) -> Option<Timed> {
    let program = Rc::new(Program::new(std::slice::from_ref(set), segment));
    let nodes = program.nodes.len();
    let runs = match parts.disk.is_random() {
        true => RUNS.min(INSTRUCTIONS_MAX / u64::from(narrow(nodes)).max(1)).max(RUNS_MIN),
        false => 1,
    };
    let mut sums = vec![(0.0, 0.0); nodes];
    let mut whole = 0.0;
    for seed in 1..=runs {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let times = run_alone(&spec(segment, parts, seed), &program);
        whole += times.iter().map(|times| real(times.done)).fold(0.0, f64::max);
        for (sum, NodeTimes { begins, done }) in sums.iter_mut().zip(times) {
            *sum = (sum.0 + real(begins), sum.1 + real(done));
        }
    }
    let mean = |sum: f64| sum / real(runs) / 1e6;
    let times = |(id, (begins, done))| Times { id, begins_ms: mean(begins), done_ms: mean(done) };
    Some(Timed { done_ms: mean(whole), instructions: (0..).zip(sums).map(times).collect() })
}

/// A spec of one client, and a drive for each column.
fn spec(segment: &Segment, parts: &CostModel, seed: u64) -> Spec {
    let shape = segment.shape;
    Spec {
        title: String::new(),
        seed,
        run: Run::default(),
        cluster: Cluster {
            clients: 1,
            drives: u32::from(shape.width()),
            drives_per_host: 1,
            rails: 1,
            rail_percents: Vec::new(),
            down: Vec::new(),
        },
        files: Files {
            count: 1,
            size: Bytes(shape.stripe_bytes()),
            scheme: shape.to_string(),
            width: None,
            unit: Bytes(u64::from(shape.unit_bytes())),
        },
        parts: parts.clone(),
        load: vec![Load::closed("plan", 1, Bytes(shape.stripe_bytes()))],
        sweep: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::{Component, DriveId, Generation, Lease, ObjectId, OperationNumber, Shape, Version};
    use braid_plan::{Body, Health, Stamped, Target, Want, Write};

    use super::*;
    use crate::model::{Distribution, LinkModel, Placement};
    use crate::units::{Rate, Span};

    const UNIT: u32 = 64 << 10;

    fn segment(scheme: &str, width: Option<u8>) -> Segment {
        let shape = Shape::parse(scheme, width, UNIT).expect("a shape");
        let component = |n: u8| Component { drive: DriveId(n.into()), object: ObjectId(7) };
        Segment { start: 0, end: u64::MAX, shape, components: (0..shape.width()).map(component).collect() }
    }

    /// Parts whose disks take 1 ms for a command, and nothing else takes time.
    fn parts(seek: Distribution) -> CostModel {
        let mut parts = CostModel::free();
        parts.disk.seek = seek;
        parts.store.placement = Placement::Scattered;
        parts
    }

    fn timed(set: &PlanSet, segment: &Segment, parts: &CostModel) -> Timed {
        time(set, segment, parts, &AtomicBool::new(false)).expect("it is not stopped")
    }

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-3
    }

    #[test]
    fn what_follows_begins_when_the_last_before_it_is_done() {
        let segment = segment("raid5", Some(5));
        let mut health = Health::whole(&segment.shape, Generation(1));
        health.away =
            [segment.column(braid_layout::Stripe(0), braid_layout::Role::Data(1))].into_iter().collect();
        let target = Target { segment: &segment, index: 0, health };
        let set = braid_plan::read(&target, 0..4 * u64::from(UNIT), 0, Want::Newest).expect("a plan set");
        let mut parts = parts(Distribution::Constant(Span::milliseconds(1.0)));
        // Four units take a millisecond each over the client's link; then three operands are computed at
        // the same rate.
        let rate = Rate(f64::from(UNIT) * 1000.0);
        parts.link =
            LinkModel { medium: crate::model::Medium::Switch, client_rate: Some(rate), ..parts.link };
        (parts.protocol.request, parts.protocol.reply) = (Bytes(0), Bytes(0));
        parts.client.parity = Some(rate);
        let timed = timed(&set, &segment, &parts);
        assert_eq!(timed.instructions.len(), set.len());
        for (_, instruction) in set.instructions() {
            let times = timed.instructions[instruction.id.index()];
            assert!(times.id == instruction.id.0 && times.begins_ms == 0.0);
            assert!(times.done_ms > 1.99 && times.done_ms < 5.01, "{times:?}");
        }
        let step = timed.instructions[set.arithmetic[0].id.index()];
        assert!(near(step.begins_ms, 5.0) && near(step.done_ms, 9.0), "{step:?}");
        assert_eq!(timed.done_ms, step.done_ms);
    }

    #[test]
    fn a_write_through_its_data_drive_waits_for_the_parity() {
        let segment = segment("raid5", Some(5));
        let target =
            Target { segment: &segment, index: 0, health: Health::whole(&segment.shape, Generation(1)) };
        let stamp = Version { g: Generation(1), lease: Lease(1), n: 1 };
        let write =
            Write { range: 0..4096, body: Body::Buffer { offset: 0 }, size: 1 << 20, reach: u64::MAX, stamp };
        let set = braid_plan::unit_write(&target, write, OperationNumber::FIRST, Stamped::ByDrive)
            .expect("a plan set");
        let parts = parts(Distribution::Constant(Span::milliseconds(1.0)));
        // The new bytes, the old ones, and the parity drive's change: a millisecond each.
        assert!(near(timed(&set, &segment, &parts).done_ms, 3.0));
    }

    #[test]
    fn random_times_are_means() {
        for (scheme, width, disks) in [("raid0", Some(8), 8.0), ("rs(4,2)", None, 4.0)] {
            let segment = segment(scheme, width);
            let health = Health::whole(&segment.shape, Generation(1));
            let target = Target { segment: &segment, index: 0, health };
            let bytes = segment.shape.stripe_bytes();
            let set = braid_plan::read(&target, 0..bytes, 0, Want::Newest).expect("a plan set");
            let parts = parts(Distribution::Uniform([Span(0), Span::milliseconds(20.0)]));
            let found = timed(&set, &segment, &parts);
            let mean = 20.0 * disks / (disks + 1.0);
            assert!((found.done_ms / mean - 1.0).abs() < 0.05, "{} not {mean}", found.done_ms);
            let each = found.instructions.iter().map(|times| times.done_ms).sum::<f64>() / disks;
            assert!((each / 10.0 - 1.0).abs() < 0.05, "{each} not 10");
            assert_eq!(timed(&set, &segment, &parts), found);
        }
        let set = segment("raid0", Some(2));
        let stop = AtomicBool::new(true);
        let target = Target { segment: &set, index: 0, health: Health::whole(&set.shape, Generation(1)) };
        let plan = braid_plan::read(&target, 0..1, 0, Want::Newest).expect("a plan set");
        assert_eq!(time(&plan, &set, &parts(Distribution::ZERO), &stop), None);
    }
}
