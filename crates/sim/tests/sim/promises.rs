//! Promised rates: what admission lets in is never late, and what makes no sense is refused.

use std::sync::atomic::AtomicBool;

use braid_sim::promises::{PromisesOutcome, PromisesSpec, carries, csv, run};
use braid_sim::report::Ran;
use braid_sim::spec::points;
use braid_sim::sweep::{self, Watch};

const EXAMPLE: &str = include_str!("../../../../docs/sim/promises.toml");

/// Twelve disks whose operations always take 10 ms and their bytes at 100 MB/s.
const CONSTANT: &str = "\
[promises]
drives = 12
duration = \"12s\"
[parts]
link = \"1GbE\"
[parts.disk]
seek = { constant = \"10ms\" }
read_rate = \"100MB/s\"
write_rate = \"100MB/s\"
[[stream]]
name = \"readers\"
count = 30
rate = \"4MB/s\"
[[stream]]
name = \"writers\"
count = 10000
direction = \"write\"
rate = \"2MB/s\"
scheme = \"raid5\"
width = 4
unit = \"256K\"
";

const OVERLOAD: &str = "[best_effort]\noverload = 10.0\nsize = \"256K\"\n";
const LOSS: &str = "[loss]\nat = \"4s\"\nstored = \"64M\"\nrate = \"8MB/s\"\n";

fn simulated(text: &str) -> PromisesOutcome {
    let spec = PromisesSpec::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    run(&spec).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn the_example_keeps_its_promises() {
    let outcome = simulated(EXAMPLE);
    assert_eq!(outcome.late_periods, 0);
    let [recorders, video] = &outcome.classes[..] else { panic!("{:?}", outcome.classes) };
    assert_eq!((recorders.admitted, &recorders.refusal), (10, &None));
    let refusal = video.refusal.as_ref().expect("3000 are too many");
    assert!(refusal.why.starts_with("the disk of drive ") && refusal.offered.is_some(), "{refusal:?}");
    let rebuild = outcome.rebuild.expect("a drive is lost");
    let took = rebuild.seconds.expect("there is time enough");
    assert!((took / rebuild.eta_seconds - 1.0).abs() < 0.1, "{rebuild:?}");
    let best = outcome.best_effort.expect("there is one");
    assert!(best.of_left > 0.9, "{best:?}");
    assert!(outcome.booked_worst.is_some_and(|worst| worst.max <= 0.8 && worst.mean > 0.7));
}

#[test]
fn what_is_admitted_is_never_late_if_operations_take_what_they_are_charged() {
    for beside in ["", OVERLOAD, LOSS, &format!("{OVERLOAD}{LOSS}")] {
        let outcome = simulated(&format!("{CONSTANT}{beside}"));
        assert_eq!(outcome.late_periods, 0, "{beside}\n{outcome:?}");
        let [readers, writers] = &outcome.classes[..] else { panic!("{:?}", outcome.classes) };
        assert_eq!(readers.admitted, 30);
        assert!(writers.admitted > 10 && writers.admitted < 10_000, "{writers:?}");
        assert!(writers.bytes_per_second > 1.99e6 * f64::from(writers.admitted), "{writers:?}");
        for class in [readers, writers] {
            assert!(class.drives_worst_ms <= class.bound_ms && class.start_ms <= class.start_bound_ms);
        }
    }
}

#[test]
fn streams_that_nobody_asked_whether_they_fit_are_late() {
    let text = CONSTANT.replace("drives = 12", "drives = 12\nadmission = \"none\"");
    let fits = text.replace("count = 10000", "count = 40");
    assert!(carries(&PromisesSpec::parse(&fits).expect("a spec")));
    let far_too_many = text.replace("count = 10000", "count = 200");
    let spec = PromisesSpec::parse(&far_too_many).expect("a spec");
    assert!(!carries(&spec));
    let outcome = run(&spec).expect("no drive refuses");
    assert!(outcome.late_periods > 0 && outcome.booked.is_none());
    assert_eq!(outcome.admitted, 230);
}

#[test]
fn a_run_ends_when_a_drive_refuses_what_is_asked() {
    let stream = "[[stream]]\nname = \"one\"\ncount = 4\nrate = \"600kB/s\"\nscheme = \"raid0\"\nwidth = 2\nunit = \"4K\"\n\
                  survive = 0\n";
    let cluster = &CONSTANT[..CONSTANT.find("[[stream]]").expect("streams")];
    let cluster = cluster.replace("drives = 12", "drives = 2\nadmission = \"none\"").replace("12s", "3000s");
    let spec = PromisesSpec::parse(&format!("{cluster}{stream}")).expect("a spec");
    let error = run(&spec).expect_err("each is as much as a disk can do").to_string();
    assert!(error.contains(" is overloaded: after "), "{error}");
    assert!(!carries(&spec));
}

#[test]
fn many_streams_of_variable_rate_are_more_by_their_mean_than_by_their_peak() {
    let shape = "count = 10000\nscheme = \"raid5\"\nwidth = 4\nunit = \"256K\"";
    let base = CONSTANT.replace("count = 30", shape);
    let admitted = |rate: &str, admission: &str| {
        let text = base.replace("\"4MB/s\"", rate);
        let text = text.replace("drives = 12", &format!("drives = 12\nadmission = \"{admission}\""));
        let outcome = simulated(&text.replace("12s", "3s"));
        assert!(admission == "statistical" || outcome.late_periods == 0);
        outcome.classes[0].admitted
    };
    let constant = "\"1MB/s\"";
    let variable = "\"1MB/s\"\npeak = \"3MB/s\"";
    assert_eq!(admitted(constant, "statistical"), admitted(constant, "deterministic"));
    let peak = admitted(variable, "deterministic");
    let mean = admitted(variable, "statistical");
    assert!(f64::from(mean) > 1.4 * f64::from(peak), "{mean} and {peak}");
    assert!(mean < admitted(constant, "deterministic"));
}

#[test]
fn the_same_seed_gives_the_same_on_one_thread_and_on_four() {
    let sweep = "[[sweep]]\nkey = \"promises.drives\"\nvalues = [5, 8, 12]\n[[sweep]]\nkey = \"seed\"\nvalues = [1, 2]\n";
    let text = CONSTANT.replace("{ constant = \"10ms\" }", "{ uniform = [\"0ms\", \"20ms\"] }");
    let text = format!("{}{OVERLOAD}{LOSS}{sweep}", text.replace("12s", "6s"));
    let spec = PromisesSpec::parse(&text).expect("a spec");
    let points = points(&text, &spec).expect("six points");
    let of_threads = |threads| {
        let watch = Watch { stop: &AtomicBool::new(false), tell: &|_| {} };
        let ran = sweep::run(&points, threads, &watch, |point| Ran {
            values: point.values.clone(),
            outcome: run(&point.spec).expect("no drive refuses"),
        });
        ran.expect("nobody stopped it")
    };
    let one = of_threads(1);
    assert_eq!(one, of_threads(4));
    assert_eq!(csv(&one).lines().count(), 13);
    assert_ne!(one[0].outcome, one[1].outcome, "the seed is what it follows from");
}

#[test]
fn every_error_names_its_key_and_its_line() {
    let good = format!("{CONSTANT}{OVERLOAD}{LOSS}");
    let cases = [
        ("drives = 12", "drives = 1", "line 2: promises.drives: 1 is not possible: give 2 to"),
        ("duration = \"12s\"", "duration = \"0s\"", "line 3: promises.duration: 0ns is not possible"),
        ("duration", "admission = \"some\"\nduration", "line 3: admission: unknown variant `some`"),
        ("duration", "deviations = -1.0\nduration", "line 3: promises.deviations: -1 deviations"),
        ("1GbE", "swift-ring", "line 5: parts.link.medium: a medium that all share"),
        ("[parts.disk]", "[parts.disk]\nlanes = 0", "line 7: parts.disk.lanes: 0 is not possible"),
        ("count = 30", "count = 0", "line 12: stream.0.count: 0 is not possible"),
        ("\"4MB/s\"", "\"4MB/s\"\npeak = \"1MB/s\"", "line 14: stream.0.peak: a peak of 1MB/s below"),
        ("\"4MB/s\"", "\"4MB/s\"\nperiod = \"1us\"", "line 14: stream.0.period: a period of 1000 ns"),
        ("\"4MB/s\"", "\"4MB/s\"\nunit = \"1M\"", "line 10: stream.0: give scheme and unit together"),
        ("\"4MB/s\"", "\"4MB/s\"\nsurvive = 0", "line 14: stream.0.survive: the promise ends with the loss"),
        ("\"4MB/s\"", "\"4MB/s\"\nsurvive = 9", "line 14: stream.0.survive: no scheme survives 9"),
        ("width = 4", "width = 40", "line 19: stream.1.scheme: 40 columns need as many drives"),
        ("scheme = \"raid5\"", "scheme = \"raid6\"", "line 19: stream.1.scheme: unknown scheme"),
        ("raid5", "raid0", "line 14: stream.1.survive: raid0 4 survives 0 losses, not 1"),
        ("overload = 10.0", "overload = 0.0", "line 23: best_effort.overload: an overload of 0"),
        ("\"256K\"\n[loss]", "\"1G\"\n[loss]", "line 24: best_effort.size: operations of 1G"),
        ("at = \"4s\"", "at = \"12s\"", "line 26: loss.at: it is after the end, which is at 12s"),
        ("at = \"4s\"", "at = \"4s\"\ndrive = 12", "line 27: loss.drive: there is no drive 12"),
        ("[loss]", "[los]", "line 25: los: unknown field `los`"),
    ];
    let wrong = cases.map(|(from, to, expected)| {
        assert!(good.contains(from), "{from}");
        let message = PromisesSpec::parse(&good.replacen(from, to, 1)).expect_err(to).to_string();
        (!message.starts_with(expected)).then(|| format!("{message}\n  is not\n{expected}"))
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(PromisesSpec::is_one(&good));
    assert!(!PromisesSpec::is_one(include_str!("../../../../docs/sim/cluster.toml")));
}
