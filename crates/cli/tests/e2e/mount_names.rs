//! Names and attributes as two mounts see them: a change by one is seen by the other at once.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::mount::two;
use crate::support::{Cluster, said, until};

fn names(at: &Path) -> Vec<String> {
    let entries = fs::read_dir(at).expect("listed");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

#[test]
fn what_one_mount_changes_the_other_sees_at_once() {
    let cluster = Cluster::up(5);
    let Some((a, b)) = two(&cluster) else { return };
    let one = |name: &str| a.at.join(name);
    let other = |name: &str| b.at.join(name);
    assert!(!other("f").exists() && names(&b.at).is_empty());
    fs::write(one("f"), "first").expect("written");
    assert_eq!(fs::read_to_string(other("f")).expect("there by now"), "first");
    assert_eq!(names(&b.at), ["f"]);
    fs::write(one("f"), "second, longer").expect("written");
    assert_eq!(fs::metadata(other("f")).expect("there").len(), 14);
    assert_eq!(fs::read_to_string(other("f")).expect("read"), "second, longer");
    fs::set_permissions(one("f"), Permissions::from_mode(0o4750)).expect("set");
    std::os::unix::fs::chown(one("f"), Some(12), Some(34)).expect("given away");
    let seen = fs::metadata(other("f")).expect("there");
    assert_eq!((seen.uid(), seen.gid()), (12, 34));
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123_456_789);
    File::options().write(true).open(one("f")).expect("open").set_modified(time).expect("set");
    assert_eq!(fs::metadata(other("f")).expect("there").modified().expect("a time"), time);
    fs::hard_link(one("f"), one("g")).expect("linked");
    let f = fs::metadata(other("f")).expect("there");
    let g = fs::metadata(other("g")).expect("there");
    assert_eq!((f.ino(), f.nlink(), g.nlink()), (g.ino(), 2, 2));
    fs::remove_file(other("f")).expect("removed");
    assert_eq!(fs::metadata(one("g")).expect("there").nlink(), 1);
    symlink("g", one("link")).expect("made");
    assert_eq!(fs::read_link(other("link")).expect("a link"), Path::new("g"));
    fs::create_dir(one("d")).expect("made");
    fs::rename(one("g"), one("d/h")).expect("moved");
    assert_eq!((names(&other("d")), names(&b.at)), (vec!["h".into()], vec!["d".into(), "link".into()]));
    // A rename that fails changes nothing, also when the kernel asks for the names again (after a second).
    fs::create_dir(one("full")).expect("made");
    fs::write(one("full/x"), "x").expect("written");
    let number = |name: &str| fs::metadata(one(name)).expect("there").ino();
    let before = (number("d"), number("full"));
    let refused = fs::rename(one("d"), one("full")).expect_err("it is not empty");
    assert_eq!(refused.kind(), std::io::ErrorKind::DirectoryNotEmpty);
    thread::sleep(Duration::from_millis(1100));
    assert_eq!((number("d"), number("full")), before);
    assert_eq!((names(&one("d")), names(&one("full"))), (vec!["h".to_owned()], vec!["x".to_owned()]));
    fs::remove_dir_all(one("full")).expect("removed");
    assert_eq!(names(&one("d")), ["h"]);
    assert!(Command::new("mkfifo").arg(one("pipe")).status().expect("run").success());
    assert!(fs::metadata(other("pipe")).expect("there").file_type().is_fifo());
    // The library sees the changes too, and the mounts see changes by the library.
    let listed = cluster.line("ls -l braid://main").ok().text().to_owned();
    assert!(listed.contains("link -> g") && listed.contains("prw-"), "{listed}");
    cluster.line("chmod 711 braid://main/d").ok();
    assert_eq!(fs::metadata(other("d")).expect("there").permissions().mode() & 0o7777, 0o711);
}

#[test]
fn an_open_file_that_is_removed_elsewhere_lives_until_it_is_closed() {
    let cluster = Cluster::up(5);
    let Some((a, b)) = two(&cluster) else { return };
    for name in ["f", "read before"] {
        fs::write(a.at.join(name), "kept").expect("written");
    }
    // The kernel has this file's bytes cached, so opening it asks the cluster nothing.
    assert_eq!(fs::read(b.at.join("read before")).expect("read"), b"kept");
    let mut both = ["f", "read before"].map(|name| File::open(b.at.join(name)).expect("open"));
    // A file whose attributes change first, after which the other mount no longer watches it.
    let changed = File::options().read(true).write(true).open(b.at.join("f")).expect("open");
    fs::set_permissions(a.at.join("f"), Permissions::from_mode(0o640)).expect("set");
    for name in ["f", "read before"] {
        fs::remove_file(a.at.join(name)).expect("removed");
    }
    // The same holds for names that a mount has made itself.
    fs::write(b.at.join("own"), "first").expect("made");
    fs::remove_file(a.at.join("own")).expect("removed");
    let options = File::options().write(true).create(true).truncate(true).clone();
    options.open(b.at.join("own")).expect("made").write_all(b"second").expect("taken");
    assert_eq!(fs::read(a.at.join("own")).expect("there"), b"second");
    fs::remove_file(a.at.join("own")).expect("removed");
    // Wait longer than the lease of a mount that has died.
    let began = Instant::now();
    until("leases from then are over", || began.elapsed() > Duration::from_secs(7));
    for open in &mut both {
        let mut text = String::new();
        open.read_to_string(&mut text).expect("it is there");
        assert_eq!((text.as_str(), open.metadata().expect("there").nlink()), ("kept", 0));
    }
    changed.write_all_at(b"K", 0).expect("the first write goes where the others go");
    changed.sync_all().expect("synced");
    let mut text = [0; 4];
    changed.read_exact_at(&mut text, 0).expect("read");
    assert_eq!(&text, b"Kept");
    drop(changed);
    let own = File::open(b.at.join("f")).expect_err("it has no name");
    assert_eq!(own.kind(), std::io::ErrorKind::NotFound);
    drop(both);
    until("the drives have nothing of it", || objects(&cluster) == 0);
}

#[test]
fn what_is_removed_while_it_is_open_goes_on() {
    let cluster = Cluster::up(3);
    let Some((a, b)) = two(&cluster) else { return };
    for name in ["removed", "replaced", "elsewhere", "empty", "moved"] {
        fs::create_dir(a.at.join(name)).expect("made");
    }
    let open = ["removed", "replaced", "elsewhere"].map(|name| File::open(a.at.join(name)).expect("open"));
    fs::remove_dir(a.at.join("removed")).expect("removed");
    fs::rename(a.at.join("empty"), a.at.join("replaced")).expect("replaced");
    fs::remove_dir(b.at.join("elsewhere")).expect("removed");
    for open in &open {
        open.set_permissions(Permissions::from_mode(0o711)).expect("set");
        let is = open.metadata().expect("it is open");
        assert_eq!((is.nlink(), is.permissions().mode() & 0o777), (0, 0o711));
    }
    // The same for a working directory.
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo there; read line; exec env pwd -P"]).current_dir(a.at.join("moved"));
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("run");
    let mut said = BufReader::new(shell.stdout.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it is there");
    fs::rename(b.at.join("moved"), b.at.join("new")).expect("renamed");
    drop(shell.stdin.take());
    said.read_line(&mut line).expect("read");
    assert!(shell.wait().expect("ended").success() && line.ends_with("/moved\n"), "{line}");
    // A program that opens a name which is replaced all the time finds one file or the other.
    let put = |number: usize| {
        fs::write(a.at.join("new f"), [7; 5000]).expect("written");
        fs::rename(a.at.join("new f"), a.at.join("f")).unwrap_or_else(|error| panic!("{number}: {error}"));
    };
    put(0);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                assert_eq!(fs::read(a.at.join("f")).expect("there is one").len(), 5000);
            }
        });
        (1..100).for_each(put);
        is_done.store(true, Ordering::Release);
    });
}

/// Number of components that the drives hold.
fn objects(cluster: &Cluster) -> u64 {
    let status = cluster.line("status --json").ok().text().to_owned();
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let drives = status["drives"].as_array().expect("drives");
    drives.iter().map(|drive| drive["components"].as_u64().expect("a number")).sum()
}

#[test]
fn what_an_open_writer_has_is_written_out_when_others_open_the_file() {
    let cluster = Cluster::up(5);
    let Some((a, b)) = two(&cluster) else { return };
    let mut writer = File::create(a.at.join("f")).expect("made");
    writer.write_all(b"not synced").expect("taken");
    assert_eq!(fs::read_to_string(b.at.join("f")).expect("read"), "not synced");
    assert_eq!(fs::read_to_string(a.at.join("f")).expect("read"), "not synced");
}

#[test]
fn a_tree_is_archived_and_comes_back_as_it_was() {
    let cluster = Cluster::up(5);
    let tree = cluster.file("tree");
    let back = cluster.file("back");
    fs::create_dir_all(tree.join("d")).expect("made");
    fs::write(tree.join("d/f"), "bytes").expect("written");
    fs::hard_link(tree.join("d/f"), tree.join("g")).expect("linked");
    symlink("d/f", tree.join("link")).expect("made");
    symlink("/nowhere", tree.join("dangling")).expect("made");
    assert!(Command::new("mkfifo").arg(tree.join("pipe")).status().expect("run").success());
    fs::set_permissions(tree.join("d/f"), Permissions::from_mode(0o640)).expect("set");
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(987_654_321_012_345_678);
    File::open(tree.join("d")).expect("open").set_modified(time).expect("set");
    cluster.line(&format!("cp -a {} braid://main/", tree.display())).ok();
    cluster.line(&format!("cp -a braid://main/tree {}", back.display())).ok();
    for name in ["", "d", "d/f", "g", "link", "dangling", "pipe"] {
        let [was, is] = [&tree, &back].map(|at| fs::symlink_metadata(at.join(name)).expect("there"));
        let facts =
            |of: &fs::Metadata| (of.mode(), of.uid(), of.gid(), of.nlink(), of.mtime(), of.mtime_nsec());
        assert_eq!(facts(&was), facts(&is), "{name}");
    }
    let [f, g] = ["d/f", "g"].map(|name| fs::metadata(back.join(name)).expect("there").ino());
    assert_eq!(f, g, "one file with two names");
    assert_eq!(fs::read_link(back.join("dangling")).expect("a link"), Path::new("/nowhere"));
    let mut diff = Command::new("diff");
    let same = said(diff.args(["-r", "--no-dereference"]).args([&tree, &back]).output().expect("run"));
    assert!(same.err.is_empty() && !same.text().contains("differ"), "{} {}", same.text(), same.err);
}
