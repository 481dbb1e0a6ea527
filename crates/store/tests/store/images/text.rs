//! The text form of images and damage, and their files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use braid_store::disk::Disk;
use braid_store::disk::memory::Memory;

/// The files of a store, by name.
pub(super) type Image = BTreeMap<String, Vec<u8>>;

/// A change to an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Patch {
    /// Other bytes at an offset. The file grows if it is shorter.
    Put { file: String, offset: usize, bytes: Vec<u8> },
    /// The file is cut here.
    Cut { file: String, length: usize },
    /// The file is missing.
    Remove { file: String },
}

/// Bytes of one line of an image.
const LINE: usize = 32;

/// `FILE LENGTH bytes`, then a line per block of 32 bytes that is not all zero: its offset, and its bytes
/// without leading and trailing zeros.
pub(super) fn image_text(image: &Image) -> String {
    let mut out = String::new();
    for (name, bytes) in image {
        writeln!(out, "{name} {} bytes", bytes.len()).expect("a string");
        for (line, chunk) in bytes.chunks(LINE).enumerate() {
            let Some(first) = chunk.iter().position(|&byte| byte != 0) else { continue };
            let last = chunk.iter().rposition(|&byte| byte != 0).unwrap_or(first);
            writeln!(out, "{:7} {}", LINE * line + first, hex(&chunk[first..=last])).expect("a string");
        }
    }
    out
}

pub(super) fn parse_image(text: &str) -> Image {
    let mut image = Image::new();
    let mut bytes = &mut Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [name, length, "bytes"] => {
                bytes = image.entry(name.to_owned()).or_default();
                bytes.resize(length.parse().expect("a length"), 0);
            }
            [offset, own] => put(bytes, offset.parse().expect("an offset"), &unhex(own)),
            _ => panic!("no line of an image: {line}"),
        }
    }
    image
}

pub(super) fn patch_text(patches: &[Patch]) -> String {
    let line = |patch: &Patch| match patch {
        Patch::Put { file, offset, bytes } => format!("put {file} {offset} {}\n", hex(bytes)),
        Patch::Cut { file, length } => format!("cut {file} {length}\n"),
        Patch::Remove { file } => format!("remove {file}\n"),
    };
    patches.iter().map(line).collect()
}

pub(super) fn parse_patches<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Patch> {
    let parse = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["put", file, offset, bytes] => Patch::Put {
            file: file.to_owned(),
            offset: offset.parse().expect("an offset"),
            bytes: unhex(bytes),
        },
        ["cut", file, length] => {
            Patch::Cut { file: file.to_owned(), length: length.parse().expect("a length") }
        }
        ["remove", file] => Patch::Remove { file: file.to_owned() },
        _ => panic!("no patch: {line}"),
    };
    lines.map(parse).collect()
}

/// The damaged image.
pub(super) fn patched(image: &Image, patches: &[Patch]) -> Image {
    let mut image = image.clone();
    for patch in patches {
        match patch {
            Patch::Put { file, offset, bytes } => put(image.get_mut(file).expect("a file"), *offset, bytes),
            Patch::Cut { file, length } => image.get_mut(file).expect("a file").truncate(*length),
            Patch::Remove { file } => drop(image.remove(file).expect("a file")),
        }
    }
    image
}

fn put(bytes: &mut Vec<u8>, offset: usize, own: &[u8]) {
    bytes.resize(bytes.len().max(offset + own.len()), 0);
    bytes[offset..offset + own.len()].copy_from_slice(own);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Returns true if the committed files are to be rewritten: only for a new format version.
pub(super) fn is_written_anew() -> bool {
    std::env::var_os("BRAID_GOLDEN").is_some_and(|value| value == "write")
}

/// A golden file of this folder.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/images").join(name)
}

/// The committed file of this name.
pub(super) fn golden(name: &str) -> String {
    std::fs::read_to_string(path(name)).expect("a golden file")
}

/// Check that `text` equals the committed file of this name.
pub(super) fn check_golden(name: &str, text: &str, why: &str) {
    let path = path(name);
    if is_written_anew() {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("make the directory");
        std::fs::write(&path, text).expect("write the golden file");
    }
    let golden = golden(name);
    let lines = |of: &str, not_in: &str, sign: char| -> String {
        of.lines()
            .filter(|line| !not_in.lines().any(|other| other == *line))
            .fold(String::new(), |all, line| all + &format!("{sign} {line}\n"))
    };
    let gone = lines(&golden, text, '-');
    let new = lines(text, &golden, '+');
    assert!(text == golden, "{name}: {why}\n{gone}{new}");
}

/// The image on a disk in memory.
pub(super) fn in_memory(image: &Image) -> Memory {
    let disk = Memory::new(1);
    for dir in ["log", "checkpoint"] {
        disk.make_dir(dir).expect("make a directory");
    }
    image.iter().for_each(|(name, bytes)| disk.plant(name, bytes));
    disk.after_kill(1)
}

/// The image in a directory.
pub(super) fn in_directory(image: &Image) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for folder in ["log", "checkpoint"] {
        std::fs::create_dir(dir.path().join(folder)).expect("make a directory");
    }
    for (name, bytes) in image {
        std::fs::write(dir.path().join(name), bytes).expect("write a file");
    }
    dir
}

/// All files of a disk in memory.
pub(super) fn image_of(disk: &Memory) -> Image {
    disk.files().into_iter().map(|name| (name.clone(), disk.content(&name).expect("a file"))).collect()
}
