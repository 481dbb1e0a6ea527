//! The demo on a small file, with its bounds.

use std::fs;

use crate::support::{Place, lab, run};

#[test]
fn each_rate_has_its_bound_and_nothing_is_left() {
    let place = Place::new();
    let file = place.make("f", 1_234_567);
    let dir = place.file("here");
    fs::create_dir(&dir).expect("made");
    let mut command = lab();
    command.args(["demo", "--json", "--dir"]).arg(&dir).arg(&file);
    let said = run(command).ok();
    let lines = said.text().lines().map(|line| serde_json::from_str(line).expect("an object on each line"));
    let mut steps: Vec<serde_json::Value> = lines.collect();
    assert_eq!(steps.pop().expect("a summary at the end")["ok"], true, "{steps:?}");
    let rated: Vec<_> = steps.iter().filter(|step| step["ratio"].is_number()).collect();
    assert!(rated.len() >= 7, "{steps:?}");
    for step in rated {
        for key in ["bytes", "bytes_per_second", "bound_bytes_per_second", "ratio"] {
            assert!(step[key].as_f64().is_some_and(|value| value > 0.0), "{key} of {step}");
        }
    }
    assert_eq!(fs::read_dir(&dir).expect("read").count(), 0, "something is left");
}
