//! The rails of a drive for a list of requests, and rails that are lost and return.
//!
//! [`Rails`](crate::peers::rails::Rails) decides; here are the connections. With one address there is nothing
//! to decide, and this costs next to nothing. With several, a request waits only until the first rail
//! answers; the others are tried aside, and used once they answer. Whether a rail that is silent is dead,
//! [`calls`](crate::peers::calls) find out.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::DriveId;
use braid_transport::ways::{self, Call};
use braid_transport::{DriveSession, Limits, Transport, TransportError};
use braid_wire::Addresses;
use braid_wire::addresses::RAILS_MAX;
use braid_wire::control::{DriveRow, Grant};
use tokio::time::Instant;

use crate::concurrent;
use crate::peers::drives::{Drives, Entries, entry_at};

/// Longest wait for a connection on a rail, and for its hello, if the drive has others.
pub(super) const CONNECT: Duration = Duration::from_secs(1);

/// Maximum number of times that some rail breaks while a list of requests is dealt out over a drive's rails.
const BROKEN_MAX: usize = 2 * RAILS_MAX;

/// The bytes of one list of requests that are outstanding on a rail. Those that are not delivered before it
/// is dropped are given up. Where there is nothing to choose, the client's tables are left alone until then.
pub(crate) struct Load {
    entries: Arc<Entries>,
    began: Instant,
    drive: DriveId,
    pub(crate) address: String,
    /// The drive's addresses as the list names them; `None`: it has no other rail, so all is taken.
    among: Option<Addresses>,
    /// True if the list names no other rail: what is outstanding on it decides nothing.
    is_only: bool,
    outstanding: u64,
    /// Bytes that were delivered on an only rail.
    delivered: u64,
}

/// A rail of a drive as a client has used it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RailUse {
    /// The drive that the rail leads to.
    pub drive: DriveId,
    /// Address of the rail.
    pub address: String,
    /// True if it answered when it was last used or tried, or if there is no other.
    pub is_up: bool,
    /// Bytes of requests and answers that were dealt out over the rails and came through on this one. Those
    /// of small requests, which all go one way, are not counted.
    pub bytes: u64,
}

/// A rail of a drive as it was seen just now.
#[derive(Debug, Clone)]
pub struct RailSeen {
    /// Address of the rail.
    pub address: String,
    /// The outcome of the call.
    pub reached: Reached,
    /// The outcome of a call by datagrams.
    pub datagrams: Datagrams,
}

/// The outcome of a call by datagrams, which asks for no connection.
#[derive(Debug, Clone)]
pub enum Datagrams {
    /// They are not to be used.
    NotAsked,
    /// They were answered within this time: about two round trips.
    In(Duration),
    /// They were not, for this reason.
    Not(String),
}

/// The outcome of a call to a drive on one of its rails.
#[derive(Debug, Clone)]
pub enum Reached {
    /// It took the connection and said its hello within this time: about two round trips.
    In(Duration),
    /// It did not, for this reason.
    Not(String),
}

/// The way in which a list of requests is dealt out over the rails of a drive, until all are answered.
pub(crate) struct Deals {
    /// True if all requests of the list stay on one rail.
    together: bool,
    /// True if the next deal is to one rail, which takes all.
    pub(crate) to_one: bool,
    /// Number of deals in which a rail broke, or there was none.
    broken: usize,
}

impl Deals {
    pub(crate) fn new(together: bool) -> Deals {
        Deals { together, to_one: together, broken: 0 }
    }

    pub(crate) fn may_go_on(&self) -> bool {
        self.broken < BROKEN_MAX
    }

    /// A deal ended: no rail broke, or some did, and something was answered, or nothing was. If all rails
    /// were up and left all requests to each other, which happens as other lists begin and end meanwhile, the
    /// next deal is to one.
    pub(crate) fn ended(&mut self, is_whole: bool, is_answered: bool) {
        let is_idle = is_whole && !is_answered;
        if !is_whole || (is_idle && self.to_one) {
            self.broken += 1;
        }
        self.to_one = self.together || is_idle;
    }
}

impl Drives {
    /// The rails of a drive that may carry requests: all that are up, or for requests that are to stay
    /// `together`, of this many bytes in all, the best of them. Waits until one answers if none is known to.
    pub(crate) async fn rails_for(
        &self,
        drive: DriveId,
        addresses: &Addresses,
        together: Option<u64>,
        grant: Option<&Grant>,
    ) -> Result<Vec<Load>, TransportError> {
        self.try_lost_rails(drive, addresses, grant);
        let loads = self.rails_up(drive, addresses, together);
        if !loads.is_empty() {
            return Ok(loads);
        }
        let began = Instant::now();
        let call = self.call(drive, &self.limits, grant);
        let mut session = self.ways.connect_first(addresses, call).await?;
        session.count_sent(Arc::clone(&self.counts.sent));
        {
            let mut entries = self.entries.lock().expect("no holder panics");
            entry_at(&mut entries, drive, addresses).keep(session, began.elapsed());
        }
        Ok(self.rails_up(drive, addresses, together))
    }

    fn rails_up(&self, drive: DriveId, addresses: &Addresses, together: Option<u64>) -> Vec<Load> {
        let mut entries = self.entries.lock().expect("no holder panics");
        let entry = entry_at(&mut entries, drive, addresses);
        let among = entry.among(addresses);
        let is_only = among.is_one();
        let chosen = match together {
            Some(bytes) => entry.rails.choose(among, self.began.elapsed(), bytes).into_iter().collect(),
            None => entry.rails.fastest(among),
        };
        let load = |at: usize| Load {
            entries: Arc::clone(&self.entries),
            began: self.began,
            drive,
            address: entry.links[at].address.clone(),
            among: (together.is_none() && !is_only).then(|| addresses.clone()),
            is_only,
            outstanding: 0,
            delivered: 0,
        };
        chosen.into_iter().map(load).collect()
    }

    /// The bounds of waits on one of a drive's rails.
    pub(crate) fn limits_of_rail(&self, addresses: &Addresses) -> Limits {
        let alone = addresses.count() <= 1;
        let connect = if alone { self.limits.connect } else { self.limits.connect.min(CONNECT) };
        Limits { connect, ..self.limits }
    }

    /// Tries the lost rails whose pauses are over, each in a task of its own.
    pub(crate) fn try_lost_rails(&self, drive: DriveId, addresses: &Addresses, grant: Option<&Grant>) {
        if addresses.count() <= 1 {
            return;
        }
        let due: Vec<String> = {
            let mut entries = self.entries.lock().expect("no holder panics");
            let entry = entry_at(&mut entries, drive, addresses);
            let due = entry.rails.due(entry.among(addresses), self.began.elapsed());
            due.into_iter().map(|at| entry.links[at].address.clone()).collect()
        };
        for address in due {
            let entries = Arc::clone(&self.entries);
            let home = self.home();
            let limits = self.limits;
            let grant = grant.cloned();
            let ways = Arc::clone(&self.ways);
            let origin = self.began;
            let sent = Arc::clone(&self.counts.sent);
            tokio::spawn(async move {
                let began = Instant::now();
                let call = Call { expect: drive, home, limits: &limits, grant: grant.as_ref() };
                let tried = ways.connect(&address, call).await;
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

    /// Calls drives on each of their rails, all at once.
    pub(crate) async fn see_rails(&self, drives: &[DriveRow]) -> Vec<Vec<RailSeen>> {
        let see = |row: &DriveRow| {
            let drive = row.drive;
            let calls = row.addresses.iter().map(str::to_owned).map(move |address| async move {
                let began = Instant::now();
                let called = DriveSession::connect(&address, drive, self.home(), &self.limits).await;
                let reached = match called {
                    Ok(_) => Reached::In(began.elapsed()),
                    Err(error) => Reached::Not(error.to_string()),
                };
                let datagrams = self.datagrams_at(&address).await;
                RailSeen { address, reached, datagrams }
            });
            concurrent::all(calls.collect::<Vec<_>>())
        };
        concurrent::all(drives.iter().map(see).collect::<Vec<_>>()).await
    }

    /// Looks whether datagrams come through to these addresses, all at once.
    pub(crate) async fn see_datagrams(&self, addresses: Vec<String>) -> Vec<Datagrams> {
        let see = |address: String| async move { self.datagrams_at(&address).await };
        concurrent::all(addresses.into_iter().map(see).collect::<Vec<_>>()).await
    }

    /// Looks whether datagrams come through to this address, if they are to be used.
    async fn datagrams_at(&self, address: &str) -> Datagrams {
        if self.ways.transport() == Transport::Tcp {
            return Datagrams::NotAsked;
        }
        let limits = Limits { connect: self.limits.connect.min(CONNECT), ..self.limits };
        match ways::probe(address, &limits).await {
            Ok(took) => Datagrams::In(took),
            Err(why) => Datagrams::Not(why),
        }
    }

    /// The rails that were used so far.
    pub(crate) fn rails(&self) -> Vec<RailUse> {
        let entries = self.entries.lock().expect("no holder panics");
        let of = |(drive, entry): (&DriveId, &crate::peers::drives::Entry)| {
            let of_link = |(at, link): (usize, &crate::peers::drives::Link)| RailUse {
                drive: *drive,
                address: link.address.clone(),
                is_up: entry.rails.is_up(at) || entry.links.len() == 1,
                bytes: link.bytes,
            };
            entry.links.iter().enumerate().map(of_link).collect::<Vec<_>>()
        };
        entries.iter().flat_map(of).collect()
    }
}

impl Load {
    /// Takes a request of this many bytes, of `left` bytes that nobody has taken. Returns false if it is left
    /// to another rail.
    pub(crate) fn take(&mut self, bytes: u64, left: u64) -> bool {
        if self.is_only {
            self.outstanding += bytes;
            return true;
        }
        let mut entries = self.entries.lock().expect("no holder panics");
        let Some(entry) = entries.get_mut(&self.drive) else { return true };
        let Some(at) = entry.rail(&self.address) else { return true };
        let now = self.began.elapsed();
        if let Some(addresses) = &self.among
            && !entry.rails.takes(at, entry.among(addresses), now, bytes, left)
        {
            return false;
        }
        entry.rails.began(at, now, bytes);
        self.outstanding += bytes;
        true
    }

    /// A request of this many bytes was answered.
    pub(crate) fn delivered(&mut self, bytes: u64) {
        let bytes = bytes.min(self.outstanding);
        self.outstanding -= bytes;
        if self.is_only {
            self.delivered += bytes;
            return;
        }
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
        let given_up = if self.is_only { 0 } else { self.outstanding };
        if (given_up > 0 || self.delivered > 0)
            && let Ok(mut entries) = self.entries.lock()
            && let Some(entry) = entries.get_mut(&self.drive)
            && let Some(at) = entry.rail(&self.address)
        {
            entry.rails.given_up(at, given_up);
            entry.links[at].bytes += self.delivered;
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::ClusterId;

    use super::*;

    #[tokio::test]
    async fn an_only_rail_takes_all_and_tells_at_the_end() {
        let drives = Drives::new(ClusterId(1), Limits::default(), 4, Duration::ZERO);
        let drive = DriveId(7);
        let mut loads = drives.rails_for(drive, &"127.0.0.1:1".into(), None, None).await.expect("it is up");
        let mut load = loads.pop().expect("there is one");
        // Nothing else is asked: the tables are locked all the while.
        let entries = drives.entries.lock().expect("no holder panics");
        assert!(load.take(100, 1000) && load.take(100, 900));
        load.delivered(100);
        assert_eq!(entries[&drive].links[0].bytes, 0);
        drop(entries);
        drop(load);
        assert_eq!(drives.rails()[0].bytes, 100);
    }

    #[test]
    fn rails_that_leave_requests_to_each_other_are_not_broken() {
        let mut deals = Deals::new(false);
        for _ in 0..BROKEN_MAX {
            deals.ended(true, false);
            assert!(deals.to_one, "one rail takes what all have left");
            deals.ended(true, true);
            assert!(!deals.to_one);
        }
        assert!(deals.may_go_on(), "no rail broke");
        // The wait for one that works is bounded.
        (0..BROKEN_MAX).for_each(|_| deals.ended(false, true));
        assert!(!deals.may_go_on());
        let mut deals = Deals::new(true);
        (0..BROKEN_MAX).for_each(|_| deals.ended(true, false));
        assert!(!deals.may_go_on(), "there was no rail to send on");
    }
}
