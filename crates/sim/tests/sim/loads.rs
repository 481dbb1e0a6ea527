//! The effects of loads on each other and on the parts: reservations, saturation, caches, and what a run
//! reports about them.

use braid_sim::outcome::Ending;
use braid_sim::{RunOutcome, Spec, run, trace};

fn outcome(text: &str) -> RunOutcome {
    run(&Spec::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}")), &[])
}

/// A cluster whose link and processors take no time.
fn cluster(drives: u32, disk: &str, files: &str, more: &str) -> String {
    format!(
        "[cluster]\nclients = 4\ndrives = {drives}\n[files]\n{files}\n[parts]\ndisk = \"{disk}\"\nlink = \"free\"\n\
         client = \"free\"\ndrive = \"free\"\n{more}\n"
    )
}

const ONE: &str = "scheme = \"raid0\"\nwidth = 1\nunit = \"64K\"";

#[test]
fn a_load_with_much_in_flight_is_not_saturated() {
    // 1,000 disks with 13 ms for a request: 130 requests are in flight at 10,000 a second, and each disk is
    // busy for an eighth of the time.
    let files = format!("{ONE}\ncount = 3000\nsize = \"64K\"");
    let text = cluster(1000, "hdd-18tb", &files, "[[load]]\nrate = 10000.0\nsize = \"64K\"");
    let found = outcome(&text);
    assert_eq!(found.ending, Ending::Settled, "{:?}", found.loads);
}

#[test]
fn a_load_that_gets_no_turn_is_saturated() {
    // The hog always has something for the one disk, and goes first.
    let loads = "[run]\nrequests_max = 5000\n[[load]]\nname = \"hog\"\noutstanding = 4\nreserved = \"all\"\nsize = \"64K\"\n\
                 [[load]]\nname = \"starved\"\nrate = 5.0\nsize = \"64K\"";
    let found = outcome(&cluster(1, "hdd-18tb", &format!("{ONE}\nsize = \"1G\""), loads));
    let Ending::Saturated(saturated) = &found.ending else { panic!("{:?}", found.ending) };
    assert_eq!(saturated.load, "starved");
    assert!(found.loads[0].requests <= 40_000, "{}", found.loads[0].requests);
    assert!(found.loads[1].milliseconds.mean.is_sign_positive());
}

#[test]
fn reserved_loads_go_first_on_flash_too() {
    let loads = |reserved: &str| {
        format!(
            "[[load]]\nname = \"stream\"\nrate = 100.0\nsize = \"1M\"\nreserved = \"{reserved}\"\n\
             [[load]]\nname = \"rest\"\noutstanding = 30\nsize = \"1M\""
        )
    };
    let files = format!("{ONE}\nsize = \"1G\"");
    let mean = |reserved: &str| {
        outcome(&cluster(1, "nvme-2026", &files, &loads(reserved))).loads[0].milliseconds.mean
    };
    let nothing = mean("nothing");
    let disks = mean("disks");
    assert!(disks < 0.2 * nothing, "{disks} ms of {nothing}");
}

#[test]
fn a_cache_does_not_answer_for_what_was_never_there() {
    let mean = |cache: &str, fresh: bool| {
        let store = format!(
            "[parts.store]\nplacement = \"scattered\"\ncache = \"{cache}\"\n[[load]]\noutstanding = 1\nread = 0.0\n\
             size = \"64K\"\npattern = \"n-to-1\"\nfresh = {fresh}"
        );
        let files = "scheme = \"raid5\"\nwidth = 5\nunit = \"64K\"\nsize = \"64G\"";
        outcome(&cluster(5, "hdd-18tb", files, &store)).loads[0].milliseconds.mean
    };
    // The bytes to be replaced are read, the new bytes are written, and then the parity: three times 13 ms.
    let none = mean("0", false);
    let some = mean("1M", false);
    assert!((some / none - 1.0).abs() < 0.05, "{some} ms with a cache, {none} without");
    // In a file that ends where the write begins, nothing is read.
    let fresh = mean("0", true);
    assert!((fresh / none - 2.0 / 3.0).abs() < 0.05, "{fresh} ms of {none}");
}

#[test]
fn a_trace_counts_all_its_requests() {
    let text = cluster(1, "hdd-18tb", &format!("{ONE}\nsize = \"1G\""), "[[load]]\ntrace = \"x.csv\"");
    let spec = Spec::parse(&text).expect("a spec");
    // A spreadsheet's byte order mark, and 24 slow requests before 25 fast ones.
    let mut lines = format!("\u{feff}{}\r\n", trace::HEADER);
    for number in 0..49_u32 {
        let bytes = if number < 24 { 64 << 20 } else { 4096 };
        lines.push_str(&format!("{number},0,read,0,0,{bytes}\r\n"));
    }
    let found = run(&spec, &trace::parse(&lines, &spec).expect("a trace"));
    let times = found.loads[0].milliseconds;
    assert!(times.mean > 0.4 * times.p99, "{times:?}");
    let huge = format!("{}\n0,0,read,0,0,2000000000\n", trace::HEADER);
    let big = Spec::parse(&text.replace("\"1G\"", "\"4G\"")).expect("a spec");
    assert!(trace::parse(&huge, &big).expect_err("too much").to_string().contains("at most 1 GiB"));
}
