//! Queues with known answers: the engine, fed by specs, agrees with the formulas within the intervals that it
//! states. Seeds are fixed, so a test that passes once passes always.

use std::fmt::Write;

use braid_sim::outcome::{Ending, PartKind};
use braid_sim::{RunOutcome, Spec, run};

/// A spec of one client and `drives` disks with these times, where nothing else takes time.
fn spec(disk: &str, drives: u32, load: &str, run: &str) -> Spec {
    let mut text = format!(
        "seed = 12\n[cluster]\nclients = 1\ndrives = {drives}\n[files]\nscheme = \"raid0\"\nwidth = {drives}\n\
         unit = \"4K\"\n[parts]\nlink = \"free\"\nclient = \"free\"\ndrive = \"free\"\n"
    );
    let _ = write!(
        text,
        "[parts.disk]\n{disk}\n[parts.store]\nplacement = \"scattered\"\n[[load]]\n{load}\n[run]\n{run}\n"
    );
    Spec::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const FAST: &str = "read_rate = \"1000PB/s\"\nwrite_rate = \"1000PB/s\"";
const LONG: &str = "confidence = 99\nprecision = 0.02\nrequests_max = 1_000_000";

/// Checks the mean time and the disk's utilisation of an open queue. Milliseconds.
fn check(outcome: &RunOutcome, mean_ms: f64, utilisation: f64) {
    assert_eq!(outcome.ending, Ending::Settled);
    let times = outcome.loads[0].milliseconds;
    let half = times.half.expect("it settled");
    assert!((times.mean - mean_ms).abs() <= half, "{} +- {half}, not {mean_ms}", times.mean);
    assert!(half <= 0.02 * times.mean);
    let busy = outcome.utilisation(PartKind::Disk);
    assert!((busy - utilisation).abs() < 0.02, "{busy}, not {utilisation}");
}

#[test]
fn a_queue_with_exponential_service() {
    // M/M/1: T = s / (1 - rho).
    for (rate, rho) in [(30.0, 0.3), (70.0, 0.7)] {
        let load = format!("rate = {rate:?}\nsize = \"4K\"");
        let disk = format!("seek = {{ exponential = \"10ms\" }}\n{FAST}");
        check(&run(&spec(&disk, 1, &load, LONG), &[]), 10.0 / (1.0 - rho), rho);
    }
}

#[test]
fn a_queue_with_constant_service() {
    // M/D/1: T = s + rho s / (2 (1 - rho)).
    let rho = 0.8;
    let disk = format!("seek = {{ constant = \"10ms\" }}\n{FAST}");
    let outcome = run(&spec(&disk, 1, "rate = 80.0\nsize = \"4K\"", LONG), &[]);
    check(&outcome, 10.0 + rho * 10.0 / (2.0 * (1.0 - rho)), rho);
}

#[test]
fn a_queue_for_a_disk() {
    // M/G/1: T = E[S] + rate E[S^2] / (2 (1 - rho)), with a uniform seek, a uniform rotation and a transfer
    // of 12.8 ms: Swift's disk.
    let disk = "seek = { uniform = [\"0ms\", \"32ms\"] }\nrotation = { uniform = [\"0ms\", \"16.6ms\"] }\n\
                read_rate = \"320KB/s\"\nwrite_rate = \"320KB/s\"";
    let mean = 16.0 + 8.3 + 12.8;
    let variance = 32.0_f64.powi(2) / 12.0 + 16.6_f64.powi(2) / 12.0;
    let rate = 0.018; // a millisecond
    let rho = rate * mean;
    let waiting = rate * (variance + mean * mean) / (2.0 * (1.0 - rho));
    let outcome = run(&spec(disk, 1, "rate = 18.0\nsize = \"4K\"", LONG), &[]);
    check(&outcome, mean + waiting, rho);
}

#[test]
fn one_request_over_several_disks_takes_as_long_as_the_slowest() {
    // The mean of the greatest of n uniform times from 0 to b is n / (n + 1) b.
    for disks in [2_u32, 8, 31] {
        let disk = format!("seek = {{ uniform = [\"0ms\", \"20ms\"] }}\n{FAST}");
        let size = u64::from(disks) * 4096;
        let load = format!("outstanding = 1\nsize = \"{size}\"");
        let outcome = run(&spec(&disk, disks, &load, LONG), &[]);
        let expected = f64::from(disks) / f64::from(disks + 1) * 20.0;
        let times = outcome.loads[0].milliseconds;
        let half = times.half.expect("it settled");
        assert!((times.mean - expected).abs() <= half, "{disks}: {} +- {half}, not {expected}", times.mean);
        assert!(half <= 0.02 * expected);
    }
}

#[test]
fn a_lone_disk_transfers_32_kb_in_37_ms() {
    // Swift, section 5.2: "transferring 32 kilobytes required about 37 milliseconds on the average".
    let text = "[cluster]\nclients = 1\ndrives = 1\n[files]\nscheme = \"raid0\"\nwidth = 1\nunit = \"32K\"\n\
                [parts]\ndisk = \"fujitsu-m2372k\"\nlink = \"free\"\nclient = \"free\"\ndrive = \"free\"\n\
                [parts.store]\nplacement = \"scattered\"\n[[load]]\noutstanding = 1\nsize = \"32K\"\n\
                [run]\nprecision = 0.003\nrequests_max = 1_000_000\n";
    let outcome = run(&Spec::parse(text).expect("a spec"), &[]);
    let times = outcome.loads[0].milliseconds;
    assert!((times.mean - 37.1).abs() <= times.half.expect("it settled"), "{times:?}");
    assert!((times.mean - 37.1).abs() < 0.15, "{times:?}");
}

#[test]
fn what_is_too_much_is_said_and_ends() {
    // The disk can do 100 requests a second.
    let disk = format!("seek = {{ exponential = \"10ms\" }}\n{FAST}");
    for rate in ["105.0", "200.0", "100000.0"] {
        let outcome =
            run(&spec(&disk, 1, &format!("rate = {rate}\nsize = \"4K\""), "requests_max = 100_000"), &[]);
        let Ending::Saturated(saturated) = &outcome.ending else { panic!("{rate}: {:?}", outcome.ending) };
        assert!((saturated.per_second - 100.0).abs() < 12.0, "{rate}: {saturated:?}");
        assert!(outcome.events < 1_000_000, "{rate}: {} events", outcome.events);
    }
}

#[test]
fn a_bound_on_events_holds() {
    let disk = format!("seek = {{ exponential = \"10ms\" }}\n{FAST}");
    let bounds = "precision = 0.000001\nevents_max = 5000";
    let outcome = run(&spec(&disk, 1, "rate = 50.0\nsize = \"4K\"", bounds), &[]);
    assert_eq!((outcome.ending, outcome.events), (Ending::Bound, 5000));
}

#[test]
fn a_request_in_an_age_ends_too() {
    let disk = format!("seek = {{ constant = \"10ms\" }}\n{FAST}");
    let outcome = run(&spec(&disk, 1, "rate = 0.00000001\nsize = \"4K\"", ""), &[]);
    assert_eq!(outcome.ending, Ending::Bound, "a century is over before there are enough");
}

#[test]
fn clients_that_think_are_as_many_as_there_are() {
    // One client, one request, exponential service and thinking: a cycle takes s + z, and the disk is busy
    // for s of it.
    let disk = format!("seek = {{ exponential = \"10ms\" }}\n{FAST}");
    let outcome = run(&spec(&disk, 1, "outstanding = 1\nthink = \"30ms\"\nsize = \"4K\"", LONG), &[]);
    let load = &outcome.loads[0];
    assert!((load.per_second - 25.0).abs() < 0.5, "{}", load.per_second);
    assert!((load.milliseconds.mean - 10.0).abs() <= load.milliseconds.half.expect("it settled"));
    assert!((outcome.utilisation(PartKind::Disk) - 0.25).abs() < 0.01);
}
