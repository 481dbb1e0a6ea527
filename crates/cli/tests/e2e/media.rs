//! Full and damaged media: a small file system under a drive, and bytes changed behind a drive's back.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{Cluster, braid, noise, not_run, until};

/// A server started by hand; killed when its test ends.
pub(crate) struct ByHand(Child);

impl ByHand {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn start(mut command: Command, cluster: &Cluster) -> ByHand {
    command.env("BRAID_LOG", "off").current_dir(cluster.file(""));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    ByHand(command.spawn().expect("started"))
}

/// The command that enters a new mount namespace, if permitted; mounts end with its last process.
pub(crate) fn own_mounts() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["unshare", "-m"], &["unshare", "-rm"]];
    ways.into_iter().find(|way| {
        let mut probe = Command::new(way[0]);
        probe.args(&way[1..]).args(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"]);
        probe.stdin(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    })
}

#[test]
fn a_file_system_that_is_full_fails_the_write_and_serves_again_after_rm() {
    let Some(way) = own_mounts() else {
        not_run("neither root nor a user may mount a file system here");
        return;
    };
    let cluster = Cluster::nowhere();
    let place = cluster.file("cluster").display().to_string();
    let mut manager = braid();
    manager.args([
        "manager",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--pid-file",
        "manager.pid",
        "--dir",
        &place,
    ]);
    let _manager = start(manager, &cluster);
    until("the manager serves", || cluster.file("manager.pid").exists());
    let address = cluster.status()["manager"]["address"].as_str().expect("text").to_owned();
    let serve = format!("drive serve --manager {address} --token-file {place}/join.token --dir");
    let _large = ["a", "b"].map(|name| {
        let mut command = braid();
        command.args(serve.split(' ')).arg(name);
        start(command, &cluster)
    });
    fs::create_dir(cluster.file("small")).expect("made");
    let mut small = Command::new(way[0]);
    let script = format!("mount -t tmpfs -o size=24m tmpfs small && exec \"$0\" {serve} small/c");
    small.args(&way[1..]).args(["sh", "-c", &script, env!("CARGO_BIN_EXE_braid")]);
    let _small = start(small, &cluster);
    until("the drives serve", || cluster.line("drive ls").ok().text().matches(" up ").count() == 3);
    cluster.line("volume create v --scheme raid5 --width 3 --unit 64K").ok();

    let old = cluster.make("old", 3 << 20, 1);
    cluster.put(&old, "braid://v/f");
    let big = cluster.make("big", 120 << 20, 2);
    let copy = |source: &Path, target: &str| {
        cluster.braid([OsStr::new("cp"), source.as_os_str(), OsStr::new(target)])
    };
    copy(&big, "braid://v/f").failed(9, "c");
    assert!(cluster.cat("braid://v/f") == noise(3 << 20, 1));
    assert_eq!(cluster.line("ls braid://v").ok().text(), "f\n");

    // Files are stored until the drive is full; each that was stored is whole.
    let part = cluster.make("part", 4 << 20, 3);
    let mut stored = 0;
    let ended = loop {
        let said = copy(&part, &format!("braid://v/p{stored}"));
        if said.code != 0 {
            break said;
        }
        stored += 1;
        assert!(stored < 20, "80 MiB in a file system of 24");
    };
    ended.failed(9, "c");
    assert!(cluster.cat("braid://v/f") == noise(3 << 20, 1));
    for number in 0..stored {
        assert!(cluster.cat(&format!("braid://v/p{number}")) == noise(4 << 20, 3), "{number}");
    }
    for number in 0..stored {
        cluster.line(&format!("rm braid://v/p{number}")).ok();
    }
    // The space of removed files is freed after a while.
    until("there is space again", || {
        let said = copy(&part, "braid://v/again");
        assert!([0, 9].contains(&said.code), "{}", said.err);
        said.code == 0
    });
    assert!(cluster.cat("braid://v/again") == noise(4 << 20, 3));
    cluster.line("check --all braid://v").ok();
}

/// Inverts one byte in a drive's log, at the first place that holds `bytes`. Returns the file, or `None` if
/// there is no such place.
fn damage(drive: &Path, bytes: &[u8]) -> Option<PathBuf> {
    let log = drive.join("store/log");
    for entry in fs::read_dir(log).expect("a log").map(|entry| entry.expect("read").path()) {
        let content = fs::read(&entry).expect("read");
        if let Some(at) = content.windows(bytes.len()).position(|window| window == bytes) {
            let file = fs::File::options().write(true).open(&entry).expect("opened");
            file.write_all_at(&[!bytes[0]], u64::try_from(at).expect("small")).expect("written");
            return Some(entry);
        }
    }
    None
}

#[test]
fn a_changed_byte_is_found_named_and_repaired_and_harms_nobody() {
    let cluster = Cluster::up(5);
    let content = noise(9 << 20, 4);
    fs::write(cluster.file("f"), &content).expect("written");
    cluster.put(&cluster.file("f"), "braid://main/f");
    cluster.put(&cluster.make("g", 1 << 20, 5), "braid://main/g");
    // So slowly that no drive finds the damage by itself before the check.
    cluster.line("scrub --all --rate 1").ok();
    // The first step reads at once, as soon as it is its turn at the disk.
    until("all have made their first step", || {
        let states = cluster.line("scrub --status --json").ok().json();
        let states = states.as_array().expect("a list");
        states.iter().all(|state| state["verified_bytes"].as_u64() > Some(0))
    });
    // An offset in data unit 1 of the second stripe of 2 MiB.
    let at = (2 << 20) + (512 << 10) + 100_000;
    let columns = cluster.columns("braid://main/f");
    let wrong = |column: &str| damage(&cluster.dir().join(column), &content[at..at + 32]).is_some();
    let hit: Vec<usize> = (0..columns.len()).filter(|&index| wrong(&columns[index])).collect();
    let [column] = hit[..] else { panic!("the bytes are in {} columns", hit.len()) };
    let drive = &columns[column];

    let named = format!("segment 0, stripe 1, column {column} on {drive}: data unit 1 is damaged");
    let found = cluster.line("check --all braid://main");
    assert_eq!(found.code, 10, "{}", found.err);
    assert!(found.err.contains("1 of 2 files do not match"), "{}", found.err);
    found.advises_another_drive();
    assert!(found.text().contains("braid://main/f: "), "{}", found.text());
    assert!(found.text().contains(&named), "{named:?} is not in {}", found.text());
    assert!(found.text().contains("braid://main/g: "), "{}", found.text());
    assert!(cluster.cat("braid://main/f") == content);
    // The check reported the unit to the drive, which has it made anew.
    until("it is repaired", || cluster.line("check --all braid://main").code == 0);
    cluster.down().ok();
    cluster.start(&[]);
    until("it stays so", || cluster.line("check --all braid://main").code == 0);
    let other = columns.iter().find(|other| *other != drive).expect("another");
    cluster.kill_drive(other);
    assert!(cluster.cat("braid://main/f") == content, "without another drive");
}

#[test]
fn a_drive_whose_log_is_gone_takes_part_again_without_being_replaced() {
    let cluster = Cluster::up(6);
    cluster.put(&cluster.make("f", 3 << 20, 6), "braid://main/f");
    let victim = &cluster.columns("braid://main/f")[0];
    cluster.down().ok();
    cluster.start(&[]);
    cluster.put(&cluster.make("g", 3 << 20, 7), "braid://main/g");
    cluster.kill_drive(victim);
    let log = cluster.dir().join(victim).join("store/log");
    for entry in fs::read_dir(&log).expect("a log") {
        fs::remove_file(entry.expect("read").path()).expect("removed");
    }
    cluster.start(&[]);
    let whole = || {
        assert!(cluster.cat("braid://main/f") == noise(3 << 20, 6));
        assert!(cluster.cat("braid://main/g") == noise(3 << 20, 7));
    };
    whole();
    // The lost columns are made anew, and the drive no longer reports any loss.
    until("all is well again", || cluster.line("status").code == 0);
    let scrub = || cluster.braid(["scrub", "--status", "--json", victim]).ok().json()[0].clone();
    assert_eq!((scrub()["lost"].as_u64(), scrub()["lost_objects"].as_u64()), (Some(0), Some(0)));
    cluster.line("check --all braid://main").ok();
    whole();
    // The drive's columns count again: another drive may go.
    let columns = cluster.columns("braid://main/f");
    let other = columns.iter().find(|other| *other != victim).expect("another");
    assert!(columns.contains(victim), "its column stays with it");
    cluster.kill_drive(other);
    whole();
}

/// Freezes the file system under one drive, to act as a disk that hangs: the drive's process lives, and its
/// columns go out as for a dead drive. The drive comes back by itself when the file system is thawed.
#[test]
fn a_disk_that_hangs_takes_its_drive_out_until_it_answers() {
    let cluster = Cluster::nowhere();
    let image = cluster.file("image");
    fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
    // In a mount namespace of its own, and with a loop device that is freed with its mount: nothing is left
    // behind, whichever process ends first.
    let probe = "mkfs.ext4 -q image && mkdir -p hung && mount -o loop image hung && fsfreeze -f hung && fsfreeze -u hung";
    let mut probing = Command::new("unshare");
    probing.args(["-m", "sh", "-c", probe]).current_dir(cluster.file(""));
    probing.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if !probing.status().is_ok_and(|status| status.success()) {
        not_run("no file system can be mounted and frozen here");
        return;
    }
    let place = cluster.file("cluster").display().to_string();
    let mut manager = braid();
    manager.args("manager serve --listen 127.0.0.1:0 --pid-file manager.pid --dir".split(' ')).arg(&place);
    let _manager = start(manager, &cluster);
    until("the manager serves", || cluster.file("manager.pid").exists());
    let address = cluster.status()["manager"]["address"].as_str().expect("text").to_owned();
    let serve = format!("drive serve --manager {address} --token-file {place}/join.token --dir");
    let _others = ["a", "b"].map(|name| {
        let mut command = braid();
        command.args(serve.split(' ')).arg(name);
        start(command, &cluster)
    });
    // The file system is thawed when told, or when the drive is over, and after a minute in any case.
    let script = format!(
        "mount -o loop image hung && mkdir -p hung/c && {{ \
         ( while [ ! -e freeze ] && kill -0 $$; do sleep 0.1; done; fsfreeze -f hung; touch frozen; n=0; \
           while [ ! -e thaw ] && kill -0 $$ && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done; \
           fsfreeze -u hung; touch thawed ) & exec \"$0\" {serve} hung/c; }}"
    );
    let mut hung = Command::new("unshare");
    hung.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_braid")]);
    let hung = start(hung, &cluster);
    let frozen = Frozen(cluster.file("thaw"), cluster.file("thawed"));
    until("the drives serve", || cluster.line("drive ls").ok().text().matches(" up ").count() == 3);
    cluster.line("volume create v --scheme raid5 --width 3 --unit 64K").ok();
    cluster.put(&cluster.make("before", 3 << 20, 1), "braid://v/before");

    fs::write(cluster.file("freeze"), "").expect("told to freeze");
    until("it is frozen", || cluster.file("frozen").exists());
    // Files are written without the drive.
    cluster.put(&cluster.make("during", 3 << 20, 2), "braid://v/during");
    until("the status names it", || cluster.line("status").text().contains("c's disk hangs"));
    let status = cluster.status();
    let row =
        status["drives"].as_array().and_then(|rows| rows.iter().find(|row| row["name"] == "c")).cloned();
    let row = row.expect("its row");
    assert!(row["stalled_ms"].as_u64() > Some(10_000) && row["state"] == "away", "{row}");
    assert!(cluster.cat("braid://v/before") == noise(3 << 20, 1));
    assert!(cluster.cat("braid://v/during") == noise(3 << 20, 2));

    drop(frozen);
    until("it serves again by itself", || cluster.line("status").code == 0);
    cluster.line("check --all braid://v").ok();
    drop(hung);
}

/// Thaws the file system on drop and waits for that, however the test ends. Holds the file that asks for it
/// and the file that confirms it.
struct Frozen(PathBuf, PathBuf);

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = fs::write(&self.0, "");
        let is_frozen = || !self.1.exists();
        for _ in 0..100 {
            if !is_frozen() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}
