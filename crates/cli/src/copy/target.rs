//! Targets that appear whole or not at all.
//!
//! A local target is a hidden sibling until it is renamed; a remote one has no name until it is linked. If
//! dropped earlier, the sibling is removed, and the manager frees the remote file when its lease ends.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File as LocalFile};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use braid_client::{AttributeChanges, Client, File as RemoteFile, Name, Replace};
use braid_layout::{DriveId, FileId, Shape};
use braid_wire::Reason;
use braid_wire::control::Seen;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};

use crate::files::beneath::{HeldName, LocalPath};
use crate::files::names::show_remote;
use crate::output::exit::{Doing, Exit, Failure};

/// A local file that does not have its final name yet.
pub(crate) struct Sibling {
    /// Directory of the file, and the target's name in it.
    target: HeldName,
    name: OsString,
    /// Cleared by the rename; while set, drop removes the file.
    armed: bool,
}

impl Sibling {
    /// Creates the sibling in the directory of `target`, and opens it.
    pub(crate) fn create(target: &LocalPath) -> std::io::Result<(Sibling, LocalFile)> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!(".braid-{}-{number}.part", std::process::id()));
        let target = match target.as_typed() {
            // If the target is a symbolic link, the file it points to is replaced, as with cp.
            Some(typed) => in_its_directory(&fs::canonicalize(typed).unwrap_or_else(|_| typed.to_owned())),
            None => target.clone(),
        };
        let target = target.held()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(target.directory(), &name, flags, Mode::from_raw_mode(0o666))?;
        Ok((Sibling { target, name, armed: true }, file.into()))
    }

    /// Renames the sibling to its final name. Whatever has that name is replaced; if it is a link, it is not
    /// followed.
    pub(crate) fn commit(mut self) -> std::io::Result<()> {
        renameat(self.target.directory(), &self.name, self.target.directory(), &self.target.name)?;
        self.armed = false;
        Ok(())
    }
}

impl Drop for Sibling {
    fn drop(&mut self) {
        if self.armed {
            let _ = unlinkat(self.target.directory(), &self.name, AtFlags::empty());
        }
    }
}

/// Splits a path into a directory and a name in it.
fn in_its_directory(path: &Path) -> LocalPath {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    match path.file_name() {
        Some(name) => LocalPath::typed(directory.unwrap_or(Path::new("."))).join(name),
        None => LocalPath::typed(path),
    }
}

/// Returns true if the target was typed and cannot be replaced by a rename, such as a device or a named pipe.
/// A special file below a typed directory is replaced: whoever could put it there must not choose what is
/// written to.
pub(crate) fn is_special(path: &LocalPath) -> bool {
    let found = path.as_typed().map(fs::metadata);
    matches!(found, Some(Ok(metadata)) if !metadata.is_file() && !metadata.is_dir())
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
    /// Creates the file in the volume of `name`, in this shape, or in the one that counts there.
    /// Avoids the drives in `full` while there are enough others.
    pub(crate) async fn create(
        client: &Client,
        name: Name,
        shape: Option<Shape>,
        full: &BTreeSet<DriveId>,
    ) -> Result<Unnamed, Failure> {
        let created = client.create_for(&name, shape, full).await;
        let file = created.doing(|| format!("store {}", show_remote(&name)))?;
        Ok(Unnamed { file: Arc::new(file), name })
    }

    /// Returns true if the file has a column on one of these drives.
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

    /// Links the file under its name, with its size and preserved attributes. Atomically replaces an existing
    /// file.
    pub(crate) async fn commit(self, kept: AttributeChanges) -> Result<(), Failure> {
        let what = || format!("store {}", show_remote(&self.name));
        let file = Arc::into_inner(self.file)
            .ok_or_else(|| std::io::Error::other("a write is still under way"))
            .doing(what)?;
        Ok(file.link_and_close(&self.name, Replace::Yes, kept).await?)
    }

    /// Links the file under its name, if that is free or still the name of `over`. Nothing else is replaced.
    pub(crate) async fn commit_over(
        self,
        client: &Client,
        kept: AttributeChanges,
        over: Option<FileId>,
    ) -> Result<(), Failure> {
        let what = || format!("store {}", show_remote(&self.name));
        let replace = match client.stat_itself(&self.name).await {
            Ok(now) if Some(now.file) == over => {
                Replace::Only(Seen { file: now.file, changed_ns: now.attributes.changed_ns })
            }
            Err(error) if error.reason() == Some(Reason::NotFound) => Replace::No,
            other => {
                self.give_up().await;
                other?;
                return Err(taken());
            }
        };
        let file = Arc::into_inner(self.file)
            .ok_or_else(|| std::io::Error::other("a write is still under way"))
            .doing(what)?;
        match file.link_and_close(&self.name, replace, kept).await {
            Err(error) if matches!(error.reason(), Some(Reason::Exists | Reason::IsDirectory)) => {
                Err(taken())
            }
            done => Ok(done?),
        }
    }
}

/// The failure of what would replace something that was made or changed in the meantime.
pub(crate) fn taken() -> Failure {
    let why = "something else has its name by now, or it was changed in the meantime";
    Failure::new(Exit::Conflict, "restore it", why).remedy("restore again")
}
