//! Files get another layout, whatever happens to processes and to the manager's state meanwhile.

use std::fs;

use crate::older::{manager_dir, restore};
use crate::support::{Cluster, noise, run, signal, until};

/// A cluster with five files in a directory, and one beside it.
fn with_files() -> Cluster {
    let cluster = Cluster::up(6);
    cluster.line("mkdir braid://main/d").ok();
    for n in 0..5 {
        let file = cluster.make(&format!("f{n}"), (2 << 20) + 12_345, n);
        cluster.put(&file, &format!("braid://main/d/{n}"));
    }
    cluster.put(&cluster.make("other", 1 << 20, 9), "braid://main/other");
    cluster
}

fn all_are_whole(cluster: &Cluster) {
    cluster.line("check --all braid://main").ok();
    for n in 0..5 {
        assert!(cluster.cat(&format!("braid://main/d/{n}")) == noise((2 << 20) + 12_345, n), "{n}");
    }
    assert!(cluster.cat("braid://main/other") == noise(1 << 20, 9));
}

fn scheme(cluster: &Cluster, name: &str) -> String {
    let stat = cluster.line(&format!("stat {name} --json")).ok().json();
    let shape = &stat["segments"][0]["shape"];
    format!(
        "{} {}+{}",
        shape["scheme"].as_str().unwrap_or("?"),
        shape["data_columns"],
        shape["parity_columns"]
    )
}

#[test]
fn a_tree_gets_another_scheme_though_processes_die() {
    let cluster = with_files();
    cluster.line("heal --rate 1M").ok();
    let begun = cluster.line("relayout braid://main/d --scheme rs(3,2) --unit 64K --json").ok().json();
    assert_eq!((begun["files"].as_u64(), begun["unchanged"].as_u64()), (Some(5), Some(0)), "{begun}");
    until("columns are filled", || {
        let listed = cluster.line("relayout --status --json").ok().json();
        listed["rows"].as_array().is_some_and(|rows| rows.iter().any(|row| row["columns"] == 5))
    });
    // All of `braid up` dies with the manager, and is started again.
    let manager = cluster.status()["manager"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    cluster.kill_drive("drive-3");
    signal(manager.expect("a process"), "KILL");
    cluster.down();
    cluster.start(&[]);
    cluster.line("heal --rate 0").ok();
    let done = cluster.line("relayout braid://main/d --scheme rs(3,2) --unit 64K --wait").ok();
    let text = done.text();
    assert!(
        text.contains("so already") || text.ends_with("done: none of them is left to be laid out anew\n"),
        "{text}"
    );
    for n in 0..5 {
        assert_eq!(scheme(&cluster, &format!("braid://main/d/{n}")), "rs 3+2");
    }
    assert_eq!(scheme(&cluster, "braid://main/other"), "raid5 4+1");
    all_are_whole(&cluster);
    let none = cluster.line("relayout --status").ok();
    assert_eq!(none.text(), "no file is to be laid out anew\n");
    cluster.kill_drive("drive-1");
    cluster.kill_drive("drive-2");
    for n in 0..5 {
        assert!(cluster.cat(&format!("braid://main/d/{n}")) == noise((2 << 20) + 12_345, n), "without two");
    }
}

/// The backup's layouts are no longer true: the drives report the present ones.
#[test]
fn a_backup_from_before_a_relayout_finds_the_files() {
    let cluster = with_files();
    let backup = cluster.file("backup");
    let mut command = cluster.command(["manager", "backup"]);
    command.arg(&backup);
    run(command).ok();
    cluster.line("relayout braid://main/d --scheme raid1 --width 3 --unit 64K --wait").ok();
    let file = cluster.make("newer", 700_000, 77);
    cluster.put(&file, "braid://main/d/0");
    cluster.line("relayout braid://main/other --scheme rs(2,2) --wait").ok();
    until("what was replaced is gone", || cluster.status()["removing"] == 0);
    cluster.down().ok();
    fs::remove_file(manager_dir(&cluster).join("manager.redb")).expect("it is lost");
    restore(&cluster, Some(&backup));
    cluster.start(&[]);
    until("it was compared", || cluster.line("ls braid://main").code == 0);
    for n in 1..5 {
        assert_eq!(scheme(&cluster, &format!("braid://main/d/{n}")), "raid1 1+2");
        assert!(cluster.cat(&format!("braid://main/d/{n}")) == noise((2 << 20) + 12_345, n), "{n}");
    }
    assert_eq!(scheme(&cluster, "braid://main/other"), "rs 2+2");
    assert!(cluster.cat("braid://main/other") == noise(1 << 20, 9));
    // In the backup the name stood for another file, which is gone.
    let gone = cluster.line("cat braid://main/d/0");
    assert!(gone.code != 0, "{}", gone.err);
    cluster.line("rm braid://main/d/0").ok();
    cluster.line("manager free-unnamed").ok();
    cluster.line("check --all braid://main").ok();
}

#[test]
fn what_cannot_be_laid_out_so_is_refused_in_plain_words() {
    let cluster = Cluster::up(5);
    let file = cluster.make("f", 1 << 20, 1);
    cluster.put(&file, "braid://main/f");
    let refused = |line: &str, code: i32, words: &str| cluster.line(line).failed(code, words);
    refused("relayout braid://main/f --scheme rs(4,2)", 8, "needs 6 drives and 5 are up");
    refused("relayout braid://main/f --scheme raid9", 2, "raid9");
    refused("relayout braid://main/none --scheme raid1", 3, "braid://main/none");
    for line in
        ["relayout braid://main/f", "relayout --scheme raid1", "relayout braid://main/f --cancel --wait"]
    {
        assert_eq!(cluster.line(line).code, 2, "{line}");
    }
    let same = cluster.line("relayout braid://main/f --scheme raid5 --unit 512K --json").ok().json();
    assert_eq!((same["files"].as_u64(), same["unchanged"].as_u64()), (Some(0), Some(1)), "{same}");
    let back = cluster.line("relayout braid://main/f --cancel --json").ok().json();
    assert_eq!((back["files"].as_u64(), back["unchanged"].as_u64()), (Some(0), Some(1)), "{back}");
    assert!(fs::metadata(&file).is_ok() && cluster.cat("braid://main/f") == noise(1 << 20, 1));
}
