//! A disk in memory that fails as told: for tests of what a store gives back after the worst day of its disk.
//!
//! Bytes written are seen by readers at once and are durable after a sync, names after a sync of their directory. When
//! the power is cut, of what was not synced any subset of sectors survives, in any order, a sector now and then torn in
//! the middle; of names created, renamed and removed any subset too. That is more than most file systems do to
//! their users. After a failed sync the bytes look written but are clean: a later sync does not bring them to the medium.
//!
//! Everything random comes from the seed: the same calls in the same order do the same.

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
use file::Bytes;
use names::Names;
use random::Random;

use super::{Disk, DiskFile, FileIdentity, Named, Space};

/// The unit in which bytes reach the medium, or not.
pub(crate) const SECTOR: usize = 512;

/// A disk in memory. Clones are the same disk.
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
}

struct MemoryFile {
    disk: Memory,
    id: u64,
    name: String,
}

impl Memory {
    /// An empty disk without bounds and faults.
    pub fn new(seed: u64) -> Memory {
        Memory::of(State {
            random: Random::new(seed),
            faults: Faults::default(),
            names: Names::default(),
            files: BTreeMap::new(),
            next_file: 0,
            budget: None,
        })
    }

    fn of(state: State) -> Memory {
        Memory { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many operations of a kind there were, failed ones too.
    pub fn operations(&self, on: On) -> u64 {
        self.lock().faults.count(on)
    }

    /// Let the operations of a kind with these numbers fail. They are counted from 0, since the disk was made.
    pub fn inject(&self, on: On, which: Range<u64>, fault: Fault) {
        self.lock().faults.inject(on, which, fault);
    }

    /// Cut the power when so many changes ([`On::Change`]) were made: from then on every operation fails and does nothing.
    pub fn cut_after(&self, changes: u64) {
        self.lock().faults.cut_after = changes;
    }

    /// Whether the power is cut: [`Memory::cut_after`] was reached.
    pub fn is_cut(&self) -> bool {
        self.lock().faults.is_cut()
    }

    /// Bytes that all files together may have: beyond, a write is cut short, then fails for want of space.
    pub fn set_budget(&self, bytes: Option<u64>) {
        self.lock().budget = bytes;
    }

    /// The disk after the power was cut and came back: what was synced, and what `seed` lets survive of the rest. Faults
    /// and counts begin anew; this disk stays as it is.
    pub fn after_power_cut(&self, seed: u64) -> Memory {
        let state = self.lock();
        let mut random = Random::new(seed);
        let names = state.names.survivors(&mut random);
        let survive = |(&id, bytes): (&u64, &Bytes)| (id, bytes.survivors(&mut random));
        let files = state.files.iter().map(survive).collect();
        Memory::of(state.renewed(seed, names, files))
    }

    /// The disk after the process was killed: everything written is there, nothing more is synced than was. Faults and
    /// counts begin anew; this disk stays as it is.
    pub fn after_kill(&self, seed: u64) -> Memory {
        let state = self.lock();
        Memory::of(state.renewed(seed, state.names.clone(), state.files.clone()))
    }

    /// The names of all files, in order.
    pub fn files(&self) -> Vec<String> {
        self.lock().names.files().map(|(name, _)| name.to_owned()).collect()
    }

    /// What a file holds for its readers.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        Some(state.files.get(&state.names.file(name)?)?.cached().to_vec())
    }

    /// Change what a file holds, behind everybody's back and durably: damage. A missing file is made.
    pub fn plant(&self, name: &str, bytes: &[u8]) {
        let mut state = self.lock();
        let id = state.names.file(name).unwrap_or_else(|| {
            let id = state.new_file();
            state.names.plant(name, id);
            id
        });
        state.files.insert(id, Bytes::durable(bytes.to_vec()));
    }

    /// Flip one bit of a file on the medium: readers see it only once the cache was dropped. Whether there is such a bit.
    pub fn rot(&self, name: &str, bit: u64) -> bool {
        let mut state = self.lock();
        let id = state.names.file(name);
        id.and_then(|id| state.files.get_mut(&id)).is_some_and(|bytes| bytes.rot(bit))
    }

    /// Let the medium be unable to read some bytes of a file, until something else is written there or the file is planted anew.
    pub fn spoil(&self, name: &str, range: Range<u64>) {
        let mut state = self.lock();
        let id = state.names.file(name);
        if let Some(bytes) = id.and_then(|id| state.files.get_mut(&id)) {
            bytes.spoil(range);
        }
    }

    /// Flip one bit of a file, durably; whether there is such a bit.
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
        }
    }

    fn new_file(&mut self) -> u64 {
        self.next_file += 1;
        self.files.insert(self.next_file, Bytes::default());
        self.next_file
    }

    /// Bytes that files may still grow by.
    fn free(&self) -> u64 {
        let Some(budget) = self.budget else { return u64::MAX };
        let used = self.names.files().filter_map(|(_, id)| self.files.get(&id)).map(Bytes::length);
        budget.saturating_sub(used.sum())
    }

    /// Count an operation on names; what fails, fails without effect.
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
        Some(Space { free: state.free(), size: state.budget? })
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

    fn describe(&self) -> String {
        "memory".to_owned()
    }
}

fn identity(id: u64) -> FileIdentity {
    FileIdentity { device: 0, inode: id }
}

impl MemoryFile {
    /// Do something with the state and the file's bytes.
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

    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut written: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        self.with(|state, bytes| {
            let fault = state.faults.next(On::Write)?;
            let mut at = usize::try_from(offset).map_err(|_| no_space())?;
            let length = bytes.cached().len();
            match fault {
                Some(Fault::Io | Fault::NoSpace) => {
                    // How far it came, nobody knows.
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
            // This file's own bytes are taken out for now, so that is what it may have.
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

    /// All of it, whatever the range.
    fn drop_cache(&self, _range: Range<u64>) {
        self.with(|_, bytes| bytes.drop_cache());
    }

    fn is_buffered(&self) -> bool {
        true
    }

    /// Nothing is started: what is not synced may be durable or not, in any order, as it is. What fails is lost as in a sync
    /// that fails, and this is the only word of it.
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

    fn unmap(&self) {}

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
