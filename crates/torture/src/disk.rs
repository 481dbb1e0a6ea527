//! A drive's disk in memory: its store and its small files, and the parts of them that a crash leaves.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_drive::medium::Medium;
use braid_store::Error;
use braid_store::Identity;
use braid_store::Options;
use braid_store::Store;
use braid_store::disk::Disk;
use braid_store::disk::memory::{Fault, Memory, On};
use tokio::sync::Notify;

use crate::host::Machine;
use crate::net::Net;
use crate::random::Random;

/// The way in which a drive's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The process was killed: everything that it wrote is there.
    Killed,
    /// The host lost its power: bytes that were not synced may be gone, or torn.
    PowerCut,
}

/// A temporary fault of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ailment {
    /// The disk has no room for more, and reports that.
    Full,
    /// The disk reports that there is room, and refuses it.
    NoSpace,
    /// Writes and syncs fail.
    WritesFail,
    ReadsFail,
}

/// The disk of one drive, as its present process sees it.
#[derive(Debug)]
pub(crate) struct DriveDisk {
    store: Mutex<Memory>,
    files: Memory,
    machine: Arc<Machine>,
    net: Net,
    random: Mutex<Random>,
    /// Longest time of a commit.
    commit_ms: u64,
    ailment: Mutex<Option<Ailment>>,
    /// Number of the last durable record of the store's log, as heartbeats tell it.
    log: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DriveDisk {
    pub(crate) fn new(machine: Arc<Machine>, net: Net, mut random: Random) -> Arc<DriveDisk> {
        let store = Memory::new(random.draw());
        let files = Memory::new(random.draw());
        let commit_ms = 1 + random.below(6);
        Arc::new(DriveDisk {
            store: Mutex::new(store),
            files,
            machine,
            net,
            random: Mutex::new(random),
            commit_ms,
            ailment: Mutex::default(),
            log: AtomicU64::default(),
        })
    }

    /// The disk that the next process finds. This one writes nothing any more.
    pub(crate) fn after(&self, end: End) -> Arc<DriveDisk> {
        let mut random = lock(&self.random).fork();
        let store = lock(&self.store).clone();
        let (next_store, next_files) = match end {
            End::Killed => (store.after_kill(random.draw()), self.files.after_kill(random.draw())),
            End::PowerCut => {
                (store.after_power_cut(random.draw()), self.files.after_power_cut(random.draw()))
            }
        };
        store.cut_after(0);
        self.files.cut_after(0);
        let next = self.with(next_store, next_files, random);
        if let Some(ailment) = *lock(&self.ailment) {
            next.fall_ill(ailment);
        }
        next
    }

    /// A copy of the disk as it is now, which may be put in its place later.
    pub(crate) fn copy(&self) -> Arc<DriveDisk> {
        let mut random = lock(&self.random).fork();
        let store = lock(&self.store).clone();
        let files = &self.files;
        let store = store.after_kill(random.draw());
        let files = files.after_kill(random.draw());
        let copy = self.with(store, files, random);
        copy.recover();
        copy.own_up();
        copy
    }

    /// Another disk in the same machine.
    fn with(&self, store: Memory, files: Memory, random: Random) -> Arc<DriveDisk> {
        Arc::new(DriveDisk {
            store: Mutex::new(store),
            files,
            machine: Arc::clone(&self.machine),
            net: self.net.clone(),
            random: Mutex::new(random),
            commit_ms: self.commit_ms,
            ailment: Mutex::default(),
            log: AtomicU64::new(self.log()),
        })
    }

    /// Makes the disk suffer from `ailment` until it recovers, also in the next process.
    pub(crate) fn fall_ill(&self, ailment: Ailment) {
        *lock(&self.ailment) = Some(ailment);
        for disk in [&*lock(&self.store), &self.files] {
            let fail = |on, fault| disk.inject(on, disk.operations(on)..u64::MAX, fault);
            match ailment {
                Ailment::Full => disk.set_budget(Some(disk.used())),
                Ailment::NoSpace => [On::Write, On::Name].into_iter().for_each(|on| fail(on, Fault::NoSpace)),
                Ailment::WritesFail => {
                    [On::Write, On::Sync, On::Start].into_iter().for_each(|on| fail(on, Fault::Io));
                }
                Ailment::ReadsFail => fail(On::Read, Fault::Io),
            }
        }
    }

    /// Ends the disk's ailment.
    pub(crate) fn recover(&self) {
        *lock(&self.ailment) = None;
        for disk in [&*lock(&self.store), &self.files] {
            disk.well_again();
            disk.set_budget(None);
        }
    }

    /// Makes syncs do nothing from now on, although they report success.
    pub(crate) fn lie(&self) {
        lock(&self.store).lie();
        self.files.lie();
    }

    /// Makes the syncs true that the disk has lied about, and ends the lie.
    pub(crate) fn own_up(&self) {
        lock(&self.store).own_up();
        self.files.own_up();
    }

    /// Cuts the power after this many more changes of the store's files.
    pub(crate) fn cut_soon(&self, changes: u64) {
        let store = lock(&self.store);
        store.cut_after(store.operations(On::Change) + changes);
    }

    /// Cancels a power cut to come.
    pub(crate) fn cut_never(&self) {
        if !self.is_cut() {
            lock(&self.store).cut_after(u64::MAX);
        }
    }

    /// Returns true if the power is cut.
    pub(crate) fn is_cut(&self) -> bool {
        lock(&self.store).is_cut()
    }

    /// Number of the last durable record of the store's log; of a drive that is away, the last known one.
    pub(crate) fn log(&self) -> u64 {
        self.log.load(Ordering::Relaxed)
    }

    fn note_log(&self, store: &Store) {
        self.log.store(store.last_record(), Ordering::Relaxed);
    }

    /// The store's disk, for damage to it.
    pub(crate) fn store(&self) -> Memory {
        lock(&self.store).clone()
    }

    fn commit_delay(&self) -> Duration {
        Duration::from_millis(lock(&self.random).below(self.commit_ms))
    }
}

/// The drive's disk as a medium. A task does the store's work.
#[derive(Debug)]
pub(crate) struct Mounted(pub(crate) Arc<DriveDisk>);

impl Medium for Mounted {
    fn read(&self, name: &str) -> io::Result<Option<String>> {
        let file = match self.0.files.open(name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = vec![0; usize::try_from(file.length()?).unwrap_or(0)];
        file.read_at(&mut bytes, 0)?;
        String::from_utf8(bytes).map(Some).map_err(io::Error::other)
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let disk = &self.0.files;
        let fresh = format!("{name}.new");
        match disk.remove(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = disk.create(&fresh)?;
        let mut done = 0;
        while let Some(rest) = text.as_bytes().get(done..).filter(|rest| !rest.is_empty()) {
            done += file.write_at(&[IoSlice::new(rest)], done as u64)?;
        }
        file.sync_all()?;
        disk.rename(&fresh, name)?;
        disk.sync_dir("")
    }

    fn open(&self, expect: Identity, options: Options) -> Result<Option<Store>, Error> {
        let due = Arc::new(Notify::new());
        let wake = Arc::clone(&due);
        let disk = Arc::new(self.0.store());
        let opened = Store::open_by_hand(disk, Some(expect), options, Box::new(move || wake.notify_one()));
        match opened {
            Ok((store, recovery)) => {
                tracing::debug!(?recovery, "store open");
                self.0.note_log(&store);
                tokio::spawn(commit(store.clone(), due, Arc::clone(&self.0)));
                Ok(Some(store))
            }
            Err(Error::NotAStore(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn format(&self, identity: Identity, options: &Options) -> Result<(), Error> {
        self.discard();
        Store::format_on(&self.0.store(), identity, options)
    }

    fn discard(&self) {
        let seed = lock(&self.0.random).draw();
        *lock(&self.0.store) = Memory::new(seed);
    }
}

/// Commits the mutations queued in the store, a while after they were queued.
async fn commit(store: Store, due: Arc<Notify>, disk: Arc<DriveDisk>) {
    loop {
        due.notified().await;
        tokio::time::sleep(disk.commit_delay()).await;
        store.turn();
        disk.note_log(&store);
        if disk.is_cut() {
            // A host without power sends nothing: nobody is told of a failure now.
            disk.net.set_down(disk.machine.ip);
        }
    }
}
