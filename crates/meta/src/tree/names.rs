//! Rules for names and paths. Pure.
//!
//! File and directory names are bytes: 1 to 255 of them, without `/` and NUL, and not `.` or `..`. They need
//! not be UTF-8. A path is names joined by `/`, at most 4096 bytes; the root is the empty path. Volumes and
//! drives have names of 1 to 64 ASCII letters, digits, `.`, `_` and `-`, beginning with a letter or digit, so
//! that they can stand in a URL and a shell.

use braid_wire::{Reason, Refusal};

use crate::records::schema::InodeRecord;

/// Longest name of a file or directory, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path, in bytes.
pub const PATH_BYTES_MAX: usize = 4096;
/// Longest name of a volume or drive, in bytes.
pub const LABEL_BYTES_MAX: usize = 64;

/// The names in a path, from the root; none for the root itself.
pub fn split(path: &[u8]) -> Result<Vec<&[u8]>, Refusal> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    if path.len() > PATH_BYTES_MAX {
        let detail = format!("path of {} bytes: at most {PATH_BYTES_MAX} are allowed", path.len());
        return Err(Refusal::new(Reason::BadName, detail));
    }
    let names: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    names.iter().try_for_each(|name| check_name(name, path))?;
    Ok(names)
}

/// The path of a new or removed entry: its directory's names, and its own. The root is refused.
pub fn split_last(path: &[u8]) -> Result<(Vec<&[u8]>, &[u8]), Refusal> {
    let mut names = split(path)?;
    match names.pop() {
        Some(last) => Ok((names, last)),
        None => {
            Err(Refusal::new(Reason::BadName, "the volume's root itself cannot be made, moved or removed"))
        }
    }
}

/// Checks the name of a volume or drive; `what` says which, for the message.
pub fn check_label(what: &str, label: &str) -> Result<(), Refusal> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let begins = label.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && label.len() <= LABEL_BYTES_MAX && label.bytes().all(allowed) {
        return Ok(());
    }
    let rule = "1 to 64 ASCII letters, digits, '.', '_' or '-', the first a letter or digit";
    Err(Refusal::new(Reason::BadName, format!("{what} name {label:?} is not allowed: use {rule}")))
}

/// A path or name as shown to users: bytes that are not UTF-8 are replaced.
pub fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// A file as shown to users: its name, or what it is for a snapshot.
pub fn show_file(inode: &InodeRecord) -> String {
    if inode.is_frozen() {
        return format!("file {} as a snapshot shows it", inode.frozen);
    }
    show(&inode.name)
}

fn check_name(name: &[u8], path: &[u8]) -> Result<(), Refusal> {
    let wrong = match name {
        b"" => "has an empty name in it (two slashes in a row, or one at its beginning or end)".to_owned(),
        b"." | b".." => format!("has the name {:?} in it, which is not allowed", show(name)),
        name if name.contains(&0) => "has a NUL byte in it".to_owned(),
        name if name.len() > NAME_BYTES_MAX => {
            format!("has a name of {} bytes in it; at most {NAME_BYTES_MAX} are allowed", name.len())
        }
        _ => return Ok(()),
    };
    Err(Refusal::new(Reason::BadName, format!("path {:?} {wrong}", show(path))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_names_joined_by_slashes() {
        let long = [vec![b'x'; 256], vec![b'x'; 255]];
        let deep = [b"ab/".repeat(1366), b"ab/".repeat(1364)];
        let cases: &[(&[u8], Option<usize>)] = &[
            (b"", Some(0)),
            (b"a", Some(1)),
            (b"a/b/c.txt", Some(3)),
            (b"\xff\xfe", Some(1)),
            (b"...", Some(1)),
            (b"/a", None),
            (b"a/", None),
            (b"a//b", None),
            (b"/", None),
            (b"..", None),
            (b"a/../b", None),
            (b"./a", None),
            (b"a\0b", None),
            (&long[0], None),
            (&long[1], Some(1)),
            (&deep[0][..4097], None),
            (&deep[1][..4091], Some(1364)),
        ];
        for (path, names) in cases {
            let found = split(path);
            assert_eq!(found.as_ref().ok().map(Vec::len), *names, "{:?}", show(path));
            if let Err(refusal) = found {
                assert_eq!(refusal.reason, Reason::BadName);
            }
        }
        assert_eq!(split_last(b"").unwrap_err().reason, Reason::BadName);
    }

    #[test]
    fn labels_fit_urls_and_shells() {
        for good in ["main", "drive-1", "a", "0.x_y", &"v".repeat(64)] {
            assert!(check_label("volume", good).is_ok(), "{good}");
        }
        for bad in ["", "-x", ".x", "a/b", "a b", "ä", "a\0", &"v".repeat(65)] {
            assert_eq!(check_label("volume", bad).unwrap_err().reason, Reason::BadName, "{bad}");
        }
    }
}
