//! The credit of one receiver ([`braid_credit`]), shared by all tasks that ask for something over its link.
//!
//! While it bounds nothing, a request costs some atomic additions and three looks at the clock; the lock is
//! taken about every 5 ms, and for answers that took longer. A [`Turn`] that is dropped gives its credit
//! back.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_credit::{Counts, LATE_NS, POLL_NS, Receiver, SAMPLE_NS, SMALL_BYTES, Sent, Ticket};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// The credit of one receiver.
#[derive(Debug)]
pub struct Credit {
    began: Instant,
    /// True while the receiver bounds nothing and nothing waits.
    is_open: AtomicBool,
    /// Bytes on their way, and the most of them since the last sample.
    flying: AtomicU64,
    peak: AtomicU64,
    /// Bytes that have arrived so far.
    delivered: AtomicU64,
    /// Time of the last sample.
    sampled: AtomicU64,
    /// Bytes of the largest request since the last answer that took long.
    largest: AtomicU64,
    waited_ns: AtomicU64,
    state: Mutex<State>,
}

/// The credits of this machine's links, by their addresses.
#[derive(Debug, Default)]
pub struct Credits(Mutex<BTreeMap<IpAddr, Arc<Credit>>>);

#[derive(Debug, Default)]
struct State {
    receiver: Receiver,
    /// Those that wait.
    waiting: BTreeMap<Ticket, oneshot::Sender<()>>,
}

/// Leave to ask for some bytes. It counts as on its way until it has [`Turn::arrived`] or is dropped.
#[derive(Debug)]
#[must_use]
pub struct Turn {
    credit: Arc<Credit>,
    /// Peer whose bytes they are.
    peer: u128,
    /// Set if a window bounded it.
    ticket: Option<Ticket>,
    /// Bytes on their way under it, and the time at which they began.
    bytes: u64,
    at: u64,
    flying: u64,
    /// Bytes that had arrived until then.
    delivered: u64,
    waited: Duration,
}

/// A request that waits; dropping it gives it up.
struct Waiting<'a> {
    credit: &'a Credit,
    ticket: Option<Ticket>,
}

impl Credits {
    /// The credit of the link with this address.
    pub fn of(&self, link: IpAddr) -> Arc<Credit> {
        Arc::clone(self.all().entry(link).or_default())
    }

    /// Everything seen so far, by link.
    pub fn counts(&self) -> Vec<(IpAddr, Counts)> {
        self.all().iter().map(|(&link, credit)| (link, credit.counts())).collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Arc<Credit>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Credit {
    fn default() -> Credit {
        Credit {
            began: Instant::now(),
            is_open: AtomicBool::new(true),
            flying: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            sampled: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }
}

impl Credit {
    /// Waits until this many bytes of a drive may be asked for: at most two seconds. Callers take turns.
    pub async fn turn(self: &Arc<Self>, caller: u64, drive: u128, bytes: u64) -> Turn {
        let mut turn = self.leave(caller, drive, bytes).await;
        turn.begin(bytes);
        turn
    }

    /// Like [`Credit::turn`], for a peer that will send them: they are on their way from [`Turn::begin`] on.
    pub async fn leave(self: &Arc<Self>, caller: u64, peer: u128, bytes: u64) -> Turn {
        let mut turn = self.unasked(peer);
        if !self.is_open() && bytes > SMALL_BYTES {
            let began = Instant::now();
            turn.ticket = Some(self.ticket(caller, peer, bytes).await);
            turn.waited = began.elapsed();
            let nanos = u64::try_from(turn.waited.as_nanos()).unwrap_or(u64::MAX);
            self.waited_ns.fetch_add(nanos, Ordering::Relaxed);
        }
        turn
    }

    /// A turn for what a peer sends though nobody asked for it: nothing bounds it.
    pub fn unasked(self: &Arc<Self>, peer: u128) -> Turn {
        let credit = Arc::clone(self);
        let waited = Duration::ZERO;
        Turn { credit, peer, ticket: None, bytes: 0, at: 0, flying: 0, delivered: 0, waited }
    }

    /// Bytes that may be on their way; `None`: nothing is bounded.
    pub fn window(&self) -> Option<u64> {
        if self.is_open() { None } else { self.state().receiver.counts().window }
    }

    /// Returns true if nothing is bounded.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Returns true if those who send unasked are to ask for a turn before.
    pub fn is_congested(&self) -> bool {
        !self.is_open() && self.state().receiver.is_congested(self.now())
    }

    async fn ticket(&self, caller: u64, drive: u128, bytes: u64) -> Ticket {
        let (ticket, mut told) = {
            let mut state = self.state();
            let (ticket, goes) = state.receiver.handle_request(self.now(), caller, drive, bytes);
            if goes {
                return ticket;
            }
            let (tell, told) = oneshot::channel();
            state.waiting.insert(ticket, tell);
            (ticket, told)
        };
        let mut waiting = Waiting { credit: self, ticket: Some(ticket) };
        // What is on its way may be lost, and then nobody calls: look from time to time.
        while timeout(Duration::from_nanos(POLL_NS), &mut told).await.is_err() {
            self.poll(&mut self.state());
        }
        waiting.ticket.take();
        ticket
    }

    /// Everything seen so far.
    pub fn counts(&self) -> Counts {
        let flying = self.flying.load(Ordering::Relaxed);
        let waited_ns = self.waited_ns.load(Ordering::Relaxed);
        Counts { flying, waited_ns, ..self.state().receiver.counts() }
    }

    /// Lets those go whose turn it is. What waits is told in any case, so nobody waits who need not.
    fn poll(&self, state: &mut State) {
        let now = self.now();
        while let Some(ticket) = state.receiver.poll_send(now) {
            let told = state.waiting.remove(&ticket).map(|tell| tell.send(()));
            if told != Some(Ok(())) {
                // Its caller is gone.
                state.receiver.handle_end(ticket);
            }
        }
        self.is_open.store(state.receiver.is_open(), Ordering::Release);
    }

    fn end(&self, ticket: Ticket) {
        let mut state = self.state();
        state.waiting.remove(&ticket);
        state.receiver.handle_end(ticket);
        self.poll(&mut state);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Time for which the request waited for its turn.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// This many bytes are on their way from now on.
    pub fn begin(&mut self, bytes: u64) {
        let credit = &self.credit;
        self.bytes = bytes;
        self.flying = credit.flying.fetch_add(bytes, Ordering::Relaxed) + bytes;
        credit.peak.fetch_max(self.flying, Ordering::Relaxed);
        if bytes > credit.largest.load(Ordering::Relaxed) {
            credit.largest.fetch_max(bytes, Ordering::Relaxed);
        }
        self.delivered = credit.delivered.load(Ordering::Relaxed);
        self.at = credit.now();
    }

    /// Returns true if it is time to look for losses: its answer took long, or none was looked at lately.
    pub fn is_worth_a_look(&self) -> bool {
        let now = self.credit.now();
        let sampled = self.credit.sampled.load(Ordering::Relaxed);
        now.saturating_sub(self.at) >= LATE_NS || now.saturating_sub(sampled) >= SAMPLE_NS
    }

    /// All of the answer is there, with a payload of so many bytes. `is_lossy`: segments of its connection
    /// were lost lately.
    pub fn arrived(self, bytes: u64, is_lossy: bool) {
        let credit = &self.credit;
        if bytes == 0 {
            // A hole or a refusal tells nothing of the link.
            if is_lossy {
                credit.state().receiver.handle_loss(credit.now());
            }
            return;
        }
        let now = credit.now();
        let all = credit.delivered.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let sampled = credit.sampled.load(Ordering::Relaxed);
        let is_due = now.saturating_sub(sampled) >= SAMPLE_NS
            && credit.sampled.compare_exchange(sampled, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let is_late = now.saturating_sub(self.at) >= LATE_NS;
        if !is_due && !is_late && !is_lossy {
            return;
        }
        let mut state = credit.state();
        if is_lossy {
            state.receiver.handle_loss(now);
        }
        let on_way = credit.flying.load(Ordering::Relaxed);
        let sent = Sent {
            peer: self.peer,
            bytes,
            at: self.at,
            arrived: now,
            flying: self.flying.max(on_way),
            delivered: all - self.delivered,
        };
        if is_due {
            state.receiver.handle_delivered(sent, all, credit.largest.load(Ordering::Relaxed));
        }
        if is_late {
            let flying = credit.peak.swap(on_way, Ordering::Relaxed).max(self.flying);
            let largest = credit.largest.swap(bytes, Ordering::Relaxed);
            state.receiver.handle_late(Sent { flying, ..sent }, largest);
        }
        credit.poll(&mut state);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.credit.flying.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(ticket) = self.ticket.take() {
            self.credit.end(ticket);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.credit.end(ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// The rate after answers to reads of 64 KiB, a hundred a second, each with so many bytes.
    async fn rate(bytes: u64) -> u64 {
        let credit = Arc::new(Credit::default());
        for _ in 0..300 {
            let turn = credit.turn(1, 1, 64 << 10).await;
            advance(Duration::from_millis(10)).await;
            turn.arrived(bytes, false);
        }
        assert_eq!(credit.counts().flying, 0);
        credit.counts().rate
    }

    #[tokio::test(start_paused = true)]
    async fn only_bytes_that_came_count() {
        assert_eq!([rate(0).await, rate(1000).await, rate(64 << 10).await], [0, 100_000, 6_553_600]);
    }
}
