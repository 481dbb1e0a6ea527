//! Drives verify what they store: damage is named, a command can wait for the scrub, and a drive that goes
//! away is reported.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use crate::support::{Cluster, finish, noise, runs, said, signal, until};

/// Inverts one byte in a drive's log, at the first place that holds `bytes`. Returns false if there is no
/// such place.
fn damage(cluster: &Cluster, drive: &str, bytes: &[u8]) -> bool {
    let log = cluster.dir().join(drive).join("store/log");
    for entry in fs::read_dir(log).expect("a log").map(|entry| entry.expect("read").path()) {
        let content = fs::read(&entry).expect("read");
        if let Some(at) = content.windows(bytes.len()).position(|window| window == bytes) {
            let file = fs::File::options().write(true).open(&entry).expect("opened");
            file.write_all_at(&[!bytes[0]], u64::try_from(at).expect("small")).expect("written");
            return true;
        }
    }
    false
}

#[test]
fn a_changed_byte_is_found_repaired_and_shown_in_the_status() {
    let cluster = Cluster::up(3);
    let content = noise(6 << 20, 21);
    fs::write(cluster.file("f"), &content).expect("written");
    cluster.put(&cluster.file("f"), "braid://main/f");
    // A wait that names no drives waits for all.
    let clean = cluster.line("scrub --rate 1G --wait --json").ok().json();
    let drives = clean.as_array().expect("a list");
    assert_eq!(drives.len(), 3);
    let verified: u64 = drives.iter().map(|drive| drive["verified_bytes"].as_u64().expect("a number")).sum();
    // Data, plus the parity of every two data columns. Pictures of the names may be there by now, or not.
    assert!((9 << 20..10 << 20).contains(&verified), "{clean}");
    assert!(drives.iter().all(|drive| drive["state"] == "idle" && drive["damaged"] == 0), "{clean}");

    let hit = |content: &[u8], at: usize, columns: &[String]| -> String {
        let hit: Vec<&String> =
            columns.iter().filter(|drive| damage(&cluster, drive, &content[at..at + 32])).collect();
        let [drive] = hit[..] else { panic!("the bytes are on {} drives", hit.len()) };
        drive.clone()
    };
    let drive = hit(&content, 3 << 20, &cluster.columns("braid://main/f"));
    let repaired = cluster.line("scrub --all --rate 1G --wait --json").ok().json();
    let rows = repaired.as_array().expect("a list");
    let row = rows.iter().find(|row| row["drive"] == drive.as_str()).expect("its row");
    assert_eq!((row["damaged"].as_u64(), row["repaired"].as_u64()), (Some(0), Some(1)), "{repaired}");
    cluster.line("check --all braid://main").ok();
    assert!(cluster.cat("braid://main/f") == content);
    until("the status shows it", || {
        let status = cluster.status();
        let drives = status["drives"].as_array().expect("a list");
        drives.iter().any(|row| row["name"] == drive.as_str() && row["scrub"]["repaired"] == 1)
    });
    assert!(cluster.line("status").ok().text().contains("\nall is well"));
    until("the heals tell it", || {
        let heals = cluster.line("heal --json").ok().json();
        let drives = heals["drives"].as_array().expect("a list");
        drives.iter().any(|row| row["drive"] == drive.as_str() && row["repaired_units"] == 1)
    });

    // Without redundancy, the damage is named and left as it is.
    cluster.line("volume create bare --scheme raid0 --width 3").ok();
    let bare = noise(6 << 20, 24);
    fs::write(cluster.file("bare"), &bare).expect("written");
    cluster.put(&cluster.file("bare"), "braid://bare/f");
    // An offset in stripe 2, of three units of 512 KiB each.
    let drive = hit(&bare, (3 << 20) + 4096, &cluster.columns("braid://bare/f"));
    let found = cluster.line("scrub --all --rate 1G --wait");
    found.failed(10, &format!("1 damaged unit on {drive}"));
    let named = format!("{drive}: volume bare, object ");
    assert!(found.text().contains(&named), "{named:?} is not in {}", found.text());
    assert!(found.text().contains(", unit 2: "), "{}", found.text());
    found.advises_another_drive();
    until("the status shows it", || {
        let said = cluster.line("status");
        said.text().contains(&format!("at risk: {drive} has 1 damaged unit"))
    });
    cluster.line("status").failed(13, "1 of 3 drives at risk");
    until("the heals say why", || cluster.line("heal").ok().text().contains("no redundancy"));
    let facts = cluster.status()["drives"][0].clone();
    let figure = |name: &str| facts[name].as_u64().expect("a number");
    assert_eq!(figure("used_bytes"), figure("live_bytes") + figure("dead_bytes"));
    cluster.line("rm braid://bare/f").ok();
    until("all is well again", || {
        cluster.line("scrub --all --rate 1G --wait").code == 0 && cluster.line("status").code == 0
    });
}

#[test]
fn segments_that_are_deleted_under_a_running_drive_are_told() {
    let cluster = Cluster::up(3);
    cluster.put(&cluster.make("f", 6 << 20, 23), "braid://main/f");
    let log = cluster.dir().join("drive-2/store/log");
    for entry in fs::read_dir(log).expect("a log").map(|entry| entry.expect("read").path()) {
        fs::remove_file(entry).expect("removed");
    }
    let found = cluster.line("scrub --all --rate 1G --wait");
    found.failed(10, "missing file");
    assert!(found.err.contains("on drive-2") && found.err.contains("drive replace"), "{}", found.err);
    assert!(
        found.text().contains("drive-2: log/00000001.seg: the file in use is not there"),
        "{}",
        found.text()
    );
    let facts = cluster.line("scrub --status --json drive-2").ok().json()[0].clone();
    let figure = |name: &str| facts[name].as_u64().expect("a number");
    assert!(figure("wrong_files") > 0, "{facts}");
    assert_eq!(figure("damaged") + figure("repaired"), 6, "its units are made anew in other files: {facts}");
    let missing = || cluster.line("status").text().contains("missing file");
    until("the status shows it", missing);
    let status = cluster.line("status");
    status.failed(13, "1 of 3 drives at risk");
    assert!(status.text().contains("before it is started again"), "{}", status.text());
}

#[test]
fn a_drive_that_stops_or_dies_during_a_scrub_is_told_and_goes_on_where_it_was() {
    let cluster = Cluster::up(3);
    cluster.put(&cluster.make("f", 8 << 20, 22), "braid://main/f");
    let pid = cluster.drive_pid("drive-2");
    // The drive reads one step of a megabyte, then nothing for a long time.
    cluster.line("scrub drive-2 --rate 1K").ok();
    let state = || cluster.line("scrub --status --json drive-2").ok().json()[0].clone();
    until("it has begun", || state()["verified_bytes"].as_u64() > Some(0));
    assert_eq!(state()["state"], "running");

    let mut waiting = cluster.command(["scrub", "drive-2", "--rate", "1K", "--wait"]);
    let waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    signal(pid, "STOP");
    let told = said(finish(waiting));
    told.failed(8, "drive-2 does not answer");
    cluster.line("scrub --all --wait").failed_with_output(8);
    signal(pid, "CONT");
    until("it serves again", || cluster.line("scrub --status drive-2").code == 0);
    let verified = state()["verified_bytes"].as_u64().expect("a number");
    assert!(verified > 0);

    signal(pid, "KILL");
    until("the drive is dead", || !runs(pid));
    cluster.line("scrub drive-2").failed(8, "drive-2 does not answer");
    cluster.line("scrub drive-9").failed(3, "drive-9");
    cluster.start(&[]);
    until("it serves again", || cluster.line("scrub --status drive-2").code == 0);
    let ended = cluster.line("scrub drive-2 --rate 1G --wait --json").ok().json();
    assert_eq!((ended[0]["damaged"].as_u64(), ended[0]["state"].as_str()), (Some(0), Some("idle")));
}
