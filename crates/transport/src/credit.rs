//! The credit of one receiver ([`braid_credit`]), shared by all tasks that ask for something over its link.
//!
//! While it bounds nothing, a request costs some atomic additions and two looks at the clock; the lock is
//! taken about every 5 ms, and for answers that took longer. A [`Turn`] that is dropped gives its credit
//! back.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_credit::{Counts, Delivered, LATE_NS, POLL_NS, Receiver, SAMPLE_NS, SMALL_BYTES, Sent, Ticket};
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
    /// Set if a window bounded it.
    ticket: Option<Ticket>,
    bytes: u64,
    /// Time at which it was given.
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

    /// Returns true if those who send unasked are to ask for their turns before.
    pub fn are_congested(&self) -> bool {
        self.all().values().any(|credit| credit.is_congested())
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
        let mut ticket = None;
        let mut waited = Duration::ZERO;
        if !self.is_open() && bytes > SMALL_BYTES {
            let began = Instant::now();
            ticket = Some(self.ticket(caller, drive, bytes).await);
            waited = began.elapsed();
            let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
            self.waited_ns.fetch_add(nanos, Ordering::Relaxed);
        }
        let mut turn = self.on_their_way(bytes);
        (turn.ticket, turn.waited) = (ticket, waited);
        turn
    }

    /// Counts bytes that nobody asked for.
    pub fn on_their_way(self: &Arc<Self>, bytes: u64) -> Turn {
        let flying = self.flying.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(flying, Ordering::Relaxed);
        if bytes > self.largest.load(Ordering::Relaxed) {
            self.largest.fetch_max(bytes, Ordering::Relaxed);
        }
        let delivered = self.delivered.load(Ordering::Relaxed);
        let waited = Duration::ZERO;
        Turn { credit: Arc::clone(self), ticket: None, bytes, at: self.now(), flying, delivered, waited }
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

    /// The transport has seen that something on its way here was lost.
    pub fn lost(&self) {
        self.state().receiver.handle_loss(self.now());
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

    /// Counts its time from now on: until here it was its peer's.
    pub fn restart(&mut self) {
        self.at = self.credit.now();
        self.delivered = self.credit.delivered.load(Ordering::Relaxed);
    }

    /// Returns true if it is time to look for losses: its answer took long, or none was looked at lately.
    pub fn is_worth_a_look(&self) -> bool {
        let now = self.credit.now();
        let sampled = self.credit.sampled.load(Ordering::Relaxed);
        now.saturating_sub(self.at) >= LATE_NS || now.saturating_sub(sampled) >= SAMPLE_NS
    }

    /// All of the answer is there. `is_lossy`: segments of its connection were lost lately.
    pub fn arrived(self, is_lossy: bool) {
        let credit = &self.credit;
        let now = credit.now();
        let all = credit.delivered.fetch_add(self.bytes, Ordering::Relaxed) + self.bytes;
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
        if is_due {
            let largest = credit.largest.load(Ordering::Relaxed);
            let flying = credit.flying.load(Ordering::Relaxed);
            let delivered = Delivered { bytes: all, largest, took: now.saturating_sub(self.at), flying };
            state.receiver.handle_delivered(now, delivered);
        }
        if is_late {
            let on_way = credit.flying.load(Ordering::Relaxed);
            let flying = credit.peak.swap(on_way, Ordering::Relaxed).max(self.flying);
            let sent = Sent { at: self.at, arrived: now, flying, delivered: all - self.delivered };
            let largest = credit.largest.swap(self.bytes, Ordering::Relaxed);
            state.receiver.handle_late(sent, largest);
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
