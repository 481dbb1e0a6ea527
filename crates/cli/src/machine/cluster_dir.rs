//! The directory of a cluster on this machine.
//!
//! | path | what |
//! |---|---|
//! | `cluster.toml` | manager's address, a token, drives' names; mode 0600, replaced by rename |
//! | `LOCK` | held (flock) by `braid up` while it starts servers and, in the foreground, while it runs |
//! | `manager/` | the manager's state and tokens |
//! | `drive-N/` | one drive's store each |
//! | `logs/NAME.log` | standard error of each process |
//! | `pids/NAME` | process id, start time and address of each process, once it serves |
//!
//! A client on another machine needs only `cluster.toml`.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use braid_client::cluster::{self, ClusterFileError};
use braid_store::disk::private;

use crate::machine::held::{self, HeldDirectory};
use crate::output::exit::{Cause, Doing, Exit, Failure};
use crate::output::shell::quoted;
pub(crate) use braid_client::cluster::CLUSTER_FILE;
pub use braid_client::cluster::ClusterFile;

/// The directory of a cluster on this machine, or a file like `cluster.toml`.
#[derive(Debug, Clone)]
pub struct ClusterDir {
    root: PathBuf,
}

/// Lock that keeps out a second `braid up` while it lives.
#[derive(Debug)]
pub(crate) struct DirLock {
    _file: File,
    /// The directory as it was locked, to notice that it is gone.
    pub(crate) held: HeldDirectory,
}

impl ClusterDir {
    /// Returns true if `braid up` made the cluster: then all its servers are on this machine and `braid up`
    /// starts them.
    pub(crate) fn is_by_up(&self) -> bool {
        self.manager().is_dir()
    }

    /// The command that starts the cluster's missing servers, as shown to the user.
    pub(crate) fn up_command(&self) -> String {
        format!("`braid up --detach --dir {}`", quoted(self.root.as_os_str()))
    }

    /// The directory asked for: `--dir`, else `--cluster` or BRAID_CLUSTER, else the user's default.
    pub(crate) fn choose(dir: Option<&Path>, cluster: Option<&Path>) -> Result<ClusterDir, Failure> {
        Ok(ClusterDir { root: cluster::choose(dir.or(cluster)).map_err(failure)? })
    }

    /// The cluster directory at this path, which need not exist.
    pub fn at(root: PathBuf) -> ClusterDir {
        ClusterDir { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn manager(&self) -> PathBuf {
        self.root.join("manager")
    }

    pub fn drive(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.root.join("logs").join(format!("{name}.log"))
    }

    pub(crate) fn pid(&self, name: &str) -> PathBuf {
        self.root.join("pids").join(name)
    }

    /// Creates what is missing and makes it private to its owner. Refuses a directory that holds other
    /// things.
    pub fn prepare(&self) -> Result<(), Failure> {
        let what = || format!("use {} for a cluster", self.root.display());
        let is_cluster = self.read()?.is_some() || self.root.join("manager/manager.redb").exists();
        if self.root.exists() && !is_cluster {
            let strange = fs::read_dir(&self.root).doing(what)?.filter_map(Result::ok).find(|entry| {
                !matches!(entry.file_name().to_str(), Some("LOCK" | "logs" | "pids" | "manager"))
            });
            if let Some(entry) = strange {
                return Err(Failure::new(
                    Exit::Conflict,
                    what(),
                    format!("it holds {} and no cluster", entry.path().display()),
                )
                .remedy("choose an empty or new directory"));
            }
        }
        for dir in [self.root.clone(), self.root.join("logs"), self.root.join("pids")] {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .doing(|| format!("make {}", dir.display()))?;
        }
        private::tighten(&self.root, &["logs", "pids"]);
        Ok(())
    }

    /// Locks the directory for this process.
    pub(crate) fn lock(&self) -> Result<DirLock, Failure> {
        let path = self.root.join(held::LOCK);
        let what = || format!("take {}", self.root.display());
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .doing(what)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                return Err(Failure::new(
                    Exit::Busy,
                    what(),
                    format!("another `braid up` uses it (process {})", holder.trim()),
                )
                .remedy("two clusters cannot share a directory: stop that one or choose another --dir"));
            }
            Err(TryLockError::Error(error)) => return Err(error).doing(what),
        }
        let write = |file: &mut File| {
            file.set_len(0)?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).doing(what)?;
        let held = HeldDirectory::by(&self.root, &file).doing(what)?;
        Ok(DirLock { _file: file, held })
    }

    /// Reads `cluster.toml`; `None` if there is none.
    pub(crate) fn read(&self) -> Result<Option<ClusterFile>, Failure> {
        ClusterFile::read(&self.root).map_err(failure)
    }

    /// The error for a directory without a cluster. It says if the directory exists.
    pub(crate) fn none(&self, what: impl Into<String>) -> Failure {
        let why = if self.root.exists() {
            format!("there is none: no {CLUSTER_FILE} is in it")
        } else {
            "there is no such directory".to_owned()
        };
        Failure::new(Exit::NoCluster, what, why)
    }

    /// Replaces the directory's `cluster.toml` atomically; mode 0600.
    pub fn write(&self, cluster: &ClusterFile) -> Result<(), Failure> {
        write_cluster_file(&self.root.join(CLUSTER_FILE), cluster)
    }
}

/// Replaces the file at `path` atomically by one that holds `cluster`; mode 0600.
pub(crate) fn write_cluster_file(path: &Path, cluster: &ClusterFile) -> Result<(), Failure> {
    let what = || format!("write {}", path.display());
    let text = toml::to_string(cluster).map_err(io::Error::other).doing(what)?;
    replace_file(path, text.as_bytes()).doing(what)
}

/// Writes a temporary file next to `path`, mode 0600, and renames it into place.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension(format!("new.{}", std::process::id()));
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
}

/// Converts an error of the cluster file to a failure of the command.
fn failure(error: ClusterFileError) -> Failure {
    match error {
        ClusterFileError::NoHome => Failure::usage("find the cluster", "HOME is not set")
            .remedy("use --cluster DIR or set BRAID_CLUSTER"),
        ClusterFileError::Io { action, path, source } => {
            let cause: Cause = source.into();
            cause.doing(format!("{action} {}", path.display()))
        }
        ClusterFileError::Content { path, why } => {
            Failure::new(Exit::Failed, format!("read {}", path.display()), why)
                .remedy("it needs manager = \"HOST:PORT\" and token = \"braid1.client...\"")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn fresh() -> (tempfile::TempDir, ClusterDir) {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let dir = ClusterDir::at(temporary.path().join("c"));
        (temporary, dir)
    }

    #[test]
    fn the_cluster_file_comes_back_and_is_private() {
        let (_temporary, dir) = fresh();
        dir.prepare().expect("prepared");
        assert_eq!(dir.read().expect("read"), None);
        let cluster = ClusterFile {
            manager: "127.0.0.1:1".into(),
            token: "t".into(),
            drives: vec!["drive-1".into()],
            transport: None,
            volume_keys: Default::default(),
        };
        dir.write(&cluster).expect("written");
        assert_eq!(dir.read().expect("read"), Some(cluster));
        let mode = fs::metadata(dir.root().join(CLUSTER_FILE)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_directory_that_was_open_to_others_is_closed_to_them() {
        let (_temporary, dir) = fresh();
        dir.prepare().expect("prepared");
        fs::write(dir.log("manager"), "x").expect("written");
        dir.write(&ClusterFile {
            manager: "127.0.0.1:1".into(),
            token: "t".into(),
            drives: Vec::new(),
            transport: None,
            volume_keys: Default::default(),
        })
        .expect("written");
        let paths = [
            dir.root().to_owned(),
            dir.root().join("logs"),
            dir.root().join("pids"),
            dir.log("manager"),
            dir.root().join(CLUSTER_FILE),
        ];
        for path in &paths {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
        }
        dir.prepare().expect("prepared again");
        for path in &paths {
            let mode = fs::metadata(path).expect("there").permissions().mode();
            assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
        }
    }

    #[test]
    fn one_at_a_time() {
        let (_temporary, dir) = fresh();
        dir.prepare().expect("prepared");
        let held = dir.lock().expect("free");
        let failure = dir.lock().expect_err("taken");
        assert_eq!(failure.exit, Exit::Busy);
        assert!(failure.to_string().contains(&std::process::id().to_string()), "{failure}");
        drop(held);
        dir.lock().expect("free again");
    }

    #[test]
    fn a_directory_of_other_things_is_refused() {
        let (_temporary, dir) = fresh();
        fs::create_dir_all(dir.root().join("photos")).expect("made");
        assert_eq!(dir.prepare().expect_err("strange").exit, Exit::Conflict);
        fs::create_dir(dir.root().join("manager")).expect("made");
        assert_eq!(dir.prepare().expect_err("still strange").exit, Exit::Conflict);
    }
}
