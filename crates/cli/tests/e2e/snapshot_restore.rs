//! Differences, restores and schedules of snapshots, by the command line.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::mount::Mounted;
use crate::support::{Cluster, finish, noise, said, signal, until};

/// Lines of the differences between two times.
fn diff(cluster: &Cluster, from: &str, to: &str) -> Vec<String> {
    let said = cluster.line(&format!("snapshot diff {from} {to}")).ok();
    said.text().lines().map(str::to_owned).collect()
}

#[test]
fn a_tree_becomes_again_what_a_snapshot_shows() {
    let cluster = Cluster::up(4);
    let one = cluster.make("one", (2 << 20) + 5, 1);
    let two = cluster.make("two", 900, 2);
    cluster.line("mkdir -p braid://main/d/sub").ok();
    cluster.line("mkdir -p braid://main/gone/deep").ok();
    for name in ["a", "b", "p", "d/sub/c", "gone/deep/x", "d/same"] {
        cluster.put(&one, &format!("braid://main/{name}"));
    }
    cluster.put(&two, "braid://main/q");
    cluster.line("ln -s a braid://main/link").ok();
    cluster.line("snapshot make braid://main s-1").ok();
    assert_eq!(diff(&cluster, "braid://main@s-1", "braid://main"), [""; 0]);

    cluster.put(&two, "braid://main/a");
    cluster.line("rm braid://main/b").ok();
    cluster.line("mv braid://main/d/sub braid://main/moved").ok();
    cluster.put(&two, "braid://main/moved/new");
    cluster.line("mkdir braid://main/d/sub").ok();
    cluster.line("rm -r braid://main/gone").ok();
    cluster.line("chmod 700 braid://main/d/same").ok();
    cluster.line("rm braid://main/link").ok();
    // Two files change their names with each other.
    for (from, to) in [("p", "t"), ("q", "p"), ("t", "q")] {
        cluster.line(&format!("mv braid://main/{from} braid://main/{to}")).ok();
    }
    cluster.line("snapshot make braid://main s-2").ok();
    let expected = [
        "M a",
        "D b",
        "P d/same",
        "R d/sub -> moved",
        "A d/sub",
        "D gone",
        "D gone/deep",
        "D gone/deep/x",
        "D link",
        "A moved/new",
        "R p -> q",
        "R q -> p",
    ];
    assert_eq!(diff(&cluster, "braid://main@s-1", "braid://main"), expected);
    assert_eq!(diff(&cluster, "braid://main@s-1", "braid://main@s-2"), expected);
    assert_eq!(diff(&cluster, "braid://main@s-1/d", "braid://main/d"), ["P same", "D sub", "A sub"]);
    let json = cluster.line("snapshot diff --json braid://main@s-1 braid://main").ok().json();
    assert_eq!(json[3]["change"], "renamed");
    assert_eq!((&json[3]["path"], &json[3]["to"]), (&"d/sub".into(), &"moved".into()), "{json}");
    for (line, why) in [
        ("snapshot diff braid://main@s-2 braid://main@s-1", "older snapshot first"),
        ("snapshot diff braid://main braid://main@s-1", "older snapshot first"),
        ("snapshot restore braid://main/a", "is in no snapshot"),
        ("snapshot restore braid://main@s-1/none", "no file or directory"),
    ] {
        let said = cluster.line(line);
        assert!(said.code != 0 && said.err.contains(why), "{line}: {}", said.err);
    }

    let restored = cluster.line("snapshot restore --json braid://main@s-1").ok().json();
    assert_eq!(
        (&restored["files"], &restored["renamed"], &restored["failed"]),
        (&3.into(), &3.into(), &0.into()),
        "{restored}"
    );
    for name in ["a", "b", "p", "d/sub/c", "gone/deep/x", "link"] {
        assert!(cluster.cat(&format!("braid://main/{name}")) == noise((2 << 20) + 5, 1), "{name}");
    }
    assert!(cluster.cat("braid://main/q") == noise(900, 2));
    let names = cluster.line("ls braid://main").ok().text().to_owned();
    assert_eq!(names.split_whitespace().collect::<Vec<_>>(), ["a", "b", "d/", "gone/", "link", "p", "q"]);
    let stat = |name: &str| {
        let stat = cluster.line(&format!("stat --json braid://{name}")).ok().json();
        (stat["mode"].clone(), stat["modified_ns"].clone(), stat["size"].clone())
    };
    for name in ["a", "b", "d/same", "d", "gone/deep", "gone/deep/x", ""] {
        assert_eq!(stat(&format!("main@s-1/{name}")), stat(&format!("main/{name}")), "{name}");
    }
    // What was there before is in a snapshot.
    let before = restored["before"].as_str().expect("a name").to_owned();
    assert!(before.starts_with("braid://main@before-restore-"), "{before}");
    assert!(cluster.cat(&format!("{before}moved/new")) == noise(900, 2));
    // Copies are other files with the same names.
    let left = diff(&cluster, "braid://main@s-1", "braid://main");
    assert!(left.iter().all(|line| line.starts_with('M') || !line.contains(" a")), "{left:?}");

    // One file; a copy elsewhere; and only what is missing.
    cluster.put(&two, "braid://main/d/sub/c");
    cluster.line("snapshot restore braid://main@s-1/d/sub/c").ok();
    assert!(cluster.cat("braid://main/d/sub/c") == noise((2 << 20) + 5, 1));
    cluster.line("snapshot restore braid://main@s-1/gone braid://main/copy").ok();
    assert!(cluster.cat("braid://main/copy/deep/x") == noise((2 << 20) + 5, 1));
    cluster.line("rm -r braid://main/gone").ok();
    cluster.line("snapshot restore braid://main@s-1/gone").ok();
    assert!(cluster.cat("braid://main/gone/deep/x") == noise((2 << 20) + 5, 1));
    let again = cluster.line("snapshot restore --json --update braid://main@s-1").ok().json();
    assert_eq!((&again["files"], &again["removed"]), (&0.into(), &3.into()), "{again}");
    assert_eq!(cluster.line("ls braid://main/copy").code, 3, "it was added");
    cluster.line("check --all braid://main").ok();
}

#[test]
fn names_that_moved_come_back_to_the_directories_in_which_they_were() {
    let cluster = Cluster::up(4);
    let old = cluster.make("old", 900, 1);
    let new = cluster.make("new", 700, 2);
    for line in ["mkdir -p braid://main/one/a", "mkdir braid://main/one/b", "mkdir -p braid://main/two/a"] {
        cluster.line(line).ok();
    }
    cluster.line("mkdir braid://main/d").ok();
    for name in ["one/a/x", "two/a/x", "d/x"] {
        cluster.put(&old, &format!("braid://main/{name}"));
    }
    cluster.line("ln braid://main/d/x braid://main/d/y").ok();
    cluster.line("snapshot make braid://main s-1").ok();
    for line in [
        // Another directory has the name of the one in which a file was.
        "mv braid://main/one/a braid://main/one/c",
        "mv braid://main/one/b braid://main/one/a",
        "rm braid://main/one/c/x",
        "mv braid://main/two/a braid://main/two/c",
        "mkdir braid://main/two/a",
        "rm braid://main/two/c/x",
        // One name of a file moved, and the other is gone.
        "mv braid://main/d/x braid://main/z",
        "rm -r braid://main/d",
    ] {
        cluster.line(line).ok();
    }
    cluster.put(&new, "braid://main/one/a/x");
    cluster.put(&new, "braid://main/two/a/x");
    cluster.line("snapshot restore braid://main@s-1").ok();
    let listed = |of: &str| {
        let listed = cluster.line(&format!("ls braid://main{of}")).ok();
        listed.text().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        (listed(""), listed("/one")),
        (vec!["d/".into(), "one/".into(), "two/".into()], vec!["a/".into(), "b/".into()])
    );
    assert_eq!((listed("/one/b"), listed("/two")), (vec![], vec!["a/".to_owned()]));
    for name in ["one/a/x", "two/a/x", "d/x", "d/y"] {
        assert!(cluster.cat(&format!("braid://main/{name}")) == noise(900, 1), "{name}");
    }
    let links = cluster.line("stat --json braid://main/d/y").ok().json();
    assert_eq!(links["links"], 2, "{links}");
}

#[test]
fn a_file_written_under_its_second_name_comes_back_under_both() {
    let cluster = Cluster::up(4);
    let Some(mounted) = Mounted::new(&cluster, "braid://main") else { return };
    let root = mounted.at.clone();
    fs::write(root.join("x"), noise(900, 1)).expect("written");
    fs::hard_link(root.join("x"), root.join("y")).expect("linked");
    cluster.line("snapshot make --sync braid://main s-1").ok();
    fs::remove_file(root.join("x")).expect("removed");
    fs::write(root.join("y"), noise(700, 2)).expect("written");
    let said = mounted.end();
    assert_eq!(said.code, 0, "{}", said.err);
    cluster.line("snapshot restore braid://main@s-1").ok();
    for name in ["x", "y"] {
        assert!(cluster.cat(&format!("braid://main/{name}")) == noise(900, 1), "{name}");
    }
    let stat = cluster.line("stat --json braid://main/x").ok().json();
    assert_eq!(stat["links"], 2, "{stat}");
}

#[test]
fn programs_go_on_with_the_files_that_a_restore_replaces() {
    let cluster = Cluster::up(4);
    let Some(mounted) = Mounted::new(&cluster, "braid://main") else { return };
    let root = mounted.at.clone();
    let old = noise(1 << 20, 1);
    let new = noise(1 << 20, 2);
    for name in ["read", "written"] {
        fs::write(root.join(name), &old).expect("written");
    }
    setxattr(root.join("read"), "user.of", b"old", XattrFlags::empty()).expect("set");
    cluster.line("snapshot make --sync braid://main s-1").ok();
    for name in ["read", "written"] {
        fs::write(root.join(name), &new).expect("written");
    }
    let read = File::open(root.join("read")).expect("opened");
    let mut written = OpenOptions::new().append(true).read(true).open(root.join("written")).expect("opened");
    written.write_all(b"more").expect("written");
    cluster.line("snapshot restore braid://main@s-1").ok();
    written.write_all(b" and more").expect("it is still open");
    written.sync_all().expect("synced");
    let mut buffer = vec![0; new.len()];
    read.read_exact_at(&mut buffer, 0).expect("read");
    assert!(buffer == new, "a reader has what it opened");
    let mut tail = [0; 13];
    written.read_exact_at(&mut tail, new.len() as u64).expect("read");
    assert_eq!(&tail, b"more and more", "and a writer too");
    drop((read, written));
    until("the names show what was restored", || {
        ["read", "written"].iter().all(|name| fs::read(root.join(name)).expect("read") == old)
    });
    let mut value = [0; 3];
    assert_eq!(getxattr(root.join("read"), "user.of", &mut value), Ok(3));
    assert_eq!(&value, b"old", "it was given before the name");
    let said = mounted.end();
    assert_eq!(said.code, 0, "{}", said.err);
}

#[test]
fn a_restore_that_is_broken_off_leaves_each_file_whole() {
    const FILES: usize = 40;
    let cluster = Cluster::up(4);
    let old = cluster.make("old", 1 << 20, 1);
    let new = cluster.make("new", 1 << 20, 2);
    let name = |file: usize| format!("braid://main/f-{file}");
    (0..FILES).for_each(|file| cluster.put(&old, &name(file)));
    cluster.line("snapshot make braid://main s-1").ok();
    (0..FILES).for_each(|file| cluster.put(&new, &name(file)));
    let is_old = |path: &str| cluster.cat(path) == noise(1 << 20, 1);
    let command = &mut cluster.command(["snapshot", "restore", "braid://main@s-1"]);
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = child.spawn().expect("started");
    until("it has begun", || (0..FILES).any(|file| is_old(&name(file))));
    signal(child.id(), "INT");
    let said = said(finish(child));
    assert!(said.code == 0 || said.code == 130, "{} {}", said.code, said.err);
    for file in 0..FILES {
        let bytes = cluster.cat(&name(file));
        assert!(bytes == noise(1 << 20, 1) || bytes == noise(1 << 20, 2), "file {file} is a mix");
    }
    cluster.line("snapshot restore --update braid://main@s-1").ok();
    assert!((0..FILES).all(|file| is_old(&name(file))));
    let names = cluster.line("ls braid://main").ok().text().to_owned();
    assert_eq!(names.split_whitespace().count(), FILES);
}

#[test]
fn a_schedule_makes_its_first_snapshot_at_once_and_is_shown() {
    let cluster = Cluster::up(3);
    cluster.put(&cluster.make("one", 900, 1), "braid://main/a");
    cluster.line("mkdir braid://main/d").ok();
    assert_eq!(cluster.line("snapshot keep").ok().text(), "no schedules\n");
    cluster.line("snapshot keep braid://main --keep 24h,7d,4w").ok();
    cluster.line("snapshot keep braid://main/d --keep 2w").ok();
    let rows = || cluster.line("snapshot keep --json").ok().json();
    until("both have made one", || {
        rows().as_array().expect("rows").iter().all(|row| row["there"] == 1 && row["next_ms"] != 0)
    });
    let of_one = cluster.line("snapshot keep braid://main/d --json").ok().json();
    assert_eq!((&of_one[0]["keep"], of_one.as_array().map(Vec::len)), (&"2w".into(), Some(1)), "{of_one}");
    let all = cluster.line("snapshot ls --json").ok().json();
    let names: Vec<&str> =
        all.as_array().expect("rows").iter().filter_map(|row| row["name"].as_str()).collect();
    assert!(names.len() == 2 && names.iter().all(|name| name.starts_with("auto-20")), "{names:?}");
    assert!(cluster.cat(&format!("braid://main@{}/a", names[0])) == noise(900, 1));
    cluster.restart_manager();
    cluster.line("snapshot keep braid://main --keep 1h").ok();
    assert_eq!(rows().as_array().map(Vec::len), Some(2));
    cluster.line("snapshot keep braid://main --keep none").ok();
    assert_eq!(rows().as_array().map(Vec::len), Some(1), "and what it made stays");
    assert_eq!(cluster.line("snapshot ls --json").ok().json().as_array().map(Vec::len), Some(2));
    for (line, code) in [
        ("snapshot keep braid://main --keep none", 3),
        ("snapshot keep braid://main --keep 24x", 2),
        ("snapshot keep braid://main/a --keep 24h", 4),
        ("snapshot keep braid://main --keep 501h", 2),
    ] {
        let said = cluster.line(line);
        assert_eq!(said.code, code, "{line}: {}", said.err);
    }
    // By path, the same snapshots.
    let door = cluster.line("ls braid://main/d/.snapshots").ok().text().to_owned();
    assert!(door.starts_with("auto-"), "{door}");
    let path = format!("braid://main/.snapshots/{}/a", names[0]);
    assert!(cluster.cat(&path) == noise(900, 1));
    let said = cluster.line(&format!("rm {path}"));
    assert!(said.code == 6 && said.err.contains("cannot be changed"), "{}", said.err);
}
