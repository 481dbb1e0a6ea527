//! Reserved rates: plans and refusals, files under them, what outlives what, and streams that use them.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Cluster, Said, braid, finish, noise, run, said, signal, until};

const MODEL: &str = "flash,iops=5000,read=200MB/s,write=150MB/s,sync=1ms";
/// Bytes a second below which a disk was measured while the machine was busy.
const MEASURED_MIN: u64 = 75_000_000;
/// Nanoseconds of an operation above which it was.
const OPERATION_MAX: u64 = 2_000_000;

/// A cluster whose modelled disks are measured when they start.
pub(crate) fn calibrated(drives: usize) -> Cluster {
    let cluster = Cluster::nowhere();
    let mut command = braid();
    command.args(["up", "--detach", "--drives", &drives.to_string(), "--disk-model", MODEL, "--dir"]);
    command.arg(cluster.dir());
    run(command).ok();
    calibrate(&cluster, drives, |row| {
        ["read", "write"].iter().all(|way| {
            let way = &row["cost"]["disk"][way];
            way["bytes_per_second"].as_u64() >= Some(MEASURED_MIN)
                && way["operation_ns"].as_u64().is_some_and(|ns| ns <= OPERATION_MAX)
        })
    });
    cluster
}

/// Measures disks until each drive's row of `drive ls --cost` is as it must be.
pub(crate) fn calibrate(cluster: &Cluster, drives: usize, is_good: impl Fn(&Value) -> bool) {
    until("all disks are measured", || {
        let shown = cluster.line("drive ls --cost --json").ok().json();
        let rows = shown.as_array().expect("a list");
        let mut left = rows.iter().filter(|row| !is_good(row)).peekable();
        let all = rows.len() == drives && left.peek().is_none();
        // On a busy machine a run may not have been enough, may have found a slow disk, or times of no disk.
        for row in left {
            let drive = row["drive"].as_str().expect("a name");
            let said = cluster.line(&format!("drive calibrate {drive}"));
            assert!([0, 1].contains(&said.code), "{}", said.err);
        }
        all
    });
}

/// The plan of a rate that is admitted.
#[track_caller]
fn admitted(cluster: &Cluster, asked: &str) -> Value {
    cluster.line(&format!("reserve --json {asked}")).ok().json()["admitted"].clone()
}

/// The refusal of a rate.
#[track_caller]
fn refused(cluster: &Cluster, asked: &str) -> Value {
    let said = cluster.line(&format!("reserve --json {asked}"));
    said.failed_with_output(15);
    said.json()["refused"].clone()
}

/// Names of all reservations.
fn names(cluster: &Cluster) -> Vec<String> {
    let listed = cluster.line("reserve ls --json").ok().json();
    let rows = listed["reservations"].as_array().expect("a list").clone();
    rows.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
}

fn drives(plan: &Value) -> Vec<String> {
    let mut drives: Vec<String> = plan["drives"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|drive| drive["name"].as_str().expect("a name").to_owned())
        .collect();
    drives.sort();
    drives
}

/// Asserts that a file has the layout of a plan and lies on its drives.
#[track_caller]
fn assert_as_planned(cluster: &Cluster, name: &str, plan: &Value) {
    let facts = cluster.braid(["stat", "--json", name]).ok().json();
    assert_eq!(facts["segments"][0]["shape"], plan["shape"], "{name}");
    let planned = drives(plan);
    for drive in cluster.columns(name) {
        assert!(planned.contains(&drive), "{name}: {drive} is none of {planned:?}");
    }
}

fn record(cluster: &Cluster, data: &[u8], args: &[&str]) -> Said {
    let mut command = cluster.command(["stream", "record"].iter().chain(args));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let mut input = child.stdin.take().expect("piped");
    let data = data.to_vec();
    let feeder = std::thread::spawn(move || input.write_all(&data));
    let said = said(finish(child));
    drop(feeder.join().expect("joined"));
    said
}

#[test]
fn rates_are_admitted_or_refused_and_outlive_the_manager() {
    let cluster = calibrated(5);
    nonsense_is_refused(&cluster);

    // A trial books nothing. What is booked is kept by a manager that is killed, and is not booked twice.
    assert_eq!(admitted(&cluster, "braid://main/cam --write 5MB/s --for 1h --dry-run")["reservation"], 0);
    assert_eq!(names(&cluster), [""; 0]);
    let plan = admitted(&cluster, "braid://main/cam --write 5MB/s --for 1h");
    assert_eq!((&plan["bytes_per_second"], &plan["survive"]), (&5_000_000.into(), &1.into()), "{plan}");
    cluster.line("reserve braid://main/cam --write 1MB/s --for 1h").failed(4, "reserve rm");
    cluster.restart_manager();
    until("the manager has heard from all drives", || {
        let status = cluster.status();
        status["drives"].as_array().expect("a list").iter().all(|drive| drive["state"] == "up")
    });
    assert_eq!(names(&cluster), ["braid://main/cam"]);
    let json_first = cluster.line("reserve --json ls").ok().json();
    assert_eq!(json_first["reservations"][0]["name"], "braid://main/cam");
    cluster.line("reserve braid://main/y --write 1MB/s --for 1h ls").failed(2, "without ls");
    let longer = cluster.line("reserve extend braid://main/cam --for 2h --json").ok().json();
    let left = |row: &Value| row["left_ms"].as_u64().expect("a time");
    assert!(left(&longer["admitted"]) > left(&plan) + 1_800_000, "{longer}");
    let small = cluster.make("small", 300_000, 1);
    cluster.put(&small, "braid://main/cam");
    assert_as_planned(&cluster, "braid://main/cam", &plan);
    cluster.line("reserve rm braid://main/cam").ok();
    cluster.line("reserve rm braid://main/cam").failed(3, "no such reservation");
    cluster.line("reserve extend braid://main/cam --for 1h").failed(3, "no such reservation");

    // What cannot be had is refused with what can.
    let refusal = refused(&cluster, "braid://main/fast --write 90GB/s --for 1m");
    assert!(!refusal["resource"].as_str().expect("text").is_empty(), "{refusal}");
    let offer = &refusal["offers"][0];
    let rate = offer["bytes_per_second"].as_u64().expect("a rate");
    let survive = offer["survive"].as_u64().expect("a number");
    let asked = format!("braid://main/fast --write {rate}B/s --for 1m --survive {survive}");
    assert_eq!(admitted(&cluster, &asked)["bytes_per_second"], rate);
    assert!(cluster.line("reserve braid://main/more --write 90GB/s --for 1m").out.starts_with(b"instead: "));
    cluster.line("reserve rm braid://main/fast").ok();

    // What nobody claims is given back.
    admitted(&cluster, "braid://main/idle --write 5MB/s --for 1h --claim-within 1s");
    until("it is given back", || names(&cluster).is_empty());

    under_a_directory(&cluster, &small);
    files_on_dead_drives(&cluster, &small);
}

fn nonsense_is_refused(cluster: &Cluster) {
    for wrong in [
        "--write 5parsec --for 1m",
        "--write 0MB/s --for 1m",
        "--write 5MB/s --for 1parsec",
        "--write 5MB/s",
        "--write 5MB/s --read 5MB/s --for 1m",
        "--write 5MB/s --for 1m --streams 0",
        "--write 5MB/s --for 1m --period 0ms",
        "--write 5MB/s --for 1m --survive 9",
        "--write 5MB/s --for 999d",
    ] {
        let said = cluster.line(&format!("reserve braid://main/x {wrong}"));
        assert_eq!(said.code, 2, "{wrong}: {}", said.err);
    }
    cluster.line("reserve braid://main/gone --read 5MB/s --for 1m").failed(3, "gone");
    assert_eq!(names(cluster), [""; 0]);
}

/// A directory's rate is for all files that are made in it.
fn under_a_directory(cluster: &Cluster, file: &Path) {
    cluster.line("mkdir braid://main/cams").ok();
    let plan = admitted(cluster, "braid://main/cams --write 4MB/s --for 1h --streams 2");
    for name in ["braid://main/cams/1", "braid://main/cams/2"] {
        cluster.put(file, name);
        assert_as_planned(cluster, name, &plan);
    }
    let listed = cluster.line("reserve ls --json").ok().json();
    let row = &listed["reservations"][0];
    assert_eq!(row["delivered"]["bytes"], 600_000, "{row}");
    assert_eq!(row["claim_within_ms"], Value::Null, "{row}");
    cluster.line("reserve rm braid://main/cams").ok();
}

fn files_on_dead_drives(cluster: &Cluster, file: &Path) {
    cluster.line("volume create bare --scheme raid0 --width 2").ok();
    cluster.put(file, "braid://bare/x");
    let asked = "braid://bare/x --read 1MB/s --for 1m --survive 0";
    admitted(cluster, asked);
    cluster.line("reserve rm braid://bare/x").ok();
    let dead = cluster.columns("braid://bare/x")[0].clone();
    cluster.kill_drive(&dead);
    until("the manager knows", || cluster.line(&format!("reserve --dry-run {asked}")).code == 15);
    let refusal = refused(cluster, asked);
    assert!(refusal["detail"].as_str().expect("text").contains(&dead), "{refusal}");
    // The dead drive does not keep the others from being measured, once nobody uses them.
    until("others are calibrated", || {
        let said = cluster.line("drive calibrate --json");
        assert!(said.code != 0 && said.err.contains(&dead), "{}: {}", said.code, said.err);
        !said.out.is_empty() && said.json()[0]["drive"] != dead
    });
}

#[test]
fn streams_are_recorded_and_played_under_reservations() {
    let cluster = calibrated(4);
    let content = noise(2_500_000, 9);
    let said = record(&cluster, &content, &["--json", "--rate", "20MB/s", "-", "braid://main/one"]);
    let report = ended(&said);
    assert_eq!((&report["streams"], &report["bytes"]), (&1.into(), &2_500_000.into()), "{report}");
    assert_eq!(report["reservations"].as_array().map(Vec::len), Some(1), "{report}");
    assert!(cluster.cat("braid://main/one") == content);
    record(&cluster, b"x", &["--rate", "1MB/s", "-", "braid://main/one"]).failed(4, "one");

    let said = cluster.line(
        "stream record --json --test-data --streams 3 braid://main/cams/ --rate 4MB/s --for 1s --survive 0",
    );
    assert_eq!(ended(&said)["streams"], 3);
    assert_eq!(cluster.line("ls braid://main/cams").ok().text(), "stream-1\nstream-2\nstream-3\n");

    // Two streams at the same place of a file: one of them reads.
    let said = cluster.line("stream play --json braid://main/one --streams 2 --rate 20MB/s");
    let report = ended(&said);
    assert_eq!((&report["streams"], &report["bytes"]), (&2.into(), &5_000_000.into()), "{report}");
    assert!(report["shared_pieces"].as_u64() > Some(0), "{report}");
    for field in ["periods", "start_worst_us", "start_promised_us", "bound_us", "memory_bytes"] {
        assert!(report[field].as_u64() > Some(0), "{field}: {report}");
    }
    let said =
        cluster.line("stream play --json braid://main/cams --streams 4 --rate 2MB/s --random-start --for 1s");
    assert_eq!(ended(&said)["streams"], 4);
    let said = cluster.line("stream play --json braid://main/one --rate 20MB/s --best-effort");
    let report = ended(&said);
    assert_eq!(
        (&report["reservations"], &report["start_promised_us"]),
        (&Value::Array(vec![]), &Value::Null)
    );
    let said = cluster.line("stream play braid://main/one --rate 20MB/s --to -");
    assert!(said.out == content && said.err.contains("played"), "{}", said.err);

    an_extension_reaches_open_files(&cluster);
    a_reader_that_does_not_read_is_not_waited_for(&cluster);

    // A rate that cannot be had is refused, and nothing stays booked.
    cluster.line("stream play braid://main/one --rate 90GB/s").failed(15, "instead: ");
    cluster.line("stream record --test-data braid://main/new/deep/ --rate 90GB/s").failed(15, "instead: ");
    cluster.line("ls braid://main/new").failed(3, "new");
    cluster.line("stream play braid://main/gone --rate 1MB/s").failed(3, "gone");
    cluster.line("stream play braid://main/one --streams 2 --rate 1MB/s --to -").failed(2, "--to");
    cluster.line("stream record braid://main/x --rate 1MB/s").failed(2, "--test-data");
    assert_eq!(names(&cluster), [""; 0]);
}

/// An open file keeps its rate beyond the end that it was opened with, if its reservation was extended.
fn an_extension_reaches_open_files(cluster: &Cluster) {
    const NAME: &str = "braid://main/extended";
    const END: Duration = Duration::from_secs(4);
    let data = noise(2_000_000, 5);
    // On a busy machine the time may be over before the file is open, or the reservation extended: once more.
    until("a file is open under a reservation that was extended then", || {
        let began = Instant::now();
        cluster.line(&format!("reserve {NAME} --write 20MB/s --for 4s")).ok();
        let mut command = cluster.command(["cp", "-", NAME]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        let mut input = child.stdin.take().expect("piped");
        input.write_all(&data).expect("it reads");
        let mut is_claimed = false;
        while !is_claimed && began.elapsed() < END {
            let listed = cluster.line("reserve ls --json").ok().json();
            is_claimed = listed["reservations"]
                .as_array()
                .expect("a list")
                .iter()
                .any(|row| row["name"] == NAME && row["claim_within_ms"].is_null());
        }
        let is_extended = is_claimed && cluster.line(&format!("reserve extend {NAME} --for 1h")).code == 0;
        std::thread::sleep(END.saturating_sub(began.elapsed()) + Duration::from_millis(100));
        input.write_all(&data).expect("it reads");
        drop(input);
        said(finish(child)).ok();
        if is_extended {
            let listed = cluster.line("reserve ls --json").ok().json();
            assert_eq!(listed["reservations"][0]["delivered"]["bytes"], 4_000_000, "{listed}");
            cluster.line(&format!("reserve rm {NAME}")).ok();
        }
        is_extended
    });
}

fn a_reader_that_does_not_read_is_not_waited_for(cluster: &Cluster) {
    let mut command =
        cluster.command(["stream", "play", "braid://main/one", "--rate", "20MB/s", "--to", "-"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let unread = child.stdout.take().expect("piped");
    until("the stream has begun", || names(cluster) == ["braid://main/one"]);
    signal(child.id(), "TERM");
    let said = said(finish(child));
    assert!([16, 130].contains(&said.code), "{}: {}", said.code, said.err);
    drop(unread);
    assert_eq!(names(cluster), [""; 0]);
}

/// The report of streams that have ended: some data may have been late, as the machine may be busy.
#[track_caller]
fn ended(said: &Said) -> Value {
    assert!([0, 16].contains(&said.code), "{}: {}", said.code, said.err);
    let report = said.json();
    assert_eq!(report["late_periods"] == 0, said.code == 0, "{report}");
    report
}
