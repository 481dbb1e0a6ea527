//! Requests dealt out over the rails of a drive, and rails that are lost and return.
//!
//! [`Rails`](crate::peers::rails::Rails) decides; here are the connections. With one address there is nothing
//! to decide, and this costs next to nothing. With several, a request waits only until the first rail
//! answers; the others are tried aside, and used once they answer.
//!
//! A rail on which nothing arrives for [`SILENCE`] is called once more, aside. If it gives no hello, it is
//! lost: its requests go again on another rail at once. So a link that is cut without a word costs two
//! seconds, and a slow drive nothing.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braid_layout::DriveId;
use braid_transport::{DriveSession, Limits, TransportError};
use braid_wire::Addresses;
use braid_wire::control::DriveRow;
use tokio::time::Instant;

use crate::concurrent;
use crate::peers::drives::{Drives, Entries, entry_at};

/// Time without any answer after which a rail is called once more, if the drive has others.
const SILENCE: Duration = Duration::from_secs(1);
/// Longest wait for a connection on a rail, and for its hello, if the drive has others.
const CONNECT: Duration = Duration::from_secs(1);

/// One rail's part of the requests to a drive.
pub(crate) struct Share {
    /// The numbers of the requests, ascending.
    pub(crate) numbers: Vec<usize>,
    pub(crate) load: Load,
}

/// Bytes outstanding on a rail. What is not delivered before it is dropped is given up.
pub(crate) struct Load {
    entries: Arc<Entries>,
    began: Instant,
    drive: DriveId,
    pub(crate) address: String,
    left: u64,
}

/// A rail of a drive as a client has used it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RailUse {
    /// The drive.
    pub drive: DriveId,
    /// The rail's address.
    pub address: String,
    /// True if it answered when it was last used or tried.
    pub is_up: bool,
    /// Bytes of requests and answers that were dealt out over the rails and came through on this one. Those
    /// of small requests, which all go one way, are not counted.
    pub bytes: u64,
}

/// A rail of a drive as it was seen just now.
#[derive(Debug, Clone)]
pub struct RailSeen {
    /// The rail's address.
    pub address: String,
    /// Whether the drive answers there.
    pub reached: Reached,
}

/// Whether a drive answers on a rail.
#[derive(Debug, Clone)]
pub enum Reached {
    /// It took the connection and said its hello within this time: about two round trips.
    In(Duration),
    /// It did not, for this reason.
    Not(String),
}

impl Drives {
    /// Deals requests of these lengths out over the rails of a drive, all on one if they are to stay
    /// together. Waits until a rail answers if none is known to.
    pub(crate) async fn deal(
        &self,
        drive: DriveId,
        addresses: &Addresses,
        lengths: &[u64],
        together: bool,
    ) -> Result<Vec<Share>, TransportError> {
        self.try_lost_rails(drive, addresses);
        let mut last_error = None;
        // A rail that came up may be lost before it is used: once more then.
        for _ in 0..2 {
            if let Some(shares) = self.deal_now(drive, addresses, lengths, together) {
                return Ok(shares);
            }
            let began = Instant::now();
            match DriveSession::connect_first(addresses, drive, self.cluster, &self.limits).await {
                Ok(mut session) => {
                    session.count_sent(Arc::clone(&self.counts.sent));
                    let mut entries = self.entries.lock().expect("no holder panics");
                    entry_at(&mut entries, drive, addresses).keep(session, began.elapsed());
                }
                Err(error) => {
                    last_error = Some(error);
                    break;
                }
            }
        }
        let address = addresses.to_string();
        Err(last_error.unwrap_or(TransportError::Closed { address }))
    }

    fn deal_now(
        &self,
        drive: DriveId,
        addresses: &Addresses,
        lengths: &[u64],
        together: bool,
    ) -> Option<Vec<Share>> {
        let now = self.began.elapsed();
        let mut entries = self.entries.lock().expect("no holder panics");
        let entry = entry_at(&mut entries, drive, addresses);
        let all: u64 = lengths.iter().sum();
        let on_one = if together { Some(entry.rails.choose(now, all)?) } else { None };
        let mut parts: Vec<(Vec<usize>, u64)> = vec![Default::default(); entry.rails.count()];
        for (number, length) in lengths.iter().enumerate() {
            let at = on_one.map_or_else(|| entry.rails.choose(now, *length), Some)?;
            entry.rails.began(at, now, *length);
            parts[at].0.push(number);
            parts[at].1 += length;
        }
        let share = |(at, (numbers, left)): (usize, (Vec<usize>, u64))| {
            let address = entry.links[at].address.clone();
            let load = Load { entries: Arc::clone(&self.entries), began: self.began, drive, address, left };
            Share { numbers, load }
        };
        let used = parts.into_iter().enumerate().filter(|(_, (numbers, _))| !numbers.is_empty());
        Some(used.map(share).collect())
    }

    /// The bounds of waits on one of a drive's rails.
    pub(crate) fn limits_of_rail(&self, addresses: &Addresses) -> Limits {
        let alone = addresses.count() <= 1;
        let connect = if alone { self.limits.connect } else { self.limits.connect.min(CONNECT) };
        Limits { connect, ..self.limits }
    }

    /// Tries the lost rails whose pauses are over, each in a task of its own.
    pub(crate) fn try_lost_rails(&self, drive: DriveId, addresses: &Addresses) {
        if addresses.count() <= 1 {
            return;
        }
        let due: Vec<String> = {
            let mut entries = self.entries.lock().expect("no holder panics");
            let entry = entry_at(&mut entries, drive, addresses);
            let due = entry.rails.due(self.began.elapsed());
            due.into_iter().map(|at| entry.links[at].address.clone()).collect()
        };
        for address in due {
            let entries = Arc::clone(&self.entries);
            let cluster = self.cluster;
            let limits = self.limits;
            let origin = self.began;
            let sent = Arc::clone(&self.counts.sent);
            tokio::spawn(async move {
                let began = Instant::now();
                let tried = DriveSession::connect(&address, drive, cluster, &limits).await;
                let mut entries = entries.lock().expect("no holder panics");
                let Some(entry) = entries.get_mut(&drive) else { return };
                match tried {
                    Ok(mut session) => {
                        session.count_sent(sent);
                        tracing::debug!(drive = %drive.short(), address, "a rail answers");
                        entry.keep(session, began.elapsed());
                    }
                    Err(error) => {
                        tracing::debug!(drive = %drive.short(), address, %error, "a rail does not answer");
                        if let Some(at) = entry.rail(&address) {
                            entry.rails.failed(at, origin.elapsed());
                        }
                    }
                }
            });
        }
    }

    /// A rail of the drive broke: others are used in its place until it answers again.
    pub(crate) fn lose_rail(&self, drive: DriveId, address: &str, why: &str) {
        let mut entries = self.entries.lock().expect("no holder panics");
        let Some(entry) = entries.get_mut(&drive) else { return };
        let Some(at) = entry.rail(address) else { return };
        entry.forget_rail(at);
        if entry.rails.lost(at, self.began.elapsed()) {
            tracing::info!(drive = %drive.short(), address, why, "a rail of a drive was lost: others are used");
        }
    }

    /// Waits for something on one of several rails of a drive, and gives it up if the rail is dead: if for a
    /// while `progress` did not change, and the rail gives no hello.
    pub(crate) async fn unless_silent<T>(
        &self,
        drive: DriveId,
        address: &str,
        progress: &AtomicU64,
        work: impl Future<Output = Result<T, TransportError>>,
    ) -> Result<T, TransportError> {
        let limits = Limits { connect: self.limits.connect.min(CONNECT), ..self.limits };
        let silent = async {
            loop {
                let before = progress.load(Ordering::Relaxed);
                tokio::time::sleep(SILENCE).await;
                if progress.load(Ordering::Relaxed) != before {
                    continue;
                }
                let called = DriveSession::connect(address, drive, self.cluster, &limits).await;
                if let Err(error) = called
                    && progress.load(Ordering::Relaxed) == before
                {
                    return error;
                }
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            error = silent => Err(error),
        }
    }

    /// Calls drives on each of their rails, all at once.
    pub(crate) async fn see_rails(&self, drives: &[DriveRow]) -> Vec<Vec<RailSeen>> {
        let see = |row: &DriveRow| {
            let drive = row.drive;
            let calls = row.addresses.iter().map(str::to_owned).map(move |address| async move {
                let began = Instant::now();
                let called = DriveSession::connect(&address, drive, self.cluster, &self.limits).await;
                let reached = match called {
                    Ok(_) => Reached::In(began.elapsed()),
                    Err(error) => Reached::Not(error.to_string()),
                };
                RailSeen { address, reached }
            });
            concurrent::all(calls.collect::<Vec<_>>())
        };
        concurrent::all(drives.iter().map(see).collect::<Vec<_>>()).await
    }

    /// The rails that were used so far.
    pub(crate) fn rails(&self) -> Vec<RailUse> {
        let entries = self.entries.lock().expect("no holder panics");
        let of = |(drive, entry): (&DriveId, &crate::peers::drives::Entry)| {
            let of_link = |(at, link): (usize, &crate::peers::drives::Link)| RailUse {
                drive: *drive,
                address: link.address.clone(),
                is_up: entry.rails.is_up(at),
                bytes: link.bytes,
            };
            entry.links.iter().enumerate().map(of_link).collect::<Vec<_>>()
        };
        entries.iter().flat_map(of).collect()
    }
}

impl Load {
    /// A request of this many bytes was answered.
    pub(crate) fn delivered(&mut self, bytes: u64) {
        let bytes = bytes.min(self.left);
        self.left -= bytes;
        let mut entries = self.entries.lock().expect("no holder panics");
        if let Some(entry) = entries.get_mut(&self.drive)
            && let Some(at) = entry.rail(&self.address)
        {
            entry.rails.delivered(at, self.began.elapsed(), bytes);
            entry.links[at].bytes += bytes;
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.left == 0 {
            return;
        }
        if let Ok(mut entries) = self.entries.lock()
            && let Some(entry) = entries.get_mut(&self.drive)
            && let Some(at) = entry.rail(&self.address)
        {
            entry.rails.given_up(at, self.left);
        }
    }
}
