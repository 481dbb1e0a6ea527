//! A disk in memory that fails on demand: for tests of a store's recovery from faults of its disk.
//!
//! Readers see written bytes at once. Bytes are durable after a sync, names after a sync of their directory.
//! A power cut keeps any subset of unsynced sectors, in any order, a few of them torn in the middle, and any
//! subset of unsynced creations, renames and removals. That is harsher than most file systems. After a failed
//! sync the bytes look written but are clean: a later sync does not bring them to the medium.
//!
//! All randomness comes from the seed: the same calls in the same order have the same results.

mod fault;
mod file;
mod names;
mod random;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use fault::{Fault, On};
use fault::{Faults, io_error, no_space};
use file::{Bytes, identity, is_at_hand};
use names::Names;
use random::Random;

use super::{Disk, DiskFile, FileIdentity, Named, Space};

/// The unit in which bytes reach the medium or do not.
pub(crate) const SECTOR: usize = 512;

/// A disk in memory. Clones share it.
#[derive(Clone)]
pub struct Memory {
    state: Arc<Mutex<State>>,
}

struct State {
    random: Random,
    faults: Faults,
    names: Names,
    files: BTreeMap<u64, Bytes>,
    next_file: u64,
    budget: Option<u64>,
    lie: Lie,
}

/// Honesty of syncs. `None`: they do their work. `Ready`: they do nothing and report success, but none was
/// asked for yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    Ready,
    /// A sync was asked for, and did nothing.
    Told,
}

struct MemoryFile {
    disk: Memory,
    id: u64,
    name: String,
}

impl Memory {
    /// An empty disk without limits or faults.
    pub fn new(seed: u64) -> Memory {
        Memory::of(State {
            random: Random::new(seed),
            faults: Faults::default(),
            names: Names::default(),
            files: BTreeMap::new(),
            next_file: 0,
            budget: None,
            lie: Lie::None,
        })
    }

    fn of(state: State) -> Memory {
        Memory { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of operations of a kind, including failed ones.
    pub fn operations(&self, on: On) -> u64 {
        self.lock().faults.count(on)
    }

    /// Make the operations of a kind with these numbers fail. Numbers count from 0, since the disk was made.
    pub fn inject(&self, on: On, which: Range<u64>, fault: Fault) {
        self.lock().faults.inject(on, which, fault);
    }

    /// Remove all faults: operations fail only if the power is cut.
    pub fn well_again(&self) {
        self.lock().faults.forget();
    }

    /// From now on syncs of files and directories report success and do nothing: the next power cut takes all
    /// that was written or named since their last true sync.
    pub fn lie(&self) {
        self.lock().lie = Lie::Ready;
    }

    /// Returns true if a sync was lied about.
    pub fn has_lied(&self) -> bool {
        self.lock().lie == Lie::Told
    }

    /// Make durable all that false syncs reported, and let syncs do their work from now on.
    pub fn own_up(&self) {
        let mut state = self.lock();
        state.lie = Lie::None;
        state.names.sync_all();
        state.files.values_mut().for_each(Bytes::sync);
    }

    /// Cut the power after this many changes ([`On::Change`]): then every operation fails and does nothing.
    pub fn cut_after(&self, changes: u64) {
        self.lock().faults.cut_after = changes;
    }

    /// Returns true if the power is cut: [`Memory::cut_after`] was reached.
    pub fn is_cut(&self) -> bool {
        self.lock().faults.is_cut()
    }

    /// The most bytes of all files together. Beyond it a write is cut short, then fails with ENOSPC.
    pub fn set_budget(&self, bytes: Option<u64>) {
        self.lock().budget = bytes;
    }

    /// The bytes of all files together.
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    /// The disk after a power cut: everything that was synced, and the part of the rest that `seed` lets
    /// survive. Faults and counts start anew. This disk is unchanged.
    pub fn after_power_cut(&self, seed: u64) -> Memory {
        let state = self.lock();
        let mut random = Random::new(seed);
        if state.lie == Lie::Told {
            let files = state.files.iter().map(|(&id, bytes)| (id, bytes.as_synced())).collect();
            return Memory::of(State {
                lie: Lie::None,
                ..state.renewed(seed, state.names.as_synced(), files)
            });
        }
        let names = state.names.survivors(&mut random);
        let survive = |(&id, bytes): (&u64, &Bytes)| (id, bytes.survivors(&mut random));
        let files = state.files.iter().map(survive).collect();
        Memory::of(State { lie: Lie::None, ..state.renewed(seed, names, files) })
    }

    /// The disk after the process was killed: everything written is there, and no more is synced than was.
    /// Faults and counts start anew. This disk is unchanged.
    pub fn after_kill(&self, seed: u64) -> Memory {
        let state = self.lock();
        Memory::of(state.renewed(seed, state.names.clone(), state.files.clone()))
    }

    /// The names of all files, in order.
    pub fn files(&self) -> Vec<String> {
        self.lock().names.files().map(|(name, _)| name.to_owned()).collect()
    }

    /// A file's contents as readers see them.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        Some(state.files.get(&state.names.file(name)?)?.cached().to_vec())
    }

    /// Replace a file's contents behind the store's back and durably, as damage. A missing file is created.
    pub fn plant(&self, name: &str, bytes: &[u8]) {
        let mut state = self.lock();
        let id = state.names.file(name).unwrap_or_else(|| {
            let id = state.new_file();
            state.names.plant(name, id);
            id
        });
        state.files.insert(id, Bytes::durable(bytes.to_vec()));
    }

    /// Flip one bit of a file on the medium. Readers see it only after the cache is dropped. Returns whether
    /// the bit exists.
    pub fn rot(&self, name: &str, bit: u64) -> bool {
        let mut state = self.lock();
        let id = state.names.file(name);
        id.and_then(|id| state.files.get_mut(&id)).is_some_and(|bytes| bytes.rot(bit))
    }

    /// Make some bytes of a file unreadable on the medium, until they are overwritten or the file is planted
    /// anew.
    pub fn spoil(&self, name: &str, range: Range<u64>) {
        let mut state = self.lock();
        let id = state.names.file(name);
        if let Some(bytes) = id.and_then(|id| state.files.get_mut(&id)) {
            bytes.spoil(range);
        }
    }

    /// Flip one bit of a file, durably; returns whether the bit exists.
    pub fn flip(&self, name: &str, bit: u64) -> bool {
        let Some(mut bytes) = self.content(name) else { return false };
        let Some(byte) = usize::try_from(bit / 8).ok().and_then(|at| bytes.get_mut(at)) else { return false };
        *byte ^= 1 << (bit % 8);
        self.plant(name, &bytes);
        true
    }
}

impl State {
    fn renewed(&self, seed: u64, names: Names, mut files: BTreeMap<u64, Bytes>) -> State {
        files.retain(|&id, _| names.has(id));
        State {
            random: Random::new(seed),
            faults: Faults::default(),
            names,
            files,
            next_file: self.next_file,
            budget: self.budget,
            lie: self.lie,
        }
    }

    fn new_file(&mut self) -> u64 {
        self.next_file += 1;
        self.files.insert(self.next_file, Bytes::default());
        self.next_file
    }

    /// Returns true if the sync that comes now does nothing, and notes that it was asked for.
    fn is_lied(&mut self) -> bool {
        if self.lie == Lie::Ready {
            self.lie = Lie::Told;
        }
        self.lie == Lie::Told
    }

    /// Bytes by which files may still grow.
    fn free(&self) -> u64 {
        let Some(budget) = self.budget else { return u64::MAX };
        budget.saturating_sub(self.used())
    }

    fn used(&self) -> u64 {
        self.names.files().filter_map(|(_, id)| self.files.get(&id)).map(Bytes::length).sum()
    }

    /// Count an operation on names. A failed one has no effect.
    fn name(&mut self) -> io::Result<()> {
        match self.faults.next(On::Name)? {
            Some(Fault::NoSpace) => Err(no_space()),
            Some(Fault::Io) => Err(io_error()),
            _ => Ok(()),
        }
    }

    fn look(&mut self) -> io::Result<()> {
        match self.faults.next(On::Read)? {
            Some(Fault::Io) => Err(io_error()),
            _ => Ok(()),
        }
    }
}

impl Disk for Memory {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        state.look()?;
        let id = state.names.file(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemoryFile { disk: self.clone(), id, name: name.to_owned() }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        state.name()?;
        if state.free() == 0 {
            return Err(no_space());
        }
        let id = state.new_file();
        state.names.create(name, id)?;
        Ok(Arc::new(MemoryFile { disk: self.clone(), id, name: name.to_owned() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.name()?;
        state.names.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.name()?;
        state.names.remove(name)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut state = self.lock();
        state.look()?;
        state.names.list(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut state = self.lock();
        match state.faults.next(On::Sync)? {
            Some(Fault::Io) => Err(io_error()),
            Some(Fault::NoSpace) => Err(no_space()),
            _ if state.is_lied() => Ok(()),
            _ => state.names.sync(dir),
        }
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.name()?;
        state.names.make_dir(dir)
    }

    fn space(&self) -> Option<Space> {
        let state = self.lock();
        Some(Space { free: state.free(), size: state.budget?, device: 0 })
    }

    fn named(&self, name: &str) -> io::Result<Named> {
        let state = self.lock();
        let id = state.names.file(name).ok_or(io::ErrorKind::NotFound)?;
        let bytes = state.files.get(&id).map_or(0, Bytes::length);
        Ok(Named { identity: identity(id), bytes })
    }

    fn place(&self) -> &Path {
        Path::new("memory")
    }
}

impl MemoryFile {
    /// Access the state and the file's bytes together.
    fn with<T>(&self, act: impl FnOnce(&mut State, &mut Bytes) -> T) -> T {
        let mut state = self.disk.lock();
        let mut bytes = state.files.remove(&self.id).unwrap_or_default();
        let done = act(&mut state, &mut bytes);
        state.files.insert(self.id, bytes);
        done
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state, bytes| match state.faults.next(On::Sync)? {
            Some(fault @ (Fault::Io | Fault::NoSpace)) => {
                bytes.fail_sync(&mut state.random);
                Err(if fault == Fault::Io { io_error() } else { no_space() })
            }
            _ if state.is_lied() => Ok(()),
            _ => {
                bytes.sync();
                Ok(())
            }
        })
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|state, bytes| {
            let fault = state.faults.next(On::Read)?;
            if fault == Some(Fault::Io) {
                return Err(io_error());
            }
            let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.cached().len());
            if bytes.is_spoilt(begin..(begin + to.len()).min(bytes.cached().len())) {
                return Err(io_error());
            }
            let rest = &bytes.cached()[begin..];
            let mut count = rest.len().min(to.len());
            if fault == Some(Fault::Short) && count > 1 {
                count = 1 + state.random.below(count - 1);
            }
            to[..count].copy_from_slice(&rest[..count]);
            if fault == Some(Fault::Flip) && count > 0 {
                to[state.random.below(count)] ^= 1 << state.random.below(8);
            }
            Ok(count)
        })
    }

    fn read_cached_at(&self, to: &mut [u8], offset: u64) -> Option<usize> {
        if is_at_hand(offset, to.len()) { self.read_at(to, offset).ok() } else { None }
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut written = Vec::with_capacity(buffers.iter().map(|buffer| buffer.len()).sum());
        buffers.iter().for_each(|buffer| written.extend_from_slice(buffer));
        self.with(|state, bytes| {
            let fault = state.faults.next(On::Write)?;
            let mut at = usize::try_from(offset).map_err(|_| no_space())?;
            let length = bytes.cached().len();
            match fault {
                Some(Fault::Io | Fault::NoSpace) => {
                    // An unknown part of it was written.
                    written.truncate(state.random.below(written.len() + 1));
                    bytes.write(at, &written);
                    return Err(if fault == Some(Fault::Io) { io_error() } else { no_space() });
                }
                Some(Fault::Short) if written.len() > 1 => {
                    let count = 1 + state.random.below(written.len() - 1);
                    written.truncate(count);
                }
                Some(Fault::Flip) if !written.is_empty() => {
                    let byte = state.random.below(written.len());
                    written[byte] ^= 1 << state.random.below(8);
                }
                Some(Fault::Misdirect) => at = state.random.below(length / SECTOR + 1) * SECTOR,
                _ => {}
            }
            // This file's bytes are taken out of the state, so the free space includes them.
            let room = usize::try_from(state.free()).unwrap_or(usize::MAX).max(length);
            let fits = room.saturating_sub(at).min(written.len());
            if fits == 0 && !written.is_empty() {
                return Err(no_space());
            }
            written.truncate(fits);
            bytes.write(at, &written);
            Ok(fits)
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }

    fn length(&self) -> io::Result<u64> {
        self.with(|state, bytes| {
            state.look()?;
            Ok(bytes.length())
        })
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(identity(self.id))
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.with(|state, bytes| match state.faults.next(On::Write)? {
            Some(Fault::Io) => Err(io_error()),
            Some(Fault::NoSpace) => Err(no_space()),
            _ => {
                bytes.set_length(usize::try_from(length).map_err(|_| no_space())?);
                Ok(())
            }
        })
    }

    /// Drops all of the file, whatever the range.
    fn drop_cache(&self, _range: Range<u64>) {
        self.with(|_, bytes| bytes.drop_cache());
    }

    /// Starts nothing: unsynced bytes may be durable or not, in any order, as before. If it fails, bytes are
    /// lost as in a failed sync, and this is the only report of it.
    fn start_writing(&self, _range: Range<u64>) -> io::Result<()> {
        self.with(|state, bytes| match state.faults.next(On::Start)? {
            Some(fault @ (Fault::Io | Fault::NoSpace)) => {
                bytes.fail_sync(&mut state.random);
                Err(if fault == Fault::Io { io_error() } else { no_space() })
            }
            _ => Ok(()),
        })
    }

    fn is_cached(&self, _range: Range<u64>) -> bool {
        false
    }

    fn as_file(&self) -> Option<&File> {
        None
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("files", &self.files()).finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFile").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
