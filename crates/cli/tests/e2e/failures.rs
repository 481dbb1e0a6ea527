//! Failures in the middle of something: drives, copies, interrupts, full disks.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::{Cluster, finish, noise, runs, said, signal, until};

/// Longer than a client's lease, which is longer than a drive's lease.
const PAUSE: Duration = Duration::from_secs(13);

/// A copy from a pipe that stays open: it remains unfinished for as long as the test wants.
fn copy_from_pipe(cluster: &Cluster, target: &str, first: &[u8]) -> (Child, std::process::ChildStdin) {
    let mut command = cluster.command(["cp", "-", target]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let mut stdin = child.stdin.take().expect("piped");
    // The pipe holds less than this, so once everything is written the copy has begun.
    stdin.write_all(first).expect("taken");
    (child, stdin)
}

#[test]
fn ctrl_c_in_the_middle_of_a_copy_leaves_nothing() {
    let cluster = Cluster::up(5);
    let old = cluster.make("old", 50_000, 1);
    cluster.put(&old, "braid://main/there");
    let half = noise(30 << 20, 2);
    for (target, name) in [("braid://main/new", "new"), ("braid://main/there", "there")] {
        let (child, stdin) = copy_from_pipe(&cluster, target, &half);
        signal(child.id(), "INT");
        let ended = said(finish(child));
        drop(stdin);
        assert_eq!(ended.code, 130, "{name}: {}", ended.err);
        assert_eq!(ended.err, "braid: interrupted\n");
    }
    assert_eq!(cluster.line("ls braid://main").ok().text(), "there\n");
    assert_eq!(cluster.cat("braid://main/there"), noise(50_000, 1));

    // The same for a local target.
    let big = cluster.make("big", 64 << 20, 3);
    cluster.put(&big, "braid://main/big");
    let out = cluster.file("out");
    fs::create_dir(&out).expect("made");
    let mut command = cluster.command([OsStr::new("cp"), OsStr::new("braid://main/big"), out.as_os_str()]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    until("the copy has begun or is done", || fs::read_dir(&out).is_ok_and(|entries| entries.count() > 0));
    signal(child.id(), "INT");
    let ended = said(finish(child));
    let left: Vec<_> =
        fs::read_dir(&out).expect("read").map(|entry| entry.expect("read").file_name()).collect();
    match ended.code {
        130 => assert!(left.is_empty(), "{left:?}"),
        0 => assert!(fs::read(out.join("big")).expect("read") == noise(64 << 20, 3)),
        code => panic!("exit {code}: {}", ended.err),
    }
}

#[test]
fn a_source_that_shrinks_is_refused_and_one_that_grows_is_copied_to_its_end() {
    let cluster = Cluster::up(5);
    // Far more than the copy's buffers, and no drive takes a byte before the file is cut: so the copy cannot
    // have read everything.
    let path = cluster.make("shrinks", 128 << 20, 9);
    let drives: Vec<u32> = (1..=5).map(|n| cluster.drive_pid(&format!("drive-{n}"))).collect();
    drives.iter().for_each(|pid| signal(*pid, "STOP"));
    let mut command =
        cluster.command([OsStr::new("cp"), path.as_os_str(), OsStr::new("braid://main/shrunk")]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    until("the copy reads it", || opened_by(child.id(), &path));
    fs::File::options().write(true).open(&path).expect("opened").set_len(1000).expect("cut");
    drives.iter().for_each(|pid| signal(*pid, "CONT"));
    let ended = said(finish(child));
    ended.failed(1, "shrank from 134217728 to");
    assert_eq!(cluster.line("ls braid://main").ok().text(), "");

    let path = cluster.make("grows", 40 << 20, 4);
    let mut command = cluster.command([OsStr::new("cp"), path.as_os_str(), OsStr::new("braid://main/grown")]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    until("the copy reads it or is done", || opened_by(child.id(), &path) || !runs(child.id()));
    let file = fs::File::options().write(true).open(&path).expect("opened");
    file.write_all_at(b"more", 40 << 20).expect("grown");
    said(finish(child)).ok();
    let stored = cluster.cat("braid://main/grown");
    let whole = fs::read(&path).expect("read");
    assert!(stored.len() >= 40 << 20 && whole.starts_with(&stored), "{} bytes", stored.len());
}

/// Returns true if a process has a file open.
fn opened_by(pid: u32, path: &std::path::Path) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().filter_map(Result::ok);
    descriptors.into_iter().any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == path))
}

#[test]
fn a_drive_that_dies_in_the_middle_of_a_read_is_not_noticed() {
    let cluster = Cluster::up(6);
    let content = noise(100 << 20, 5);
    let file = cluster.file("f");
    fs::write(&file, &content).expect("written");
    cluster.put(&file, "braid://main/f");
    let victim = cluster.columns("braid://main/f").swap_remove(2);
    let pid = cluster.drive_pid(&victim);
    let mut child = cluster
        .command(["cat", "braid://main/f"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut out = child.stdout.take().expect("piped");
    // The pipe holds up the copy: one part has been read, and the rest has not.
    let mut read = vec![0; 1 << 20];
    out.read_exact(&mut read).expect("read");
    signal(pid, "KILL");
    until("the drive is dead", || !runs(pid));
    out.read_to_end(&mut read).expect("read");
    said(finish(child)).ok();
    assert!(read == content);
}

#[test]
fn writes_go_on_degraded_and_a_replaced_drive_is_rebuilt() {
    let cluster = Cluster::up(6);
    let first = noise(20 << 20, 6);
    fs::write(cluster.file("f"), &first).expect("written");
    cluster.put(&cluster.file("f"), "braid://main/f");
    let victim = cluster.columns("braid://main/f").swap_remove(0);
    // The drive dies during a copy.
    let second = noise(48 << 20, 7);
    let (child, mut stdin) = copy_from_pipe(&cluster, "braid://main/g", &second[..24 << 20]);
    cluster.kill_drive(&victim);
    stdin.write_all(&second[24 << 20..]).expect("taken");
    drop(stdin);
    said(finish(child)).ok();
    assert!(cluster.cat("braid://main/f") == first);
    assert!(cluster.cat("braid://main/g") == second);

    cluster.line("drive add --name fresh").ok();
    let replaced = cluster.line(&format!("drive replace {victim} fresh --json")).ok().json();
    assert_eq!((replaced["old"].as_str(), replaced["new"].as_str()), (Some(victim.as_str()), Some("fresh")));
    let space = cluster.line("df --json").ok().json();
    let rows = space["drives"].as_array().expect("a list");
    assert!(rows.len() == 6 && rows.iter().all(|row| row["name"] != victim.as_str()), "{space}");
    // The drive may have been rebuilt by itself meanwhile.
    let rebuilt = cluster.line("rebuild fresh --json").ok().json();
    assert_eq!(rebuilt["files_left"], 0, "{rebuilt}");
    let checked = cluster.line("check --all braid://main").ok();
    assert_eq!(checked.text().matches(" ok").count(), 2, "{}", checked.text());
    let other =
        cluster.columns("braid://main/f").into_iter().find(|drive| drive != "fresh").expect("another");
    cluster.kill_drive(&other);
    assert!(cluster.cat("braid://main/f") == first);
    assert!(cluster.cat("braid://main/g") == second);
    // The old name stands for the new drive, and there is nothing to rebuild only as long as the new drive
    // serves.
    cluster.line(&format!("rebuild {victim}")).ok();
    cluster.kill_drive("fresh");
    until("it counts as away", || {
        let drives = cluster.line("drive ls --json").ok().json();
        let rows = drives.as_array().expect("a list");
        rows.iter().any(|row| row["name"] == "fresh" && row["state"] == "away")
    });
    cluster.line(&format!("rebuild {victim}")).failed(8, "fresh is away");
}

/// An operator who is not sure that the first try has gone through may do this, or two operators at once.
#[test]
fn a_drive_that_is_replaced_and_rebuilt_twice_at_once_is_whole() {
    let cluster = Cluster::up(5);
    let content = noise(48 << 20, 21);
    fs::write(cluster.file("f"), &content).expect("written");
    cluster.put(&cluster.file("f"), "braid://main/f");
    let victim = cluster.columns("braid://main/f").swap_remove(0);
    cluster.kill_drive(&victim);
    cluster.line("drive add --name one").ok();
    cluster.line("drive add --name two").ok();
    // So slow that the heal is still under way during the next steps.
    cluster.line("heal --rate 1M").ok();
    let at_once = |lines: [String; 2]| {
        let spawn = |line: String| {
            let mut command = cluster.command(line.split(' '));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
        };
        lines.map(spawn).map(|child| said(finish(child)))
    };
    let tries = at_once(["one", "two"].map(|new| format!("drive replace {victim} {new}")));
    let (won, lost): (Vec<_>, Vec<_>) = tries.into_iter().partition(|said| said.code == 0);
    assert_eq!((won.len(), lost.len()), (1, 1), "{won:?} {lost:?}");
    let new = if won[0].text().starts_with("one ") { "one" } else { "two" };
    lost[0].failed(3, &format!("{victim} was replaced by {new} already"));
    assert!(lost[0].err.contains(&format!("braid drive replace {new} NEW")), "{}", lost[0].err);
    // Repeating the command under the same name finds it done already; two commands that wait for the rebuild
    // both see its end.
    cluster.line(&format!("drive replace {victim} {new}")).ok();
    let stale = cluster.line("heal --json").ok().json();
    assert!(stale["drives"].to_string().contains("\"stale_components\":1"), "it is under way: {stale}");
    cluster.line("heal --rate 0").ok();
    for said in at_once([new, &victim].map(|drive| format!("rebuild {drive}"))) {
        said.ok();
    }
    assert!(cluster.columns("braid://main/f").contains(&new.to_owned()));
    cluster.line("check --all braid://main").ok();
    let other = cluster.columns("braid://main/f").into_iter().find(|drive| drive != new).expect("another");
    cluster.kill_drive(&other);
    assert!(cluster.cat("braid://main/f") == content);
}

#[test]
fn too_many_drives_away_are_named() {
    let cluster = Cluster::up(5);
    let file = cluster.make("f", 8 << 20, 8);
    cluster.put(&file, "braid://main/f");
    cluster.kill_drive("drive-2");
    cluster.kill_drive("drive-4");
    let read = cluster.line("cat braid://main/f");
    read.failed(8, "drive-2");
    assert!(read.err.contains("drive-4"), "{}", read.err);
    let write = cluster.braid([OsStr::new("cp"), file.as_os_str(), OsStr::new("braid://main/g")]);
    assert_eq!(write.code, 8, "{}", write.err);
    assert_eq!(cluster.line("ls braid://main").ok().text(), "f\n");
    // The width is computed from all drives, whichever of them happen to be away.
    let away = "raid5 4+1 needs 5 drives and 3 are up; start drive-2, drive-4, choose a smaller --width or add drives";
    until("both count as away", || cluster.line("drive ls").text().matches(" away ").count() == 2);
    cluster.line("volume create narrow").failed(8, away);
    let fixed =
        "rs(2,2) needs 4 drives and 3 are up; start drive-2, drive-4, choose a scheme with fewer columns";
    cluster.line("relayout braid://main/f --scheme rs(2,2)").failed(8, fixed);
    cluster.line("volume create narrow --width 3").ok();
    cluster.start(&[]);
    assert!(cluster.cat("braid://main/f") == noise(8 << 20, 8));
}

#[test]
fn plans_are_printed_and_checks_find_damage() {
    let cluster = Cluster::up(6);
    let file = cluster.make("f", 9 << 20, 9);
    cluster.put(&file, "braid://main/f");
    let healthy = cluster.line("plan read braid://main/f 0..2M").ok();
    let down = cluster.columns("braid://main/f").swap_remove(1);
    let degraded = cluster.line(&format!("plan read braid://main/f 0..2M --down {down}")).ok();
    assert!(healthy.text().lines().count() > 3 && healthy.text() != degraded.text(), "{}", healthy.text());
    let columns = cluster.columns("braid://main/f");
    for (index, drive) in columns.iter().enumerate().filter(|(index, _)| *index != 1) {
        let heading = format!("column {index}, {drive} (drive ");
        assert!(degraded.text().contains(&heading), "{heading:?} is not in {}", degraded.text());
    }
    assert_eq!(degraded.text().matches("totals").count(), 1);
    let json = cluster.line(&format!("plan --json read braid://main/f 0..2M --down {down}")).ok().json();
    assert_eq!(json[0]["away"][0].as_str(), Some(down.as_str()), "{json}");
    let other =
        (1..=6).map(|n| format!("drive-{n}")).find(|drive| !columns.contains(drive)).expect("one of six");
    let unmoved = cluster.line(&format!("plan read braid://main/f 0..2M --down {other}")).ok();
    assert_eq!(unmoved.text(), healthy.text());
    // The request is run, and each instruction has what was measured of it; the bytes stay as they are.
    for line in
        ["plan read braid://main/f 0..2M --analyze", "plan write braid://main/f 0..2M --analyze --rewrite"]
    {
        let text = cluster.line(line).ok().text().to_owned();
        let timed = text.lines().filter(|line| line.contains(" ms: ")).count();
        assert!(timed >= 4 && text.contains("\nbound by "), "{text}");
    }
    let json = cluster.line("plan --json read braid://main/f 0..2M --analyze").ok().json();
    assert_eq!(json["sets"][0]["measured"].as_array().map(Vec::len), Some(4), "{json}");
    let past = cluster.line("plan --json read braid://main/f 1G..8T --analyze").ok().json();
    assert_eq!((&past["sets"], past["analysis"]["wall_us"].as_u64()), (&serde_json::json!([]), Some(0)));
    let long = cluster.line("plan --json read braid://main/f 0..8T --analyze").ok().json();
    assert_eq!(long["analysis"]["bytes"], 9 << 20, "only as far as the file goes: {long}");
    let why = cluster.line("why braid://main/f --json").ok().json();
    assert_eq!((&why["causes"][0]["kind"], &why["size"]), (&"bound".into(), &(9 << 20).into()), "{why}");
    assert!(cluster.cat("braid://main/f") == noise(9 << 20, 9));
    let one = &columns[1];
    let another = &columns[2];
    let none = cluster.line(&format!("plan read braid://main/f 0..2M --down {one} --down {another}"));
    assert_eq!(none.code, 8, "{}", none.err);
    assert!(
        [one, another].iter().all(|name| none.err.contains(&format!("{name}: as if away"))),
        "{}",
        none.err
    );
    let write = cluster.line("plan write braid://main/f 4K+128K").ok();
    let ways: Vec<&str> = write.text().lines().filter(|line| line.starts_with("way for")).collect();
    assert_eq!(ways.len(), 3, "{ways:?}");
    assert!(ways[0].contains("unit write") && ways[0].ends_with(", taken"), "{ways:?}");
    let json = cluster.line("plan --json write braid://main/f 4K+128K").ok().json();
    assert!(json[0]["ways"][0]["ways"][0]["cost"].as_u64() < json[0]["ways"][0]["ways"][1]["cost"].as_u64());
    cluster.line("check braid://main/f").ok();
    let checked = cluster.line("check --json braid://main/f").ok().json();
    assert_eq!(
        (checked["ok"].as_bool(), checked["mismatches"].as_array().map(Vec::len)),
        (Some(true), Some(0))
    );
    assert!(checked["units"].as_u64().is_some_and(|units| units >= 20), "{checked}");
}

/// A server started by hand; killed when its test ends.
struct ByHand(Child);

impl Drop for ByHand {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn by_hand(cluster: &Cluster, line: &str) -> ByHand {
    let mut command = cluster.command(line.split(' '));
    let child = command
        .env("BRAID_LOG", "off")
        .current_dir(cluster.file(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    ByHand(child.expect("started"))
}

#[test]
fn a_full_drive_fails_the_write_and_keeps_the_old_file() {
    let cluster = Cluster::nowhere();
    let place = cluster.file("cluster").display().to_string();
    let _manager = by_hand(
        &cluster,
        &format!("manager serve --dir {place} --listen 127.0.0.1:0 --pid-file manager.pid"),
    );
    until("the manager serves", || cluster.file("manager.pid").exists());
    let address = cluster.status()["manager"]["address"].as_str().expect("text").to_owned();
    let join = format!("--manager {address} --token-file {place}/join.token");
    let _drives = [("a", ""), ("b", ""), ("c", " --capacity 24M")]
        .map(|(name, more)| by_hand(&cluster, &format!("drive serve --dir {name} {join}{more}")));
    until("the drives serve", || cluster.line("drive ls").ok().text().matches(" up ").count() == 3);
    cluster.line("volume create v --scheme raid5 --width 3 --unit 64K").ok();
    let old = cluster.make("old", 3 << 20, 10);
    cluster.put(&old, "braid://v/f");
    let big = cluster.make("big", 120 << 20, 11);
    let ended = cluster.braid([OsStr::new("cp"), big.as_os_str(), OsStr::new("braid://v/f")]);
    ended.failed(9, "drive c did not store the write");
    assert!(cluster.cat("braid://v/f") == noise(3 << 20, 10));
    assert_eq!(cluster.line("ls braid://v").ok().text(), "f\n");
}

/// Number of files of a tree: too many for a pipe to hold a line of 100 bytes of each.
const FILES: u64 = 1000;

/// While the manager is stopped no lease could be renewed, so none is judged. A writer goes on with its
/// lease, a copy of many files goes on with the next file, and no column goes out of its set.
#[test]
fn a_manager_that_is_stopped_for_a_while_ends_nobody_s_lease() {
    let cluster = Cluster::up(5);
    let whole = noise(24 << 20, 3);
    let files = cluster.file("files");
    fs::create_dir(&files).expect("made");
    for n in 0..FILES {
        fs::write(files.join(n.to_string()), noise(10_000, n)).expect("written");
    }
    let manager = cluster.status()["manager"]["pid"].as_u64().expect("a number");
    let manager = u32::try_from(manager).expect("small");
    let (first, second) = whole.split_at(16 << 20);
    let (child, mut stdin) = copy_from_pipe(&cluster, "braid://main/piped", first);
    let mut command = cluster.command(["cp", "-r", "--json"]);
    let tree = command.arg(&files).arg("braid://main/files").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tree = tree.spawn().expect("started");
    // The copy reports each file that is done, and waits if its output is not read: so it has begun, and
    // cannot be done, as a pipe does not hold the lines of all.
    let mut done = BufReader::new(tree.stdout.take().expect("piped"));
    for _ in 0..10 {
        assert!(done.read_line(&mut String::new()).expect("read") > 0, "it ended");
    }
    signal(manager, "STOP");
    let rest = thread::spawn(move || done.lines().count());
    thread::sleep(PAUSE);
    assert!(tree.try_wait().expect("asked").is_none(), "it has begun and is not done");
    signal(manager, "CONT");
    stdin.write_all(second).expect("taken");
    drop(stdin);
    said(finish(child)).ok();
    said(finish(tree)).ok();
    assert_eq!(u64::try_from(rest.join().expect("counted")).expect("small"), FILES - 10);
    assert!(cluster.cat("braid://main/piped") == whole);
    for n in [0, 150, FILES - 1] {
        assert!(cluster.cat(&format!("braid://main/files/{n}")) == noise(10_000, n), "{n}");
    }
    let status = cluster.status();
    for drive in status["drives"].as_array().expect("a list") {
        assert_eq!((&drive["state"], &drive["stale_components"]), (&"up".into(), &0.into()), "{drive}");
    }
    cluster.line("check --all braid://main").ok();
}
