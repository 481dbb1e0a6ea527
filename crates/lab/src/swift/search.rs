//! The greatest rate at which a condition holds, found by halving an interval. All runs of a search have
//! one seed, so that they differ by the rate alone.

use super::setup::Setup;
use braid_sim::outcome::{PartKind, RunOutcome};
use braid_sim::spec::{Load, Spec};

/// Halvings of the interval: in the end its width is a thousandth of the greatest rate.
const HALVINGS: u32 = 10;
/// Requests that each client has in flight in the search for the most.
const OUTSTANDING: u32 = 8;

/// The greatest rate between 0 and `most` at which `holds` returns true, and its outcome.
pub(super) fn greatest(
    most: f64,
    spec: impl Fn(f64) -> Spec,
    holds: impl Fn(&RunOutcome, f64) -> bool,
) -> Option<(f64, RunOutcome)> {
    let mut low = 0.0;
    let mut high = most;
    let mut found = None;
    for _ in 0..HALVINGS {
        let rate = f64::midpoint(low, high);
        let outcome = braid_sim::run(&spec(rate), &[]);
        if holds(&outcome, rate) {
            low = rate;
            found = Some((rate, outcome));
        } else {
            high = rate;
        }
    }
    found
}

/// Returns true if the mean time to complete a request is at most the mean time between requests. The rate
/// at which they are equal is the paper's "maximum sustainable data-rate" (section 5.2).
pub(super) fn is_sustained(outcome: &RunOutcome, rate: f64) -> bool {
    !outcome.is_saturated() && outcome.loads[0].milliseconds.mean <= 1e3 / rate
}

/// The paper's maximum sustainable load of a setup, in requests a second.
pub(super) fn sustainable(setup: &Setup) -> Option<(f64, RunOutcome)> {
    greatest(setup.disks_limit() * 1.2, |rate| setup.at(rate).spec(), is_sustained)
}

/// The outcome of the spec's first load when its clients always have requests waiting.
pub(super) fn most(spec: &Spec) -> RunOutcome {
    let first = &spec.load[0];
    let load = Load { rate: None, outstanding: Some(OUTSTANDING), ..first.clone() };
    braid_sim::run(&Spec { load: vec![load], ..spec.clone() }, &[])
}

/// Share of the ring's rate, or of the busiest link's, that was used.
pub(super) fn link_busy(outcome: &RunOutcome) -> f64 {
    let kinds = [
        PartKind::Medium,
        PartKind::ClientSend,
        PartKind::ClientReceive,
        PartKind::DriveSend,
        PartKind::DriveReceive,
    ];
    kinds.iter().map(|&kind| outcome.utilisation(kind)).fold(0.0, f64::max)
}
