//! The same seed gives the same output: byte for byte, on any number of threads.

use std::sync::atomic::AtomicBool;

use braid_sim::Spec;
use braid_sim::report::{Ran, csv};
use braid_sim::spec::points;
use braid_sim::sweep::{Watch, run};

const SWEEP: &str = include_str!("../../../../docs/sim/sweep.toml");

fn swept(text: &str, threads: usize) -> String {
    let spec = Spec::parse(text).expect("the example is a spec");
    let points = points(text, &spec).expect("the example has points");
    let watch = Watch { stop: &AtomicBool::new(false), tell: &|_| {} };
    let ran = run(&points, threads, &watch, |point| Ran {
        values: point.values.clone(),
        outcome: braid_sim::run(&point.spec, &[]),
    });
    csv(&ran.expect("nobody stopped it"))
}

#[test]
fn a_sweep_gives_the_same_on_one_thread_and_on_two() {
    let one = swept(SWEEP, 1);
    assert_eq!(one, swept(SWEEP, 2));
    assert!(one.lines().count() > 4, "{one}");
    let other = swept(&SWEEP.replacen("seed = 1", "seed = 2", 1), 2);
    assert_ne!(one, other, "the seed is what it follows from");
}
