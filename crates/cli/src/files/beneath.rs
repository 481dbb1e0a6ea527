//! Local paths, and safe access to the files that they name.
//!
//! The first part of a path was typed, and links in it are followed. Names below it come from a directory or
//! a volume. Whoever writes there chose them, and may have put a link there that leads elsewhere. So
//! directories below the typed one are opened one from the other, and never through a link. Such a path can
//! also be longer than the system takes.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File as LocalFile, Metadata, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, mkdirat, openat, readlinkat, unlinkat};
use rustix::io::Errno;

/// Flags to open a directory in order to reach what is in it.
const PASSED: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A path on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalPath {
    typed: PathBuf,
    /// Path below the typed part; may be empty.
    below: PathBuf,
}

/// An open directory, and a name in it.
pub(crate) struct HeldName {
    /// The open directory; `None` for the current one, from which a typed path leads.
    directory: Option<OwnedFd>,
    pub(crate) name: PathBuf,
}

impl HeldName {
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_ref().map_or(CWD, OwnedFd::as_fd)
    }
}

impl LocalPath {
    /// A path that was typed.
    pub(crate) fn typed(path: impl Into<PathBuf>) -> LocalPath {
        LocalPath { typed: path.into(), below: PathBuf::new() }
    }

    /// The path of this name in this directory.
    pub(crate) fn join(&self, name: &OsStr) -> LocalPath {
        LocalPath { typed: self.typed.clone(), below: self.below.join(name) }
    }

    /// The path, if all of it was typed.
    pub(crate) fn as_typed(&self) -> Option<&Path> {
        self.below.as_os_str().is_empty().then_some(&self.typed)
    }

    /// The whole path, for messages and comparisons: it may be too long to be used.
    pub(crate) fn whole(&self) -> PathBuf {
        match self.as_typed() {
            Some(typed) => typed.to_owned(),
            None => self.typed.join(&self.below),
        }
    }

    /// Last component of the path; `None` if it has none, as `/` or `..`.
    pub(crate) fn file_name(&self) -> Option<&OsStr> {
        self.as_typed().unwrap_or(&self.below).file_name()
    }

    /// Opens the directory that holds the file, without following links below the typed part.
    pub(crate) fn held(&self) -> io::Result<HeldName> {
        let Some(name) = self.below.file_name() else {
            return Ok(HeldName { directory: None, name: self.typed.clone() });
        };
        let mut directory = openat(CWD, &self.typed, PASSED, Mode::empty())?;
        for part in self.below.parent().into_iter().flat_map(Path::iter) {
            directory = openat(&directory, part, PASSED | OFlags::NOFOLLOW, Mode::empty())?;
        }
        Ok(HeldName { directory: Some(directory), name: name.into() })
    }

    /// Opens the file; a link at the end is followed unless `flags` forbid it.
    pub(crate) fn open(&self, flags: OFlags) -> io::Result<LocalFile> {
        let held = self.held()?;
        let opened = openat(held.directory(), &held.name, flags | OFlags::CLOEXEC, Mode::empty())?;
        Ok(opened.into())
    }

    /// Metadata of the file, following links.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.open(OFlags::PATH)?.metadata()
    }

    /// Metadata of the file itself, which may be a link.
    pub(crate) fn itself(&self) -> io::Result<Metadata> {
        self.open(OFlags::PATH | OFlags::NOFOLLOW)?.metadata()
    }

    /// Returns true if the path names a symbolic link.
    pub(crate) fn is_symlink(&self) -> bool {
        self.itself().is_ok_and(|metadata| metadata.is_symlink())
    }

    /// Target of a symbolic link.
    pub(crate) fn read_link(&self) -> io::Result<Vec<u8>> {
        let held = self.held()?;
        Ok(readlinkat(held.directory(), &held.name, Vec::new())?.into_bytes())
    }

    /// The names in a directory, in order.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let link = if self.as_typed().is_some() { OFlags::empty() } else { OFlags::NOFOLLOW };
        let directory = self.open(OFlags::RDONLY | OFlags::DIRECTORY | link)?;
        let mut names = Vec::new();
        for entry in Dir::new(directory)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if !matches!(name.as_slice(), b"." | b"..") {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        Ok(names)
    }

    /// Makes a directory; it may exist already.
    pub(crate) fn make_directory(&self) -> io::Result<()> {
        if let Some(typed) = self.as_typed() {
            return fs::create_dir_all(typed);
        }
        let held = self.held()?;
        match mkdirat(held.directory(), &held.name, Mode::from_raw_mode(0o777)) {
            Err(Errno::EXIST) => self.open(PASSED | OFlags::NOFOLLOW).map(drop),
            made => Ok(made?),
        }
    }

    /// Removes the file, if there is one; a directory is an error.
    pub(crate) fn clear(&self) -> io::Result<()> {
        let held = self.held()?;
        match unlinkat(held.directory(), &held.name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Sets the permission bits of the file. A symbolic link has none.
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        let found = self.open(OFlags::PATH | OFlags::NOFOLLOW)?;
        if found.metadata()?.is_symlink() {
            return Ok(());
        }
        // The system changes permission bits only by a descriptor that was opened to read or write, or by a
        // path.
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        fs::set_permissions(path, Permissions::from_mode(mode))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_directory_below_is_reached_through_a_link() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("real")).expect("made");
        fs::write(at("real/f"), b"f").expect("written");
        symlink(at("real"), at("link")).expect("linked");
        let real = LocalPath::typed(at("link"));
        assert!(real.join("f".as_ref()).metadata().is_ok(), "what was typed is followed");
        assert_eq!(real.names().expect("listed"), ["f"]);
        let link = LocalPath::typed(dir.path()).join("link".as_ref());
        let kind = |found: io::Result<()>| found.map_err(|error| error.kind());
        let refused = Err(io::ErrorKind::NotADirectory);
        assert_eq!(kind(link.join("f".as_ref()).metadata().map(drop)), refused);
        assert_eq!(kind(link.join("new".as_ref()).make_directory()), refused);
        assert_eq!(kind(link.make_directory()), refused);
        assert_eq!(kind(link.names().map(drop)), refused);
        link.set_mode(0o700).expect("it has none");
        assert!(link.is_symlink() && link.metadata().expect("there").is_dir());
        assert_eq!(link.read_link().expect("a link"), at("real").into_os_string().into_vec());
        link.clear().expect("removed");
        link.make_directory().expect("made");
        assert_eq!(link.names().expect("listed"), Vec::<OsString>::new());
        assert_eq!(fs::read(at("real/f")).expect("still there"), b"f");
    }

    #[test]
    fn a_path_may_be_longer_than_the_system_takes() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut path = LocalPath::typed(dir.path());
        for _ in 0..25 {
            path = path.join("d".repeat(200).as_ref());
            path.make_directory().expect("made");
        }
        assert!(path.whole().as_os_str().len() > 5000);
        path.set_mode(0o750).expect("set");
        assert_eq!(path.itself().expect("there").permissions().mode() & 0o777, 0o750);
        assert!(path.join("none".as_ref()).metadata().is_err());
        // Removed from its end, as the standard library would stop at its length.
        while path.as_typed().is_none() {
            let held = path.held().expect("there");
            unlinkat(held.directory(), &held.name, AtFlags::REMOVEDIR).expect("removed");
            path.below.pop();
        }
    }
}
