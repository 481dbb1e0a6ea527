//! The part of a drive's log that the manager was told of. A drive that returns without this part is found
//! out. If records after it are damaged or gone, that looks like a crash's torn tail (PROTOCOL R9); so
//! disks lose only records that the manager was told of.

use std::collections::{BTreeMap, VecDeque};

use braid_store::disk::memory::Memory;

/// Least time between two marks.
const PAUSE_MS: u64 = 100;
/// Bytes that are damaged together: a record begins with such a sector.
const SECTOR: usize = 512;

/// A disk's segments as they were at some positions of its log.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    marks: VecDeque<(u64, BTreeMap<String, Vec<u8>>)>,
    next_ms: u64,
}

impl Marks {
    /// Marks the disk's state now and then. `state` returns the numbers of the log's last record, and of
    /// the last one that the manager knows of.
    pub(crate) fn look(&mut self, now_ms: u64, disk: &Memory, state: impl FnOnce() -> (u64, u64)) {
        if now_ms < self.next_ms {
            return;
        }
        self.next_ms = now_ms + PAUSE_MS;
        let (log, told) = state();
        if self.marks.back().is_none_or(|(last, _)| *last != log) {
            self.marks.push_back((log, contents(disk)));
        }
        while self.marks.get(1).is_some_and(|(next, _)| *next <= told) {
            self.marks.pop_front();
        }
    }

    /// Returns true if the sector of this byte is as it was when the manager was told of everything before.
    pub(crate) fn is_told(&self, told: u64, name: &str, byte: usize, content: &[u8]) -> bool {
        let sector = |content: &[u8]| {
            let from = byte / SECTOR * SECTOR;
            content.get(from..content.len().min(from + SECTOR)).map(<[u8]>::to_vec)
        };
        let mark = self.marks.front().filter(|(log, _)| *log <= told);
        mark.and_then(|(_, files)| sector(files.get(name)?)).is_some_and(|was| Some(was) == sector(content))
    }
}

/// The names of a disk's segments.
pub(crate) fn segments(disk: &Memory) -> Vec<String> {
    disk.files().into_iter().filter(|name| name.ends_with(".seg")).collect()
}

fn contents(disk: &Memory) -> BTreeMap<String, Vec<u8>> {
    let content = |name: String| Some((disk.content(&name)?, name));
    segments(disk).into_iter().filter_map(content).map(|(content, name)| (name, content)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_manager_was_told_of_and_is_still_there_counts() {
        let disk = Memory::new(1);
        let mut marks = Marks::default();
        let name = "log/00000001.seg";
        let mut content = vec![1; 3 * SECTOR];
        disk.plant(name, &content[..SECTOR]);
        marks.look(0, &disk, || (5, 4));
        assert!(!marks.is_told(4, name, 9, &content), "of position 5 it was not told");
        assert!(marks.is_told(5, name, 9, &content));
        disk.plant(name, &content);
        marks.look(PAUSE_MS - 1, &disk, || unreachable!("it looks now and then"));
        marks.look(PAUSE_MS, &disk, || (7, 5));
        assert!(marks.is_told(5, name, 9, &content) && !marks.is_told(5, name, SECTOR, &content));
        marks.look(2 * PAUSE_MS, &disk, || (7, 7));
        assert!(marks.is_told(7, name, SECTOR, &content));
        content[SECTOR + 1] = 2;
        assert!(!marks.is_told(7, name, SECTOR, &content), "it was written anew");
        assert!(!marks.is_told(7, "log/00000002.seg", SECTOR, &content));
    }
}
