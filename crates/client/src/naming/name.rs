//! Remote names: `braid://VOLUME/PATH`, and `braid://VOLUME@SNAPSHOT/PATH` for what a snapshot shows.
//!
//! A path is bytes: components joined by `/`, relative to the volume's root, which is the empty path. A
//! component has 1 to 255 bytes without `/` and NUL, and is not `.` or `..`. There is no percent-encoding:
//! the bytes after the volume are the path. A path need not be UTF-8 ([`Name::parse`]); program arguments in
//! UTF-8 can be parsed too ([`std::str::FromStr`]).

use std::fmt;
use std::str::FromStr;

use braid_layout::FileId;
use braid_wire::control::{NamePlace, PATH_BYTES_MAX as ASKED_BYTES_MAX, StatRow};

/// The prefix of every remote name.
pub const PREFIX: &str = "braid://";
/// Longest path component, in bytes.
pub const COMPONENT_BYTES_MAX: usize = 255;
/// Longest path, in bytes. A path made step by step, as through a mount, can be longer than a request can
/// hold: it is looked up in parts.
pub const PATH_BYTES_MAX: usize = 64 << 10;
/// Longest volume name, in bytes.
pub const VOLUME_BYTES_MAX: usize = 64;

/// A volume and a path in it. Valid by construction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    volume: String,
    /// Name of the snapshot that the path leads into; empty: none.
    snapshot: String,
    /// Number of the snapshot in which `from` is; 0: none.
    number: u32,
    /// The directory or file from which the path leads; 0: the volume's root.
    from: FileId,
    path: Vec<u8>,
}

/// Reason for which bytes are not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text does not begin with `braid://`.
    #[error("it must look like braid://VOLUME/PATH")]
    Prefix,
    /// The volume's name is empty, too long, or holds something other than letters, digits, `-`, `_` and `.`.
    #[error(
        "a volume's name has 1 to 64 letters, digits, '-', '_' or '.', and begins with a letter or digit"
    )]
    Volume,
    /// The snapshot's name is empty, too long, or holds something other than letters, digits, `-`, `_`, `.`.
    #[error(
        "a snapshot's name, after the '@', has 1 to 64 letters, digits, '-', '_' or '.', and begins with a letter \
         or digit"
    )]
    Snapshot,
    /// Two slashes in a row.
    #[error("a path cannot have an empty component: remove the double '/'")]
    EmptyComponent,
    /// A component that is `.` or `..`.
    #[error("'.' and '..' are not names: write the path out")]
    Dots,
    /// A component with a NUL byte.
    #[error("a name cannot hold a NUL byte")]
    Nul,
    /// A component over 255 bytes.
    #[error("a path component of {0} bytes is over the bound of {COMPONENT_BYTES_MAX}")]
    ComponentLength(usize),
    /// A path that is too long.
    #[error("a path of {0} bytes is over the bound of {PATH_BYTES_MAX}")]
    PathLength(usize),
}

impl Name {
    /// A name from its parts. Drops one slash at the beginning and one at the end of the path.
    pub fn new(volume: &str, path: &[u8]) -> Result<Name, NameError> {
        check_volume(volume)?;
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let path = path.strip_suffix(b"/").unwrap_or(path);
        if path.len() > PATH_BYTES_MAX {
            return Err(NameError::PathLength(path.len()));
        }
        if !path.is_empty() {
            path.split(|&byte| byte == b'/').try_for_each(check_component)?;
        }
        Ok(Name {
            volume: volume.to_owned(),
            snapshot: String::new(),
            number: 0,
            from: FileId(0),
            path: path.to_vec(),
        })
    }

    /// The same name in the snapshot of this name: that of the first directory on the path that has one.
    pub fn in_snapshot(&self, snapshot: &str) -> Result<Name, NameError> {
        check_volume(snapshot).map_err(|_| NameError::Snapshot)?;
        Ok(Name { snapshot: snapshot.to_owned(), ..self.clone() })
    }

    /// Another path from the same beginning: the volume's root, or that in the snapshot. Drops one slash at
    /// the beginning and one at the end of the path.
    pub fn with_path(&self, path: &[u8]) -> Result<Name, NameError> {
        Ok(Name { path: Name::new(&self.volume, path)?.path, ..self.clone() })
    }

    /// The same name as it is now, in no snapshot.
    pub fn in_no_snapshot(&self) -> Name {
        Name { snapshot: String::new(), number: 0, ..self.clone() }
    }

    /// A name for the file or directory of this number, whatever its path is by now.
    pub fn number(volume: &str, file: FileId) -> Result<Name, NameError> {
        Ok(Name { from: file, ..Name::root(volume)? })
    }

    /// A name for the file or directory of this number, as the volume's snapshot of a number shows it; 0: as
    /// it is now.
    pub fn number_in(volume: &str, file: FileId, snapshot: u32) -> Result<Name, NameError> {
        Ok(Name { number: snapshot, ..Name::number(volume, file)? })
    }

    /// The name of a volume's root.
    pub fn root(volume: &str) -> Result<Name, NameError> {
        Name::new(volume, b"")
    }

    /// Parses the bytes `braid://VOLUME/PATH`; the path need not be UTF-8.
    pub fn parse(text: &[u8]) -> Result<Name, NameError> {
        let rest = text.strip_prefix(PREFIX.as_bytes()).ok_or(NameError::Prefix)?;
        let slash = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let volume = std::str::from_utf8(&rest[..slash]).map_err(|_| NameError::Volume)?;
        match volume.split_once('@') {
            None => Name::new(volume, &rest[slash..]),
            Some((volume, snapshot)) => Name::new(volume, &rest[slash..])?.in_snapshot(snapshot),
        }
    }

    /// Returns true if the text begins with `braid://`, and so is meant as a remote name.
    pub fn is_remote(text: &[u8]) -> bool {
        text.starts_with(PREFIX.as_bytes())
    }

    /// The volume's name.
    pub fn volume(&self) -> &str {
        &self.volume
    }

    /// The name of the snapshot that the path leads into, if it names one.
    pub fn snapshot(&self) -> Option<&str> {
        if self.snapshot.is_empty() { None } else { Some(&self.snapshot) }
    }

    /// The volume's name, with `@` and the snapshot's name if there is one.
    pub fn label(&self) -> String {
        if self.snapshot.is_empty() {
            self.volume.clone()
        } else {
            format!("{}@{}", self.volume, self.snapshot)
        }
    }

    /// The path: components joined by `/`; empty for the root.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns true if this is the volume's root.
    pub fn is_root(&self) -> bool {
        self.path.is_empty() && self.from == FileId(0)
    }

    /// The last component; `None` for the root.
    pub fn file_name(&self) -> Option<&[u8]> {
        if self.path.is_empty() { None } else { self.path.rsplit(|&byte| byte == b'/').next() }
    }

    /// The directory that holds it; `None` for the root.
    pub fn parent(&self) -> Option<Name> {
        if self.path.is_empty() {
            return None;
        }
        let end = self.path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        Some(Name { path: self.path[..end].to_vec(), ..self.clone() })
    }

    /// The name of `component` in this directory.
    pub fn join(&self, component: &[u8]) -> Result<Name, NameError> {
        check_component(component)?;
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(component);
        Ok(Name { path: Name::new(&self.volume, &path)?.path, ..self.clone() })
    }

    /// The name in the form for the manager. A path that is too long for a request is an error, which has the
    /// name cut in two: the first part as a name, and the rest as a path from there.
    pub(crate) fn place(&self) -> Result<NamePlace, (Name, Vec<u8>)> {
        if self.path.len() <= ASKED_BYTES_MAX {
            return Ok(NamePlace {
                volume: self.label(),
                from: self.from,
                path: self.path.clone(),
                snapshot: self.number,
            });
        }
        let cut = self.path[..=ASKED_BYTES_MAX].iter().rposition(|&byte| byte == b'/');
        let cut = cut.expect("no component is so long");
        let above = Name { path: self.path[..cut].to_vec(), ..self.clone() };
        Err((above, self.path[cut + 1..].to_vec()))
    }

    /// The name of `path`, relative to this file or directory of the same volume, as it was found.
    pub fn beneath(&self, from: &StatRow, path: Vec<u8>) -> Name {
        Name { from: from.file, number: from.snapshot, path, ..self.clone() }
    }
}

/// Checks a volume's name.
pub fn check_volume(volume: &str) -> Result<(), NameError> {
    let bytes = volume.as_bytes();
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let first = bytes.first().is_some_and(u8::is_ascii_alphanumeric);
    if first && bytes.len() <= VOLUME_BYTES_MAX && bytes.iter().all(good) {
        Ok(())
    } else {
        Err(NameError::Volume)
    }
}

fn check_component(component: &[u8]) -> Result<(), NameError> {
    match component {
        b"" => Err(NameError::EmptyComponent),
        b"." | b".." => Err(NameError::Dots),
        _ if component.len() > COMPONENT_BYTES_MAX => Err(NameError::ComponentLength(component.len())),
        _ if component.contains(&0) => Err(NameError::Nul),
        _ if component.contains(&b'/') => Err(NameError::EmptyComponent),
        _ => Ok(()),
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Name, NameError> {
        Name::parse(text.as_bytes())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = String::from_utf8_lossy(&self.path);
        write!(f, "{PREFIX}{}", self.label())?;
        match (self.from, path.as_ref()) {
            (FileId(0), path) => write!(f, "/{path}"),
            (from, "") => write!(f, "/(number {from})"),
            (from, path) => write!(f, "/(number {from})/{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &[u8], expected: Result<(&str, &[u8]), NameError>) {
        let found = Name::parse(text);
        let found = found.as_ref().map(|name| (name.volume(), name.path())).map_err(|error| *error);
        assert_eq!(found, expected, "{}", String::from_utf8_lossy(text));
    }

    #[test]
    fn names_that_are_good() {
        check(b"braid://main", Ok(("main", b"")));
        check(b"braid://main/", Ok(("main", b"")));
        check(b"braid://main/a", Ok(("main", b"a")));
        check(b"braid://main/a/b%20c/", Ok(("main", b"a/b%20c")));
        check(b"braid://v-1/\xff\xfe", Ok(("v-1", b"\xff\xfe")));
        check(b"braid://main/...", Ok(("main", b"...")));
    }

    #[test]
    fn names_that_are_refused() {
        check(b"main/a", Err(NameError::Prefix));
        check(b"braid:///a", Err(NameError::Volume));
        check(b"braid://ma in/a", Err(NameError::Volume));
        check(b"braid://.x/a", Err(NameError::Volume));
        check(b"braid://main//a", Err(NameError::EmptyComponent));
        check(b"braid://main/a//b", Err(NameError::EmptyComponent));
        check(b"braid://main/a/../b", Err(NameError::Dots));
        check(b"braid://main/.", Err(NameError::Dots));
        check(b"braid://main/a\0b", Err(NameError::Nul));
        check(&[b"braid://main/".as_slice(), &[b'x'; 256]].concat(), Err(NameError::ComponentLength(256)));
        check(
            &[b"braid://main/".as_slice(), &b"xy/".repeat(22_000)].concat(),
            Err(NameError::PathLength(65_999)),
        );
    }

    #[test]
    fn a_name_may_lead_into_a_snapshot() {
        let name: Name = "braid://main@a-1/d/f".parse().expect("good");
        assert_eq!((name.volume(), name.snapshot(), name.path()), ("main", Some("a-1"), b"d/f".as_slice()));
        assert_eq!(name.to_string(), "braid://main@a-1/d/f");
        let below = name.parent().expect("a directory").join(b"g").expect("good");
        assert_eq!(below.place().expect("short").volume, "main@a-1", "what is below is in it too");
        assert_eq!(Name::parse(b"braid://main/d@a").expect("good").snapshot(), None, "a path may hold any");
        for odd in
            [&b"braid://main@/f"[..], b"braid://main@a@b/f", b"braid://main@-/f", b"braid://main@\xc3\xa4/f"]
        {
            assert_eq!(Name::parse(odd), Err(NameError::Snapshot), "{}", String::from_utf8_lossy(odd));
        }
    }

    #[test]
    fn a_double_slash_at_the_front_is_refused_everywhere() {
        assert_eq!(Name::new("main", b"//a"), Err(NameError::EmptyComponent));
    }

    #[test]
    fn a_path_that_no_request_holds_is_cut_between_two_names() {
        let name = |path: &[u8]| Name::new("main", path).expect("good");
        let fits = [&b"xy/".repeat(1365)[..], b"x"].concat();
        assert_eq!(fits.len(), ASKED_BYTES_MAX);
        assert_eq!(name(&fits).place().map(|place| place.path), Ok(fits.clone()));
        let longer = [&fits[..], b"y/z"].concat();
        let cut = |path: &[u8]| name(path).place().expect_err("too long");
        assert_eq!(cut(&longer), (name(&fits[..fits.len() - 2]), b"xy/z".to_vec()));
        assert_eq!(cut(&[&fits[..], b"/z"].concat()), (name(&fits), b"z".to_vec()));
    }

    #[test]
    fn parts_of_a_name() {
        let name: Name = "braid://main/a/b".parse().expect("good");
        assert_eq!(name.file_name(), Some(b"b".as_slice()));
        let parent = name.parent().expect("not the root");
        assert_eq!(parent.to_string(), "braid://main/a");
        assert_eq!(parent.join(b"b"), Ok(name));
        assert_eq!(parent.join(b"b/c"), Err(NameError::EmptyComponent));
        assert!(parent.parent().expect("not the root").is_root());
        assert_eq!(parent.parent().and_then(|root| root.parent()), None);
    }
}
