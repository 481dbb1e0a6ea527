//! The store's public interface.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_layout::{ClusterId, DriveId, ObjectId, PartitionId};

use crate::commit_delay::CommitTotals;
use crate::disk::modelled::Modelled;
use crate::disk::{Directory, Disk, private};
use crate::error::Error;
use crate::files::{self, Files};
use crate::format::superblock::Superblock;
use crate::header_cache::HeaderCache;
use crate::index::attributes::ObjectState;
use crate::index::locked::Reading;
use crate::index::lost::LostKeys;
use crate::index::{Chain, ClientOperations, ObjectUsage, PartitionState};
use crate::mutation::{Attributes, CheckedMutation, Mutation, MutationOutcome};
use crate::mutex::Mutex;
use crate::opened::{Opened, open_parts};
use crate::options::Options;
use crate::queue::{Rejected, Reply};
use crate::recover::Recovery;
#[cfg(any(test, feature = "faulty-disk"))]
use crate::threads::by_hand::ByHand;
use crate::threads::checkpointer;
use crate::threads::cleaner::Cleaner;
use crate::threads::folder;
use crate::threads::reclaim;
use crate::threads::shared::Shared;

/// A store's identity: written when it is formatted, never changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The store's cluster.
    pub cluster: ClusterId,
    /// The drive whose disk holds the store.
    pub drive: DriveId,
}

/// The store's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// Bytes the store may use: those of its files, recycled ones included, plus those that the file system
    /// has free, but at most `Options::capacity`.
    pub capacity: u64,
    /// Bytes of all the store's files.
    pub used: u64,
    /// Bytes of payload that some unit still refers to.
    pub live: u64,
    /// `used - live`: headers, padding, and bytes that were overwritten or removed.
    pub dead: u64,
    pub segments: u64,
    pub objects: u64,
    pub partitions: u64,
    /// Number of ranges and partitions that damage has made unknown as a whole: see [`Store::lost`].
    pub lost: u64,
    /// Bytes of all records ever written, except the cleaner's.
    pub written: u64,
    /// Bytes of the cleaner's records.
    pub moved: u64,
    /// Segments freed since the store was opened.
    pub freed: u64,
    /// Bytes of recycled segments' files. Counted in `free`, not in `used`.
    pub spare: u64,
    /// Bytes that writes may take before anything must be cleaned. Excludes the reserve, and bytes that
    /// objects have reserved.
    pub free: u64,
    /// Bytes that the store's file system has free: see [`Space`](crate::disk::Space).
    pub disk_free: u64,
    /// Device number of that file system; 0: not known.
    pub disk_device: u64,
}

/// An open store. Clones share it; it is closed by [`Store::close`] or when the last clone is dropped.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

struct Handle {
    identity: Identity,
    shared: Arc<Shared>,
    /// The committer, then the checkpointer and the cleaner, which end when the committer does.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The threads' work, if there are no threads.
    #[cfg(any(test, feature = "faulty-disk"))]
    by_hand: Option<ByHand>,
}

impl Store {
    /// Make a store in `dir`, which is created if it is missing. [`Error::NotEmpty`] if the directory holds
    /// anything.
    pub fn format(dir: &Path, identity: Identity, options: &Options) -> Result<(), Error> {
        options.validate()?;
        private::make_dir_all(dir).map_err(|error| Error::io("make the store's directory", error))?;
        let disk = Directory::lock(dir)?;
        Store::format_on(&disk, identity, options)?;
        disk.tighten();
        Ok(())
    }

    /// Make a store on `disk`. [`Error::NotEmpty`] if the disk holds anything.
    pub fn format_on(disk: &dyn Disk, identity: Identity, options: &Options) -> Result<(), Error> {
        options.validate()?;
        let random = getrandom::u64()
            .map_err(|error| Error::io("draw a random salt", std::io::Error::other(error.to_string())))?;
        let superblock = Superblock { cluster: identity.cluster, drive: identity.drive, salt: random };
        files::format(disk, &superblock)
    }

    /// Open the store in `dir`, replaying its log. `expect` guards against a drive directory of another
    /// cluster.
    pub fn open(dir: &Path, expect: Option<Identity>, options: Options) -> Result<(Store, Recovery), Error> {
        let disk = Directory::lock(dir)?;
        refuse_foreign(expect, files::read_superblock(&disk)?)?;
        disk.tighten();
        let disk: Arc<dyn Disk> = match options.device.clone() {
            Some(device) => Arc::new(Modelled::new(disk, device)),
            None => Arc::new(disk),
        };
        Store::open_on(disk, expect, options)
    }

    /// Open the store on `disk`, as [`Store::open`]. The disk is the store's alone while it is open.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        expect: Option<Identity>,
        options: Options,
    ) -> Result<(Store, Recovery), Error> {
        let Opened { identity, shared, committer, recovery } = open_parts(disk, expect, options)?;
        let checkpointing = Arc::clone(&shared);
        let checkpointer = spawn("store-checkpoint", move || checkpointer::run(&checkpointing))?;
        let cleaner = Cleaner::new(Arc::clone(&shared));
        let cleaner = spawn("store-clean", move || cleaner.run());
        let folding = Arc::clone(&shared);
        // Nobody else needs the disk of a store without turns: the committer folds.
        let folder = shared.turns.is_some().then(|| spawn("store-fold", move || folder::run(&folding)));
        if matches!(folder, Some(Ok(_))) {
            shared.folding.has_begun();
        }
        let committing = spawn("store-commit", move || committer.run());
        if committing.is_err() || cleaner.is_err() || matches!(folder, Some(Err(_))) {
            // The other threads end too.
            shared.queue.close();
            shared.checkpointer.close();
            shared.cleaning.close();
            shared.folding.close();
        }
        let mut threads = vec![committing?, checkpointer, cleaner?];
        threads.extend(folder.transpose()?);
        let handle = Handle {
            identity,
            shared,
            threads: Mutex::new(threads),
            #[cfg(any(test, feature = "faulty-disk"))]
            by_hand: None,
        };
        Ok((Store { handle: Arc::new(handle) }, recovery))
    }

    /// Open the store on `disk` without threads: it commits only in [`Store::turn`], which is due whenever
    /// `wake` was called, and cleans nothing. For tests that must be the same each time.
    #[cfg(any(test, feature = "faulty-disk"))]
    pub fn open_by_hand(
        disk: Arc<dyn Disk>,
        expect: Option<Identity>,
        options: Options,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Result<(Store, Recovery), Error> {
        let Opened { identity, shared, committer, recovery } = open_parts(disk, expect, options)?;
        let by_hand = Some(ByHand::new(committer, wake));
        let handle = Handle { identity, shared, threads: Mutex::default(), by_hand };
        Ok((Store { handle: Arc::new(handle) }, recovery))
    }

    /// Commit the queued mutations. Only for a store that was opened by [`Store::open_by_hand`].
    #[cfg(any(test, feature = "faulty-disk"))]
    pub fn turn(&self) {
        if let Some(by_hand) = &self.handle.by_hand {
            by_hand.turn();
        }
    }

    /// The store's figures.
    pub fn stat(&self) -> Result<Stat, Error> {
        let spare = self.handle.shared.files.recycled().bytes();
        let space = self.handle.shared.files.space();
        let free = self.handle.shared.space_budget().free();
        let index = self.index();
        let used = index.segments.used().saturating_add(self.handle.shared.checkpointer.bytes());
        let live = index.segments.live();
        let disk = space.map(|space| used.saturating_add(space.free).saturating_add(spare));
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Ok(Stat {
            capacity: self.handle.shared.capacity.into_iter().chain(disk).min().unwrap_or(u64::MAX),
            used,
            live,
            dead: used.saturating_sub(live),
            segments: count(index.segments.all.len()),
            objects: index.partitions.values().map(|partition| count(partition.objects.len())).sum(),
            partitions: count(index.partitions.len()),
            lost: index.lost_count(),
            written: index.appended.written,
            moved: index.appended.moved,
            freed: self.handle.shared.cleaning.freed(),
            spare,
            free,
            disk_free: space.map_or(0, |space| space.free),
            disk_device: space.map_or(0, |space| space.device),
        })
    }

    /// The number of the log's last durable record; 0: there is none. The number only rises, over the store's
    /// whole life. If it is lower than before, the store is an older copy, or has lost acknowledged records.
    pub fn last_record(&self) -> u64 {
        self.index().head.sequence.saturating_sub(1)
    }

    /// Let the store write from now on: see [`Options::held`].
    pub fn release(&self) {
        self.handle.shared.held.store(false, Ordering::Relaxed);
    }

    /// Queue `mutation`. `reply` is called once it is durable, or refused, from the committer's thread (or
    /// from this one, if the mutation is malformed or the store is closed). Blocks while the queue is full.
    /// `reply` must be quick and must not wait for the store. Before [`Store::release`] of a store that is
    /// held the answer is [`Error::Held`], after [`Store::close`] it is [`Error::Closed`].
    pub fn submit(&self, mutation: Mutation, reply: Reply) {
        let queued = self.submit_within(mutation, reply, None, &|| true);
        debug_assert!(queued.is_ok(), "it waits as long as it takes");
    }

    /// Like [`Store::submit`], but hands mutation and reply back if the queue stays full for `wait`, as when
    /// the disk hangs. Zero never blocks, for async callers; `None` waits as long as it takes. When the
    /// mutation gets its place in the order, `still` is asked whether it may be carried out at all. If not,
    /// the answer is [`Error::Withdrawn`]. `still` must be quick.
    #[expect(clippy::result_large_err, reason = "the request goes back as it came, without an allocation")]
    pub fn submit_within(
        &self,
        mutation: Mutation,
        reply: Reply,
        wait: Option<Duration>,
        still: &dyn Fn() -> bool,
    ) -> Result<(), Rejected> {
        match mutation.check() {
            Ok(checked) => self.submit_checked(checked, reply, wait, still),
            Err(error) => {
                reply(Err(error));
                Ok(())
            }
        }
    }

    /// Like [`Store::submit_within`], for a mutation whose form and checksums have been verified: it takes no
    /// time, in whatever thread.
    #[expect(clippy::result_large_err, reason = "the request goes back as it came, without an allocation")]
    pub fn submit_checked(
        &self,
        mutation: CheckedMutation,
        reply: Reply,
        wait: Option<Duration>,
        still: &dyn Fn() -> bool,
    ) -> Result<(), Rejected> {
        if self.handle.shared.is_held() {
            reply(Err(Error::Held));
            return Ok(());
        }
        self.handle.shared.queue.push((mutation.into_mutation(), reply), wait, still)?;
        #[cfg(any(test, feature = "faulty-disk"))]
        if let Some(by_hand) = &self.handle.by_hand {
            by_hand.wake();
        }
        Ok(())
    }

    /// Submit and wait for the answer.
    pub fn commit(&self, mutation: Mutation) -> Result<MutationOutcome, Error> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let answer = move |outcome| {
            let _ = sender.send(outcome);
        };
        self.submit(mutation, Box::new(answer));
        #[cfg(any(test, feature = "faulty-disk"))]
        self.turn();
        receiver.recv().unwrap_or(Err(Error::Closed))
    }

    /// An object's attributes.
    pub fn object(&self, partition: PartitionId, object: ObjectId) -> Result<Attributes, Error> {
        Ok(self.index().whole_object(partition, object)?.attributes.unpacked())
    }

    /// Shows `look` the state that requests to an object are checked against. `look` must be quick, and must
    /// not call the store.
    pub fn with_object<T>(
        &self,
        partition: PartitionId,
        object: ObjectId,
        look: impl FnOnce(&ObjectState<'_>) -> T,
    ) -> Result<T, Error> {
        Ok(look(&self.index().whole_object(partition, object)?.attributes.state()))
    }

    /// Space usage of an object. Of a still, its bytes are those that its removal gives back.
    pub fn usage(&self, partition: PartitionId, object: ObjectId) -> Result<ObjectUsage, Error> {
        Ok(self.index().shown(partition, object)?.usage())
    }

    /// Up to `limit` objects of a partition, in order, after `after`.
    pub fn objects(
        &self,
        partition: PartitionId,
        after: Option<ObjectId>,
        limit: usize,
    ) -> Result<Vec<ObjectId>, Error> {
        use std::ops::Bound::{Excluded, Unbounded};
        let index = self.index();
        let objects = &index.find_partition(partition)?.objects;
        let begin = after.map_or(Unbounded, Excluded);
        let found = objects.range((begin, Unbounded)).filter(|(_, found)| !found.husk);
        Ok(found.map(|(&object, _)| object).take(limit).collect())
    }

    /// All partitions in order.
    pub fn partitions(&self) -> Vec<PartitionState> {
        let index = self.index();
        index.partitions.keys().filter_map(|&partition| index.partition_state(partition).ok()).collect()
    }

    pub fn partition(&self, partition: PartitionId) -> Result<PartitionState, Error> {
        self.index().partition_state(partition)
    }

    /// Values of partitions, then ranges of keys, that damage has made unknown as a whole: at most `limit`
    /// entries. Lost objects that are known to exist are not included: [`Store::objects`] lists them, and
    /// [`Store::object`] refuses them.
    pub fn lost(&self, limit: usize) -> Vec<LostKeys> {
        self.index().lost_keys().take(limit).collect()
    }

    /// The version chain of each unit of `units` that was ever written (PROTOCOL section 3, Versions), in
    /// order.
    pub fn versions(
        &self,
        partition: PartitionId,
        object: ObjectId,
        units: Range<u64>,
    ) -> Result<Vec<Chain>, Error> {
        Ok(self.index().shown(partition, object)?.chains(units))
    }

    /// The units with a pending version, owed versions, or deltas not known to be settled, in order.
    pub fn unsettled(&self, partition: PartitionId, object: ObjectId) -> Result<Vec<u64>, Error> {
        let index = self.index();
        Ok(index.whole_object(partition, object)?.unsettled())
    }

    /// The operations that are known to be done, by client.
    pub fn operations(
        &self,
        partition: PartitionId,
        object: ObjectId,
    ) -> Result<Vec<ClientOperations>, Error> {
        Ok(self.index().whole_object(partition, object)?.operations())
    }

    /// Returns true if a unit is caught up here: its column is not joining, or [`Mutation::Ready`] was
    /// applied; and it is not known to be damaged.
    pub fn is_ready(&self, partition: PartitionId, object: ObjectId, unit: u64) -> Result<bool, Error> {
        Ok(self.index().shown(partition, object)?.is_ready(unit))
    }

    /// Treat what is lost as a whole as absent from now on: all that should be there was made anew or
    /// removed. Of a partition that has lost its values the objects go too: nothing of them could be served.
    /// Durable with the checkpoint that this writes.
    pub fn forget_lost(&self) -> Result<(), Error> {
        self.handle.shared.index.write().forget_lost();
        self.checkpoint()
    }

    /// The number of the commit that is under way; `None`: there is none. If two calls return the same
    /// number, that commit was under way all the time between them: its disk is slow, or hangs.
    pub fn commit_under_way(&self) -> Option<u64> {
        let count = self.handle.shared.commits.load(Ordering::Relaxed);
        (!count.is_multiple_of(2)).then_some(count)
    }

    /// Synced commits of requests since the store was opened.
    pub fn commit_totals(&self) -> CommitTotals {
        *self.handle.shared.commit_totals.lock()
    }

    /// Up to `limit` units of an object that were ever written or found damaged, in order, from `from` on. Of
    /// a still without those that its base still holds as they were: to verify the base is enough for them.
    pub fn units(
        &self,
        partition: PartitionId,
        object: ObjectId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<u64>, Error> {
        Ok(self.index().shown(partition, object)?.own_units(from, limit))
    }

    /// Write a checkpoint of everything committed so far, and free segments that nothing refers to and no
    /// checkpoint needs. The store does so by itself; calling it makes the next opening short.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.handle.shared.checkpointer.make(&self.handle.shared).map(drop)
    }

    /// Clean now, as if space were short, until no segment is worth it. Returns the bytes freed. The store
    /// keeps serving meanwhile.
    pub fn clean(&self) -> Result<u64, Error> {
        let shared = &self.handle.shared;
        let used = || self.index().segments.used();
        let before = used();
        loop {
            let last = used();
            if !shared.cleaning.run_round() {
                return Err(Error::Closed);
            }
            shared.checkpointer.make(shared)?;
            let floor = shared.checkpointer.forget_older(shared);
            reclaim::free_segments(shared, floor);
            if used() >= last {
                return Ok(before.saturating_sub(used()));
            }
        }
    }

    /// Commit the queued mutations, mark the log as cleanly closed, write a checkpoint and stop the
    /// committer. Clones of the store can still read. Later mutations are answered [`Error::Closed`]. Must
    /// not be called from a mutation's reply.
    pub fn close(&self) -> Result<(), Error> {
        self.handle.close()
    }

    pub(crate) fn index(&self) -> Reading<'_> {
        self.handle.shared.index.read()
    }

    pub(crate) fn try_index(&self) -> Option<Reading<'_>> {
        self.handle.shared.index.try_read()
    }

    pub(crate) fn files(&self) -> &Files {
        &self.handle.shared.files
    }

    pub(crate) fn headers(&self) -> &HeaderCache {
        &self.handle.shared.headers
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    pub(crate) fn salt(&self) -> u64 {
        self.handle.shared.superblock.salt
    }
}

impl Handle {
    fn close(&self) -> Result<(), Error> {
        self.shared.queue.close();
        #[cfg(any(test, feature = "faulty-disk"))]
        if let Some(by_hand) = &self.by_hand {
            by_hand.end();
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A reply may drop the last clone in the committer itself, which then ends without being joined.
            if thread.thread().id() == std::thread::current().id() {
                break;
            }
            thread.join().map_err(|_| Error::Failed)?;
        }
        // A checkpoint in progress may have freed more segments.
        self.shared.files.give_up_all();
        Ok(())
    }
}

/// The store's identity, or [`Error::Foreign`] if another was expected.
pub(crate) fn refuse_foreign(expect: Option<Identity>, superblock: Superblock) -> Result<Identity, Error> {
    let identity = Identity { cluster: superblock.cluster, drive: superblock.drive };
    if expect.is_some_and(|expected| expected != identity) {
        return Err(Error::Foreign { cluster: identity.cluster, drive: identity.drive });
    }
    Ok(identity)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(|error| Error::io("start a thread of the store", error))
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("identity", &self.handle.identity).finish_non_exhaustive()
    }
}
