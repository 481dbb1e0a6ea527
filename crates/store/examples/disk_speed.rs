//! How fast each way to a disk is: ordinary calls and io_uring, through the page cache and past it. Reads begin with a cold
//! cache. Prints a rate and the processor time it took.
//!
//!     cargo run --release -p braid-store --example disk_speed -- DIR MIB
//!
//! `DIR` must be there; a file of `MIB` mebibytes is made in it and removed again.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use braid_store::disk::{Directory, Disk, DiskFile, Method};
use rustix::time::{ClockId, clock_gettime};

const MIB: u64 = 1 << 20;
/// Bytes of one sequential read or write.
const CHUNK: usize = 1 << 20;
/// Sequential writes between two syncs.
const SYNC_EVERY: u64 = 16;
/// Random reads of each depth.
const RANDOM_READS: u64 = 20_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, mebibytes] = &arguments[..] else { return Err("usage: disk_speed DIR MIB".into()) };
    let mebibytes = mebibytes.parse::<u64>()?;
    let ways = [(Method::Plain, false), (Method::Uring, false), (Method::Plain, true), (Method::Uring, true)];
    for (method, direct) in ways {
        let disk = Directory::lock(Path::new(dir))?.with(method, direct);
        let name = "disk_speed.tmp";
        let file = disk.create(name)?;
        let measured = measure(&disk.describe(), &file, mebibytes);
        disk.remove(name)?;
        measured?;
    }
    Ok(())
}

fn measure(what: &str, file: &Arc<dyn DiskFile>, mebibytes: u64) -> io::Result<()> {
    let bytes = mebibytes * MIB;
    let chunk = vec![0x5a; CHUNK];
    timed(what, "sequential write", "MiB/s", mebibytes, || {
        for i in 0..mebibytes {
            write_whole(&**file, &chunk, i * MIB)?;
            if (i + 1) % SYNC_EVERY == 0 {
                file.sync_data()?;
            }
        }
        file.sync_data()
    })?;
    file.drop_cache(0..u64::MAX);
    timed(what, "sequential read", "MiB/s", mebibytes, || {
        let mut chunk = vec![0; CHUNK];
        (0..mebibytes).try_for_each(|i| file.read_at(&mut chunk, i * MIB).map(drop))
    })?;
    for depth in [1, 32] {
        file.drop_cache(0..u64::MAX);
        let done = AtomicU64::new(0);
        timed(what, &format!("4 KiB random read, {depth} at a time"), "reads/s", RANDOM_READS, || {
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..depth).map(|_| scope.spawn(|| random_reads(&**file, bytes, &done))).collect();
                threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
            })
        })?;
    }
    let writes = 500;
    timed(what, "4 KiB write and sync", "writes/s", writes, || {
        for i in 0..writes {
            write_whole(&**file, &chunk[..4096], bytes + i * 4096)?;
            file.sync_data()?;
        }
        Ok(())
    })
}

fn write_whole(file: &dyn DiskFile, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = file.write_at(&[IoSlice::new(bytes)], at)?;
        (bytes, at) = (&bytes[written..], at + u64::try_from(written).expect("a length"));
    }
    Ok(())
}

fn random_reads(file: &dyn DiskFile, bytes: u64, done: &AtomicU64) -> io::Result<()> {
    let mut block = [0; 4096];
    loop {
        let number = done.fetch_add(1, Ordering::Relaxed);
        if number >= RANDOM_READS {
            return Ok(());
        }
        let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        file.read_at(&mut block, (mixed >> 8) % (bytes / 4096) * 4096)?;
    }
}

fn timed(
    what: &str,
    doing: &str,
    unit: &str,
    count: u64,
    act: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let (began, used) = (Instant::now(), processor_ms());
    act()?;
    let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
    let rate = count * 1_000_000 / took;
    println!("{what:24} {doing:30} {rate:>8} {unit:8} {:>6} ms of processor", processor_ms() - used);
    Ok(())
}

/// Processor time of this process so far.
fn processor_ms() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}
