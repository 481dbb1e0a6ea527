//! A local tree of small files, and its comparison with a copy.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::operation::FILE_BYTES;
use crate::content::fill;
use crate::error::{Doing, Error};

/// The form of a tree: files of 4 KiB, with the same number in each directory; the last may have fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    /// Number of files in the tree.
    pub files: u64,
    /// Number of files in a directory.
    pub each: u64,
}

impl Tree {
    fn path(self, root: &Path, file: u64) -> PathBuf {
        root.join(format!("d{}", file / self.each)).join(format!("f{file}"))
    }
}

/// Makes a tree at `root`, which does not exist yet.
pub fn make_tree(root: &Path, tree: Tree, stop: &AtomicBool) -> Result<(), Error> {
    fs::create_dir(root).doing("make a tree")?;
    let mut bytes = vec![0; usize::try_from(FILE_BYTES).expect("it is small")];
    for file in 0..tree.files {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let path = tree.path(root, file);
        if let Some(directory) = path.parent().filter(|_| file % tree.each == 0) {
            fs::create_dir(directory).doing("make a tree")?;
        }
        fill(file, &mut bytes);
        fs::write(&path, &bytes).doing("make a tree's file")?;
    }
    Ok(())
}

/// Number of files of the tree that are in its copy with the right bytes.
pub fn count_same(copy: &Path, tree: Tree, stop: &AtomicBool) -> Result<u64, Error> {
    let mut expected = vec![0; usize::try_from(FILE_BYTES).expect("it is small")];
    let mut same = 0;
    for file in 0..tree.files {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        fill(file, &mut expected);
        match fs::read(tree.path(copy, file)) {
            Ok(bytes) => same += u64::from(bytes == expected),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).doing("read a tree's copy"),
        }
    }
    Ok(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_its_own_copy_until_a_byte_changes() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("tree");
        let stop = AtomicBool::new(false);
        let tree = Tree { files: 7, each: 3 };
        make_tree(&root, tree, &stop).expect("made");
        assert_eq!(fs::read_dir(&root).expect("read").count(), 3);
        assert_eq!(count_same(&root, tree, &stop).expect("counted"), 7);
        fs::write(root.join("d1/f4"), "other").expect("written");
        fs::remove_file(root.join("d2/f6")).expect("removed");
        assert_eq!(count_same(&root, tree, &stop).expect("counted"), 5);
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(count_same(&root, tree, &stop), Err(Error::Stopped)));
    }
}
