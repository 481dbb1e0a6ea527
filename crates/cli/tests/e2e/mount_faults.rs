//! Writing through a mount while things fail: the mount itself, a drive, the manager, room.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;

use crate::mount::Mounted;
use crate::support::{Cluster, Said, noise, runs, signal, until};

const MIB: usize = 1 << 20;

/// Writes in pieces, as a program that copies does. Calls `midway` after a third of the bytes.
fn copy(bytes: &[u8], to: &Path, midway: impl FnOnce()) -> std::io::Result<()> {
    let mut file = File::create(to)?;
    let (first, rest) = bytes.split_at(bytes.len() / 3);
    first.chunks(MIB).try_for_each(|piece| file.write_all(piece))?;
    midway();
    rest.chunks(MIB).try_for_each(|piece| file.write_all(piece))?;
    file.sync_all()
}

#[track_caller]
fn number(done: std::io::Result<()>) -> Option<i32> {
    done.expect_err("it does not fit").raw_os_error()
}

#[test]
fn what_was_synced_outlives_the_mount() {
    let cluster = Cluster::up(5);
    let Some(mut mounted) = Mounted::new(&cluster, "braid://main") else { return };
    let bytes = noise(9_000_000, 1);
    let file = File::create(mounted.at.join("f")).expect("made");
    file.write_all_at(&bytes, 0).expect("written");
    file.sync_all().expect("synced");
    let appended = fs::OpenOptions::new().append(true).create(true).open(mounted.at.join("log"));
    let mut appended = appended.expect("opened");
    appended.write_all(b"first\n").and_then(|()| appended.sync_data()).expect("synced");
    // A sync works by whichever descriptor asks for it.
    fs::write(mounted.at.join("read"), b"before").expect("written");
    let reader = File::open(mounted.at.join("read")).expect("opened");
    let writer = File::options().write(true).open(mounted.at.join("read")).expect("opened");
    writer.write_all_at(b"behind it", 6).and_then(|()| reader.sync_all()).expect("synced");
    // These bytes were not synced and may be there or not.
    file.write_all_at(&[1; 100], 9_000_000).expect("written");
    appended.write_all(b"second\n").expect("written");
    let pid = mounted.pid();
    signal(pid, "KILL");
    until("it is dead", || !runs(pid));
    let _ = mounted.child.take().expect("it ran").wait();
    drop((file, appended, reader, writer));
    let stored = cluster.cat("braid://main/f");
    assert!(stored.len() >= bytes.len() && stored[..bytes.len()] == bytes, "{} bytes", stored.len());
    assert!(cluster.cat("braid://main/log").starts_with(b"first\n"));
    assert_eq!(cluster.cat("braid://main/read"), b"beforebehind it");
    let _ = Command::new("umount").arg("-l").arg(&mounted.at).status();
}

#[test]
fn programs_do_not_notice_that_a_drive_dies_or_the_manager_restarts() {
    let cluster = Cluster::up(6);
    let Some(mounted) = Mounted::new(&cluster, "braid://main") else { return };
    let bytes = noise(120 * MIB, 7);
    copy(&bytes, &mounted.at.join("drive"), || cluster.kill_drive("drive-3")).expect("written");
    let restart = || {
        cluster.kill_manager();
        std::thread::scope(|scope| {
            // A name is looked up while there is no manager.
            let made = scope.spawn(|| fs::create_dir(mounted.at.join("meanwhile")));
            cluster.start(&[]);
            made.join().expect("done").expect("made");
        });
    };
    copy(&bytes, &mounted.at.join("manager"), restart).expect("written");
    for name in ["drive", "manager"] {
        assert!(fs::read(mounted.at.join(name)).expect("read") == bytes, "{name}, by the mount");
        assert!(cluster.cat(&format!("braid://main/{name}")) == bytes, "{name}, by the library");
    }
    let ended = mounted.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
}

#[test]
fn a_quota_is_told_and_ends_when_there_is_room() {
    let cluster = Cluster::up(5);
    cluster.line("volume create small --quota 4M").ok();
    let Some(mounted) = Mounted::new(&cluster, "braid://small") else { return };
    let at = |name: &str| mounted.at.join(name);
    // Bytes that a close refuses are not there later, also right after the mount.
    let over = cluster.file("over");
    fs::write(&over, noise(6 * MIB, 5)).expect("written");
    let said = Command::new("cp").arg(&over).arg(at("over")).output().expect("cp runs");
    assert!(!said.status.success(), "it does not fit");
    let kept = cluster.cat("braid://small/over");
    assert!(noise(6 * MIB, 5).starts_with(&kept) && kept.len() <= 4 * MIB, "{} bytes", kept.len());
    fs::remove_file(at("over")).expect("removed");
    let is_free = |said: Said| String::from_utf8_lossy(&said.out).contains("\"bytes\": 0");
    until("there is room", || is_free(cluster.line("quota ls --json").ok()));
    let mut file = File::create(at("fits")).expect("made");
    file.write_all(&noise(3 * MIB, 1)).and_then(|()| file.sync_all()).expect("synced");
    drop(file);
    let mut file = File::create(at("large")).expect("made");
    file.write_all(&noise(2 * MIB, 2)).expect("taken");
    assert_eq!(number(file.sync_all()), Some(Errno::DQUOT.raw_os_error()));
    assert_eq!(number(file.write_all(b"more")), Some(Errno::DQUOT.raw_os_error()));
    // Once there is room, the bytes that were taken are still there to be written. A removed file's room is
    // free when the manager has heard that no client has it open.
    fs::remove_file(at("fits")).expect("removed");
    until("there is room", || file.sync_all().is_ok());
    drop(file);
    assert!(fs::read(at("large")).expect("read") == noise(2 * MIB, 2));
    // Without room, the file keeps what fits.
    let mut file = fs::OpenOptions::new().append(true).open(at("large")).expect("opened");
    let appended = file.write_all(&noise(3 * MIB, 3)).and_then(|()| file.sync_all());
    assert_eq!(number(appended), Some(Errno::DQUOT.raw_os_error()));
    drop(file);
    let all = [noise(2 * MIB, 2), noise(3 * MIB, 3)].concat();
    let kept = cluster.cat("braid://small/large");
    assert!((2 * MIB..=4 * MIB).contains(&kept.len()) && all.starts_with(&kept), "{} bytes", kept.len());
    let mut read = Vec::new();
    File::open(at("large")).and_then(|mut file| file.read_to_end(&mut read)).expect("read");
    assert!(read == kept);
}

#[test]
fn who_is_killed_waits_no_more() {
    let cluster = Cluster::up(3);
    let Some(mounted) = Mounted::new(&cluster, "braid://main") else { return };
    let start = |program: &'static str, arguments: &[&str], file: &str| {
        let mut command = Command::new(program);
        let file = format!("{file}{}", mounted.at.join(program).display());
        let child = command.args(arguments).arg(file).stderr(Stdio::null()).spawn().expect("started");
        (program, child)
    };
    // A program in the middle of a write.
    let writer = start("dd", &["if=/dev/zero", "bs=64k", "oflag=dsync"], "of=");
    until("it writes", || fs::metadata(mounted.at.join("dd")).is_ok_and(|file| file.len() > 0));
    cluster.kill_manager();
    let waits = |(program, child): &(&str, Child)| {
        let state = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        // State D: the program may wait for the directory, which the maker of a file has locked in the
        // kernel.
        ["S", "D"].iter().any(|how| state.contains(&format!("({program}) {how}")))
    };
    let maker = start("touch", &[], "");
    until("it waits", || waits(&maker));
    let mut programs = vec![writer, maker];
    programs.extend(["stat", "ls"].map(|program| start(program, &[], "")));
    until("they wait", || programs.iter().all(waits));
    let (left, killed) = programs.split_last_mut().expect("some");
    killed.iter_mut().for_each(|(_, child)| child.kill().expect("killed"));
    let is_gone = |(_, child): &mut (&str, Child)| child.try_wait().expect("asked").is_some();
    until("they are gone", || killed.iter_mut().all(is_gone));
    assert!(!is_gone(left), "who is not killed waits");
    cluster.start(&[]);
    left.1.wait().expect("answered");
}
