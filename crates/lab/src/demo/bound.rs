//! The bound: what plain sockets and files achieve between as many processes, measured in the same run.
//!
//! Each of `width` peers is a process with its own file next to the drives' directories. For writes it
//! receives the bytes that a drive would, data and parity, into the page cache and syncs them. For reads it
//! sends what was just written from the page cache, once by read and send and once by sendfile; the faster
//! method counts. So the bytes are as cold as they are for a drive. This process talks to all peers at once,
//! with a thread for each and as much memory as the demo's own transfers, touched before. There is no
//! protocol, checksum, parity or hash. Rates count the user's bytes, so they compare with those of a copy.

use std::path::Path;
use std::time::Instant;
use std::{fs, io};

use braid_cli::demo::WINDOW_BYTES;
use braid_cli::output::exit::{Doing, Failure};
use braid_cli::output::rate::{self, Rate};
use braid_cli::output::size;

use super::peer::{Order, Peer, Session};

/// Rounds per method; the median counts.
const ROUNDS: usize = 3;
/// Limits of the bytes measured: fewer give no meaningful rate, more take too long.
const BYTES_MIN: u64 = 64 << 20;
pub(crate) const BYTES_MAX: u64 = WINDOW_BYTES;

/// Results of the measurement, in user bytes per second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    /// Rate at which bytes are received, written to files and synced, with parity.
    pub(crate) write: f64,
    /// Rate at which bytes are read from files and sent.
    copied: f64,
    /// Rate at which bytes are sent from files by sendfile.
    sendfile: f64,
    /// User bytes of one measurement.
    bytes: u64,
}

impl Bound {
    /// The rate of the faster method.
    pub(crate) fn read(&self) -> f64 {
        self.copied.max(self.sendfile)
    }

    /// The results as shown to users.
    pub(crate) fn show(&self) -> String {
        let copied = ("read and sent", self.copied);
        let sendfile = ("by sendfile", self.sendfile);
        let (better, other) =
            if self.copied >= self.sendfile { (copied, sendfile) } else { (sendfile, copied) };
        format!(
            "{} of a client's own: sent with parity, written and synced: {}; back from the files {}: {} ({}: {})",
            size::show(self.bytes),
            rate::show(self.write),
            better.0,
            rate::show(better.1),
            other.0,
            rate::show(other.1)
        )
    }
}

/// Measures all methods for `bytes` user bytes, striped over `k + m` peers. Their files are in `directory`, a
/// new directory that is removed at the end.
pub(crate) fn measure(k: u64, m: u64, bytes: u64, directory: &Path) -> Result<Bound, Failure> {
    let what = || "measure the bound".to_owned();
    let bytes = bytes.clamp(BYTES_MIN, BYTES_MAX);
    fs::create_dir(directory).doing(what)?;
    let start = |number| Peer::start(&directory.join(format!("peer-{number}")));
    let peers = (0..k + m).map(start).collect::<io::Result<Vec<Peer>>>().doing(what)?;
    // Not zeros: the system would map zeroed pages only on first use, within the timed part.
    let share = usize::try_from(bytes / (k + m)).unwrap_or(usize::MAX);
    let mut memory: Vec<Vec<u8>> = peers.iter().map(|_| vec![0xa5; share]).collect();
    let mut rate = |order, each| median(&peers, order, each, bytes, &mut memory).doing(what);
    let write = rate(Order::Take, bytes / k)?;
    let copied = rate(Order::GiveCopied, bytes / (k + m))?;
    let sendfile = rate(Order::GiveSendfile, bytes / (k + m))?;
    drop(peers);
    fs::remove_dir_all(directory).doing(what)?;
    Ok(Bound { write, copied, sendfile, bytes })
}

fn median(
    peers: &[Peer],
    order: Order,
    each: u64,
    user_bytes: u64,
    memory: &mut [Vec<u8>],
) -> io::Result<f64> {
    let mut rates = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let ready = |peer: &Peer| peer.order(order, each);
        let mut sessions = peers.iter().map(ready).collect::<io::Result<Vec<Session>>>()?;
        let began = Instant::now();
        std::thread::scope(|scope| {
            let run = |(session, memory): (&'_ mut Session, &'_ mut Vec<u8>)| session.run(memory);
            let ends: Vec<_> = sessions
                .iter_mut()
                .zip(memory.iter_mut())
                .map(|part| scope.spawn(move || run(part)))
                .collect();
            ends.into_iter()
                .try_for_each(|end| end.join().unwrap_or_else(|_| Err(io::Error::other("a thread failed"))))
        })?;
        rates.push(Rate { bytes: user_bytes, time: began.elapsed() }.bytes_per_second());
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[ROUNDS / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_way_of_reading_counts_and_both_are_named() {
        let gib = f64::from(1 << 30);
        let bound = Bound { write: gib, copied: 2.0 * gib, sendfile: 3.0 * gib, bytes: 64 << 20 };
        assert_eq!(bound.read(), 3.0 * gib);
        assert!(
            bound.show().contains("by sendfile: 3.00 GiB/s (read and sent: 2.00 GiB/s)"),
            "{}",
            bound.show()
        );
        let bound = Bound { sendfile: gib, ..bound };
        assert_eq!(bound.read(), 2.0 * gib);
        assert!(
            bound.show().contains("read and sent: 2.00 GiB/s (by sendfile: 1.00 GiB/s)"),
            "{}",
            bound.show()
        );
    }
}
