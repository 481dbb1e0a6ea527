//! The files that a demo copies: those given, or real ones found on the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::output::exit::{Doing, Exit, Failure};

/// Maximum bytes of all default files together.
const BYTES_MAX: u64 = 320 << 20;
/// Maximum number of default files.
const FILES_MAX: usize = 8;
/// Maximum number of directory entries looked at.
const LOOKS_MAX: usize = 20_000;

/// A file of the demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
}

/// Returns the given files, checked, or else default ones.
pub(crate) fn choose(given: &[PathBuf]) -> Result<Vec<Input>, Failure> {
    if !given.is_empty() {
        return given.iter().map(|path| check(path)).collect();
    }
    for root in roots() {
        let found = largest(&root);
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Err(Failure::new(Exit::NotFound, "find files for the demo", "no libraries in the usual places")
        .remedy("name some: braid demo FILE..."))
}

fn check(path: &Path) -> Result<Input, Failure> {
    let what = || format!("use {}", path.display());
    let metadata = fs::metadata(path).doing(what)?;
    fs::File::open(path).doing(what)?;
    match metadata.is_file() {
        true if metadata.len() > 0 => Ok(Input { path: path.to_owned(), size: metadata.len() }),
        true => Err(Failure::new(Exit::Failed, what(), "it is empty")),
        false => Err(Failure::new(Exit::Conflict, what(), "it is not a file")),
    }
}

/// Directories that hold libraries: the Rust toolchain's, then the system's.
fn roots() -> Vec<PathBuf> {
    let toolchain = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .ok()
        .filter(|output| output.status.success());
    let toolchain = toolchain
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map(|text| Path::new(text.trim()).join("lib"));
    toolchain.into_iter().chain(["/usr/lib", "/usr/bin"].map(PathBuf::from)).collect()
}

/// The largest readable files below `root` that fit the bounds.
fn largest(root: &Path) -> Vec<Input> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    let mut looks = 0;
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.filter_map(Result::ok) {
            looks += 1;
            // The entry's own type: links are not followed, so nothing is visited twice.
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => directories.push(entry.path()),
                Ok(metadata) if metadata.is_file() && metadata.len() > 0 => {
                    found.push(Input { path: entry.path(), size: metadata.len() });
                }
                _ => {}
            }
            if looks == LOOKS_MAX {
                return fit(found);
            }
        }
    }
    fit(found)
}

/// The largest files first, as long as they fit the bounds.
fn fit(mut found: Vec<Input>) -> Vec<Input> {
    found.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.path.cmp(&b.path)));
    let mut left = BYTES_MAX;
    let mut chosen = Vec::new();
    for input in found {
        if chosen.len() < FILES_MAX && input.size <= left && fs::File::open(&input.path).is_ok() {
            left -= input.size;
            chosen.push(input);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_files_are_checked() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let full = dir.path().join("full");
        let empty = dir.path().join("empty");
        fs::write(&full, "abc").expect("written");
        fs::write(&empty, "").expect("written");
        assert_eq!(choose(std::slice::from_ref(&full)).expect("good"), [Input { path: full, size: 3 }]);
        for bad in [empty, dir.path().to_owned(), dir.path().join("missing")] {
            assert!(choose(&[bad]).is_err());
        }
    }

    #[test]
    fn the_largest_that_fit() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for size in 1..=10_usize {
            fs::write(dir.path().join(format!("{size}")), vec![0; size]).expect("written");
        }
        let sizes: Vec<u64> = largest(dir.path()).iter().map(|input| input.size).collect();
        assert_eq!(sizes, [10, 9, 8, 7, 6, 5, 4, 3]);
    }
}
