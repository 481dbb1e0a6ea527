//! Files that only their owner may read: 0600 in directories of 0700.
//!
//! Existing files may have wider modes, for example after being copied by a tool. They are tightened when a
//! process takes the directory. If that fails (another user's file, a file system without modes), a warning
//! is logged and the directory is used as it is.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// A new file's mode.
pub const FILE_MODE: u32 = 0o600;
/// A new directory's mode.
const DIR_MODE: u32 = 0o700;
/// The mode bits of the group and others.
const OTHERS: u32 = 0o077;

/// Make a directory, and its missing ancestors, for their owner only. Existing directories are left alone.
pub fn make_dir_all(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)
}

/// Make a new directory, for its owner only.
pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIR_MODE).create(dir)
}

/// Remove the access of other users to `dir`, to the files in it, to its directories `inner`, and to their
/// files.
pub fn tighten(dir: &Path, inner: &[&str]) {
    let dirs = inner.iter().map(|name| dir.join(name)).filter(|inner| is_dir(inner));
    for dir in std::iter::once(dir.to_owned()).chain(dirs) {
        tell(&dir, tighten_one(&dir));
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) => {
                tell(&dir, Err(error));
                continue;
            }
        };
        for entry in entries.filter_map(Result::ok) {
            // Links lead elsewhere and are skipped. The caller names the directories.
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                tell(&entry.path(), tighten_one(&entry.path()));
            }
        }
    }
}

fn is_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

fn tighten_one(path: &Path) -> io::Result<()> {
    let mode = match fs::metadata(path) {
        Ok(found) => found.permissions().mode() & 0o7777,
        // The file was removed meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if mode & OTHERS == 0 {
        Ok(())
    } else {
        fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS))
    }
}

fn tell(path: &Path, done: io::Result<()>) {
    if let Err(error) = done {
        tracing::warn!(path = %path.display(), %error, "others may be able to read this: its mode cannot be tightened");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    #[test]
    fn what_others_may_do_is_taken_away_and_what_is_private_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let outer = dir.path().join("d");
        let inner = dir.path().join("d/log");
        let other = dir.path().join("d/other");
        for dir in [&outer, &inner, &other] {
            fs::create_dir(dir).expect("made");
            fs::write(dir.join("f"), "x").expect("written");
            fs::set_permissions(dir.join("f"), Permissions::from_mode(0o664)).expect("set");
            fs::set_permissions(dir, Permissions::from_mode(0o755)).expect("set");
        }
        fs::write(outer.join("read-only"), "x").expect("written");
        fs::set_permissions(outer.join("read-only"), Permissions::from_mode(0o400)).expect("set");
        tighten(&outer, &["log", "absent"]);
        assert_eq!([&outer, &inner, &other].map(|dir| mode(dir)), [0o700, 0o700, 0o755]);
        let files = ["f", "log/f", "other/f", "read-only"].map(|name| mode(&outer.join(name)));
        assert_eq!(files, [0o600, 0o600, 0o664, 0o400]);
    }
}
