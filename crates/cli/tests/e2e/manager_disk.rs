//! A manager whose disk is full.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::media::{ByHand, own_mounts, start};
use crate::support::{Cluster, Said, braid, noise, not_run, run, until};

/// Number of files in the tree that is copied.
const FILES: usize = 100;

/// A cluster whose manager has a small file system of its own, in a mount namespace that other processes do
/// not see.
struct Small {
    cluster: Cluster,
    /// The manager's directory, reached through the manager's process.
    dir: PathBuf,
    _servers: Vec<ByHand>,
}

impl Small {
    fn start(way: &[&str]) -> Small {
        let cluster = Cluster::nowhere();
        let place = cluster.file("manager");
        fs::create_dir(&place).expect("made");
        let mut manager = Command::new(way[0]);
        let serve = "exec \"$0\" manager serve --listen 127.0.0.1:0 --dir manager";
        let script = format!("mount -t tmpfs -o size=8m tmpfs manager && {serve}");
        manager.args(&way[1..]).args(["sh", "-c", &script, env!("CARGO_BIN_EXE_braid")]);
        let mut servers = vec![start(manager, &cluster)];
        let inside = place.strip_prefix("/").expect("a whole path");
        let dir = PathBuf::from(format!("/proc/{}/root", servers[0].pid())).join(inside);
        until("the manager serves", || dir.join("cluster.toml").exists());
        let mut small = Small { cluster, dir, _servers: Vec::new() };
        until("it answers", || small.line("status --json").code == 0);
        let address = small.line("status --json").ok().json()["manager"]["address"].clone();
        let address = address.as_str().expect("text");
        let token = small.dir.join("join.token");
        for name in ["a", "b", "c"] {
            let mut drive = braid();
            drive.args(["drive", "serve", "--manager", address, "--capacity", "1G", "--dir", name]);
            drive.arg("--token-file").arg(&token);
            servers.push(start(drive, &small.cluster));
        }
        until("the drives serve", || small.line("drive ls").text().matches(" up ").count() == 3);
        small._servers = servers;
        small.line("volume create v --scheme raid5 --width 3").ok();
        small
    }

    fn line(&self, line: &str) -> Said {
        let mut command = braid();
        command.env("BRAID_CLUSTER", &self.dir).current_dir(self.cluster.file("")).args(line.split(' '));
        run(command)
    }

    fn names(&self, of: &str) -> Vec<String> {
        self.line(&format!("ls {of}")).ok().text().lines().map(str::to_owned).collect()
    }
}

#[test]
fn a_full_one_is_told_loses_nothing_and_goes_on_when_there_is_room() {
    let Some(way) = own_mounts() else {
        not_run("neither root nor a user may mount a file system here");
        return;
    };
    let small = Small::start(way);
    fs::create_dir(small.cluster.file("tree")).expect("made");
    for n in 0..FILES {
        fs::write(small.cluster.file(&format!("tree/{n}")), noise(4096, n as u64)).expect("written");
    }
    small.line("cp -r tree braid://v/before").ok();
    let fill = small.dir.join("fill");
    let full = fs::write(&fill, vec![0; 8 << 20]).expect_err("it has 8 MiB");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);

    // The manager's own file has some room left, so the first changes may be stored.
    let mut copied = 0;
    let refused = loop {
        let said = small.line(&format!("cp -r tree braid://v/full{copied}"));
        if said.code != 0 {
            break said;
        }
        copied += 1;
        assert!(copied < 1000, "its disk is full");
    };
    assert_eq!(refused.code, 9, "{}", refused.err);
    let told = refused.err.lines().find(|line| line.contains("make room there")).expect("what to do");
    assert!(told.contains("braid://v/full"), "which file: {told}");
    // A change that fits into that room may be stored in between: then all is well for a moment.
    let mut more = 0..;
    until("status tells it", || {
        small.line(&format!("cp -r tree braid://v/more{}", more.next().expect("a number")));
        let status = small.line("status");
        status.code == 13 && status.text().contains("! the last change could not be stored")
    });
    // Reads still work.
    assert_eq!(small.names("braid://v/before").len(), FILES);

    fs::remove_file(&fill).expect("removed");
    until("it goes on", || small.line("status").code == 0);
    small.line("cp -r tree braid://v/after").ok();
    small.line("rm braid://v/before/1").ok();
    small.line("check --all braid://v").ok();
    let whole = |of: String| {
        for name in small.names(&of) {
            let n = name.parse().expect("a number");
            assert!(small.line(&format!("cat {of}/{name}")).ok().out == noise(4096, n), "{of}/{name}");
        }
    };
    assert_eq!(small.names("braid://v/after").len(), FILES);
    whole("braid://v/after".to_owned());
    for n in 0..copied {
        assert_eq!(small.names(&format!("braid://v/full{n}")).len(), FILES, "it was said to be copied");
    }
    // The copy that was refused is whole or absent.
    if small.line("ls braid://v").text().contains(&format!("full{copied}")) {
        whole(format!("braid://v/full{copied}"));
    }
}
