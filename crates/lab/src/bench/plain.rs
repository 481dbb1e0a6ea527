//! Plain processes: each has a file, and sends it or writes what it is sent. What they do with sockets and
//! files is the bound of what drives can do.

use std::path::Path;
use std::time::Instant;
use std::{fs, io};

use braid_bench::against::Taken;
use braid_cli::machine::process::CpuTicks;
use braid_cli::output::exit::{Doing, Failure};
use rustix::time::{ClockId, clock_gettime};

use crate::demo::peer::{Order, Peer, Session};

/// Memory of this process for each of them.
const MEMORY_BYTES: usize = 32 << 20;

/// As many plain processes as there are drives.
pub(super) struct Plain {
    peers: Vec<Peer>,
    memory: Vec<Vec<u8>>,
    /// Bytes that each one's file has.
    filled: u64,
}

impl Plain {
    /// Starts `count` processes, whose files are in a new directory below `parent`, which is removed with it.
    pub(super) fn start(parent: &Path, count: usize) -> Result<Plain, Failure> {
        let what = || "start plain processes".to_owned();
        let directory = parent.join("plain");
        fs::create_dir_all(&directory).doing(what)?;
        let start = |number| Peer::start(&directory.join(format!("peer-{number}")));
        let peers = (0..count).map(start).collect::<io::Result<Vec<Peer>>>().doing(what)?;
        // Not zeros: the system would map zeroed pages only on first use, within the timed part.
        let memory = peers.iter().map(|_| vec![0xa5; MEMORY_BYTES]).collect();
        Ok(Plain { peers, memory, filled: 0 })
    }

    /// Moves `bytes` bytes in all, the same with each process, all at once. The rate counts all bytes; the
    /// processor time is that of these processes and of this one.
    pub(super) fn run(&mut self, order: Order, bytes: u64) -> Result<Taken, Failure> {
        tokio::task::block_in_place(|| self.moved(order, bytes)).doing(|| "run plain processes".into())
    }

    /// As [`Plain::run`] by sendfile, with the processor time of the senders alone.
    pub(super) fn senders(&mut self, bytes: u64) -> Result<Taken, Failure> {
        let what = || "run plain processes".to_owned();
        self.run(Order::GiveSendfile, bytes)?;
        let before = self.peers_us().doing(what)?;
        let taken = self.run(Order::GiveSendfile, bytes)?;
        let cpu_us = self.peers_us().doing(what)? - before;
        let each = bytes / u64::try_from(self.peers.len()).unwrap_or(1).max(1);
        let moved = each * u64::try_from(self.peers.len()).unwrap_or(1);
        Ok(Taken { cpu: Taken::rate(moved, 1.0, cpu_us).cpu, ..taken })
    }

    fn moved(&mut self, order: Order, bytes: u64) -> io::Result<Taken> {
        let each = bytes / u64::try_from(self.peers.len()).unwrap_or(1).max(1);
        let gives = matches!(order, Order::GiveCopied | Order::GiveSendfile);
        if gives && self.filled < each {
            self.go(Order::Take, each)?;
            self.filled = each;
        }
        if order == Order::Take {
            self.filled = each;
        }
        let before = self.cpu_us()?;
        let seconds = self.go(order, each)?;
        let moved = each * u64::try_from(self.peers.len()).unwrap_or(1);
        Ok(Taken::rate(moved, seconds, self.cpu_us()? - before))
    }

    fn go(&mut self, order: Order, each: u64) -> io::Result<f64> {
        let ready = |peer: &Peer| peer.order(order, each);
        let mut sessions = self.peers.iter().map(ready).collect::<io::Result<Vec<Session>>>()?;
        let began = Instant::now();
        std::thread::scope(|scope| {
            let parts = sessions.iter_mut().zip(&mut self.memory);
            let ends: Vec<_> =
                parts.map(|(session, memory)| scope.spawn(move || session.run(memory))).collect();
            ends.into_iter()
                .try_for_each(|end| end.join().unwrap_or_else(|_| Err(io::Error::other("a thread failed"))))
        })?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Processor time of all processes so far, in microseconds.
    fn cpu_us(&self) -> io::Result<f64> {
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let own = std::time::Duration::try_from(own).unwrap_or_default().as_secs_f64() * 1e6;
        Ok(own + self.peers_us()?)
    }

    /// The same of the other processes.
    fn peers_us(&self) -> io::Result<f64> {
        let peers = self.peers.iter().map(|peer| CpuTicks::of(peer.pid()));
        let ticks = peers.map(|ticks| ticks.map(|of| of.user + of.kernel)).sum::<io::Result<u64>>()?;
        let a_second = u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1);
        Ok(f64::from(u32::try_from(ticks).unwrap_or(u32::MAX)) * 1e6 / f64::from(a_second))
    }
}
