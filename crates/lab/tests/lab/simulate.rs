//! Plots of a sweep, and the paper's figures.

use std::fs;
use std::path::Path;

use crate::support::{Place, lab, run};

#[test]
fn a_sweep_is_plotted() {
    let place = Place::new();
    let out = place.file("plots");
    let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sim/sweep.toml");
    let mut command = lab();
    command.args(["sim", "run"]).arg(spec).arg("--out").arg(&out);
    run(command).ok();
    let begins: [(&str, &[u8]); 3] =
        [("sim-times.png", b"\x89PNG"), ("sim-rates.svg", b"<svg"), ("sim.csv", b"files.unit,")];
    for (name, begins) in begins {
        assert!(fs::read(out.join(name)).expect(name).starts_with(begins), "{name}");
    }
}

#[test]
fn a_figure_is_chosen_by_its_number() {
    let mut command = lab();
    command.args(["sim", "swift-1991", "--figure", "7"]);
    assert_eq!(run(command).code, 2);
}
