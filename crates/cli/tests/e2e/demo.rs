//! The demo on a small file: every step, and nothing left behind.

use std::fs;
use std::process::Stdio;

use crate::support::{Cluster, braid, finish, run, runs, said, signal, until};

#[test]
fn every_comparison_holds_and_nothing_is_left() {
    let place = Cluster::nowhere();
    let file = place.make("f", 7_654_321, 1);
    let dir = place.file("here");
    fs::create_dir(&dir).expect("made");
    let mut command = braid();
    command.args(["demo", "--json", "--dir"]).arg(&dir).arg(&file);
    let said = run(command).ok();
    let lines = said.text().lines().map(|line| serde_json::from_str(line).expect("an object on each line"));
    let mut steps: Vec<serde_json::Value> = lines.collect();
    let summary = steps.pop().expect("a summary at the end");
    assert_eq!(summary["ok"], true, "{summary}");
    assert_eq!(summary["bytes"], 7_654_321);
    assert_eq!(summary["steps"], steps.len());
    assert!(steps.iter().all(|step| step["step"].is_string()), "{steps:?}");
    assert!(steps.iter().all(|step| step["ok"] == true && step["seconds"].is_number()));
    let rated: Vec<_> = steps.iter().filter(|step| step["bytes_per_second"].is_number()).collect();
    assert!(rated.len() >= 7, "{steps:?}");
    for step in rated {
        for key in ["bytes", "bytes_per_second"] {
            assert!(step[key].as_f64().is_some_and(|value| value > 0.0), "{key} of {step}");
        }
    }
    assert_eq!(fs::read_dir(&dir).expect("read").count(), 0, "something is left");
}

#[test]
fn an_interrupted_demo_takes_its_processes_along() {
    for (name, code) in [("INT", 130), ("KILL", -1)] {
        let place = Cluster::nowhere();
        let file = place.make("f", 1_000_000, 1);
        let mut command = braid();
        command.args(["demo", "--keep", "--dir"]).arg(place.file("")).arg(&file);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        let pids = || -> Vec<u32> {
            let demo = fs::read_dir(place.file(""))
                .into_iter()
                .flatten()
                .filter_map(Result::ok)
                .find(|entry| entry.path().join("pids").exists());
            let files = demo
                .and_then(|demo| fs::read_dir(demo.path().join("pids")).ok())
                .into_iter()
                .flatten()
                .filter_map(Result::ok);
            let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
            texts
                .filter_map(|text| text.lines().find_map(|line| line.strip_prefix("pid = ")?.parse().ok()))
                .collect()
        };
        until("some processes serve", || pids().len() >= 3);
        let started = pids();
        signal(child.id(), name);
        let ended = said(finish(child));
        assert_eq!(ended.code, code, "{}", ended.err);
        until("they are gone", || started.iter().all(|&pid| !runs(pid)));
    }
}

#[test]
fn a_file_that_is_not_there_is_said_at_once() {
    let mut command = braid();
    command.args(["demo", "/nonexistent/file"]);
    run(command).failed(3, "/nonexistent/file");
}
