//! A temporary directory of the demo or a bench: it has a unique name and is removed with its content.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::output::exit::{Doing, Exit, Failure};
use crate::output::size;

/// Number of attempts to remove the directory while the last processes that write to it are ending.
const REMOVE_TRIES: u32 = 40;
const REMOVE_PAUSE: Duration = Duration::from_millis(50);

/// Fate of a directory on drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDrop {
    Remove,
    Keep,
}

/// A directory that is removed on drop, unless it is to be kept.
#[derive(Debug)]
pub struct TemporaryDir {
    path: PathBuf,
    on_drop: OnDrop,
}

impl TemporaryDir {
    /// Makes a directory, named after `whom`, below `parent`, which must have `bytes` free.
    pub fn make(parent: &Path, whom: &str, bytes: u64, on_drop: OnDrop) -> Result<TemporaryDir, Failure> {
        let what = || format!("make a directory in {}", parent.display());
        let room = rustix::fs::statvfs(parent).map_err(std::io::Error::from).doing(what)?;
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        if free < bytes {
            let why =
                format!("it has {} free and the {whom} needs about {}", size::show(free), size::show(bytes));
            return Err(Failure::new(Exit::NoSpace, what(), why).remedy("give another directory with --dir"));
        }
        let number =
            getrandom::u64().map_err(|error| std::io::Error::other(error.to_string())).doing(what)?;
        let path = std::path::absolute(parent).doing(what)?.join(format!("braid-{whom}-{number:016x}"));
        DirBuilder::new().mode(0o700).create(&path).doing(what)?;
        Ok(TemporaryDir { path, on_drop })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        for _ in 0..REMOVE_TRIES {
            if self.on_drop == OnDrop::Keep || fs::remove_dir_all(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            std::thread::sleep(REMOVE_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_what_is_in_it() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let dir = TemporaryDir::make(parent.path(), "demo", 1, OnDrop::Remove).expect("made");
        fs::write(dir.path().join("file"), "x").expect("written");
        let path = dir.path().to_owned();
        drop(dir);
        assert!(!path.exists());
    }

    #[test]
    fn too_little_room_is_said_first() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(
            TemporaryDir::make(parent.path(), "demo", u64::MAX, OnDrop::Remove).expect_err("no room").exit,
            Exit::NoSpace
        );
    }
}
