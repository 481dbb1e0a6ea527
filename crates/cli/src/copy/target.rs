//! Targets that appear whole or not at all.
//!
//! A local target is a hidden sibling until it is renamed; a remote one has no name until it is linked. If
//! dropped earlier, the sibling is removed, and the manager frees the remote file when its lease ends.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File as LocalFile, OpenOptions};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use braid_client::{AttributeChanges, Client, File as RemoteFile, Name, Replace};
use braid_layout::DriveId;

use crate::exit::{Doing, Failure};
use crate::names::show_remote;

/// A local file that does not have its final name yet.
pub(crate) struct Sibling {
    path: PathBuf,
    target: PathBuf,
    /// Cleared by the rename; while set, drop removes the file.
    armed: bool,
}

impl Sibling {
    /// Creates it in the directory of `target`, and opens it.
    pub(crate) fn create(target: &Path) -> Result<(Sibling, LocalFile), Failure> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // If the target is a symbolic link, the file it points to is replaced, as with cp.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!(".braid-{}-{number}.part", std::process::id()));
        let path = target.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .doing(|| format!("write {}", target.display()))?;
        Ok((Sibling { path, target, armed: true }, file))
    }

    /// Renames it to its final name.
    pub(crate) fn commit(mut self) -> Result<(), Failure> {
        fs::rename(&self.path, &self.target).doing(|| format!("write {}", self.target.display()))?;
        self.armed = false;
        Ok(())
    }
}

impl Drop for Sibling {
    fn drop(&mut self) {
        if self.armed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a local path is something that cannot be replaced by a rename, such as a device or a named pipe.
pub(crate) fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Standard input or output as an unbuffered file.
pub(crate) fn pipe_file(stream: &impl AsFd) -> Result<LocalFile, Failure> {
    let fd = stream.as_fd().try_clone_to_owned().doing(|| "use standard input and output".into())?;
    Ok(LocalFile::from(fd))
}

/// A remote file that does not have its name yet.
pub(crate) struct Unnamed {
    pub(crate) file: Arc<RemoteFile>,
    pub(crate) name: Name,
}

impl Unnamed {
    /// Creates it in the volume of `name`, with the volume's shape. Avoids the drives in `full` while there
    /// are enough others.
    pub(crate) async fn create(
        client: &Client,
        name: Name,
        full: &BTreeSet<DriveId>,
    ) -> Result<Unnamed, Failure> {
        let created = client.create_unnamed_beside(name.volume(), None, full).await;
        let file = created.doing(|| format!("store {}", show_remote(&name)))?;
        Ok(Unnamed { file: Arc::new(file), name })
    }

    /// Whether it has a column on one of these drives.
    pub(crate) fn is_on(&self, drives: &BTreeSet<DriveId>) -> bool {
        let layout = self.file.layout();
        let mut columns = layout.segments().iter().flat_map(|segment| &segment.components);
        columns.any(|component| drives.contains(&component.drive))
    }

    /// Gives the file up at once. If a write is still in flight, the manager frees it when its lease ends.
    pub(crate) async fn give_up(self) {
        if let Some(file) = Arc::into_inner(self.file) {
            let _ = file.close().await;
        }
    }

    /// Links it under its name, with its size and preserved attributes. Atomically replaces an existing file.
    pub(crate) async fn commit(self, kept: AttributeChanges) -> Result<(), Failure> {
        let what = || format!("store {}", show_remote(&self.name));
        let file = Arc::into_inner(self.file)
            .ok_or_else(|| std::io::Error::other("a write is still under way"))
            .doing(what)?;
        Ok(file.link_and_close(&self.name, Replace::Yes, kept).await?)
    }
}
