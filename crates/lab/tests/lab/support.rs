//! Real processes for the tests: the built binary, and a directory for each test, removed when it ends.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub(crate) use braid_processes::{finish, run, runs, said, signal};
pub(crate) use braid_testing::until;

/// The binary, without the tester's environment.
pub(crate) fn lab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid-lab"));
    command.env_remove("BRAID_CLUSTER").env_remove("BRAID_JOIN_TOKEN").stdin(Stdio::null());
    command
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
