//! A manager's state is lost, and made anew of what the drives hold.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::support::{Cluster, runs, signal, until};

/// Waits until all changes are at as many drives as are to have them.
fn until_kept(cluster: &Cluster) {
    until("the names are kept at drives", || {
        let names = &cluster.status()["names"];
        let kept = names["drives"].as_array().map_or(0, Vec::len);
        names["behind_ms"] == 0 && names["wanted"] == kept
    });
}

/// Kills all processes, so that nothing is written at an orderly end, and loses the manager's directory.
fn lose_manager(cluster: &Cluster) {
    let status = cluster.status();
    let pid = |value: &serde_json::Value| u32::try_from(value.as_u64().expect("a number")).expect("a pid");
    let mut pids = vec![pid(&status["manager"]["pid"])];
    pids.extend(status["drives"].as_array().expect("a list").iter().map(|drive| pid(&drive["pid"])));
    pids.iter().for_each(|pid| signal(*pid, "KILL"));
    pids.iter().for_each(|pid| until("it is dead", || !runs(*pid)));
    fs::remove_dir_all(cluster.dir().join("manager")).expect("removed");
}

/// Runs `braid manager rebuild` on all drives.
fn rebuild(cluster: &Cluster, more: &[&str]) -> crate::support::Said {
    let mut args = vec!["manager".to_owned(), "rebuild".to_owned(), "--json".to_owned(), "--dir".to_owned()];
    args.push(cluster.dir().join("manager").display().to_string());
    args.push("--from-drives".to_owned());
    let mut drives: Vec<String> = fs::read_dir(cluster.dir())
        .expect("listed")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("drive.toml").exists())
        .map(|path| path.display().to_string())
        .collect();
    drives.sort();
    args.append(&mut drives);
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    cluster.braid(args)
}

/// Waits until the manager has compared its state with the drives and answers.
fn until_compared(cluster: &Cluster) -> String {
    let report = cluster.dir().join("manager/comparison.txt");
    until("the state is compared", || report.exists());
    fs::read_to_string(report).expect("read")
}

/// All below a directory: path to kind, mode, links and content.
fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).expect("listed") {
            let path = entry.expect("an entry").path();
            let about = fs::symlink_metadata(&path).expect("there");
            let mode = about.permissions().mode() & 0o7777;
            let what = if about.is_dir() {
                left.push(path.clone());
                format!("directory {mode:o}")
            } else if about.is_symlink() {
                format!("link {}", fs::read_link(&path).expect("a link").display())
            } else {
                let bytes = fs::read(&path).expect("read");
                format!("file {mode:o} {} {:x}", about.nlink(), crc(&bytes))
            };
            let name = path.strip_prefix(root).expect("below").display().to_string();
            found.insert(name, what);
        }
    }
    found
}

fn crc(bytes: &[u8]) -> u32 {
    braid_wire::checksum::crc32c(bytes)
}

#[test]
fn all_names_and_bytes_come_back_from_the_drives_alone() {
    let cluster = Cluster::up(5);
    let source = cluster.file("source");
    fs::create_dir_all(source.join("a/deep/deeper")).expect("made");
    fs::create_dir_all(source.join("empty")).expect("made");
    for (n, bytes) in [0, 1, 5000, 3 << 20].into_iter().enumerate() {
        let made = cluster.make("made", bytes, 7 + n as u64);
        fs::rename(made, source.join(format!("a/deep/f{n}"))).expect("renamed");
    }
    fs::hard_link(source.join("a/deep/f2"), source.join("a/second name")).expect("linked");
    symlink("deep/f3", source.join("a/link")).expect("linked");
    fs::set_permissions(source.join("empty"), PermissionsExt::from_mode(0o750)).expect("set");
    cluster.braid(["cp", "-a", &source.display().to_string(), "braid://main/tree"]).ok();
    cluster.line("volume create other").ok();
    cluster.line("quota set braid://other --bytes 1G").ok();
    cluster.line("mv braid://main/tree/a/deep/f1 braid://main/tree/moved").ok();
    cluster.line("mv braid://main/tree/a braid://main/tree/b").ok();
    cluster.line("snapshot make braid://main first").ok();
    cluster.line("rm braid://main/tree/b/deep/f0").ok();
    until_kept(&cluster);
    // A picture of all was made before, so these are changes after it: kept within seconds.
    cluster.line("mkdir braid://main/tree/late").ok();
    until_kept(&cluster);
    let before = cluster.file("before");
    cluster.braid(["cp", "-a", "braid://main/tree", &before.display().to_string()]).ok();

    let refused = rebuild(&cluster, &[]);
    assert_eq!(refused.code, 7, "the drives run: {}", refused.err);
    lose_manager(&cluster);
    let trial = rebuild(&cluster, &[]).ok().json();
    assert!(!cluster.dir().join("manager").exists(), "a trial leaves nothing");
    assert_eq!((&trial["made"], &trial["names"]["certain"]), (&false.into(), &true.into()), "{trial}");
    let made = rebuild(&cluster, &["--yes"]).ok().json();
    assert_eq!(made["contradictions"].as_array().map(Vec::len), Some(0), "{made}");
    rebuild(&cluster, &["--yes"]).failed(4, "is empty or does not exist");
    cluster.start(&[]);
    let report = until_compared(&cluster);
    assert!(report.contains(" 0 are not."), "{report}");

    let after = cluster.file("after");
    cluster.braid(["cp", "-a", "braid://main/tree", &after.display().to_string()]).ok();
    assert_eq!(tree(&after), tree(&before));
    assert!(tree(&after).len() >= 10);
    cluster.line("check --all braid://main").ok();
    let past = cluster.line("ls braid://main@first/tree/b/deep").ok();
    assert!(past.text().contains("f0"), "{}", past.text());
    assert!(cluster.line("quota ls braid://other").ok().text().contains("1.00 GiB"));
    // It goes on: what is new collides with nothing.
    let new = cluster.make("new", 1 << 20, 99);
    cluster.put(&new, "braid://main/new");
    assert!(cluster.cat("braid://main/new") == fs::read(&new).expect("read"));
    cluster.line("check --all braid://main").ok();
    rebuild(&cluster, &[]).failed_with_output(7);
}

#[test]
fn an_old_drive_is_named_and_files_of_the_last_moment_are_in_lost_and_found() {
    let cluster = Cluster::up(5);
    let one = cluster.make("one", 700_000, 1);
    cluster.put(&one, "braid://main/one");
    until_kept(&cluster);
    let holder = cluster.status()["names"]["drives"][0].as_str().expect("a name").to_owned();
    cluster.down().ok();
    let old = cluster.file("old");
    let drive = cluster.dir().join(&holder);
    let copy = |from: &Path, to: &Path| {
        let mut command = std::process::Command::new("cp");
        command.arg("-a").args([from, to]);
        crate::support::run(command).ok();
    };
    copy(&drive, &old);
    cluster.start(&[]);
    let two = cluster.make("two", 700_000, 2);
    cluster.put(&two, "braid://main/two");
    until_kept(&cluster);
    let late = cluster.make("late", 1_300_000, 3);
    cluster.put(&late, "braid://main/late");
    lose_manager(&cluster);
    fs::remove_dir_all(&drive).expect("removed");
    copy(&old, &drive);
    let made = rebuild(&cluster, &["--yes"]).ok().json();
    // Its stream is another, as each start of a manager begins one.
    let certain = made["names"]["witnesses"].as_array().expect("a list");
    assert!(!certain.iter().any(|name| *name == *holder), "{made}");
    // One drive that is behind does not keep the others from being served.
    let mut command = crate::support::braid();
    command.args(["up", "--detach", "--no-calibration", "--dir"]).arg(cluster.dir());
    crate::support::run(command);
    let report = until_compared(&cluster);
    assert!(report.contains(" 0 are not."), "{report}");
    assert!(cluster.cat("braid://main/one") == fs::read(&one).expect("read"));
    assert!(cluster.cat("braid://main/two") == fs::read(&two).expect("read"));
    // The manager may have been quick enough to keep the last name.
    if cluster.line("stat braid://main/late").code != 0 {
        let found = cluster.line("ls braid://main/lost+found").ok();
        let name = found.text().trim();
        assert!(name.starts_with("file-"), "{name}");
        assert!(cluster.cat(&format!("braid://main/lost+found/{name}")) == fs::read(&late).expect("read"));
    }
    cluster.line("heal --watch").ok();
    cluster.line("check --all braid://main").ok();
}

#[test]
fn a_drive_of_another_host_testifies_in_a_file() {
    let cluster = Cluster::up(3);
    cluster.put(&cluster.make("one", 5000, 1), "braid://main/one");
    until_kept(&cluster);
    lose_manager(&cluster);
    let mut paths = Vec::new();
    for n in 1..=3 {
        let dir = cluster.dir().join(format!("drive-{n}")).display().to_string();
        let file = cluster.file(&format!("{n}.testimony")).display().to_string();
        cluster.braid(["drive", "testify", "--dir", &dir, &file]).ok();
        assert_eq!(fs::metadata(&file).expect("there").mode() & 0o777, 0o600);
        paths.push(file);
    }
    let dir = cluster.dir().join("manager").display().to_string();
    let run = |paths: &[String], more: &[&str]| {
        let mut args = vec!["manager", "rebuild", "--json", "--dir", &dir, "--from-drives"];
        args.extend(paths.iter().map(String::as_str));
        args.extend(more);
        cluster.braid(args)
    };
    let missing = run(&paths[..2], &[]).ok().json();
    assert_eq!(missing["drives_missing"].as_array().map(Vec::len), Some(1), "{missing}");
    let mut bytes = fs::read(&paths[0]).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let bad = cluster.file("bad").display().to_string();
    fs::write(&bad, bytes).expect("written");
    run(&[bad], &[]).failed(1, "damaged");
    let made = run(&paths, &["--yes"]).ok().json();
    assert_eq!((&made["files"], &made["names"]["certain"]), (&1.into(), &true.into()), "{made}");
    cluster.start(&[]);
    until_compared(&cluster);
    assert_eq!(cluster.cat("braid://main/one").len(), 5000);
}
