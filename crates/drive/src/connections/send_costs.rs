//! What it costs this machine's processors to send bytes of the page cache by a copy, and by `sendfile`.
//!
//! Which way is cheaper depends on the processor, its caches and the kernel: each was seen to win. So a drive
//! tries both: it sends a small file of its own over the loopback, piece by piece, and takes the processor
//! time of the sending thread and of the receiving one. To a peer on another machine the first counts, to one
//! on this machine both do.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};

/// Lengths of the reads that are tried, in bytes, in rising order.
pub(crate) const LENGTHS: [u32; 3] = [64 << 10, 256 << 10, 1 << 20];
/// Bytes of the file: more than a processor's own cache has, as what is read is seldom there.
const FILE_BYTES: usize = 16 << 20;
/// Times that each way is tried for each length. The cheapest counts: others were disturbed.
const ROUNDS: usize = 2;
/// Longest wait for the other end. It is a thread of this process.
const PEER_WAIT: Duration = Duration::from_secs(5);

/// Processor time of sending the whole file one way, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) sender_ns: u64,
    pub(crate) receiver_ns: u64,
}

/// The costs of both ways for one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) copy: Cost,
    pub(crate) sendfile: Cost,
}

impl Cost {
    /// Nothing is known to be dearer.
    const MOST: Cost = Cost { sender_ns: u64::MAX, receiver_ns: u64::MAX };

    /// Processor time of both ends.
    pub(crate) fn both_ns(self) -> u64 {
        self.sender_ns.saturating_add(self.receiver_ns)
    }

    /// The time in seconds for a GiB.
    pub(crate) fn seconds_per_gib(ns: u64) -> f64 {
        let gib = f64::from(1u32 << 30) / f64::from(u32::try_from(FILE_BYTES).expect("it is small"));
        Duration::from_nanos(ns).as_secs_f64() * gib
    }

    fn at_most(self, other: Cost) -> Cost {
        if other.both_ns() < self.both_ns() { other } else { self }
    }
}

/// Measures both ways, for each of [`LENGTHS`], with a file in this directory that has no name. Takes about a
/// tenth of a second. Fails where the file or the loopback is not to be had.
pub(crate) fn measure(directory: &Path) -> io::Result<[Pair; LENGTHS.len()]> {
    let file = nameless_file(directory)?;
    let (mut sender, receiver) = connected()?;
    let (told, costs) = mpsc::channel();
    let receiving = thread::Builder::new().name("send-costs".to_owned()).spawn(move || {
        let mut buffer = vec![1; FILE_BYTES];
        for _ in 0..ROUNDS * LENGTHS.len() * 2 {
            let began = thread_ns();
            let received = (&receiver).read_exact(&mut buffer).map(|()| thread_ns().saturating_sub(began));
            if told.send(received).is_err() {
                return;
            }
        }
    })?;
    let unknown = Pair { copy: Cost::MOST, sendfile: Cost::MOST };
    let mut pairs = [unknown; LENGTHS.len()];
    let mut buffer = Vec::new();
    for _ in 0..ROUNDS {
        for (pair, length) in pairs.iter_mut().zip(LENGTHS) {
            buffer.resize(usize::try_from(length).expect("it is small"), 1);
            let sender_ns = timed(|| send_copies(&mut sender, &file, &mut buffer))?;
            pair.copy = pair.copy.at_most(Cost { sender_ns, receiver_ns: received(&costs)? });
            let sender_ns = timed(|| send_file(&sender, &file, buffer.len()))?;
            pair.sendfile = pair.sendfile.at_most(Cost { sender_ns, receiver_ns: received(&costs)? });
        }
    }
    drop(sender);
    let _ = receiving.join();
    Ok(pairs)
}

/// The other end's processor time for the file.
fn received(costs: &mpsc::Receiver<io::Result<u64>>) -> io::Result<u64> {
    costs.recv_timeout(PEER_WAIT).map_err(io::Error::other)?
}

fn nameless_file(directory: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::TMPFILE.bits()).map_err(io::Error::other)?;
    let mut file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(directory)?;
    let mut piece = vec![0; 1 << 20];
    for (byte, value) in piece.iter_mut().zip((0u8..=250).cycle()) {
        *byte = value;
    }
    for _ in 0..FILE_BYTES / piece.len() {
        file.write_all(&piece)?;
    }
    Ok(file)
}

fn connected() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let sender = TcpStream::connect(listener.local_addr()?)?;
    let (receiver, _) = listener.accept()?;
    sender.set_write_timeout(Some(PEER_WAIT))?;
    receiver.set_read_timeout(Some(PEER_WAIT))?;
    Ok((sender, receiver))
}

fn send_copies(sender: &mut TcpStream, file: &File, buffer: &mut [u8]) -> io::Result<()> {
    for offset in (0..FILE_BYTES).step_by(buffer.len()) {
        file.read_exact_at(buffer, u64::try_from(offset).expect("it is small"))?;
        sender.write_all(buffer)?;
    }
    Ok(())
}

fn send_file(sender: &TcpStream, file: &File, length: usize) -> io::Result<()> {
    let mut at = 0;
    let all = u64::try_from(FILE_BYTES).expect("it is small");
    while at < all {
        let end = (at / u64::try_from(length).expect("it is small") + 1) * u64::try_from(length).expect("so");
        let left = usize::try_from(end - at).expect("at most the length");
        if rustix::fs::sendfile(sender, file, Some(&mut at), left)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Processor time of this thread meanwhile.
fn timed(mut work: impl FnMut() -> io::Result<()>) -> io::Result<u64> {
    let began = thread_ns();
    work()?;
    Ok(thread_ns().saturating_sub(began))
}

fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_take_time_and_leave_nothing_behind() {
        let directory = tempfile::tempdir().expect("a directory");
        let pairs = measure(directory.path()).expect("measured");
        for Pair { copy, sendfile } in pairs {
            for cost in [copy, sendfile] {
                assert!(cost.sender_ns > 0 && cost.receiver_ns > 0 && cost != Cost::MOST);
            }
        }
        assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 0);
        measure(Path::new("/proc/no such directory")).expect_err("no file can be there");
    }
}
