//! The machine and directories of a run, without which its figures mean nothing.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::system::uname;
use serde::Serialize;

use crate::error::{Doing, Error};

#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The processor's model name.
    pub cpu: String,
    /// Processors that this process may use.
    pub cpus: usize,
    /// Bytes of memory in the machine.
    pub memory_bytes: u64,
    /// Release of the kernel.
    pub kernel: String,
    pub architecture: String,
    /// Load averages over 1, 5 and 15 minutes when the run began: other load on the machine.
    pub load_before: String,
    /// Load averages over 1, 5 and 15 minutes when the run ended.
    pub load_after: String,
}

impl Machine {
    /// Describes this machine now.
    pub(crate) fn here() -> Machine {
        let name = uname();
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Machine {
            cpu: field(&cpus, "model name").unwrap_or("unknown").to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: bytes(&memory, "MemTotal").unwrap_or_default(),
            kernel: name.release().to_string_lossy().into_owned(),
            architecture: name.machine().to_string_lossy().into_owned(),
            load_before: load(),
            load_after: String::new(),
        }
    }
}

/// The three load averages, as the kernel prints them.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<&str>>().join(" ")
}

/// Bytes of memory that can be taken without harm to other processes: the memory that the system has
/// available, within the container's limit.
pub fn available_bytes() -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").unwrap_or_default();
    let limit = limit.trim().parse().unwrap_or(u64::MAX);
    bytes(&memory, "MemAvailable").unwrap_or_default().min(limit)
}

/// The value of `name: value kB`.
fn bytes(table: &str, name: &str) -> Option<u64> {
    let kib: u64 = field(table, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The value of `name: value` in one of the kernel's tables.
fn field<'a>(table: &'a str, name: &str) -> Option<&'a str> {
    let line = table.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start().strip_prefix(':')?.trim())
}

/// A directory to measure in.
#[derive(Debug, Clone, Serialize)]
pub struct MeasuredDir {
    /// Name of the directory in rows: the type of its file system, numbered if several directories have the
    /// same.
    pub label: String,
    /// Path of the directory.
    pub directory: PathBuf,
    /// Type of the file system.
    pub file_system: String,
    /// Size of the file system in bytes.
    pub bytes: u64,
    /// Free bytes when the run began.
    pub free_bytes: u64,
    /// True if the file system is in memory: then no read misses the cache, and nothing can be made
    /// durable.
    pub memory: bool,
}

impl MeasuredDir {
    /// The measured directories, with their labels.
    pub(crate) fn all(directories: &[PathBuf]) -> Result<Vec<MeasuredDir>, Error> {
        let mut places: Vec<MeasuredDir> =
            directories.iter().map(|directory| MeasuredDir::at(directory)).collect::<Result<_, _>>()?;
        let names: Vec<String> = places.iter().map(|place| place.file_system.clone()).collect();
        for (index, place) in places.iter_mut().enumerate() {
            if names.iter().filter(|name| **name == place.file_system).count() > 1 {
                place.label = format!("{} {}", place.file_system, index + 1);
            }
        }
        Ok(places)
    }

    fn at(directory: &Path) -> Result<MeasuredDir, Error> {
        let stat = rustix::fs::statfs(directory).doing("look at a file system")?;
        let block = u64::try_from(stat.f_frsize).unwrap_or_default();
        let file_system = file_system(u64::try_from(stat.f_type).unwrap_or_default());
        Ok(MeasuredDir {
            label: file_system.clone(),
            directory: directory.to_owned(),
            memory: matches!(file_system.as_str(), "tmpfs" | "ramfs"),
            file_system,
            bytes: stat.f_blocks.saturating_mul(block),
            free_bytes: stat.f_bavail.saturating_mul(block),
        })
    }
}

/// Name of a file system by its magic number (statfs(2)).
fn file_system(magic: u64) -> String {
    match magic {
        0xef53 => "ext4".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683e => "btrfs".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x8584_58f6 => "ramfs".to_owned(),
        0x794c_7630 => "overlayfs".to_owned(),
        0xf2f5_2010 => "f2fs".to_owned(),
        0x2fc1_2fc1 => "zfs".to_owned(),
        0x6969 => "nfs".to_owned(),
        other => format!("file system {other:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables() {
        let table = "MemTotal:       24684084 kB\nmodel name\t: Some CPU: fast\n";
        assert_eq!(field(table, "MemTotal"), Some("24684084 kB"));
        assert_eq!(field(table, "model name"), Some("Some CPU: fast"));
        assert_eq!(field(table, "Mem"), None);
    }

    #[test]
    fn places_of_one_kind_are_numbered() {
        let one = tempfile::tempdir().expect("a directory");
        let two = tempfile::tempdir().expect("a directory");
        let places = MeasuredDir::all(&[one.path().to_owned(), two.path().to_owned()]).expect("there");
        assert!(places[0].label.ends_with(" 1") && places[1].label.ends_with(" 2"), "{places:?}");
        let alone = MeasuredDir::all(&[one.path().to_owned()]).expect("there");
        assert_eq!(alone[0].label, alone[0].file_system);
        assert!(MeasuredDir::all(&[one.path().join("missing")]).is_err());
    }
}
