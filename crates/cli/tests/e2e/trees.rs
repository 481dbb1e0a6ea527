//! Directory trees copied in and out: many files at once, attributes, holes, and the state after errors.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::{Cluster, Said, finish, noise, said, signal, until};

/// Size of the sparse file: 1 TiB with almost no data.
const SPARSE_BYTES: u64 = 1 << 40;

fn copy(cluster: &Cluster, options: &str, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Said {
    cluster.braid([OsStr::new("cp"), OsStr::new(options), from.as_ref(), to.as_ref()])
}

fn time(path: &Path) -> SystemTime {
    fs::metadata(path).expect("there").modified().expect("a time")
}

fn touch(path: &Path, time: SystemTime) {
    let file = File::options().append(true).open(path).expect("opened");
    file.set_times(FileTimes::new().set_modified(time)).expect("set");
}

/// Number of a directory's files that a process has open.
fn open_below(pid: u32, dir: &Path) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().filter_map(Result::ok);
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    // A file may be open more than once.
    targets.filter(|target| target.starts_with(dir)).collect::<BTreeSet<PathBuf>>().len()
}

/// Returns the largest number of files of `dir` that a copy has open at once while no drive answers. It looks
/// until it sees 16, or for 4 s: for longer the drives would lose their leases.
fn open_at_once(cluster: &Cluster, from: &OsStr, to: &OsStr, dir: &Path) -> usize {
    until("all drives are up", || cluster.line("drive ls").ok().text().matches(" up ").count() == 3);
    let drives = ["drive-1", "drive-2", "drive-3"].map(|drive| cluster.drive_pid(drive));
    drives.iter().for_each(|&drive| signal(drive, "STOP"));
    let mut command = cluster.command([OsStr::new("cp"), OsStr::new("-r"), from, to]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let mut most = 0;
    let end = Instant::now() + Duration::from_secs(4);
    while most < 16 && Instant::now() < end {
        most = most.max(open_below(child.id(), dir));
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(child.id(), "INT");
    drives.iter().for_each(|&drive| signal(drive, "CONT"));
    finish(child);
    most
}

#[test]
fn many_files_are_copied_at_once_both_ways() {
    let cluster = Cluster::up(3);
    cluster.line("volume create v --scheme raid5 --width 3 --unit 4K").ok();
    let tree = cluster.file("tree");
    let back = cluster.file("back");
    fs::create_dir_all(&tree).expect("made");
    fs::create_dir_all(&back).expect("made");
    for number in 0..40 {
        // More pieces than a copy has buffers: a source that is not copied stays open.
        let file = File::create(tree.join(format!("f{number}"))).expect("made");
        for piece in 0..16 {
            file.write_all_at(&noise(8192, number), piece << 17).expect("written");
        }
    }
    let (volume, tree_os, back_os) = (OsStr::new("braid://v/"), tree.as_os_str(), back.as_os_str());
    copy(&cluster, "-r", &tree, volume).ok();
    for (from, to, dir) in [(tree_os, volume, &tree), (OsStr::new("braid://v/tree"), back_os, &back)] {
        // On a machine that is busy with other things, one look may be too short.
        let most = (0..5).map(|_| open_at_once(&cluster, from, to, dir)).find(|most| *most >= 16);
        assert!(
            most.is_some(),
            "fewer than 16 files are open at once: {} to {}",
            from.display(),
            to.display()
        );
    }
}

#[test]
fn one_file_s_error_stops_no_other_and_all_are_told() {
    let cluster = Cluster::up(3);
    let tree = cluster.file("tree");
    fs::create_dir_all(&tree).expect("made");
    for number in 0..60 {
        fs::write(tree.join(format!("f{number:02}")), noise(1000 + number, 1)).expect("written");
    }
    cluster.line("mkdir -p braid://main/tree/f07 braid://main/tree/f31").ok();
    let told = copy(&cluster, "-r", &tree, "braid://main/");
    assert_eq!(told.code, 4, "{}", told.err);
    for name in ["f07", "f31"] {
        let lines = told.err.lines().filter(|line| line.contains(name)).count();
        assert_eq!(lines, 1, "{name} in {}", told.err);
    }
    assert!(told.err.ends_with("braid: copy: 2 things were not copied, as told above; the rest is copied\n"));
    for number in (0..60).filter(|number| ![7, 31].contains(number)) {
        let stored = cluster.cat(&format!("braid://main/tree/f{number:02}"));
        assert_eq!(stored, noise(1000 + number, 1), "f{number:02}");
    }
    // Two sources for one target: the result would be arbitrary.
    let other = cluster.file("other");
    fs::create_dir_all(&other).expect("made");
    fs::write(other.join("f00"), "other").expect("written");
    let args =
        [OsStr::new("cp"), tree.join("f00").as_os_str(), other.join("f00").as_os_str()].map(OsStr::to_owned);
    cluster
        .braid(args.into_iter().chain([OsStr::new("braid://main/").to_owned()]))
        .failed(2, "would have the same name there");
}

#[test]
fn time_and_mode_are_kept_both_ways_and_what_is_the_same_is_left() {
    let cluster = Cluster::up(3);
    let tree = cluster.file("tree");
    let back = cluster.file("back");
    fs::create_dir_all(&tree).expect("made");
    let then = UNIX_EPOCH + Duration::from_millis(1_234_567_890_123);
    for (name, mode) in [("run", 0o750), ("read", 0o444), ("plain", 0o644)] {
        fs::write(tree.join(name), noise(5000, 1)).expect("written");
        touch(&tree.join(name), then);
        fs::set_permissions(tree.join(name), Permissions::from_mode(mode)).expect("set");
    }
    copy(&cluster, "-rp", &tree, "braid://main/kept").ok();
    copy(&cluster, "-rp", "braid://main/kept", &back).ok();
    for (name, mode) in [("run", 0o750), ("read", 0o444), ("plain", 0o644)] {
        assert_eq!(time(&back.join(name)), then, "{name}");
        let found = fs::metadata(back.join(name)).expect("there").permissions().mode();
        assert_eq!(found & 0o777, mode, "{name}");
        assert_eq!(fs::read(back.join(name)).expect("read"), noise(5000, 1));
    }

    let again = |options: &str, from: &OsStr, to: &OsStr| {
        let said =
            cluster.braid([OsStr::new("cp"), OsStr::new("--json"), OsStr::new(options), from, to]).ok();
        // A line for each file that was copied.
        said.text().lines().count()
    };
    let (tree_os, kept) = (tree.as_os_str(), OsStr::new("braid://main"));
    copy(&cluster, "-rp", &tree, "braid://main").ok();
    assert_eq!(again("-rpu", tree_os, kept), 0);
    // A different size, a different time, and a missing copy.
    fs::write(tree.join("plain"), noise(5001, 1)).expect("written");
    touch(&tree.join("plain"), then);
    touch(&tree.join("run"), then + Duration::from_millis(1));
    cluster.line("rm braid://main/tree/read").ok();
    assert_eq!(again("-rpu", tree_os, kept), 3);
    assert_eq!(again("-rpu", tree_os, kept), 0);
    assert_eq!(cluster.cat("braid://main/tree/plain"), noise(5001, 1));
}

#[test]
fn what_changed_while_it_was_copied_is_copied_by_the_next_update() {
    let cluster = Cluster::up(3);
    let tree = cluster.file("tree");
    let back = cluster.file("back");
    fs::create_dir_all(&tree).expect("made");
    fs::create_dir_all(&back).expect("made");
    let then = SystemTime::now() - Duration::from_secs(3600);
    for name in ["a", "b"] {
        fs::write(tree.join(name), noise(5000, 1)).expect("written");
        touch(&tree.join(name), then);
    }
    let out = OsStr::new("braid://main/tree");
    let update = |from: &OsStr, to: &OsStr| {
        let args = [OsStr::new("cp"), OsStr::new("--json"), OsStr::new("-ru"), from, to];
        cluster.braid(args).ok().text().lines().count()
    };
    let (volume, tree_os, back_os) = (OsStr::new("braid://main"), tree.as_os_str(), back.as_os_str());
    // A plain copy gets the manager's time, which says nothing about the source.
    copy(&cluster, "-r", &tree, volume).ok();
    for round in [2, 0] {
        assert_eq!(update(tree_os, volume), round);
        assert_eq!(update(out, back_os), round);
    }
    // A change during the copy: same size, with a time after the copy began and before it ended.
    for (name, seed) in [("a", 2), ("b", 3)] {
        fs::write(tree.join(name), noise(5000, seed)).expect("written");
        touch(&tree.join(name), then + Duration::from_millis(seed));
        assert_eq!(update(tree_os, volume), 1, "{name}");
        assert_eq!(update(out, back_os), 1, "{name}");
        assert_eq!(fs::read(back.join("tree").join(name)).expect("read"), noise(5000, seed), "{name}");
    }
    // Also with an older time: an earlier version was put back.
    touch(&tree.join("a"), then - Duration::from_secs(1));
    assert_eq!((update(tree_os, volume), update(tree_os, volume)), (1, 0));
}

#[test]
fn a_sparse_file_of_a_tebibyte_is_copied_in_and_out_as_it_is() {
    let cluster = Cluster::up(3);
    let sparse = cluster.file("sparse");
    let back = cluster.file("back");
    let file = File::create(&sparse).expect("made");
    file.set_len(SPARSE_BYTES).expect("sparse");
    let places = [0, 123_456_789, SPARSE_BYTES / 2 + 77, SPARSE_BYTES - 300_000];
    for (seed, place) in (1..).zip(places) {
        file.write_all_at(&noise(200_000, seed), place).expect("written");
    }
    let on_disk = || fs::metadata(&sparse).expect("there").blocks();
    cluster.put(&sparse, "braid://main/sparse");
    let stat = cluster.line("stat --json braid://main/sparse").ok().json();
    assert_eq!(stat["size"].as_u64(), Some(SPARSE_BYTES));
    cluster.line("cp braid://main/sparse braid://main/copy").ok();
    cluster.braid([OsStr::new("cp"), OsStr::new("braid://main/copy"), back.as_os_str()]).ok();
    let found = File::open(&back).expect("there");
    assert_eq!(found.metadata().expect("there").len(), SPARSE_BYTES);
    for (seed, place) in (1..).zip(places) {
        let mut bytes = vec![0; 200_000];
        found.read_exact_at(&mut bytes, place).expect("read");
        assert!(bytes == noise(200_000, seed), "at {place}");
    }
    let blocks = fs::metadata(&back).expect("there").blocks();
    assert!(blocks <= on_disk() + 64, "{blocks} blocks of {} are there", on_disk());
}

#[test]
fn a_tree_that_is_interrupted_leaves_no_half_file() {
    let cluster = Cluster::up(3);
    let tree = cluster.file("tree");
    fs::create_dir_all(&tree).expect("made");
    for number in 0..800 {
        fs::write(tree.join(format!("f{number:03}")), noise(20_000, 7)).expect("written");
    }
    let whole = noise(20_000, 7);
    let mut command =
        cluster.command([OsStr::new("cp"), OsStr::new("-r"), tree.as_os_str(), OsStr::new("braid://main/")]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    until("some are there", || cluster.line("ls braid://main/tree").out.len() > 50);
    signal(child.id(), "INT");
    assert_eq!(said(finish(child)).code, 130);
    let rows = cluster.line("ls --json braid://main/tree").ok();
    let stored: Vec<serde_json::Value> =
        rows.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(!stored.is_empty() && stored.iter().all(|row| row["size"].as_u64() == Some(20_000)));

    // The rest, then out again, with an interruption too.
    copy(&cluster, "-ru", &tree, "braid://main/").ok();
    let back = cluster.file("back");
    let mut command = cluster.command([
        OsStr::new("cp"),
        OsStr::new("-r"),
        OsStr::new("braid://main/tree"),
        back.as_os_str(),
    ]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    until("some are there", || fs::read_dir(&back).is_ok_and(|entries| entries.count() > 20));
    signal(child.id(), "INT");
    assert_eq!(said(finish(child)).code, 130);
    for entry in fs::read_dir(&back).expect("listed") {
        let entry = entry.expect("an entry");
        assert!(!entry.file_name().to_string_lossy().ends_with(".part"), "{:?} is left", entry.file_name());
        assert!(fs::read(entry.path()).expect("read") == whole, "{:?}", entry.file_name());
    }
}
