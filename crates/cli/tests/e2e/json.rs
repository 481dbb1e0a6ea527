//! `--json` as described by `braid --help`: every command prints values or lines, and names are whole,
//! escaped once, and may have any bytes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::Value;

use crate::support::{Cluster, Said};

/// Parses the JSON values that were printed.
fn values(said: &Said) -> Vec<Value> {
    let values = serde_json::Deserializer::from_slice(&said.out).into_iter();
    values.map(|value| value.expect("JSON and nothing else")).collect()
}

#[test]
fn names_are_the_same_everywhere_whatever_their_bytes() {
    let cluster = Cluster::up(3);
    let odd = b"odd \xff\\x \"q\"\n";
    let name = [b"braid://main/d/".as_slice(), odd].concat();
    let typed = OsStr::from_bytes(&name);
    let local = cluster.file("").join(OsStr::from_bytes(odd));
    fs::write(&local, "odd").expect("written");
    let plain = r"braid://main/d/back\slash";
    let text = String::from_utf8_lossy(&name);
    // Base64 of the name's bytes.
    let bytes = "YnJhaWQ6Ly9tYWluL2Qvb2RkIP9ceCAicSIK";
    let is_odd = |value: &Value| (value["name"] == *text) && (value["name_bytes"] == bytes);
    let json = |args: &[&OsStr]| {
        let said = cluster.braid([&[OsStr::new("--json")], args].concat()).ok();
        values(&said)
    };
    let word = OsStr::new;

    assert_eq!(json(&[word("mkdir"), word("braid://main/d")])[0]["name"], "braid://main/d");
    let copied = json(&[word("cp"), local.as_os_str(), typed]);
    assert_eq!(
        (copied[0]["target"].as_str(), copied[0]["target_bytes"].as_str()),
        (Some(&*text), Some(bytes))
    );
    assert!(copied[0]["source_bytes"].is_string() && copied[0]["source"].is_string(), "{copied:?}");
    let copied = json(&[word("cp"), local.as_os_str(), word(plain)]);
    assert_eq!((copied[0]["target"].as_str(), copied[0]["target_bytes"].as_str()), (Some(plain), None));

    for command in [&["ls", "braid://main/d"], &["ls", "-R"], &["check", "--all"]] as [&[&str]; 3] {
        let mut args: Vec<&OsStr> = command.iter().map(OsStr::new).collect();
        if command[0] == "check" {
            args.push(word("braid://main"));
        }
        let found = json(&args);
        assert_eq!(found.iter().filter(|row| is_odd(row)).count(), 1, "{found:?}");
        assert_eq!(found.iter().filter(|row| row["name"] == plain).count(), 1, "{found:?}");
    }
    for command in ["ls", "stat", "check"] {
        let found = json(&[word(command), typed, word(plain)]);
        assert!(is_odd(&found[0]) && found[1]["name"] == plain && found.len() == 2, "{command}: {found:?}");
    }
    let moved = json(&[word("mv"), typed, word("braid://main/new")]);
    assert_eq!(
        (moved[0]["from_bytes"].as_str(), moved[0]["to"].as_str()),
        (Some(bytes), Some("braid://main/new"))
    );
    let removed = json(&[word("rm"), word("-r"), word("braid://main/d"), word("braid://main/new")]);
    assert_eq!((removed[0]["files"].as_u64(), removed[0]["directories"].as_u64()), (Some(1), Some(1)));
    assert_eq!(
        (removed[1]["name"].as_str(), removed[1]["bytes"].as_u64()),
        (Some("braid://main/new"), Some(3))
    );
    cluster.line("volume create v --scheme raid0 --width 1").ok();
    assert_eq!(json(&[word("volume"), word("rm"), word("v")])[0]["name"], "v");
    assert_eq!(json(&[word("ls")])[0]["name"], "braid://main");
    assert_eq!(json(&[word("stat"), word("braid://main/")])[0]["name"], "braid://main");
}

#[test]
fn commands_that_answer_with_one_value_print_one() {
    let cluster = Cluster::up(3);
    let file = cluster.make("f", 100_000, 1);
    cluster.put(&file, "braid://main/f");
    for line in [
        "status",
        "status --jobs",
        "df",
        "drive ls",
        "volume ls",
        "volume create v --scheme raid1",
        "plan read braid://main/f 0..4K",
        "scrub --status drive-1",
        "scrub --all",
        "rebuild drive-1",
        "up --detach --dir",
        "down --dir",
    ] {
        let mut args: Vec<&OsStr> = line.split(' ').map(OsStr::new).collect();
        let dir = cluster.dir();
        if line.ends_with("--dir") {
            args.push(dir.as_os_str());
        }
        args.push(OsStr::new("--json"));
        let value = cluster.braid(args).ok().json();
        assert!(value.is_object() || value.is_array(), "{line}: {value}");
    }
}
