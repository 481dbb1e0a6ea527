//! The life of a cluster: up, used, down and up again, and what it reports about itself.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use crate::support::{Cluster, braid, finish, noise, run, runs, said, signal, until};

#[test]
fn files_go_in_and_out_and_survive_down_and_up() {
    let cluster = Cluster::up(6);
    let big = cluster.make("big", 23_456_789, 1);
    let small = cluster.make("small", 11, 2);
    cluster.put(&big, "braid://main/big");
    cluster.put(&small, "braid://main/small");
    cluster.line("mkdir -p braid://main/a/b").ok();
    cluster.put(&small, "braid://main/a/b/");
    assert_eq!(cluster.line("ls braid://main").ok().text(), "a/\nbig\nsmall\n");
    assert_eq!(
        cluster.line("ls -R braid://main/a").ok().text(),
        "braid://main/a:\nb/\nbraid://main/a/b:\nsmall\n"
    );
    cluster.line("mv braid://main/small braid://main/renamed").ok();
    cluster.line("mv braid://main/renamed braid://main/a").ok();

    cluster.down().ok();
    cluster.line("ls braid://main").failed(5, "nothing listens there");
    cluster.start(&[]);

    assert!(cluster.cat("braid://main/big") == noise(23_456_789, 1));
    assert_eq!(cluster.cat("braid://main/a/renamed"), noise(11, 2));
    let out = cluster.file("out");
    cluster.braid([OsStr::new("cp"), OsStr::new("braid://main/big"), out.as_os_str()]).ok();
    assert!(fs::read(&out).expect("read") == noise(23_456_789, 1));
    cluster.line("rm braid://main/big").ok();
    cluster.line("rm -r braid://main/a").ok();
    assert_eq!(cluster.line("ls braid://main").ok().text(), "");
}

#[test]
fn status_df_stat_and_lists_have_their_shapes() {
    let cluster = Cluster::up(5);
    let file = cluster.make("f", 3 << 20, 3);
    cluster.put(&file, "braid://main/f");
    let status = cluster.status();
    let drives = status["drives"].as_array().expect("a list");
    assert_eq!(drives.len(), 5);
    for drive in drives {
        assert_eq!(drive["state"], "up");
        assert!(drive["name"].as_str().expect("text").starts_with("drive-"));
        assert!(drive["address"].as_str().expect("text").starts_with("127.0.0.1:"));
        assert!(fs::metadata(drive["directory"].as_str().expect("text")).expect("there").is_dir());
        assert!(runs(u32::try_from(drive["pid"].as_u64().expect("a number")).expect("a pid")));
    }
    assert!(runs(u32::try_from(status["manager"]["pid"].as_u64().expect("a number")).expect("a pid")));

    let rails = cluster.line("status --rails --json").ok().json();
    for (drive, listed) in rails.as_array().expect("a list").iter().zip(drives) {
        let rail = &drive["rails"][0];
        assert_eq!((&rail["address"], &rail["reachable"]), (&listed["address"], &true.into()), "{rails}");
        assert!(rail["hello_us"].as_u64().is_some() && rail["why"].is_null(), "{rails}");
    }

    let stat = cluster.line("stat --json braid://main/f").ok().json();
    assert_eq!((stat["kind"].as_str(), stat["size"].as_u64()), (Some("file"), Some(3 << 20)));
    let segment = &stat["segments"][0];
    assert_eq!(segment["shape"]["scheme"], "raid5");
    assert_eq!(segment["shape"]["unit_bytes"], 512 << 10);
    let columns = segment["columns"].as_array().expect("a list");
    assert_eq!(columns.len(), 5);
    assert!(columns.iter().all(|column| column["state"] == "ready" && column["drive_state"] == "up"));

    let df = cluster.line("df --json").ok().json();
    assert_eq!(df["volumes"][0]["file_bytes"], 3 << 20);
    assert_eq!(df["drives"].as_array().expect("a list").len(), 5);
    // All drives are in one directory, so on one file system.
    assert_eq!(df["shared"].as_array().map(Vec::len), Some(1), "{df}");
    assert_eq!(df["shared"][0].as_array().map(Vec::len), Some(5), "{df}");
    let capacity = |row: &serde_json::Value| row["capacity_bytes"].as_u64().expect("a number");
    let sum: u64 = df["drives"].as_array().expect("a list").iter().map(capacity).sum();
    assert!(capacity(&df["total"]) < sum / 2, "{df}");
    assert!(cluster.line("df").ok().text().contains("share the space of one file system"));

    assert!(cluster.line("status").ok().text().contains("\n1 volume, 1 file\n"));
    assert_eq!(cluster.line("ls").ok().text(), "braid://main\n");
    let volume = cluster.line("ls --json").ok().json();
    assert_eq!((volume["name"].as_str(), volume["kind"].as_str()), (Some("braid://main"), Some("volume")));
    let made = cluster.line("volume create --json second --width 3 --unit 64K").ok().json();
    assert_eq!(
        (made["name"].as_str(), made["shape"]["unit_bytes"].as_u64()),
        (Some("second"), Some(64 << 10))
    );
    assert_eq!(cluster.line("ls").ok().text(), "braid://main\nbraid://second\n");
    assert_eq!(cluster.line("ls -R").ok().text(), "braid://main/:\nf\nbraid://second/:\n");
    let entry = cluster.line("ls --json braid://main").ok().json();
    assert_eq!((entry["name"].as_str(), entry["size"].as_u64()), (Some("braid://main/f"), Some(3 << 20)));
    let jobs = cluster.line("status --jobs").ok();
    for job in ["balance ", "end leases ", "relayout "] {
        assert!(jobs.text().lines().any(|line| line.starts_with(job)), "{job}: {}", jobs.text());
    }
    for line in ["status", "df", "drive ls", "volume ls", "ls -l braid://main", "stat braid://main/f"] {
        let said = cluster.line(line).ok();
        assert!(said.text().lines().count() > 0, "{line}");
    }
    assert_eq!(cluster.line("drive ls --json").ok().json().as_array().expect("a list").len(), 5);
}

#[test]
fn a_pipe_goes_in_and_comes_out() {
    let cluster = Cluster::up(3);
    let content = noise(5_000_001, 4);
    let mut command = cluster.command(["cp", "-", "braid://main/piped"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let mut stdin = child.stdin.take().expect("piped");
    let feed = content.clone();
    let feeder = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &feed));
    said(finish(child)).ok();
    feeder.join().expect("joined").expect("written");
    assert!(cluster.line("cp braid://main/piped -").ok().out == content);

    // A reader that closes the pipe is no error.
    let mut command = cluster.command(["cat", "braid://main/piped"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    drop(child.stdout.take());
    let ended = said(finish(child));
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
}

#[test]
fn trees_and_any_bytes_as_names_go_both_ways() {
    let cluster = Cluster::up(3);
    let tree = cluster.file("tree");
    let odd = OsStr::from_bytes(b"odd \xff\xfe name");
    fs::create_dir_all(tree.join("deep/er")).expect("made");
    fs::write(tree.join("empty"), "").expect("written");
    fs::write(tree.join("deep").join(odd), "odd").expect("written");
    fs::write(tree.join("deep/er/file"), noise(700_000, 5)).expect("written");
    cluster.braid([OsStr::new("cp"), tree.as_os_str(), OsStr::new("braid://main/")]).failed(4, "use -r");
    cluster.braid([OsStr::new("cp"), OsStr::new("-r"), tree.as_os_str(), OsStr::new("braid://main/")]).ok();
    cluster.line("cp -r braid://main/tree braid://main/copy").ok();
    let back = cluster.file("back");
    cluster
        .braid([OsStr::new("cp"), OsStr::new("-r"), OsStr::new("braid://main/copy"), back.as_os_str()])
        .ok();
    assert_eq!(fs::read(back.join("empty")).expect("read"), b"");
    assert_eq!(fs::read(back.join("deep").join(odd)).expect("read"), b"odd");
    assert_eq!(fs::read(back.join("deep/er/file")).expect("read"), noise(700_000, 5));
    let name = OsStr::from_bytes(b"braid://main/tree/deep/odd \xff\xfe name");
    assert_eq!(cluster.braid([OsStr::new("cat"), name]).ok().out, b"odd");
    assert!(cluster.line("ls braid://main/tree/deep").ok().text().contains("odd \\xff\\xfe name"));
}

#[test]
fn ctrl_c_stops_a_cluster_in_the_foreground_and_death_takes_it_along() {
    let cluster = Cluster::nowhere();
    let up = || {
        let mut command = braid();
        command.args(["up", "--drives", "3", "--dir"]).arg(cluster.dir());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        // `up` prints this line last, once everything serves.
        let said_so = BufReader::new(child.stdout.take().expect("piped")).lines();
        said_so.map(|line| line.expect("text")).find(|line| line.starts_with("running")).expect("it serves");
        child
    };
    for end in ["INT", "KILL"] {
        let child = up();
        let status = cluster.status();
        let drives = status["drives"].as_array().expect("a list").iter().map(|drive| drive["pid"].as_u64());
        let pids: Vec<u32> = drives
            .chain([status["manager"]["pid"].as_u64()])
            .map(|pid| u32::try_from(pid.expect("a pid")).expect("small"))
            .collect();
        let mut second = braid();
        second.args(["up", "--dir"]).arg(cluster.dir());
        run(second).failed(7, "another `braid up` uses it");
        signal(child.id(), end);
        let ended = said(finish(child));
        assert_eq!(ended.code, if end == "INT" { 0 } else { -1 }, "{}", ended.err);
        until("all are gone", || pids.iter().all(|&pid| !runs(pid)));
    }
    // A drive that cannot be started again for a while is tried until it can. A drive that is missing at the
    // end is reported.
    let child = up();
    let lose = |name: &str| {
        let store = cluster.dir().join(name).join("store");
        let pid = cluster.drive_pid(name);
        fs::rename(&store, store.with_extension("away")).expect("renamed");
        signal(pid, "KILL");
        let log = cluster.dir().join(format!("logs/{name}.log"));
        until("it cannot be started", || {
            fs::read_to_string(&log).is_ok_and(|text| text.contains("has lost its store"))
        });
        (store, pid)
    };
    let (store, pid) = lose("drive-2");
    fs::rename(store.with_extension("away"), &store).expect("renamed");
    until("it is started", || {
        let now = cluster.drive_pid("drive-2");
        now != pid && runs(now)
    });
    lose("drive-3");
    signal(child.id(), "INT");
    said(finish(child)).failed_with_output(8);
}

#[test]
fn up_again_starts_what_is_missing_and_drives_can_be_added() {
    let cluster = Cluster::up(3);
    let before = cluster.drive_pid("drive-1");
    cluster.kill_drive("drive-2");
    cluster.start(&[]);
    assert_eq!(cluster.drive_pid("drive-1"), before);
    assert!(runs(cluster.drive_pid("drive-2")));
    let added = cluster.line("drive add --json").ok().json();
    assert_eq!(added["drive"], "drive-4");
    assert!(runs(cluster.drive_pid("drive-4")));
    cluster.start(&["--drives", "5"]);
    assert!(runs(cluster.drive_pid("drive-5")));
    let second = cluster.down().ok();
    assert!(second.text().contains("drive-5"), "{}", second.text());
    assert!(cluster.down().ok().text().starts_with("nothing ran"));
}

#[test]
fn a_lost_drive_keeps_no_other_from_being_started_and_can_be_replaced() {
    let cluster = Cluster::up(6);
    let file = cluster.make("f", 3_000_001, 1);
    cluster.put(&file, "braid://main/f");
    let up = || {
        let mut command = braid();
        command.args(["up", "--detach", "--dir"]).arg(cluster.dir());
        run(command)
    };
    let lost = cluster.dir().join("drive-3");
    cluster.down().ok();
    fs::remove_dir_all(lost.join("store")).expect("removed");
    let lacking = up();
    lacking.failed(8, "drive-3: ");
    assert!(lacking.err.contains("`braid drive replace drive-3 NEW`"), "{}", lacking.err);
    assert!(cluster.cat("braid://main/f") == noise(3_000_001, 1));
    // The drive's directory is not made again: a drive started there would be another one of the same name.
    let before = cluster.drive_pid("drive-1");
    fs::remove_dir_all(&lost).expect("removed");
    up().failed(8, "holds no drive");
    assert!(!lost.exists());
    assert_eq!(cluster.drive_pid("drive-1"), before, "it ran");
    assert_eq!(cluster.line("drive add --json").ok().json()["drive"], "drive-7");
    cluster.line("drive replace drive-3 drive-7").ok();
    let whole = up().ok();
    assert!(whole.err.contains("drive-3 was replaced"), "{}", whole.err);
    assert_eq!(up().ok().err, "", "from then on it is not listed");
    cluster.line("heal --watch").ok();
    cluster.down().ok();
    // The same while the manager waits for the lost drive, to compare its restored state with it.
    crate::older::restore(&cluster, None);
    fs::remove_dir_all(cluster.dir().join("drive-2")).expect("removed");
    up().failed(8, "`braid drive replace drive-2 NEW`");
    let status = cluster.line("status");
    status.failed_with_output(13);
    assert!(status.text().contains("is being compared"), "{}", status.text());
    let up = status.text().lines().filter(|line| line.starts_with("drive-") && line.contains(" up "));
    assert_eq!(up.count(), 5, "{}", status.text());
}

#[test]
fn a_cluster_goes_on_when_nobody_reads_what_up_says() {
    let cluster = Cluster::nowhere();
    let mut command = braid();
    command.args(["up", "--detach", "--drives", "3", "--dir"]).arg(cluster.dir());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    drop(child.stdout.take());
    said(finish(child)).ok();
    assert_eq!(cluster.line("ls braid://main").ok().text(), "");
}
