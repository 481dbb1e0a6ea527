//! Trees whose names another user has chosen: links in a copy's way, paths longer than the system takes, and
//! names that vanish meanwhile.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, unlinkat};

use crate::support::{Cluster, Said, finish, said};

/// Number of nested directories of the deep tree, and the length of each one's name.
const LEVELS: usize = 45;
const LEVEL_BYTES: usize = 200;

fn copy(cluster: &Cluster, options: &str, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Said {
    cluster.braid([OsStr::new("cp"), OsStr::new(options), from.as_ref(), to.as_ref()])
}

#[test]
fn a_copy_writes_nothing_through_links_that_an_earlier_one_made() {
    let cluster = Cluster::up(3);
    let [tree, out, victim] = ["tree", "out", "victim"].map(|name| cluster.file(name));
    for dir in [&tree, &out, &victim] {
        fs::create_dir(dir).expect("made");
    }
    fs::write(victim.join("f"), "kept").expect("written");
    symlink(&victim, tree.join("directory")).expect("linked");
    symlink(victim.join("f"), tree.join("file")).expect("linked");
    rustix::fs::mknodat(CWD, tree.join("pipe"), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .expect("made");
    copy(&cluster, "-aq", &tree, "braid://main/").ok();
    copy(&cluster, "-aq", "braid://main/tree", &out).ok();
    assert!(out.join("tree/directory").is_symlink() && out.join("tree/file").is_symlink());
    // A writer of the volume puts other entries in their place.
    cluster.line("rm braid://main/tree/directory braid://main/tree/file braid://main/tree/pipe").ok();
    cluster.line("mkdir braid://main/tree/directory").ok();
    let evil = cluster.make("evil", 1000, 1);
    for name in ["directory/f", "directory/new", "file", "pipe"] {
        cluster.put(&evil, &format!("braid://main/tree/{name}"));
    }
    for options in ["-rq", "-aq"] {
        let told = copy(&cluster, options, "braid://main/tree", &out);
        assert_eq!(told.code, 4, "{}", told.err);
        assert!(told.err.contains("tree/directory: not a directory"), "{}", told.err);
        assert_eq!(fs::read_dir(&victim).expect("listed").count(), 1, "{options} wrote through a link");
        assert_eq!(fs::read(victim.join("f")).expect("there"), b"kept", "{options} wrote through a link");
        for name in ["file", "pipe"] {
            let found = fs::symlink_metadata(out.join("tree").join(name)).expect("there");
            assert!(found.is_file() && found.len() == 1000, "{options}: {name}");
        }
    }
    // A link that was typed is followed, as with cp.
    copy(&cluster, "-q", "braid://main/tree/file", tree.join("file")).ok();
    assert!(tree.join("file").is_symlink());
    assert_eq!(fs::metadata(victim.join("f")).expect("there").len(), 1000);
}

/// Opens the directories of a chain below `top`, each in the one before.
fn chain(top: &Path, make: bool) -> Vec<OwnedFd> {
    let mut chain: Vec<OwnedFd> = vec![fs::File::open(top).expect("opened").into()];
    for _ in 0..LEVELS {
        let above = chain.last().expect("one");
        let name = "d".repeat(LEVEL_BYTES);
        if make {
            mkdirat(above, &name, Mode::from_raw_mode(0o755)).expect("made");
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        chain.push(openat(above, &name, flags, Mode::empty()).expect("there"));
    }
    chain
}

#[test]
fn paths_that_the_system_does_not_take_are_copied_listed_checked_and_removed() {
    let cluster = Cluster::up(3);
    let [deep, out] = ["deep", "out"].map(|name| cluster.file(name));
    for dir in [&deep, &out] {
        fs::create_dir(dir).expect("made");
    }
    let made = chain(&deep, true);
    let flags = OFlags::WRONLY | OFlags::CREATE;
    let bottom = made.last().expect("one");
    let file = openat(bottom, "f", flags, Mode::from_raw_mode(0o644)).expect("made");
    rustix::io::write(&file, b"deep").expect("written");
    copy(&cluster, "-aq", &deep, "braid://main/").ok();
    let listed = cluster.line("ls -R braid://main").ok();
    assert!(listed.text().lines().any(|line| line == "f"));
    let name = format!("braid://main/deep/{}f", format!("{}/", "d".repeat(LEVEL_BYTES)).repeat(LEVELS));
    assert_eq!(cluster.cat(&name), b"deep");
    let checked = cluster.line("check --all braid://main").ok();
    assert!(checked.text().contains(&format!("{name}: ")));
    copy(&cluster, "-aq", "braid://main/deep", &out).ok();
    let copied = chain(&out.join("deep"), false);
    let file = openat(copied.last().expect("one"), "f", OFlags::RDONLY, Mode::empty()).expect("there");
    let mut content = String::new();
    fs::File::from(file).read_to_string(&mut content).expect("read");
    assert_eq!(content, "deep");
    cluster.line("rm -r braid://main/deep").ok();
    assert_eq!(cluster.line("ls braid://main").ok().text(), "");
    for chain in [made, copied] {
        unlinkat(chain.last().expect("one"), "f", AtFlags::empty()).expect("removed");
        for above in chain.iter().rev().skip(1) {
            unlinkat(above, "d".repeat(LEVEL_BYTES), AtFlags::REMOVEDIR).expect("removed");
        }
    }

    // Files that are removed after they were found end no check.
    let tree = cluster.file("tree");
    fs::create_dir_all(tree.join("z/below")).expect("made");
    let long = "n".repeat(200);
    for number in 0..300 {
        fs::write(tree.join(format!("{long}{number}")), "x").expect("written");
        fs::write(tree.join(format!("z/below/{number}")), "x").expect("written");
    }
    copy(&cluster, "-rq", &tree, "braid://main/").ok();
    let mut command = cluster.command(["check", "--all", "--json", "braid://main"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let mut lines = BufReader::with_capacity(64, child.stdout.take().expect("piped"));
    let mut first = String::new();
    lines.read_line(&mut first).expect("a file was checked, and all are known");
    // The output is more than a pipe holds: the check waits before the last files.
    cluster.line("rm -r braid://main/tree/z").ok();
    let rest = std::thread::spawn(move || lines.lines().count());
    let told = said(finish(child));
    assert_eq!(told.code, 0, "{}", told.err);
    assert_eq!(rest.join().expect("read") + 1, 300);
}
