//! Calibration: the cost of a drive's disk is measured, shown, kept over restarts, and not replaced by
//! nonsense.

use std::fs;

use serde_json::Value;

use crate::support::{Cluster, until};

const MODEL: &str = "flash,iops=2000,read=400MB/s,write=200MB/s,sync=1ms";

fn start(cluster: &Cluster, model: &str) {
    cluster.start(&["--drives", "1", "--rail", "1Gbit/s", "--disk-model", model]);
}

/// The only drive's row of `drive ls --cost`.
fn shown(cluster: &Cluster) -> Value {
    cluster.line("drive ls --cost --json").ok().json()[0].clone()
}

/// The result of the first run that is good. A busy machine can make one whose times are those of no disk.
fn calibrated(cluster: &Cluster, how: &str) -> Value {
    let mut row = Value::Null;
    until("the disk is measured", || {
        let said = cluster.line(&format!("drive calibrate --json {how}"));
        assert!([0, 1].contains(&said.code), "{}", said.err);
        if said.code == 0 {
            row = said.json()[0].clone();
        }
        said.code == 0
    });
    row
}

#[test]
fn a_disk_is_measured_and_the_last_good_result_stays() {
    let cluster = Cluster::nowhere();
    start(&cluster, MODEL);
    until("the drive has told", || shown(&cluster)["drive"] == "drive-1");
    let before = shown(&cluster);
    assert_eq!((&before["cost"], &before["rail_bytes_per_second"]), (&Value::Null, &125_000_000.into()));
    assert!(cluster.line("drive ls --cost").ok().text().contains("never"));
    let row = calibrated(&cluster, "drive-1");
    let disk = &row["cost"]["disk"];
    assert_eq!(row["model"]["read"]["operation_ns"], 500_000, "{row}");
    // A modelled disk is never faster than its model; a busy machine makes it slower.
    for way in ["read", "write"] {
        assert!(disk[way]["operation_ns"].as_u64() > Some(400_000), "{row}");
    }
    assert!(disk["write"]["bytes_per_second"].as_u64() < Some(250_000_000), "{row}");
    assert_eq!(row["cost"]["points"].as_array().expect("a list").len(), 12);

    // It outlives all restarts; the drive has told the manager.
    let measured = row["cost"]["measured_ms"].clone();
    let is_kept = || shown(&cluster)["cost"]["measured_ms"] == measured;
    assert!(is_kept(), "the manager knows when the command ends");
    assert!(cluster.line("drive ls --cost").ok().text().contains("modelled"));
    cluster.down().ok();
    start(&cluster, MODEL);
    assert!(is_kept(), "the manager has kept it");

    // A result that is far from the last one is refused, until the operator says that the disk is another.
    cluster.down().ok();
    let file = cluster.dir().join("drive-1/calibration.toml");
    let text = fs::read_to_string(&file).expect("the drive has kept it");
    let is_disk = |line: &&str| !line.contains("operation_ns");
    let (head, rest) = text.split_once("[read_processor]").expect("a table");
    let head: Vec<&str> = head.lines().filter(is_disk).collect();
    let other = format!(
        "{}\nread_operation_ns = 10\nwrite_operation_ns = 10\n[read_processor]{rest}",
        head.join("\n").trim_end()
    );
    fs::write(&file, other).expect("written");
    start(&cluster, MODEL);
    until("the drive tells it", || shown(&cluster)["cost"]["disk"]["read"]["operation_ns"] == 10);
    let refused = cluster.line("drive calibrate drive-1");
    refused.failed(1, "braid drive calibrate --anew");
    until("the refusal is told", || shown(&cluster)["refused"].as_str().is_some_and(|why| !why.is_empty()));
    assert!(is_kept(), "the last good one stays, with its date");
    assert!(cluster.line("drive ls --cost").ok().text().contains("refused: drive-1: "));
    let anew = calibrated(&cluster, "--anew drive-1");
    assert!(anew["refused"] == "" && anew["cost"]["measured_ms"] != measured, "{anew}");

    // A drive starts with a file that it cannot read, and a result of another disk does not count.
    cluster.down().ok();
    fs::write(&file, "format = 9").expect("written");
    start(&cluster, "flash,iops=1000,read=400MB/s,write=200MB/s");
    until("the other disk has no result", || shown(&cluster)["cost"] == Value::Null);
}
