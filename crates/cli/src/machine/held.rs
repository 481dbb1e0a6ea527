//! A directory that a running process holds by a lock file in it, and the check that it is still there.
//!
//! A directory can be removed, moved or replaced under a running process, whose open files keep working. Data
//! that the process then acknowledges goes to files that nobody can find again, and files it creates by name
//! end up in the new directory. So the lock file's device and inode are checked periodically.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use crate::output::exit::{Exit, Failure};

/// Name of the lock file in every directory that a process holds.
pub(crate) const LOCK: &str = "LOCK";
/// Interval between two checks. It bounds the time for which writes are acknowledged into a directory that is
/// gone.
const LOOK: Duration = Duration::from_secs(1);

/// A directory that this process holds.
#[derive(Debug)]
pub(crate) struct HeldDirectory {
    dir: PathBuf,
    file: (u64, u64),
}

impl HeldDirectory {
    /// A directory whose lock file is open as `lock`.
    pub(crate) fn by(dir: &Path, lock: &File) -> io::Result<HeldDirectory> {
        Ok(HeldDirectory { dir: dir.to_owned(), file: identity(&lock.metadata()?) })
    }

    /// A directory whose lock file this process holds already, looked up by name.
    pub(crate) fn now(dir: &Path) -> io::Result<HeldDirectory> {
        HeldDirectory::by(dir, &File::open(dir.join(LOCK))?)
    }

    /// Waits until the directory or its lock file is gone or replaced.
    pub(crate) async fn gone(&self) {
        while !self.is_gone().await {
            sleep(LOOK).await;
        }
    }

    /// Returns true if the directory or its lock file is gone or replaced. Other errors do not count: the
    /// disk may hang.
    pub(crate) async fn is_gone(&self) -> bool {
        !self.is_there(&tokio::fs::metadata(self.dir.join(LOCK)).await)
    }

    fn is_there(&self, looked: &io::Result<Metadata>) -> bool {
        match looked {
            Ok(metadata) => identity(metadata) == self.file,
            Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        }
    }

    /// The error that the process ends with.
    pub(crate) fn failure(&self, what: impl Into<String>) -> Failure {
        let why =
            format!("{} or its {LOCK} file was removed or replaced while it was in use", self.dir.display());
        Failure::new(Exit::DirectoryGone, what, why)
            .remedy("what it held is lost unless it was only moved; stop a server before its directory is moved or removed")
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn fresh() -> (tempfile::TempDir, HeldDirectory) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::write(dir.path().join(LOCK), "").expect("written");
        let held = HeldDirectory::now(dir.path()).expect("there");
        (dir, held)
    }

    fn looked(held: &HeldDirectory) -> bool {
        held.is_there(&fs::metadata(held.dir.join(LOCK)))
    }

    #[test]
    fn one_that_is_gone_or_another_is_noticed_and_trouble_is_not_taken_for_it() {
        let (dir, held) = fresh();
        assert!(looked(&held));
        assert!(held.is_there(&Err(io::Error::from(io::ErrorKind::PermissionDenied))));
        // Another file of the same name. The first one is kept, so that its inode number is not reused.
        fs::rename(dir.path().join(LOCK), dir.path().join("old")).expect("renamed");
        fs::write(dir.path().join(LOCK), "").expect("written");
        assert!(!looked(&held));
        fs::remove_file(dir.path().join(LOCK)).expect("removed");
        assert!(!looked(&held));
        dir.close().expect("removed");
        assert!(!looked(&held));
    }

    #[tokio::test]
    async fn the_wait_ends_when_it_is_gone() {
        let (dir, held) = fresh();
        assert!(!held.is_gone().await);
        let path = dir.path().to_owned();
        let waiting = tokio::spawn(async move { held.gone().await });
        fs::remove_dir_all(path).expect("removed");
        tokio::time::timeout(LOOK * 60, waiting).await.expect("noticed").expect("no panic");
    }
}
