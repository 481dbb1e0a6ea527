//! Real processes for the end-to-end tests: the built binary, a directory per cluster, ports chosen by the
//! system. A cluster is shut down when its test ends, however it ends.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) use braid_processes::{Said, finish, run, runs, said, signal};
pub(crate) use braid_testing::until;

/// The binary, without the tester's environment.
pub(crate) fn braid() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    command.env_remove("BRAID_CLUSTER").env_remove("BRAID_JOIN_TOKEN").env_remove("BRAID_VOLUME_KEYS");
    command.stdin(Stdio::null());
    command
}

/// Says why a test is not run here: on its output, which is shown only if it fails, and in the file that the
/// variable `BRAID_NOT_RUN` names, which `tools/test-lanes.sh` shows at the end.
pub(crate) fn not_run(why: &str) {
    println!("not run: {why}");
    if let Some(path) = std::env::var_os("BRAID_NOT_RUN") {
        let name = std::thread::current().name().unwrap_or("a test").to_owned();
        let mut list = File::options().append(true).create(true).open(path).expect("the list is open");
        writeln!(list, "not run: {name}: {why}").expect("noted");
    }
}

/// A cluster in a temporary directory.
pub(crate) struct Cluster {
    temporary: tempfile::TempDir,
}

impl Cluster {
    /// Makes a directory without a cluster in it.
    pub(crate) fn nowhere() -> Cluster {
        Cluster {
            temporary: tempfile::Builder::new()
                .prefix("braid-test-")
                .tempdir()
                .expect("a temporary directory"),
        }
    }

    /// Starts a cluster of this many drives.
    pub(crate) fn up(drives: u32) -> Cluster {
        let cluster = Cluster::nowhere();
        cluster.start(&["--drives", &drives.to_string()]);
        cluster
    }

    /// Runs `braid up --detach` with further arguments.
    pub(crate) fn start(&self, more: &[&str]) {
        let mut command = braid();
        command.args(["up", "--detach", "--no-calibration", "--dir"]).arg(self.dir()).args(more);
        run(command).ok();
    }

    pub(crate) fn down(&self) -> Said {
        let mut command = braid();
        command.args(["down", "--dir"]).arg(self.dir());
        run(command)
    }

    /// The cluster's directory, which `up` makes.
    pub(crate) fn dir(&self) -> PathBuf {
        self.temporary.path().join("cluster")
    }

    /// A path for local files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.temporary.path().join(name)
    }

    /// Makes a local file with content that reveals any misplaced byte.
    pub(crate) fn make(&self, name: &str, bytes: usize, seed: u64) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, noise(bytes, seed)).expect("written");
        path
    }

    /// Returns the command `braid ARGS` on this cluster.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = braid();
        command.env("BRAID_CLUSTER", self.dir()).args(args);
        command
    }

    /// Runs `braid ARGS`.
    pub(crate) fn braid<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Said {
        run(self.command(args))
    }

    /// Runs `braid` with a line split at spaces.
    pub(crate) fn line(&self, line: &str) -> Said {
        self.braid(line.split(' '))
    }

    #[track_caller]
    pub(crate) fn put(&self, source: &Path, target: &str) {
        self.braid([OsStr::new("cp"), source.as_os_str(), OsStr::new(target)]).ok();
    }

    #[track_caller]
    pub(crate) fn cat(&self, name: &str) -> Vec<u8> {
        self.braid(["cat", name]).ok().out
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let said = self.line("status --json");
        // Accepted whether or not the cluster is well.
        assert!([0, 13].contains(&said.code), "{}", said.err);
        said.json()
    }

    /// Process id of a drive, from the status.
    pub(crate) fn drive_pid(&self, name: &str) -> u32 {
        let status = self.status();
        let drives = status["drives"].as_array().expect("a list");
        let drive = drives.iter().find(|drive| drive["name"] == name).expect("it is there");
        u32::try_from(drive["pid"].as_u64().expect("a number")).expect("a process id")
    }

    /// Kills a drive with SIGKILL, and waits until it is gone.
    pub(crate) fn kill_drive(&self, name: &str) {
        let pid = self.drive_pid(name);
        signal(pid, "KILL");
        until("the drive is dead", || !runs(pid));
    }

    /// Kills the manager, and starts it again.
    pub(crate) fn restart_manager(&self) {
        self.kill_manager();
        self.start(&[]);
    }

    /// Kills the manager with SIGKILL, and waits until it is gone.
    pub(crate) fn kill_manager(&self) {
        let manager = fs::read_to_string(self.dir().join("pids/manager")).expect("a record");
        let pid = manager.lines().find_map(|line| line.strip_prefix("pid = ")).expect("a line");
        let pid = pid.trim().parse().expect("a number");
        signal(pid, "KILL");
        until("it is dead", || !runs(pid));
    }

    /// Names of the drives of a file's columns, in the columns' order.
    pub(crate) fn columns(&self, name: &str) -> Vec<String> {
        let facts = self.braid(["stat", "--json", name]).ok().json();
        let columns = facts["segments"][0]["columns"].as_array().expect("a list").clone();
        columns.iter().map(|column| column["drive"].as_str().expect("a name").to_owned()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.dir().join("cluster.toml").exists() || self.dir().join("pids").exists() {
            let said = self.down();
            if said.code != 0 && std::thread::panicking() {
                eprintln!("down: {}", said.err);
            }
        }
        if std::thread::panicking() {
            show_logs(&self.dir().join("logs"));
        }
    }
}

/// Prints the ends of the logs, for a test that failed.
fn show_logs(logs: &Path) {
    for entry in fs::read_dir(logs).into_iter().flatten().filter_map(Result::ok) {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let tail: Vec<&str> = text.lines().rev().take(15).collect();
        eprintln!("--- {}", entry.path().display());
        tail.iter().rev().for_each(|line| eprintln!("{line}"));
    }
}

/// Bytes that look random and depend on their offset.
pub(crate) fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    out.truncate(bytes);
    out
}
