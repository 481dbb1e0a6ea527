//! One file's bytes: as readers see them, as they are on the medium, and the changes between the two.

use std::collections::BTreeSet;
use std::ops::Range;

use super::random::{Random, Survival};
use super::{FileIdentity, SECTOR};

/// A file's bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bytes {
    cached: Vec<u8>,
    durable: Vec<u8>,
    /// The changes since the last sync, in order.
    unsynced: Vec<Event>,
    /// The numbers of unreadable pages.
    spoilt: BTreeSet<usize>,
}

/// The unit of unreadable bytes, and of those that can be read without waiting.
const PAGE_BYTES: usize = 4096;

#[derive(Debug, Clone)]
enum Event {
    /// New contents of whole sectors from this one on. The last may be cut by the file's end.
    Sectors(usize, Vec<u8>),
    /// The file's new length.
    Length(usize),
}

impl Bytes {
    pub(crate) fn durable(bytes: Vec<u8>) -> Bytes {
        Bytes { cached: bytes.clone(), durable: bytes, ..Bytes::default() }
    }

    pub(crate) fn cached(&self) -> &[u8] {
        &self.cached
    }

    pub(crate) fn length(&self) -> u64 {
        u64::try_from(self.cached.len()).unwrap_or(u64::MAX)
    }

    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let old = self.cached.len();
        let end = at + bytes.len();
        if end > old {
            self.cached.resize(end, 0);
            self.unsynced.push(Event::Length(end));
        }
        self.cached[at..end].copy_from_slice(bytes);
        self.spoilt.retain(|page| !(at / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).contains(page));
        self.changed(at.min(old), end);
    }

    pub(crate) fn spoil(&mut self, range: Range<u64>) {
        let page = |byte: u64| usize::try_from(byte).expect("memory") / PAGE_BYTES;
        self.spoilt.extend(page(range.start)..=page(range.end.saturating_sub(1)));
    }

    pub(crate) fn is_spoilt(&self, range: Range<usize>) -> bool {
        let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        !range.is_empty() && self.spoilt.range(pages).next().is_some()
    }

    pub(crate) fn set_length(&mut self, length: usize) {
        let old = self.cached.len();
        self.unsynced.push(Event::Length(length));
        self.cached.resize(length, 0);
        if length < old {
            // Bytes cut off read as zeros if the file grows again.
            let first = length.div_ceil(SECTOR);
            let zeros = vec![0; old.saturating_sub(first * SECTOR)];
            self.unsynced.push(Event::Sectors(first, zeros));
        }
        self.changed(length.saturating_sub(1), length);
    }

    /// Record the new contents of a range's sectors.
    fn changed(&mut self, from: usize, to: usize) {
        let first = from / SECTOR;
        let end = to.next_multiple_of(SECTOR).min(self.cached.len());
        self.unsynced.push(Event::Sectors(first, self.cached[first * SECTOR..end].to_vec()));
    }

    pub(crate) fn sync(&mut self) {
        // The cost is that of the appended bytes, as long as a file is only appended to.
        for event in std::mem::take(&mut self.unsynced) {
            match event {
                Event::Sectors(first, bytes) => put(&mut self.durable, first * SECTOR, &bytes),
                Event::Length(length) => self.durable.resize(length, 0),
            }
        }
        self.durable.resize(self.cached.len(), 0);
    }

    /// Fails a sync: any part of the changes is on the medium, and the rest, though it looks written, is
    /// never retried.
    pub(crate) fn fail_sync(&mut self, random: &mut Random) {
        self.durable = self.medium(random);
        self.unsynced.clear();
    }

    /// Reread clean bytes from the medium.
    pub(crate) fn drop_cache(&mut self) {
        let length = self.cached.len();
        let dirty = std::mem::take(&mut self.unsynced);
        self.cached.clone_from(&self.durable);
        for event in &dirty {
            if let Event::Sectors(first, bytes) = event {
                put(&mut self.cached, first * SECTOR, bytes);
            }
        }
        self.cached.resize(length, 0);
        self.unsynced = dirty;
    }

    /// Flip one bit on the medium; returns whether that bit exists.
    pub(crate) fn rot(&mut self, bit: u64) -> bool {
        let byte = usize::try_from(bit / 8).ok().and_then(|at| self.durable.get_mut(at));
        byte.map(|byte| *byte ^= 1 << (bit % 8)).is_some()
    }

    /// The file as it was at its last sync.
    pub(crate) fn as_synced(&self) -> Bytes {
        Bytes::durable(self.durable.clone())
    }

    /// The file after a power cut.
    pub(crate) fn survivors(&self, random: &mut Random) -> Bytes {
        Bytes::durable(self.medium(random))
    }

    /// The medium's contents, if `random` decides which unsynced sectors reached it.
    fn medium(&self, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let mut lengths = vec![self.durable.len()];
        let mut survival = random.survival();
        let partial = survival.is_partial();
        let all = survival == Survival::All;
        for event in &self.unsynced {
            match event {
                &Event::Length(length) => lengths.push(length),
                Event::Sectors(first, written) => {
                    for (sector, written) in (*first..).zip(written.chunks(SECTOR)) {
                        if survival.next(random) {
                            let torn = partial && random.below(16) == 0;
                            let kept = if torn { random.below(written.len()) } else { written.len() };
                            put(&mut bytes, sector * SECTOR, &written[..kept]);
                        }
                    }
                }
            }
        }
        let last = lengths.len() - 1;
        let length = lengths[if partial { random.below(lengths.len()) } else { last * usize::from(all) }];
        bytes.resize(length, 0);
        bytes
    }
}

/// Overwrite bytes. A gap before them is filled with zeros.
fn put(bytes: &mut Vec<u8>, at: usize, written: &[u8]) {
    let end = at + written.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(written);
}

/// Identity of the file with this id.
pub(super) fn identity(id: u64) -> FileIdentity {
    FileIdentity { device: 0, inode: id }
}

/// Returns true if bytes of a file can be read without waiting. By their numbers, three of every four pages
/// can: so tests take both ways of reading, and the same one each time.
pub(super) fn is_at_hand(offset: u64, bytes: usize) -> bool {
    let Ok(offset) = usize::try_from(offset) else { return false };
    (offset / PAGE_BYTES..offset.saturating_add(bytes).div_ceil(PAGE_BYTES)).all(|page| page % 4 != 3)
}
