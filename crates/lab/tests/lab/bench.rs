//! The benches run, report results and leave nothing behind. The figures themselves are not asserted.

use std::fs;
use std::process::Stdio;

use crate::support::{Place, finish, lab, run, runs, said, signal, until};

#[test]
fn every_row_of_the_store_has_its_ratio() {
    let place = Place::new();
    let dir = place.file("here");
    let out = place.file("results/of today");
    fs::create_dir(&dir).expect("made");
    let mut command = lab();
    command.args(["bench", "store", "--quick", "--json", "--dir"]).arg(&dir).arg("--out").arg(&out);
    let document = run(command).ok().json();
    assert_eq!(document["quick"], true);
    assert_eq!(document["places"][0]["directory"], dir.to_str().expect("UTF-8"));
    assert!(document["machine"]["cpus"].as_u64().is_some_and(|cpus| cpus > 0), "{document}");
    let rows = document["rows"].as_array().expect("a list");
    let memory = document["places"][0]["memory"] == true;
    let sending = rows.iter().filter(|row| row["experiment"] == "Sending").count();
    // One row for each of seven lengths.
    assert_eq!(sending, 7);
    assert_eq!(rows.len() - sending, if memory { 13 } else { 34 });
    for row in rows {
        for (group, key) in [("ratio", "median"), ("braid", "bytes_per_second"), ("raw", "bytes_per_second")]
        {
            assert!(row[group][key].as_f64().is_some_and(|value| value > 0.0), "{group} {key} of {row}");
        }
        let spread = ["min", "median", "max"].map(|key| row["ratio"][key].as_f64().expect("a number"));
        assert!(spread.is_sorted(), "{row}");
        assert!(row["braid"]["cpu_seconds_per_gib"].is_number(), "{row}");
    }
    for name in ["write whole units", "read whole units", "random read", "read"] {
        assert!(rows.iter().any(|row| row["name"] == name), "no row {name}");
    }
    let times = document["times"].as_array().expect("a list");
    assert_eq!(times.len(), 3);
    for time in times {
        assert!(time["records"].as_u64().is_some_and(|records| records > 0), "{time}");
        assert!(time["seconds"]["median"].as_f64().is_some_and(|seconds| seconds > 0.0), "{time}");
    }
    let points = document["amplification"].as_array().expect("a list");
    assert_eq!(points.len(), 12);
    for point in points {
        for key in ["measured", "simulated"] {
            assert!(point[key].as_f64().is_some_and(|bytes| bytes >= 1.0), "{key} of {point}");
        }
    }
    let written = |name: &str| fs::read_to_string(out.join(name)).expect(name);
    let markdown = written("store.md");
    let svg = written("store.svg");
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    let figures = rows.len() + times.len() + points.len();
    assert_eq!(markdown.lines().filter(|line| line.contains(" | **")).count(), figures);
    assert_eq!(fs::read_dir(&dir).expect("read").count(), 0, "something is left");
    assert_eq!(fs::read_dir(&out).expect("read").count(), 2, "something is left");
}

#[test]
fn rows_can_be_measured_alone() {
    let place = Place::new();
    let bench = |only: &str| {
        let mut command = lab();
        command.args(["bench", "store", "--quick", "--json", "--only", only, "--dir"]).arg(place.file(""));
        run(command)
    };
    let document = bench("read 512 B").ok().json();
    let rows = document["rows"].as_array().expect("a list");
    assert!(!rows.is_empty());
    for row in rows {
        assert_eq!((&row["name"], &row["request_bytes"]), (&"read".into(), &512.into()));
    }
    let count = |document: &serde_json::Value, key: &str| document[key].as_array().map(Vec::len);
    assert_eq!((count(&document, "times"), count(&document, "amplification")), (Some(0), Some(0)));
    let document = bench("write amplification").ok().json();
    assert_eq!((count(&document, "rows"), count(&document, "amplification")), (Some(0), Some(12)));
    bench("read 513 B").failed(2, "none of them has \"read 513 B\" in its title");
    assert_eq!(fs::read_dir(place.file("")).expect("read").count(), 0, "something is left");
}

#[test]
fn an_interrupted_bench_removes_its_files() {
    let place = Place::new();
    let mut command = lab();
    command.args(["bench", "store", "--quick", "--dir"]).arg(place.file(""));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let entries = || fs::read_dir(place.file("")).expect("read").count();
    until("it has begun", || entries() > 0);
    signal(child.id(), "INT");
    let ended = said(finish(child));
    ended.failed(130, "interrupted");
    assert_eq!(entries(), 0, "something is left");
}

#[test]
fn what_parts_cost_is_found_and_can_be_simulated() {
    let place = Place::new();
    let dir = place.file("here");
    let parts_file = place.file("parts.toml");
    let spec = place.file("spec.toml");
    fs::create_dir(&dir).expect("made");
    let mut command = lab();
    command.args(["bench", "calibrate", "--quick", "--dir"]).arg(&dir).arg("--out").arg(&parts_file);
    let said = run(command).ok();
    let parts = fs::read_to_string(&parts_file).expect("written");
    assert_eq!(said.text(), parts);
    let spec_text = "[cluster]\nclients = 1\ndrives = 5\n[files]\nscheme = \"raid5\"\nwidth = 5\nunit = \"512K\"\n\
                 [[load]]\noutstanding = 1\nsize = \"4K\"\n";
    fs::write(&spec, spec_text).expect("written");
    let simulate = || {
        let mut command = lab();
        command.args(["sim", "run", "--json", "--parts"]).arg(&parts_file).arg(&spec);
        run(command)
    };
    let found = simulate().ok().json();
    assert!(found[0]["outcome"]["loads"][0]["per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{found}");
    assert_eq!(fs::read_dir(&dir).expect("read").count(), 0, "something is left");
    fs::write(&spec, format!("{spec_text}{parts}")).expect("written");
    simulate().failed(2, "parts: they are handed in beside the spec");
}

#[test]
fn rows_of_volumes_have_their_figures() {
    let place = Place::new();
    let dir = place.file("here");
    fs::create_dir(&dir).expect("made");
    let volumes = |only: &str| {
        let mut command = lab();
        command.args(["bench", "volumes", "--quick", "--json", "--only", only, "--dir"]).arg(&dir);
        run(command)
    };
    volumes("no such row").failed(2, "none of them has \"no such row\" in its name");
    // One group: all of them take minutes, also when quick.
    let document = volumes("names that come back").ok().json();
    let rows = document["rows"].as_array().expect("a list");
    assert_eq!((rows.len(), &document["left_out"]), (1, &serde_json::json!([])));
    assert_eq!((&rows[0]["value"], &rows[0]["met"]), (&1.0.into(), &true.into()), "{document}");
    assert_eq!(fs::read_dir(&dir).expect("read").count(), 0, "something is left");
}

#[test]
fn rails_are_measured_beside_plain_tcp() {
    let place = Place::new();
    let mut command = lab();
    command.args(["bench", "net", "--quick", "--json", "--only", "rails", "--dir"]).arg(place.file(""));
    let document = run(command).ok().json();
    let rows = document["rows"].as_array().expect("a list");
    if let Some(left_out) = document["left_out"].as_array().expect("a list").first() {
        assert!(left_out["why"].as_str().expect("text").contains("limited links need"), "{document}");
        return;
    }
    assert_eq!(rows.len(), 2, "{document}");
    for row in rows {
        // Both rails of the second run have carried.
        let found = row["found"].as_str().expect("text");
        assert!(found.contains("over two (") && !found.contains("(100 % and 0 %)"), "{found}");
        assert!(found.contains("plain TCP") && row["value"].as_f64().expect("a number") > 0.0, "{document}");
    }
    assert_eq!(fs::read_dir(place.file("")).expect("read").count(), 0, "something is left");
}

#[test]
fn datagrams_are_measured_beside_tcp() {
    let place = Place::new();
    let [dir, out] = ["here", "results"].map(|name| place.file(name));
    fs::create_dir(&dir).expect("made");
    let mut command = lab();
    command.args(["bench", "transport", "--quick", "--json", "--dir"]).arg(&dir).arg("--out").arg(&out);
    let document = run(command).ok().json();
    let rows = document["rows"].as_array().expect("a list");
    let left_out = document["left_out"].as_array().expect("a list");
    let why: Vec<&str> = left_out.iter().map(|left| left["why"].as_str().expect("text")).collect();
    let lacks = |what: &str| why.iter().any(|why| why.contains(what));
    assert!(
        why.iter().all(|why| why.contains("limited links need") || why.contains("need nftables")),
        "{why:?}"
    );
    for (group, needs_links, needs_nft) in [
        ("loopback", false, false),
        ("clean", true, false),
        ("loss", true, true),
        ("shared", true, false),
        ("incast", true, false),
        ("paper", true, false),
        ("away", true, false),
    ] {
        let of_group: Vec<_> = rows
            .iter()
            .filter(|row| row["name"].as_str().is_some_and(|name| name.starts_with(group)))
            .collect();
        let is_left_out = needs_links && lacks("limited links need") || needs_nft && lacks("need nftables");
        assert_eq!(of_group.is_empty(), is_left_out, "{group}: {document}");
        for row in of_group {
            assert!(row["value"].as_f64().is_some_and(|value| value > 0.0), "{row}");
        }
    }
    let text = fs::read_to_string(out.join("transport.md")).expect("a document");
    assert!(text.contains("TCP (cubic)") && text.contains("A quick run"), "{text}");
    assert_eq!(fs::read_dir(&dir).expect("read").count(), 0, "something is left");
}

#[test]
fn promises_are_measured_by_the_names_of_rows() {
    let place = Place::new();
    let mut command = lab();
    command.args(["bench", "promises", "--quick", "--only", "no such row", "--dir"]).arg(place.file(""));
    run(command).failed(2, "none of them has \"no such row\" in its name");
    assert_eq!(fs::read_dir(place.file("")).expect("read").count(), 0, "something is left");
}

#[test]
fn what_a_quick_prediction_leaves_out_is_named() {
    let place = Place::new();
    let predict = |only: &str| {
        let mut command = lab();
        command.args(["bench", "predict", "--quick", "--json", "--only", only, "--dir"]).arg(place.file(""));
        run(command)
    };
    let document = predict("E1 ").ok().json();
    let left_out = document["left_out"].as_array().expect("a list");
    assert_eq!((document["rows"].as_array().map(Vec::len), left_out.len()), (Some(0), 2), "{document}");
    assert!(document["parts"].as_str().is_some_and(|parts| parts.contains("[parts.client]")), "{document}");
    predict("no such row").failed(2, "none of them has \"no such row\" in its name");
    assert_eq!(fs::read_dir(place.file("")).expect("read").count(), 0, "something is left");
}

#[test]
fn where_it_cannot_measure_is_said_at_once() {
    let place = Place::new();
    let file = place.make("file", 10);
    let bench = |option: &str, path: &std::path::Path| {
        let mut command = lab();
        command.args(["bench", "store", "--quick", option]).arg(path);
        run(command)
    };
    bench("--dir", &place.file("missing")).failed(3, "no such file or directory");
    bench("--dir", &file).failed(4, "not a directory");
    bench("--out", &file.join("below")).failed(4, "not a directory");
}

#[test]
fn every_row_of_the_stripes_has_its_ratio() {
    let place = Place::new();
    let dir = place.file("here");
    let out = place.file("results");
    fs::create_dir(&dir).expect("made");
    let mut command = lab();
    command.args(["bench", "stripes", "--quick", "--json", "--dir"]).arg(&dir).arg("--out").arg(&out);
    let document = run(command).ok().json();
    assert_eq!((&document["experiment"], &document["quick"]), (&"stripes".into(), &true.into()));
    let rows = document["rows"].as_array().expect("a list");
    let of = |experiment: &str| rows.iter().filter(|row| row["experiment"] == experiment).count();
    assert_eq!([of("E18"), of("catch-up"), of("E19"), of("E15")], [3, 2, 8, 3]);
    for row in rows {
        for value in [&row["ratio"]["median"], &row["first"]["median"], &row["second"]["median"]] {
            assert!(value.as_f64().is_some_and(|value| value > 0.0), "{row}");
        }
        assert_eq!(row["goal"].is_null(), row["met"].is_null(), "{row}");
    }
    // These figures are counted, not timed: they are the same on any machine.
    let figure = |name: &str| {
        let row = rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no row {name}"));
        row["ratio"]["median"].as_f64().expect("a number")
    };
    let units = figure("4 KiB updates, bytes on the link");
    let stripes = figure("the same computed by the client");
    assert!(1.0 < units && units < 1.2 && 2.0 < stripes && stripes < 2.6, "{units} {stripes}");
    assert!(figure("1 % missed, in whole stripes") < 0.02);
    // Rows with limited links are left out, and listed as left out.
    let left_out = document["left_out"].as_array().expect("a list");
    assert!(left_out.iter().any(|row| row["name"].as_str().is_some_and(|name| name.starts_with("E16"))));
    let written = |name: &str| fs::read_to_string(out.join(name)).expect(name);
    assert!(written("stripes.svg").starts_with("<svg"));
    assert_eq!(written("stripes.md").lines().filter(|line| line.contains(" | **")).count(), rows.len());
    assert_eq!(fs::read_dir(&dir).expect("read").count(), 0, "something is left");
}

/// A bench of rates against a bound, of which only some rows are measured: all take minutes.
fn against(bench: &str, only: &str) -> serde_json::Value {
    let place = Place::new();
    let mut command = lab();
    command.args(["bench", bench, "--quick", "--json", "--only", only, "--dir"]).arg(place.file(""));
    let document = run(command).ok().json();
    assert_eq!((&document["experiment"], &document["quick"]), (&bench.into(), &true.into()));
    for row in document["rows"].as_array().expect("a list") {
        assert!(row["first"]["value"]["median"].as_f64().is_some_and(|value| value > 0.0), "{row}");
        assert_eq!(row["second"].is_null(), row["ratio"].is_null(), "{row}");
        for side in [&row["first"], &row["second"]] {
            let cpu = &side["cpu_seconds_per_gib"];
            assert!(cpu.is_null() || cpu.as_f64().is_some_and(|cpu| cpu >= 0.0), "{row}");
        }
    }
    assert_eq!(fs::read_dir(place.file("")).expect("read").count(), 0, "something is left");
    document
}

fn row_names(document: &serde_json::Value) -> Vec<&str> {
    let rows = document["rows"].as_array().expect("a list");
    rows.iter().map(|row| row["name"].as_str().expect("a name")).collect()
}

#[test]
fn bounds_are_of_sockets_and_of_memory() {
    assert_eq!(
        row_names(&against("bound", "sockets")),
        ["5 senders to one process", "one process to 5 receivers"]
    );
    let names = ["memcpy", "XOR 4 to 1", "CRC32C of 4 KiB blocks"];
    let expected: Vec<String> =
        names.iter().flat_map(|name| ["cold", "hot"].map(|state| format!("{name}, {state}"))).collect();
    assert_eq!(row_names(&against("bound", "memory")), expected);
}

#[test]
fn transfers_are_beside_plain_ones() {
    assert_eq!(row_names(&against("local", "sequential read")).first(), Some(&"sequential read"));
    let document = against("array", "read 8 KB");
    assert_eq!(row_names(&document), ["read 8 KB, raid4 over raid0", "read 8 KB, raid5 over raid0"]);
    assert_eq!(row_names(&against("array", "parity arithmetic")).len(), 1);
}

#[test]
fn peers_that_are_not_there_are_named() {
    let document = against("peers", "NFS-Ganesha");
    let left_out = document["left_out"].as_array().expect("a list");
    assert!(
        left_out.len() == 1 && left_out[0]["why"].as_str().is_some_and(|why| why.contains("installed")),
        "{document}"
    );
}

/// Begins a bench of a cluster, interrupts it once a drive serves in the cluster of this name, and checks
/// that nothing is left.
fn interrupted(bench: &str, cluster: &str) {
    let place = Place::new();
    let mut command = lab();
    command.args(["bench", bench, "--quick", "--dir"]).arg(place.file(""));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let here = place.file("");
    // The pid file of a drive exists once the drive serves.
    let pid_file = || {
        let found = fs::read_dir(&here).expect("read").flatten().next()?;
        Some(found.path().join(cluster).join("pids/drive-1")).filter(|path| path.exists())
    };
    until("a drive serves", || pid_file().is_some());
    let record = fs::read_to_string(pid_file().expect("there")).expect("read");
    let pid = record.lines().find_map(|line| line.strip_prefix("pid = ")).expect("a process id");
    let pid: u32 = pid.trim().parse().expect("a number");
    signal(child.id(), "INT");
    said(finish(child)).failed(130, "interrupted");
    assert!(!runs(pid), "a drive is left");
    assert_eq!(fs::read_dir(&here).expect("read").count(), 0, "something is left");
}

#[test]
fn interrupted_stripes_leave_no_process_and_no_file() {
    interrupted("stripes", "e18");
}

#[test]
fn interrupted_small_work_leaves_no_process_and_no_file() {
    interrupted("small", "small");
}

#[test]
fn every_row_of_small_work_has_its_figures() {
    let place = Place::new();
    let dir = place.file("here");
    let out = place.file("results");
    fs::create_dir(&dir).expect("made");
    let mut command = lab();
    command.args(["bench", "small", "--quick", "--json", "--dir"]).arg(&dir).arg("--out").arg(&out);
    let document = run(command).ok().json();
    assert_eq!((&document["experiment"], &document["quick"]), (&"small".into(), &true.into()));
    let rows = document["rows"].as_array().expect("a list");
    // Seven single operations with three numbers in flight, and three operations on trees.
    assert_eq!(rows.len(), 7 * 3 + 3);
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    for row in rows {
        for value in
            [&row["per_second"]["median"], &row["plain"]["per_second"], &row["plain"]["ratio"]["median"]]
        {
            assert!(number(value) > 0.0, "{row}");
        }
        assert_eq!(row["p50_us"].is_null(), row["in_flight"].is_null(), "{row}");
        assert!(row["p50_us"].is_null() || number(&row["p50_us"]) <= number(&row["p99_us"]), "{row}");
        let parts = ["client", "drives", "manager"].map(|process| &row["cpu_us"][process]);
        let sum: f64 = parts.iter().map(|part| number(&part["user"]) + number(&part["kernel"])).sum();
        assert!((sum - number(&row["cpu_total_us"])).abs() < 1e-6, "{row}");
        assert!(row["plain"]["manager_sockets"].as_u64() > Some(0), "{row}");
    }
    // The counts match the files that are there.
    let figure = |operation: &str, in_flight: Option<u32>, key: &str| {
        let is_it = |row: &&serde_json::Value| {
            row["operation"] == operation && row["in_flight"] == serde_json::json!(in_flight)
        };
        let row = rows.iter().find(is_it).unwrap_or_else(|| panic!("no row {operation} {in_flight:?}"));
        row[key].as_u64()
    };
    for in_flight in [Some(1), Some(16), Some(64)] {
        let made = figure("create", in_flight, "operations");
        assert!(made > Some(0));
        assert_eq!(figure("create", in_flight, "files_there"), made);
        assert_eq!(figure("unlink", in_flight, "operations"), made);
        assert_eq!(figure("unlink", in_flight, "files_there"), Some(0));
        for operation in ["open_read", "stat", "list", "read", "overwrite"] {
            assert!(figure(operation, in_flight, "operations") > Some(0), "{operation}");
        }
    }
    for (operation, there) in [("copy_in", 60), ("copy_out", 60), ("remove_tree", 0)] {
        assert_eq!(figure(operation, None, "operations"), Some(60));
        assert_eq!(figure(operation, None, "files_there"), Some(there), "{operation}");
    }
    let syncs = document["syncs"].as_array().expect("a list");
    assert!(syncs.len() == 2 && syncs.iter().all(|sync| number(&sync["per_second"]["median"]) > 0.0));
    let written = |name: &str| fs::read_to_string(out.join(name)).expect(name);
    assert!(written("small.svg").starts_with("<svg"));
    assert_eq!(written("small.md").lines().filter(|line| line.contains(" | **")).count(), rows.len());
    assert_eq!(fs::read_dir(&dir).expect("read").count(), 0, "something is left");
}

#[test]
fn rows_of_small_work_can_be_measured_alone() {
    let place = Place::new();
    let bench = |only: &str| {
        let mut command = lab();
        command.args(["bench", "small", "--quick", "--json", "--only", only, "--dir"]).arg(place.file(""));
        run(command)
    };
    let document = bench("unlink, 16").ok().json();
    let names: Vec<&serde_json::Value> =
        document["rows"].as_array().expect("a list").iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["unlink, 16 in flight"]);
    bench("unlink, 17").failed(2, "none of them has \"unlink, 17\" in its name");
    assert_eq!(fs::read_dir(place.file("")).expect("read").count(), 0, "something is left");
}
