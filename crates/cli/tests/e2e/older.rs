//! State older than its peers have seen: a manager or drive restored from a copy, a store that lost its tail,
//! one drive running twice. Also backups, which restore older state on purpose.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{Cluster, Said, finish, noise, run, said, signal, until};

/// `cp -a`: copies a whole directory.
fn copy_dir(from: &Path, to: &Path) {
    let mut command = std::process::Command::new("cp");
    command.arg("-a").arg(from).arg(to);
    assert!(command.status().expect("cp runs").success(), "{} to {}", from.display(), to.display());
}

fn put_back(copy: &Path, at: &Path) {
    fs::remove_dir_all(at).expect("removed");
    copy_dir(copy, at);
}

pub(crate) fn manager_dir(cluster: &Cluster) -> PathBuf {
    cluster.dir().join("manager")
}

/// Number of files whose columns the drive has made anew since its start.
fn healed(cluster: &Cluster, drive: &str) -> u64 {
    let facts = cluster.line("heal --json").ok().json();
    let rows = facts["drives"].as_array().expect("a list");
    rows.iter().find(|row| row["drive"] == drive).and_then(|row| row["files"].as_u64()).unwrap_or(0)
}

/// Number of a drive's stale components, by the status.
fn stale(cluster: &Cluster, drive: &str) -> u64 {
    row(cluster, drive)["stale_components"].as_u64().expect("a number")
}

fn row(cluster: &Cluster, drive: &str) -> serde_json::Value {
    let status = cluster.status();
    let drives = status["drives"].as_array().expect("a list");
    drives.iter().find(|row| row["name"] == drive).expect("it is there").clone()
}

/// Output of `status` with a manager that runs without any drive.
fn status_of_manager_alone(cluster: &Cluster) -> Said {
    let file = fs::read_to_string(cluster.dir().join("cluster.toml")).expect("read");
    let address = file.lines().find_map(|line| line.strip_prefix("manager = ")).expect("an address");
    let mut serve = cluster.command(["manager", "serve", "--listen", address.trim_matches('"'), "--dir"]);
    serve.arg(manager_dir(cluster)).stdout(Stdio::null()).stderr(Stdio::null());
    let child = serve.spawn().expect("started");
    let mut status = None;
    until("it answers", || {
        let said = cluster.line("status");
        let answered = said.code != 5;
        status = Some(said);
        answered
    });
    signal(child.id(), "TERM");
    finish(child);
    status.expect("it was asked")
}

pub(crate) fn restore(cluster: &Cluster, backup: Option<&Path>) {
    let mut command = cluster.command(["manager", "restore", "--dir"]);
    command.arg(manager_dir(cluster)).args(backup);
    run(command).ok();
}

#[test]
fn a_manager_put_back_to_an_older_state_serves_nothing_until_it_was_compared() {
    let cluster = Cluster::up(5);
    let a = cluster.make("a", 300_000, 1);
    let b = cluster.make("b", 300_000, 2);
    let c = cluster.make("c", 300_000, 3);
    cluster.put(&a, "braid://main/a");
    cluster.put(&a, "braid://main/kept");
    cluster.down().ok();
    let copy = cluster.file("copy");
    copy_dir(&manager_dir(&cluster), &copy);
    cluster.start(&[]);
    cluster.put(&b, "braid://main/b");
    cluster.line("rm braid://main/a").ok();
    until("its bytes are gone", || cluster.status()["removing"] == 0);
    cluster.down().ok();
    put_back(&copy, &manager_dir(&cluster));

    let mut up = crate::support::braid();
    up.args(["up", "--detach", "--dir"]).arg(cluster.dir());
    run(up).failed(5, "older than what its drives have seen");
    let status = status_of_manager_alone(&cluster);
    status.failed(13, "the manager does not do all of its work");
    let text = status.text();
    assert!(text.contains("\n! the manager's state is older") && !text.contains("all is well"), "{text}");
    // In this state the manager knows nothing about the drives, so no user is told to replace them.
    assert!(text.contains("at risk: drive-1 is away") && !text.contains("drive replace"), "{text}");
    cluster.down().ok();

    restore(&cluster, None);
    cluster.start(&[]);
    until("it was compared", || cluster.line("ls braid://main").code == 0);
    assert_eq!(cluster.line("ls braid://main").ok().text(), "a\nkept\n");
    assert!(cluster.cat("braid://main/kept") == noise(300_000, 1));
    // The file was removed after the copy was made: its bytes are gone, and reading it must fail, not give
    // zeros.
    assert_ne!(cluster.line("cat braid://main/a").code, 0);
    let report = fs::read_to_string(manager_dir(&cluster).join("comparison.txt")).expect("a report");
    assert!(
        report.contains("braid://main/a\n") && report.contains("1 files on the drives have no name"),
        "{report}"
    );
    // Nothing brings the file up to date, and no user is told to wait for that.
    let status = cluster.line("status");
    status.failed_with_output(13);
    let text = status.text();
    assert!(text.contains("that cannot be brought up to date") && !text.contains("it catches up"), "{text}");
    let healed = cluster.line("heal --watch");
    healed.failed_with_output(8);
    assert!(healed.err.contains("too few columns of their files are left"), "{}", healed.err);
    // The file's numbers are not used again.
    cluster.put(&c, "braid://main/c");
    assert!(cluster.cat("braid://main/c") == noise(300_000, 3));
    cluster.line("rm braid://main/a").ok();
    until("all is well", || cluster.line("status").text().contains("\nall is well"));
    cluster.line("check --all braid://main").ok();
    cluster.line("manager free-unnamed").ok();
}

#[test]
fn a_backup_brings_the_names_back() {
    let cluster = Cluster::up(5);
    let a = cluster.make("a", 2 << 20, 1);
    cluster.put(&a, "braid://main/a");
    let backup = cluster.file("backup");
    let mut command = cluster.command(["manager", "backup"]);
    command.arg(&backup);
    run(command).ok();
    assert_eq!(fs::metadata(&backup).expect("there").permissions().mode() & 0o777, 0o600);
    // A change to a file after the backup is not lost with the manager.
    let later = cluster.make("later", 3 << 20, 2);
    cluster.put(&later, "braid://main/later");
    cluster.down().ok();
    let state = manager_dir(&cluster).join("manager.redb");
    fs::write(&state, b"").expect("emptied");
    let mut serve = cluster.command(["manager", "serve", "--listen", "127.0.0.1:0", "--dir"]);
    serve.arg(manager_dir(&cluster));
    run(serve).failed(1, "restore a backup");
    restore(&cluster, Some(&backup));
    cluster.start(&[]);
    until("it was compared", || cluster.line("ls braid://main").code == 0);
    assert_eq!(cluster.line("ls braid://main").ok().text(), "a\n");
    assert!(cluster.cat("braid://main/a") == noise(2 << 20, 1));
    cluster.put(&later, "braid://main/a");
    assert!(cluster.cat("braid://main/a") == noise(3 << 20, 2));
    cluster.line("check --all braid://main").ok();
}

#[test]
fn a_drive_put_back_to_an_older_state_is_stale_until_it_is_rebuilt() {
    let cluster = Cluster::up(5);
    let old = cluster.make("old", 3 << 20, 1);
    let new = cluster.make("new", 3 << 20, 2);
    cluster.put(&old, "braid://main/f");
    cluster.down().ok();
    let dir = cluster.dir().join("drive-2");
    let copy = cluster.file("copy");
    copy_dir(&dir, &copy);
    cluster.start(&[]);
    cluster.put(&new, "braid://main/f");
    cluster.put(&new, "braid://main/g");
    cluster.down().ok();
    put_back(&copy, &dir);
    cluster.start(&[]);
    until("its columns were stale, and are made anew", || healed(&cluster, "drive-2") == 2);
    for name in ["braid://main/f", "braid://main/g"] {
        assert!(cluster.cat(name) == noise(3 << 20, 2), "{name}");
    }
    cluster.line("rebuild drive-2").ok();
    assert_eq!(stale(&cluster, "drive-2"), 0);
    cluster.line("check --all braid://main").ok();
    // The drive that it was rebuilt from can fail now.
    let other = cluster.columns("braid://main/f").into_iter().find(|name| name != "drive-2").expect("others");
    cluster.kill_drive(&other);
    assert!(cluster.cat("braid://main/f") == noise(3 << 20, 2));
}

#[test]
fn a_store_whose_acknowledged_tail_is_gone_is_found_out_also_after_a_kill() {
    let cluster = Cluster::up(5);
    let path = cluster.make("f", 1 << 20, 1);
    for n in 0..6 {
        cluster.put(&path, &format!("braid://main/{n}"));
    }
    let dir = cluster.dir().join("drive-3");
    cluster.kill_drive("drive-3");
    let removed: Vec<PathBuf> = ["log", "checkpoints"]
        .iter()
        .flat_map(|part| fs::read_dir(dir.join("store").join(part)).into_iter().flatten())
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert!(!removed.is_empty());
    removed.iter().for_each(|path| fs::remove_file(path).expect("removed"));
    cluster.start(&[]);
    for n in 0..6 {
        assert!(cluster.cat(&format!("braid://main/{n}")) == noise(1 << 20, 1), "{n}");
    }
    until("its columns were stale, and are made anew", || healed(&cluster, "drive-3") == 6);
    until("it serves", || row(&cluster, "drive-3")["state"] == "up");
    cluster.line("rebuild drive-3").ok();
    cluster.line("check --all braid://main").ok();
}

#[test]
fn a_copied_drive_directory_is_told_to_stop() {
    let cluster = Cluster::up(3);
    let path = cluster.make("f", 1 << 20, 1);
    cluster.down().ok();
    let copy = cluster.file("copy");
    copy_dir(&cluster.dir().join("drive-1"), &copy);
    cluster.start(&[]);
    cluster.put(&path, "braid://main/f");
    let mut command = cluster.command(["drive", "serve", "--listen", "127.0.0.1:0", "--dir"]);
    command.arg(&copy).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("started");
    let ended = said(finish(child));
    assert_ne!(ended.code, 0);
    assert!(ended.err.contains("one of them is a copy"), "{}", ended.err);
    assert!(cluster.cat("braid://main/f") == noise(1 << 20, 1));
}
