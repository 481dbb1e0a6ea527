//! `braid sim` and `braid size`: their output, the files that they write, and their refusals.

use std::fs;
use std::path::PathBuf;

use crate::support::{Cluster, Said, braid, run};

/// Path of a file of the repository's docs.
fn docs(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn sim(args: &[&str]) -> Said {
    let mut command = braid();
    command.args(args);
    run(command)
}

#[test]
fn a_sweep_is_printed_and_written_the_same_on_any_number_of_threads() {
    let out = tempfile::tempdir().expect("a directory");
    let spec = docs("sim/sweep.toml");
    let spec = spec.to_str().expect("UTF-8");
    let one = sim(&["sim", "run", spec, "--threads", "1", "--out", out.path().to_str().expect("UTF-8")]).ok();
    let two = sim(&["sim", "run", spec, "--threads", "2"]).ok();
    assert_eq!(one.out, two.out);
    assert!(one.text().contains("BOTTLENECK") && one.text().contains("disk"), "{}", one.text());
    assert!(one.err.contains("million a second"), "{}", one.err);
    let csv = sim(&["sim", "run", spec, "--csv"]).ok();
    assert_eq!(fs::read(out.path().join("sim.csv")).expect("written"), csv.out);
    assert_eq!(csv.text().lines().count(), 7, "a header and six points");
}

#[test]
fn programs_read_the_bottleneck() {
    let said = sim(&["sim", "run", docs("sim/trace.toml").to_str().expect("UTF-8"), "--json"]).ok();
    let found = said.json();
    assert_eq!(found[0]["outcome"]["ending"], "done");
    assert_eq!(found[0]["outcome"]["loads"][0]["requests"], 7);
    assert!(found[0]["outcome"]["bottleneck"]["utilisation"].as_f64().is_some_and(|busy| busy > 0.0));
}

#[test]
fn nonsense_is_refused_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let spec = fs::read_to_string(docs("sim/trace.toml")).expect("the example");
    let path = dir.path().join("a.toml");
    let path = path.to_str().expect("UTF-8");
    let refused = |text: String, code: i32, words: &str| {
        fs::write(path, text).expect("written");
        sim(&["sim", "run", path]).failed(code, words);
    };
    refused(spec.replace("drives = 4", "drives = 3"), 2, "files.width: 4 columns need as many drives");
    refused(spec.replace("drives = 4", "drivers = 4"), 2, "a.toml: line 8: drivers: unknown field `drivers`");
    refused(spec.clone(), 3, "trace.csv: no such file or directory");
    fs::write(dir.path().join("trace.csv"), "seconds,client,operation,file,offset,bytes\n1,1,rot,0,0,9\n")
        .expect("written");
    refused(spec, 2, "trace.csv: line 2: operation \"rot\" is neither read nor write");
    sim(&["sim", "run", "/nowhere.toml"]).failed(3, "read /nowhere.toml: no such file or directory");
}

#[test]
fn a_load_that_is_too_much_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    let spec = fs::read_to_string(docs("sim/sweep.toml")).expect("the example");
    let spec = spec.split("[[sweep]]").next().expect("the beginning").replace("rate = 10.0", "rate = 9000.0");
    let path = dir.path().join("a.toml");
    fs::write(&path, spec).expect("written");
    let said = sim(&["sim", "run", path.to_str().expect("UTF-8")]).ok();
    assert!(said.text().contains("saturated at "), "{}", said.text());
}

#[test]
fn a_cluster_is_sized() {
    let line = ["size", "--streams", "40", "--rate", "25MB/s", "--capacity", "200TB", "--json"];
    let answer = sim(&line).ok().json();
    assert!(answer["drives"].as_u64().is_some_and(|drives| (14..=20).contains(&drives)), "{answer}");
    assert!(answer["scheme"].as_str().is_some_and(|scheme| scheme.starts_with("raid5")), "{answer}");
    let text = sim(&line[..7]).ok();
    assert!(text.text().contains("breaks first"), "{}", text.text());
    let fast = ["size", "--streams", "40", "--rate", "25GB/s", "--capacity", "200TB"];
    sim(&fast).failed(2, "links of the clients' hosts");
    let negative = sim(&["size", "--streams", "4", "--rate=-1MB/s", "--capacity", "1TB"]);
    assert_eq!(negative.code, 2, "{}", negative.err);
    let odd = ["size", "--streams", "4", "--rate", "1MB/s", "--capacity", "1TB", "--drive", "floppy"];
    sim(&odd).failed(2, "use free, fujitsu-m2372k");
}

#[test]
fn a_plan_s_instructions_have_their_predicted_times() {
    let cluster = Cluster::up(5);
    cluster.put(&cluster.make("f", 4 << 20, 1), "braid://main/f");
    let down = cluster.columns("braid://main/f").swap_remove(1);
    let asked = format!("read braid://main/f 0..2M --down {down}");
    let plain = cluster.line(&format!("plan {asked}")).ok();
    let timed = cluster.line(&format!("plan {asked} --time")).ok();
    // Nothing but the times is added, one for each instruction and step.
    let without: Vec<&str> = timed
        .text()
        .lines()
        .map(|line| line.split_once("  | ").map_or(line, |(line, _)| line.trim_end()))
        .filter(|line| !line.starts_with("predicted: "))
        .collect();
    assert_eq!(without, plain.text().lines().collect::<Vec<_>>());
    assert!(timed.text().contains("alone (hdd-18tb, 25GbE and server-2026"), "{}", timed.text());
    // With custom parts: disks that take 2 s, and nothing else takes time.
    let parts = cluster.file("parts.toml");
    let disk = "seek = { constant = \"2s\" }\nread_rate = \"1000PB/s\"\nwrite_rate = \"1000PB/s\"";
    let free = "link = \"free\"\nclient = \"free\"\ndrive = \"free\"";
    fs::write(&parts, format!("[parts]\n{free}\n[parts.disk]\n{disk}\n")).expect("written");
    let parts = parts.to_str().expect("UTF-8");
    let json = cluster.line(&format!("plan {asked} --time --json --parts {parts}")).ok().json();
    let found = json[0]["times"]["instructions"].as_array().expect("times");
    assert_eq!(timed.text().matches(" ms\n").count(), found.len());
    let reads = found.iter().filter(|times| times["begins_ms"] == 0.0 && times["done_ms"] == 2000.0).count();
    assert_eq!((reads, json[0]["times"]["done_ms"].as_f64()), (4, Some(2000.0)), "{json}");
    fs::write(parts, "[parts]\nlink = \"string\"\n").expect("written");
    let refused = cluster.line(&format!("plan {asked} --time --parts {parts}"));
    refused.failed(2, "parts.toml: line 2: link: no link has the name \"string\"");
}
