//! A disk that takes the time of a modelled device, over one that is faster.
//!
//! All files of the disk share one [`Device`], which does one thing after another: a thread that reads or
//! syncs sleeps until the device would be done. Bytes that are written cost their time when they go to the
//! medium, once: at [`DiskFile::start_writing`] or at the sync. Nothing comes from the page cache, as the
//! modelled device would have to read it, but what was read ahead: that was paid for, as one operation each.
//!
//! It limits, and cannot make a disk faster: what the disk below takes longer than the model counts.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_schedule::{Charge, DeviceCost, Direction};

use super::modelled_cache::Cache;
use super::{Disk, DiskFile, FileIdentity, Named, Space};
use crate::mutex::Mutex;

/// Time as a modelled device sees it, in nanoseconds since any beginning.
pub trait Time: fmt::Debug + Send + Sync {
    fn now_ns(&self) -> u64;

    /// Returns at this time, or at once if it is over.
    fn sleep_until(&self, ns: u64);
}

/// The machine's time.
#[derive(Debug)]
pub struct MachineTime(Instant);

impl Default for MachineTime {
    fn default() -> MachineTime {
        MachineTime(Instant::now())
    }
}

impl Time for MachineTime {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep_until(&self, ns: u64) {
        let rest = ns.saturating_sub(self.now_ns());
        if rest > 0 {
            std::thread::sleep(Duration::from_nanos(rest));
        }
    }
}

/// A modelled device: a queue in which each operation begins when those before it are done.
#[derive(Debug)]
pub struct Device {
    cost: DeviceCost,
    busy: Mutex<Busy>,
    /// Bytes that were read ahead.
    cache: Mutex<Cache>,
    /// Number of the next file that is opened.
    files: AtomicU64,
    time: Box<dyn Time>,
}

/// Times until which the device is busy, in nanoseconds. One that charges the sum uses `operations` alone.
#[derive(Debug, Default)]
struct Busy {
    operations: u64,
    bytes: u64,
}

impl Device {
    /// A device in the machine's time.
    pub fn new(cost: DeviceCost) -> Device {
        Device::in_time(cost, Box::new(MachineTime::default()))
    }

    /// A device in another time.
    pub fn in_time(cost: DeviceCost, time: Box<dyn Time>) -> Device {
        let cache = Mutex::default();
        Device { cost, busy: Mutex::default(), cache, files: AtomicU64::new(0), time }
    }

    pub fn cost(&self) -> &DeviceCost {
        &self.cost
    }

    /// Queues one operation. Returns the time at which it will be done.
    fn queue(&self, direction: Direction, bytes: u64) -> u64 {
        let way = self.cost.way(direction);
        let now = self.time.now_ns();
        let mut busy = self.busy.lock();
        match self.cost.charge {
            Charge::Sum => {
                let time = self.cost.time_ns(direction, bytes);
                busy.operations = busy.operations.max(now).saturating_add(time);
            }
            Charge::Larger => {
                busy.operations = busy.operations.max(now).saturating_add(way.operation_ns);
                busy.bytes = busy.bytes.max(now).saturating_add(way.bytes_ns(bytes));
            }
        }
        busy.operations.max(busy.bytes)
    }

    /// Queues a sync, which begins when all before it is done. Returns the time at which it will be done.
    fn queue_sync(&self) -> u64 {
        let now = self.time.now_ns();
        let mut busy = self.busy.lock();
        busy.operations = busy.operations.max(busy.bytes).max(now).saturating_add(self.cost.sync_ns);
        busy.operations
    }
}

/// A disk whose operations take the time of a modelled device.
#[derive(Debug)]
pub struct Modelled<D> {
    inner: D,
    device: Arc<Device>,
}

impl<D: Disk> Modelled<D> {
    pub fn new(inner: D, device: Arc<Device>) -> Modelled<D> {
        Modelled { inner, device }
    }

    fn file(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let number = self.device.files.fetch_add(1, Ordering::Relaxed);
        let device = Arc::clone(&self.device);
        Arc::new(ModelledFile { inner, device, number, unwritten: AtomicU64::new(0) })
    }
}

impl<D: Disk> Disk for Modelled<D> {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(self.inner.open(name)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(self.inner.create(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let done = self.device.queue_sync();
        let synced = self.inner.sync_dir(dir);
        self.device.time.sleep_until(done);
        synced
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        self.inner.make_dir(dir)
    }

    fn space(&self) -> Option<Space> {
        self.inner.space()
    }

    fn named(&self, name: &str) -> io::Result<Named> {
        self.inner.named(name)
    }

    fn place(&self) -> &Path {
        self.inner.place()
    }
}

/// An open file of a modelled disk.
#[derive(Debug)]
struct ModelledFile {
    inner: Arc<dyn DiskFile>,
    device: Arc<Device>,
    /// Identifies the open file in the device's cache.
    number: u64,
    /// Bytes written through this file that the device was not charged for.
    unwritten: AtomicU64,
}

impl ModelledFile {
    /// Queues the writing of at most `most` bytes of those that were not written yet.
    fn queue_writing(&self, most: u64) {
        let take = |bytes: u64| Some(bytes.saturating_sub(most));
        let before = self.unwritten.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let bytes = before.unwrap_or_default().min(most);
        if bytes > 0 {
            self.device.queue(Direction::Write, bytes);
        }
    }

    /// The part of a range that the file has.
    fn present(&self, range: Range<u64>) -> io::Result<Range<u64>> {
        let end = range.end.min(self.inner.length()?);
        Ok(range.start.min(end)..end)
    }

    fn synced(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.queue_writing(u64::MAX);
        let done = self.device.queue_sync();
        let synced = sync();
        self.device.time.sleep_until(done);
        synced
    }
}

impl DiskFile for ModelledFile {
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        let asked = u64::try_from(to.len()).unwrap_or(u64::MAX);
        let range = self.present(offset..offset.saturating_add(asked))?;
        if range.is_empty() {
            return self.inner.read_at(to, offset);
        }
        let ahead = self.device.cache.lock().handle_read(self.number, &range);
        // Queued before the real read, whose time is part of the modelled one.
        let done = ahead.unwrap_or_else(|| self.device.queue(Direction::Read, range.end - range.start));
        let read = self.inner.read_at(to, offset);
        self.device.time.sleep_until(done);
        read
    }

    fn read_cached_at(&self, to: &mut [u8], offset: u64) -> Option<usize> {
        let asked = u64::try_from(to.len()).ok()?;
        let range = self.present(offset..offset.saturating_add(asked)).ok()?;
        if !self.is_cached(range.clone()) {
            return None;
        }
        self.device.cache.lock().handle_read(self.number, &range)?;
        self.inner.read_at(to, offset).ok()
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let bytes = self.inner.write_at(buffers, offset)?;
        let bytes_written = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.unwritten.fetch_add(bytes_written, Ordering::Relaxed);
        self.device.cache.lock().remove(self.number, offset..offset.saturating_add(bytes_written));
        Ok(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.synced(|| self.inner.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.synced(|| self.inner.sync_all())
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.inner.identity()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.inner.set_length(length)
    }

    fn drop_cache(&self, range: Range<u64>) {
        self.device.cache.lock().remove(self.number, range.clone());
        self.inner.drop_cache(range);
    }

    fn is_cached(&self, range: Range<u64>) -> bool {
        let ready_ns = self.device.cache.lock().ready_ns(self.number, &range);
        ready_ns.is_some_and(|ready_ns| ready_ns <= self.device.time.now_ns())
    }

    fn will_read(&self, range: Range<u64>) {
        let Ok(range) = self.present(range) else { return };
        if !range.is_empty() {
            let done = self.device.queue(Direction::Read, range.end - range.start);
            self.device.cache.lock().put(self.number, range, done);
        }
    }

    fn read_ahead(&self, range: Range<u64>) -> io::Result<()> {
        let range = self.present(range)?;
        if self.device.cache.lock().ready_ns(self.number, &range).is_none() {
            self.will_read(range.clone());
        }
        let read = self.inner.read_ahead(range.clone());
        let ready_ns = self.device.cache.lock().ready_ns(self.number, &range);
        self.device.time.sleep_until(ready_ns.unwrap_or(0));
        read
    }

    /// The device's queue is not waited for: the next sync does that.
    fn start_writing(&self, range: Range<u64>) -> io::Result<()> {
        self.queue_writing(range.end.saturating_sub(range.start));
        self.inner.start_writing(range)
    }

    fn as_file(&self) -> Option<&File> {
        None
    }
}

#[cfg(test)]
mod tests {
    use braid_schedule::DirectionCost;

    use super::*;
    use crate::disk::memory::Memory;

    const MS: u64 = 1_000_000;

    /// Time that stands still but for sleeping.
    #[derive(Debug, Clone, Default)]
    struct Still(Arc<AtomicU64>);

    impl Time for Still {
        fn now_ns(&self) -> u64 {
            self.0.load(Ordering::SeqCst)
        }

        fn sleep_until(&self, ns: u64) {
            self.0.fetch_max(ns, Ordering::SeqCst);
        }
    }

    /// 10 ms an operation and 1 ms for 1000 bytes; a sync takes 2 ms.
    fn disk(charge: Charge) -> (Modelled<Memory>, Still) {
        let way = DirectionCost { operation_ns: 10 * MS, bytes_per_second: 1_000_000 };
        let time = Still::default();
        let cost = DeviceCost { charge, read: way, write: way, sync_ns: 2 * MS };
        let device = Device::in_time(cost, Box::new(time.clone()));
        (Modelled::new(Memory::new(1), Arc::new(device)), time)
    }

    fn write(file: &dyn DiskFile, bytes: usize) {
        assert_eq!(file.write_at(&[IoSlice::new(&vec![7; bytes])], 0).expect("written"), bytes);
    }

    #[test]
    fn reads_take_the_time_of_the_model_and_never_come_from_the_cache() {
        for (charge, small, large) in [(Charge::Sum, 11, 30), (Charge::Larger, 10, 20)] {
            let (disk, time) = disk(charge);
            let file = disk.create("a").expect("made");
            write(&*file, 20_000);
            assert_eq!(time.now_ns(), 0, "what is written waits in the page cache");
            assert_eq!(file.read_at(&mut [0; 1000], 0).expect("read"), 1000);
            assert_eq!(time.now_ns(), small * MS);
            assert_eq!(file.read_at(&mut vec![0; 30_000], 0).expect("read"), 20_000);
            assert_eq!(time.now_ns(), (small + large) * MS, "what is behind the end costs nothing");
            assert_eq!(file.read_at(&mut [0; 10], 20_000).expect("the end"), 0);
            assert_eq!(time.now_ns(), (small + large) * MS);
            assert_eq!(file.read_cached_at(&mut [0; 10], 0), None);
            assert!(!file.is_cached(0..1) && file.as_file().is_none());
        }
    }

    #[test]
    fn written_bytes_are_charged_once_when_they_go_to_the_medium() {
        let (disk, time) = disk(Charge::Sum);
        let file = disk.create("a").expect("made");
        write(&*file, 3000);
        file.start_writing(0..2000).expect("started");
        assert_eq!(time.now_ns(), 0, "nobody waits for it");
        file.sync_data().expect("synced");
        assert_eq!(time.now_ns(), (10 + 2 + 10 + 1 + 2) * MS);
        file.start_writing(0..3000).expect("nothing is left");
        file.sync_all().expect("synced");
        disk.sync_dir("").expect("synced");
        assert_eq!(time.now_ns(), (25 + 2 + 2) * MS);
    }

    #[test]
    fn what_was_read_ahead_is_one_operation_and_costs_no_second_time() {
        let (disk, time) = disk(Charge::Sum);
        let file = disk.create("a").expect("made");
        write(&*file, 50_000);
        file.read_ahead(0..90_000).expect("read ahead");
        assert_eq!(time.now_ns(), (10 + 50) * MS, "what is behind the end costs nothing");
        assert!(file.is_cached(0..50_000) && !file.is_cached(0..50_001));
        assert_eq!(file.read_cached_at(&mut [0; 10], 0), Some(10));
        assert_eq!(file.read_at(&mut vec![0; 40_000], 0).expect("read"), 40_000);
        assert_eq!(time.now_ns(), 60 * MS);
        assert!(!file.is_cached(0..1), "it costs again");
        write(&*file, 45_000);
        assert!(!file.is_cached(44_000..45_000) && file.is_cached(45_000..50_000), "what was written");
    }

    #[test]
    fn all_files_share_one_queue() {
        let (disk, time) = disk(Charge::Sum);
        let files = ["a", "b"].map(|name| disk.create(name).expect("made"));
        write(&*files[0], 5000);
        files[0].start_writing(0..5000).expect("started");
        write(&*files[1], 1000);
        files[1].read_at(&mut [0; 1000], 0).expect("read");
        assert_eq!(time.now_ns(), (15 + 11) * MS, "the read waits for the write before it");
    }

    #[test]
    fn the_two_queues_of_flash_fill_at_the_same_time() {
        let (disk, time) = disk(Charge::Larger);
        let files = ["a", "b"].map(|name| disk.create(name).expect("made"));
        // 60 ms of bytes. The small operations beside them need the other queue. The sync waits for both.
        write(&*files[0], 60_000);
        files[0].start_writing(0..60_000).expect("started");
        for _ in 0..3 {
            write(&*files[1], 10);
            files[1].start_writing(0..10).expect("started");
        }
        files[1].sync_data().expect("synced");
        assert_eq!(time.now_ns(), (60 + 2) * MS + 30_000);
    }

    #[test]
    fn names_and_bytes_are_those_of_the_disk_below() {
        let (disk, _) = disk(Charge::Larger);
        disk.make_dir("d").expect("made");
        write(&*disk.create("d/a").expect("made"), 10);
        disk.rename("d/a", "d/b").expect("renamed");
        let file = disk.open("d/b").expect("there");
        file.set_length(4).expect("cut");
        let lengths = (file.length().expect("a length"), disk.named("d/b").expect("there").bytes);
        assert_eq!(lengths, (4, 4));
        assert_eq!(file.identity().expect("known"), disk.named("d/b").expect("there").identity);
        assert_eq!(disk.list("d").expect("listed"), ["b"]);
        disk.remove("d/b").expect("removed");
        assert!(disk.open("d/b").is_err());
    }
}
