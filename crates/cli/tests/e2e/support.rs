//! Real processes for the end-to-end tests: the built binary, a directory per cluster, ports chosen by the
//! system. A cluster is shut down when its test ends, however it ends.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

pub(crate) use braid_testing::{PATIENCE, until};

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("UTF-8")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.out)))
    }

    /// Asserts that the command failed with this code and one line that contains `words`.
    #[track_caller]
    pub(crate) fn failed(&self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{}", self.err);
        assert!(self.err.contains(words), "{words:?} is not in: {}", self.err);
        assert!(self.err.starts_with("braid: "), "{}", self.err);
        // On a busy machine the command may wait first, which it announces.
        let lines = self.err.lines().filter(|line| !line.starts_with("braid: waiting ")).count();
        assert_eq!(lines, 1, "not one line: {}", self.err);
    }

    /// Asserts that the message advises to have another drive make the columns anew, and no command that
    /// writes bytes which may be wrong.
    #[track_caller]
    pub(crate) fn advises_another_drive(&self) {
        for command in ["drive replace", "rebuild"] {
            assert!(self.err.contains(&format!("braid {command} ")), "{command:?} is not in: {}", self.err);
        }
        for said in [self.err.as_str(), self.text()] {
            let mut words = said.split(|character: char| !character.is_alphanumeric());
            assert!(!words.any(|word| ["cp", "copy"].contains(&word)), "it advises to copy: {said}");
        }
    }

    /// Asserts that the command failed with this code, with any output.
    #[track_caller]
    pub(crate) fn failed_with_output(&self, code: i32) {
        assert_eq!(self.code, code, "{}", self.err);
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Said {
        assert_eq!(self.code, 0, "{}", self.err);
        self
    }
}

/// The binary, without the tester's environment.
pub(crate) fn braid() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    command.env_remove("BRAID_CLUSTER").env_remove("BRAID_JOIN_TOKEN").stdin(Stdio::null());
    command
}

/// Runs a command to its end, within `PATIENCE`.
pub(crate) fn run(mut command: Command) -> Said {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    said(finish(child))
}

/// Waits for a child, and kills it if it takes too long.
#[track_caller]
pub(crate) fn finish(child: Child) -> Output {
    let pid = child.id();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    match is_done.recv_timeout(PATIENCE) {
        Ok(output) => output.expect("waited for"),
        Err(_) => {
            signal(pid, "KILL");
            panic!("a command took more than {} s", PATIENCE.as_secs());
        }
    }
}

pub(crate) fn said(output: Output) -> Said {
    let code = output.status.code().unwrap_or(-1);
    Said { code, out: output.stdout, err: String::from_utf8_lossy(&output.stderr).into_owned() }
}

/// Sends a signal by name.
pub(crate) fn signal(pid: u32, name: &str) {
    let status =
        Command::new("kill").args([format!("-{name}"), pid.to_string()]).stderr(Stdio::null()).status();
    let _ = status.expect("kill runs");
    if name == "STOP" {
        // `kill` returns before the last thread has stopped: one on the other core may still answer.
        until("every thread has stopped", || stopped(pid));
    }
}

/// Returns true if all threads of a process are stopped, or if it is gone.
fn stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        fs::read_to_string(thread.path().join("stat"))
            .map_or(true, |stat| state(&stat).is_none_or(|state| matches!(state, 'T' | 't' | 'Z' | 'X')))
    })
}

/// The state in a line of `/proc/PID/stat`: the letter after the name, which is in brackets.
fn state(stat: &str) -> Option<char> {
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Returns true if a process exists and is no zombie.
pub(crate) fn runs(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| state(&stat).is_some_and(|state| state != 'Z'))
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
        command.args(["up", "--detach", "--dir"]).arg(self.dir()).args(more);
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
