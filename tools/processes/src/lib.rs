//! Processes that tests start: commands with their results, signals, and the states of others.

pub mod etcd;

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use braid_testing::until;

/// The result of a command.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: Vec<u8>,
    pub err: String,
}

impl Said {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("UTF-8")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.out)))
    }

    /// Asserts that the command failed with this code and one line that contains `words`.
    #[track_caller]
    pub fn failed(&self, code: i32, words: &str) {
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
    pub fn advises_another_drive(&self) {
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
    pub fn failed_with_output(&self, code: i32) {
        assert_eq!(self.code, code, "{}", self.err);
    }

    #[track_caller]
    pub fn ok(self) -> Said {
        assert_eq!(self.code, 0, "{}", self.err);
        self
    }
}

/// Bound for one command. The bench of all rows of the store takes 70 s on one of two busy cores.
const TO_ITS_END: Duration = Duration::from_secs(600);

/// Runs a command to its end, within a bound that a busy machine keeps.
pub fn run(mut command: Command) -> Said {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    said(finish(child))
}

/// Waits for a child, and kills it if it takes too long.
#[track_caller]
pub fn finish(child: Child) -> Output {
    let pid = child.id();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    match is_done.recv_timeout(TO_ITS_END) {
        Ok(output) => output.expect("waited for"),
        Err(_) => {
            signal(pid, "KILL");
            panic!("a command took more than {} s", TO_ITS_END.as_secs());
        }
    }
}

pub fn said(output: Output) -> Said {
    let code = output.status.code().unwrap_or(-1);
    Said { code, out: output.stdout, err: String::from_utf8_lossy(&output.stderr).into_owned() }
}

/// Sends a signal by name.
pub fn signal(pid: u32, name: &str) {
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
pub fn runs(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| state(&stat).is_some_and(|state| state != 'Z'))
}
