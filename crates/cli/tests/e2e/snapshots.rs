//! Snapshots by the command line: made, read, listed, refused, removed.

use std::fs;

use crate::support::{Cluster, noise, until};

/// Bytes of objects that all drives hold.
fn live_bytes(cluster: &Cluster) -> u64 {
    let status = cluster.status();
    let drives = status["drives"].as_array().expect("drives");
    drives.iter().map(|drive| drive["live_bytes"].as_u64().expect("bytes")).sum()
}

fn refused(cluster: &Cluster, line: &str, code: i32, why: &str) {
    let said = cluster.line(line);
    assert_eq!(said.code, code, "{line}: {}", said.err);
    assert!(said.err.contains(why), "{line}: {}", said.err);
}

#[test]
fn a_snapshot_shows_what_was_there_whatever_comes_after() {
    let cluster = Cluster::up(4);
    let empty = live_bytes(&cluster);
    let big = cluster.make("big", (5 << 20) + 123, 1);
    let small = cluster.make("small", 700, 2);
    cluster.line("mkdir -p braid://main/d/sub").ok();
    for (source, target) in [(&big, "a"), (&small, "b"), (&big, "d/sub/c"), (&small, "d/e"), (&big, "d/f")] {
        cluster.put(source, &format!("braid://main/{target}"));
    }
    cluster.line("ln -s d/e braid://main/link").ok();
    let made = cluster.line("snapshot make braid://main s-1 --json").ok().json();
    assert_eq!((&made["read_as"], &made["number"]), (&"braid://main@s-1/".into(), &1.into()), "{made}");
    cluster.line("snapshot make braid://main/d s-d").ok();

    let other = cluster.make("other", 1 << 20, 3);
    cluster.put(&other, "braid://main/a");
    cluster.put(&other, "braid://main/new");
    cluster.line("rm braid://main/b").ok();
    cluster.line("mv braid://main/d/sub braid://main/moved").ok();
    cluster.put(&other, "braid://main/moved/c");
    cluster.line("rm -r braid://main/d/e").ok();
    cluster.line("chmod 600 braid://main/d/f").ok();
    cluster.line("rm braid://main/link").ok();

    let look = |of: &str| {
        let whole = noise((5 << 20) + 123, 1);
        let part = noise(700, 2);
        for (name, bytes) in [
            ("a", &whole),
            ("b", &part),
            ("d/sub/c", &whole),
            ("d/e", &part),
            ("d/f", &whole),
            ("link", &part),
        ] {
            assert!(cluster.cat(&format!("braid://main@s-1/{name}")) == *bytes, "{name} {of}");
        }
        assert!(cluster.cat("braid://main@s-d/d/sub/c") == whole, "a directory's own snapshot {of}");
        let stat = cluster.line("stat --json braid://main@s-1/d/f").ok().json();
        assert_eq!(stat["mode"], cluster.line("stat --json braid://main@s-1/a").ok().json()["mode"], "{of}");
        let names = cluster.line("ls braid://main@s-1").ok().text().to_owned();
        assert_eq!(names.split_whitespace().collect::<Vec<_>>(), ["a", "b", "d/", "link"], "{of}");
        assert!(cluster.cat("braid://main/a") == noise(1 << 20, 3));
    };
    look("at first");
    cluster.restart_manager();
    look("after a restart of the manager");

    let df = cluster.line("df").ok().text().to_owned();
    assert!(df.contains("snapshots of main keep") && df.contains("braid snapshot rm"), "{df}");
    cluster.line("check --all braid://main@s-1").ok();

    // A copy out of it is a copy like any.
    let copied = cluster.file("copied");
    fs::create_dir(&copied).expect("made");
    let mut copy = cluster.command(["cp", "-r", "braid://main@s-1/"]);
    copy.arg(&copied);
    crate::support::run(copy);
    assert!(fs::read(copied.join("d/sub/c")).expect("copied") == noise((5 << 20) + 123, 1));
    cluster.line("cp braid://main@s-1/b braid://main/b").ok();
    assert!(cluster.cat("braid://main/b") == noise(700, 2));

    let listed = cluster.line("snapshot ls braid://main --json").ok().json();
    let names: Vec<_> = listed.as_array().expect("rows").iter().map(|row| row["name"].clone()).collect();
    assert_eq!(names, ["s-1", "s-d"], "{listed}");
    let text = cluster.line("snapshot ls braid://main/d").ok().text().to_owned();
    assert!(text.contains("braid://main/d") && !text.contains("s-1"), "{text}");

    what_is_refused(&cluster);
    let mut put = cluster.command(["cp"]);
    put.arg(&small).arg("braid://main@s-1/b");
    let said = crate::support::run(put);
    assert!(said.code == 6 && said.err.contains("cannot be changed"), "{}", said.err);

    cluster.line("check --all braid://main").ok();
    for name in ["a", "b", "new", "moved"] {
        cluster.line(&format!("rm -r braid://main/{name}")).ok();
    }
    cluster.line("snapshot rm braid://main s-1").ok();
    refused(&cluster, "cat braid://main@s-1/a", 3, "no snapshot \"s-1\"");
    assert!(cluster.cat("braid://main@s-d/d/e") == noise(700, 2), "the other one keeps its own");
    cluster.line("rm -r --snapshots braid://main/d").ok();
    cluster.line("snapshot make braid://main last").ok();
    // But for the catalogue of names, which each change makes a little longer.
    until("drives hold no more than before", || live_bytes(&cluster) <= empty + (1 << 20));
    refused(&cluster, "volume rm main", 4, "snapshots (last of braid://main)");
    cluster.line("volume rm main --snapshots").ok();
}

/// The refusals with the snapshots `s-1` of the volume and `s-d` of the directory `d`.
fn what_is_refused(cluster: &Cluster) {
    refused(cluster, "snapshot make braid://main s-1", 4, "has a snapshot \"s-1\" already");
    refused(cluster, "snapshot make braid://main a/b", 2, "has 1 to 64 letters, digits");
    refused(cluster, "snapshot make braid://main/a x", 4, "is not a directory");
    refused(cluster, "snapshot make braid://gone x", 3, "no volume");
    refused(cluster, "snapshot rm braid://main s-2", 3, "has no snapshot \"s-2\" (it has: s-1)");
    refused(cluster, "snapshot rm braid://main@s-1 s-1", 2, "is in a snapshot");
    refused(cluster, "cat braid://main@s-2/a", 3, "no snapshot \"s-2\"");
    refused(cluster, "rm braid://main@s-1/a", 6, "cannot be changed");
    refused(cluster, "mkdir braid://main@s-1/x", 6, "cannot be changed");
    refused(cluster, "layout set braid://main@s-1/d --scheme raid1", 6, "cannot be changed");
    refused(cluster, "layout set braid://main@s-1 --scheme raid1", 6, "cannot be changed");
    refused(cluster, "layout set braid://main@s-1/d --clustering tree", 6, "cannot be changed");
    refused(cluster, "rm -r braid://main/d", 4, "there are snapshots (s-d of braid://main/d)");
    assert!(cluster.cat("braid://main/d/f") == noise((5 << 20) + 123, 1), "nothing was removed");
    refused(cluster, "volume rm main", 4, "s-1 of braid://main, s-d of braid://main/d");
    refused(cluster, "volume rm main --snapshots", 4, "its snapshots are kept");
    refused(cluster, "mount braid://main@s-1 /nowhere", 2, "a snapshot is not mounted");
}
