//! Drives that fill up and drives that are added: new files go where there is space, and `df` shows how much
//! there is.

use std::fs;
use std::io::{ErrorKind, Write};
use std::process::{Child, Stdio};

use crate::mount::Mounted;
use crate::support::{Said, braid, noise, run, signal, until};

/// A manager and drives of chosen capacities, started one by one.
struct Cluster {
    temporary: tempfile::TempDir,
    children: Vec<Child>,
}

impl Cluster {
    fn start() -> Cluster {
        let temporary = tempfile::Builder::new().prefix("braid-test-").tempdir().expect("a directory");
        let mut cluster = Cluster { temporary, children: Vec::new() };
        let dir = cluster.path("m");
        cluster.spawn(&["manager", "serve", "--listen", "127.0.0.1:0", "--dir", &dir]);
        until("the manager serves", || fs::read_to_string(cluster.path("m/cluster.toml")).is_ok());
        cluster
    }

    fn path(&self, name: &str) -> String {
        self.temporary.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    fn spawn(&mut self, args: &[&str]) {
        let child = braid().args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        self.children.push(child);
    }

    /// Adds drives of the given capacity, and waits until the manager has heard from them.
    fn add(&mut self, names: &[&str], capacity: &str) {
        let text = fs::read_to_string(self.path("m/cluster.toml")).expect("read");
        let manager = text.lines().find_map(|line| line.strip_prefix("manager = \""));
        let manager = manager.and_then(|rest| rest.split('"').next()).expect("an address").to_owned();
        let token = self.path("m/join.token");
        for name in names {
            let dir = self.path(name);
            let line = ["drive", "serve", "--manager", &manager, "--token-file", &token, "--name", name];
            let args: Vec<&str> = line.into_iter().chain(["--capacity", capacity, "--dir", &dir]).collect();
            self.spawn(&args);
        }
        until("the drives serve", || {
            let facts = self.braid(&["status", "--json"]).json();
            let rows = facts["drives"].as_array().expect("a list");
            let up = |name: &&&str| rows.iter().any(|row| row["name"] == **name && row["state"] == "up");
            names.iter().filter(up).count() == names.len()
        });
    }

    fn braid(&self, args: &[&str]) -> Said {
        let mut command = braid();
        command.env("BRAID_CLUSTER", self.path("m/cluster.toml")).args(args);
        run(command)
    }

    /// The free bytes that `df` reports for each drive.
    fn df(&self) -> Vec<(String, u64)> {
        let facts = self.braid(&["df", "--json"]).ok().json();
        let drives = facts["drives"].as_array().expect("a list").iter();
        drives
            .map(|row| {
                (
                    row["name"].as_str().expect("text").to_owned(),
                    row["free_bytes"].as_u64().expect("a number"),
                )
            })
            .collect()
    }

    fn copy(&self, name: &str) -> Said {
        self.braid(&["cp", "-q", &self.path("f"), &format!("braid://main/{name}")])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in &self.children {
            signal(child.id(), "KILL");
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

#[test]
fn a_full_cluster_grows_by_adding_drives() {
    let mut cluster = Cluster::start();
    cluster.add(&["old-1", "old-2", "old-3"], "48M");
    cluster.braid(&["volume", "create", "main"]).ok();
    let content = noise(6 << 20, 5);
    fs::write(cluster.path("f"), &content).expect("written");
    let told: u64 = cluster.df().iter().map(|row| row.1).sum();
    let mut copies = 0;
    let refused = loop {
        let said = cluster.copy(&format!("old-{copies}"));
        if said.code != 0 {
            break said;
        }
        copies += 1;
        assert!(copies < 30, "it never gets full");
    };
    refused.failed(9, "the disk is full");
    // The bytes that `df` reported as free could be written: two data columns and one of parity.
    let written = copies * 3 * (3 << 20);
    assert!(written + 3 * (4 << 20) > told, "{written} of {told}");
    cluster.add(&["new-1", "new-2", "new-3"], "160M");
    for n in 0..16 {
        cluster.copy(&format!("new-{n}")).ok();
    }
    assert!(cluster.braid(&["cat", "braid://main/new-15"]).ok().out == content);
    let text = cluster.braid(&["df"]).ok().text().to_owned();
    assert!(text.contains("reserve") && text.contains("free can be written"), "{text}");
}

/// Old drives have little space left: the manager may choose them, and the file then fills them.
#[test]
fn a_copy_that_meets_a_full_drive_begins_again_on_others() {
    let mut cluster = Cluster::start();
    cluster.add(&["old-1", "old-2", "old-3"], "32M");
    cluster.braid(&["volume", "create", "main"]).ok();
    cluster.add(&["new-1", "new-2", "new-3"], "160M");
    // Half of the content is more than an old drive can take, and many files would have a column on one.
    let content = noise(70 << 20, 6);
    fs::write(cluster.path("f"), &content).expect("written");
    for n in 0..4 {
        cluster.copy(&format!("f{n}")).ok();
        assert!(cluster.braid(&["cat", &format!("braid://main/f{n}")]).ok().out == content, "copy {n}");
        cluster.braid(&["rm", &format!("braid://main/f{n}")]).ok();
        // No client writes, and no drive is short of space.
        until("the new drives have their space back", || {
            cluster.df().iter().filter(|row| row.0.starts_with("new") && row.1 > 120 << 20).count() == 3
        });
    }
}

#[test]
fn programs_of_a_mount_are_told_that_drives_are_full_until_they_are_not() {
    let mut cluster = Cluster::start();
    cluster.add(&["one", "two", "three"], "48M");
    cluster.braid(&["volume", "create", "main"]).ok();
    let mut command = braid();
    command.env("BRAID_CLUSTER", cluster.path("m/cluster.toml")).args(["mount", "braid://main"]);
    let Some(mounted) = Mounted::by(command, cluster.path("mounted").into()) else { return };
    let small = noise(100_000, 1);
    fs::write(mounted.at.join("small"), &small).expect("written");
    let large = noise(1 << 20, 2);
    let mut file = fs::File::create(mounted.at.join("large")).expect("made");
    let written = (0..200).try_for_each(|_| file.write_all(&large)).and_then(|()| file.sync_all());
    assert_eq!(written.expect_err("it does not fit").kind(), ErrorKind::StorageFull);
    drop(file);
    assert!(fs::read(mounted.at.join("small")).expect("read") == small);
    fs::remove_file(mounted.at.join("large")).expect("removed");
    let other = mounted.at.join("other");
    // Only synced bytes are known to be there: `fs::write` ignores the result of its close.
    until("there is room again", || {
        fs::File::create(&other)
            .and_then(|mut file| file.write_all(&large).and_then(|()| file.sync_all()))
            .is_ok()
    });
    assert!(fs::read(other).expect("read") == large);
}
