//! Real processes for the tests: the built binary, and a directory for each test, removed when it ends.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

pub(crate) use braid_testing::{PATIENCE, until};

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    out: Vec<u8>,
    err: String,
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
        // On a busy machine the command may wait first, which it announces.
        let lines = self.err.lines().filter(|line| !line.starts_with("braid: waiting ")).count();
        assert_eq!(lines, 1, "not one line: {}", self.err);
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Said {
        assert_eq!(self.code, 0, "{}", self.err);
        self
    }
}

/// The binary, without the tester's environment.
pub(crate) fn lab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid-lab"));
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
    let _ = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().expect("kill runs");
}

/// Returns true if a process exists and is no zombie.
pub(crate) fn runs(pid: u32) -> bool {
    let state = |stat: String| stat.rsplit(')').next()?.trim_start().chars().next();
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| state(stat).is_some_and(|state| state != 'Z'))
}

/// A temporary directory.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        Place(tempfile::Builder::new().prefix("braid-test-").tempdir().expect("a temporary directory"))
    }

    /// A path in the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes a file of so many bytes.
    pub(crate) fn make(&self, name: &str, bytes: usize) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, (0..=255).cycle().take(bytes).collect::<Vec<u8>>()).expect("written");
        path
    }
}
