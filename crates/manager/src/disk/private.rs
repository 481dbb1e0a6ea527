//! Only the owner may access the manager's directory: it holds tokens and the drives' keys.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// The permission bits of the group and of others.
const OTHERS: u32 = 0o077;

/// Makes the directory and its missing parents, for their owner only.
pub(crate) fn make_dir_all(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Removes all access for others from the directory and the files in it. If a mode cannot be changed, it logs
/// that and goes on.
pub(crate) fn tighten(dir: &Path) {
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    for path in std::iter::once(dir.to_owned()).chain(files.map(|entry| entry.path())) {
        if let Err(error) = tighten_one(&path) {
            tracing::warn!(path = %path.display(), %error, "others may be able to read this: its mode cannot be tightened");
        }
    }
}

fn tighten_one(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 {
        Ok(())
    } else {
        fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_its_owners_also_one_that_was_open_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("a/b");
        let file = dir.path().join("a/b/join.token");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        make_dir_all(&new).unwrap();
        assert_eq!((mode(&new), mode(new.parent().unwrap())), (0o700, 0o700));
        fs::write(&file, "secret").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(&new, Permissions::from_mode(0o755)).unwrap();
        tighten(&new);
        assert_eq!((mode(&new), mode(&file)), (0o700, 0o600));
    }
}
