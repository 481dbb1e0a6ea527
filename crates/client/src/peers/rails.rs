//! Which rail of a drive carries the next request: a table without sockets or clock.
//!
//! A rail that answers is *up*. Each takes the next request as soon as it has room for one in flight, so
//! that all are busy as long as there is something to do, and carry in proportion to what they deliver. But a
//! rail does not take what another would sooner be done with, together with all that is left: the last
//! requests do not wait for a slow rail. (Dealing all out beforehand, by what rails were measured to deliver,
//! fails where drives share a link: there a rail delivers what it is asked for, and what was measured
//! drifts.)
//!
//! What a rail delivers is measured while something is outstanding on it: bytes answered for, by the time
//! that they took, with more weight on what is recent.
//! A rail that was not measured yet is taken for as good as the best. One that is not used is taken for twice
//! as good with every second, up to better than the best, so that a rail which was slow once is tried again.
//!
//! A rail that was lost is tried aside, by a connection and nothing else, after pauses that grow.
//!
//! Files that were opened at different times may name different addresses of a drive. So the rails are those
//! that any names, and each question is about [`Among`] some of them. If that is one, it is always up: there
//! is no other to use.
//!
//! Times are durations since any fixed moment.

use std::time::Duration;

/// Busy time after which what was measured before counts for half.
const MEASURED: Duration = Duration::from_millis(250);
/// First pause before a lost rail is tried again. It doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(250);
/// Longest pause before a lost rail is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(16);
/// Time after which a rail that is not used is taken for twice as good.
const DOUBLING_SECONDS: f64 = 1.0;
/// Bytes a second of all rails as long as none was measured: only their ratios count.
const UNMEASURED: f64 = 1e6;

/// The rails of one drive, by their numbers. A number holds until a rail is removed.
#[derive(Debug, Default)]
pub(crate) struct Rails(Vec<Rail>);

/// Some of a drive's rails, by their numbers: those below 64.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Among(u64);

#[derive(Debug)]
struct Rail {
    state: State,
    /// Bytes of requests without an answer yet.
    outstanding: u64,
    /// Time of the last answer, or of the first request since nothing was outstanding.
    since: Duration,
    /// Bytes delivered in `busy`; both are halved now and then.
    delivered: f64,
    /// Time in which `delivered` was delivered, in seconds.
    busy: f64,
    /// Time that a connection and the drive's hello took when the rail came up.
    greeting: Duration,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Up,
    /// The rail did not answer, or was never tried.
    Away {
        /// Time from which on it is to be tried.
        until: Duration,
        /// The next pause.
        pause: Duration,
        /// True while it is tried.
        trying: bool,
    },
}

impl Among {
    pub(crate) const ALL: Among = Among(u64::MAX);

    pub(crate) fn has(self, at: usize) -> bool {
        u32::try_from(at).ok().and_then(|at| self.0.checked_shr(at)).is_some_and(|bits| bits & 1 == 1)
    }

    /// Returns true if there is one rail, so nothing to choose.
    pub(crate) fn is_one(self) -> bool {
        self.0.is_power_of_two()
    }
}

impl FromIterator<usize> for Among {
    fn from_iter<I: IntoIterator<Item = usize>>(rails: I) -> Among {
        Among(rails.into_iter().fold(0, |all, at| all | (1 << at)))
    }
}

impl Rails {
    /// Adds a rail that is to be tried at once. It gets the next number.
    pub(crate) fn add(&mut self) {
        self.0.push(Rail::untried());
    }

    /// Removes a rail: those after it get the numbers before theirs.
    pub(crate) fn remove(&mut self, at: usize) {
        self.0.remove(at);
    }

    /// The rail for a request of this many bytes; `None` if none is up.
    pub(crate) fn choose(&self, among: Among, now: Duration, bytes: u64) -> Option<usize> {
        let best = self.best(among);
        let wait =
            |rail: &Rail| as_f64(rail.outstanding.saturating_add(bytes.max(1))) / rail.supposed(now, best);
        self.up(among).map(|(at, rail)| (at, wait(rail))).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
    }

    /// Returns true if a rail is to take a request of this many bytes, out of requests of `left` bytes that
    /// nobody has taken: unless another would be done with all of them sooner than this one with the request.
    pub(crate) fn takes(&self, at: usize, among: Among, now: Duration, bytes: u64, left: u64) -> bool {
        let best = self.best(among);
        let done = |rail: &Rail, bytes: u64| {
            as_f64(rail.outstanding.saturating_add(bytes.max(1))) / rail.supposed(now, best)
        };
        let here = done(&self.0[at], bytes);
        self.up(among)
            .filter(|(other, _)| *other != at)
            .all(|(_, other)| here <= done(other, left.max(bytes)))
    }

    /// The greatest rate that was measured, in bytes a second.
    fn best(&self, among: Among) -> f64 {
        let rates = self.up(among).filter_map(|(_, rail)| rail.rate());
        rates
            .fold(None, |best: Option<f64>, rate| Some(best.map_or(rate, |best| best.max(rate))))
            .unwrap_or(UNMEASURED)
    }

    /// The rails that are up, the one that greeted fastest first.
    pub(crate) fn fastest(&self, among: Among) -> Vec<usize> {
        let mut up: Vec<usize> = self.up(among).map(|(at, _)| at).collect();
        up.sort_by_key(|at| self.0[*at].greeting);
        up
    }

    fn up(&self, among: Among) -> impl Iterator<Item = (usize, &Rail)> {
        let is_up = move |rail: &Rail| among.is_one() || rail.state == State::Up;
        self.0.iter().enumerate().filter(move |(at, rail)| among.has(*at) && is_up(rail))
    }

    /// A request of this many bytes is sent on a rail.
    pub(crate) fn began(&mut self, at: usize, now: Duration, bytes: u64) {
        let rail = &mut self.0[at];
        if rail.outstanding == 0 {
            rail.since = now;
        }
        rail.outstanding = rail.outstanding.saturating_add(bytes);
    }

    /// A request of this many bytes was answered.
    pub(crate) fn delivered(&mut self, at: usize, now: Duration, bytes: u64) {
        let rail = &mut self.0[at];
        rail.outstanding = rail.outstanding.saturating_sub(bytes);
        rail.delivered += as_f64(bytes);
        rail.busy += now.saturating_sub(rail.since).as_secs_f64();
        rail.since = now;
        if rail.busy > MEASURED.as_secs_f64() {
            rail.delivered /= 2.0;
            rail.busy /= 2.0;
        }
    }

    /// Requests of this many bytes will not be answered here.
    pub(crate) fn given_up(&mut self, at: usize, bytes: u64) {
        let rail = &mut self.0[at];
        rail.outstanding = rail.outstanding.saturating_sub(bytes);
    }

    /// A rail broke. Returns true if it was up.
    pub(crate) fn lost(&mut self, at: usize, now: Duration) -> bool {
        if self.0[at].state != State::Up {
            return false;
        }
        self.0[at].state = State::Away { until: now + PAUSE, pause: PAUSE * 2, trying: false };
        true
    }

    /// The rails that are to be tried aside now; each is told of once, until [`Rails::returned`] or
    /// [`Rails::failed`].
    pub(crate) fn due(&mut self, among: Among, now: Duration) -> Vec<usize> {
        let mut due = Vec::new();
        for (at, rail) in self.0.iter_mut().enumerate().filter(|(at, _)| among.has(*at)) {
            if let State::Away { until, trying, .. } = &mut rail.state
                && *until <= now
                && !*trying
            {
                *trying = true;
                due.push(at);
            }
        }
        due
    }

    /// A rail answers, this long after it was called. What was measured before is forgotten. Returns true if
    /// it was away.
    pub(crate) fn returned(&mut self, at: usize, greeting: Duration) -> bool {
        let rail = &mut self.0[at];
        rail.greeting = greeting;
        if rail.state == State::Up {
            return false;
        }
        rail.state = State::Up;
        rail.delivered = 0.0;
        rail.busy = 0.0;
        true
    }

    /// A rail was tried and did not answer.
    pub(crate) fn failed(&mut self, at: usize, now: Duration) {
        if let State::Away { until, pause, trying } = &mut self.0[at].state {
            *until = now + *pause;
            *pause = (*pause * 2).min(PAUSE_MAX);
            *trying = false;
        }
    }

    /// Forgets which of the rails are up: they are to be tried at once.
    pub(crate) fn forget(&mut self, among: Among) {
        let rails = self.0.iter_mut().enumerate().filter(|(at, _)| among.has(*at));
        rails.for_each(|(_, rail)| rail.state = State::untried());
    }

    /// Returns true if the rail is up.
    pub(crate) fn is_up(&self, at: usize) -> bool {
        self.0[at].state == State::Up
    }
}

impl State {
    fn untried() -> State {
        State::Away { until: Duration::ZERO, pause: PAUSE, trying: false }
    }
}

impl Rail {
    fn untried() -> Rail {
        let none = Duration::ZERO;
        Rail {
            state: State::untried(),
            outstanding: 0,
            since: none,
            delivered: 0.0,
            busy: 0.0,
            greeting: none,
        }
    }

    /// Bytes a second as measured.
    fn rate(&self) -> Option<f64> {
        (self.busy > 0.0 && self.delivered > 0.0).then(|| self.delivered / self.busy)
    }

    /// Bytes a second that the rail is taken to deliver. One that is not used comes to be taken for better
    /// than the best, or it would not be tried where only one request is under way at a time.
    fn supposed(&self, now: Duration, best: f64) -> f64 {
        let Some(rate) = self.rate() else { return best };
        let idle = if self.outstanding == 0 { now.saturating_sub(self.since).as_secs_f64() } else { 0.0 };
        (rate * (idle / DOUBLING_SECONDS).min(60.0).exp2()).min(best * 2.0).max(rate)
    }
}

#[expect(clippy::cast_precision_loss, reason = "for ratios alone")]
fn as_f64(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: u64 = 64 << 10;
    const FLIGHTS: usize = 8;

    /// This many rails that were not tried yet.
    fn rails(count: usize) -> Rails {
        let mut rails = Rails::default();
        (0..count).for_each(|_| rails.add());
        rails
    }

    /// Links of known rates under a table of rails, with a virtual clock.
    struct Links {
        rails: Rails,
        /// Bytes a second of each link.
        rates: Vec<u64>,
        /// The times at which what is in flight on each link is done.
        flights: Vec<std::collections::VecDeque<Duration>>,
        now: Duration,
        carried: Vec<u64>,
    }

    impl Links {
        fn new(rates: &[u64]) -> Links {
            let mut rails = rails(rates.len());
            (0..rates.len()).for_each(|at| assert!(rails.returned(at, Duration::ZERO)));
            let flights = vec![std::collections::VecDeque::new(); rates.len()];
            let carried = vec![0; rates.len()];
            Links { rails, rates: rates.to_vec(), flights, now: Duration::ZERO, carried }
        }

        /// Sends lists of `list` requests, one after another, until this time. Each link has at most
        /// [`FLIGHTS`] in flight.
        fn run(&mut self, list: usize, until: Duration) {
            while self.now < until {
                let mut left = list;
                while left > 0 || self.flights.iter().any(|flights| !flights.is_empty()) {
                    for at in 0..self.rates.len() {
                        while left > 0
                            && self.flights[at].len() < FLIGHTS
                            && self.rails.takes(at, Among::ALL, self.now, REQUEST, REQUEST * left as u64)
                        {
                            left -= 1;
                            self.rails.began(at, self.now, REQUEST);
                            let begins = self.flights[at].back().copied().unwrap_or(self.now).max(self.now);
                            let takes = Duration::from_nanos(REQUEST * 1_000_000_000 / self.rates[at]);
                            self.flights[at].push_back(begins + takes);
                        }
                    }
                    let next = (0..self.rates.len()).filter(|at| !self.flights[*at].is_empty());
                    let next = next.min_by_key(|at| self.flights[*at][0]).expect("one takes the request");
                    self.now = self.flights[next].pop_front().expect("it is");
                    self.rails.delivered(next, self.now, REQUEST);
                    self.carried[next] += REQUEST;
                }
            }
        }

        fn share(&self, at: usize) -> f64 {
            as_f64(self.carried[at]) / as_f64(self.carried.iter().sum())
        }
    }

    #[test]
    fn rails_carry_in_proportion_to_what_they_deliver() {
        for (rates, share) in [([12_500_000, 12_500_000], 0.5), ([37_500_000, 12_500_000], 0.75)] {
            let mut links = Links::new(&rates);
            links.run(64, Duration::from_secs(5));
            assert!((links.share(0) - share).abs() < 0.03, "{rates:?}: {}", links.share(0));
            // Both links were busy all the time.
            let all: u64 = links.carried.iter().sum();
            assert!(as_f64(all) > 0.97 * 5.0 * as_f64(rates.iter().sum()), "{all}");
        }
    }

    #[test]
    fn a_rail_that_was_slow_to_begin_gets_its_part_later() {
        let mut links = Links::new(&[12_500_000, 100_000]);
        links.run(64, Duration::from_secs(3));
        assert!(links.share(1) < 0.2, "{}", links.share(1));
        links.rates[1] = 12_500_000;
        links.run(64, Duration::from_secs(12));
        links.carried = vec![0; 2];
        links.run(64, Duration::from_secs(14));
        assert!((links.share(1) - 0.5).abs() < 0.05, "{}", links.share(1));
    }

    #[test]
    fn a_rail_that_was_slow_is_tried_again_even_if_little_is_asked() {
        let mut links = Links::new(&[12_500_000, 125_000]);
        links.run(64, Duration::from_secs(2));
        let before = links.carried[1];
        // One at a time: the fast rail is free each time.
        links.run(1, Duration::from_secs(30));
        assert!(links.carried[1] > before, "the slow rail starves");
        assert!(links.share(1) < 0.05, "{}", links.share(1));
    }

    #[test]
    fn a_lost_rail_carries_nothing_until_it_answers_and_is_tried_ever_less_often() {
        let mut rails = rails(2);
        let second = Duration::from_secs(1);
        assert_eq!(rails.choose(Among::ALL, Duration::ZERO, 1), None);
        assert_eq!(rails.due(Among::ALL, Duration::ZERO), [0, 1]);
        assert_eq!(rails.due(Among::ALL, second), [], "they are being tried");
        assert!(rails.returned(0, second) && rails.returned(1, second / 2));
        assert_eq!(rails.fastest(Among::ALL), [1, 0]);
        rails.began(0, second, 100);
        assert!(rails.lost(0, second) && !rails.lost(0, second), "it is lost once");
        rails.given_up(0, 100);
        for _ in 0..10 {
            assert_eq!(rails.choose(Among::ALL, second, 1 << 30), Some(1));
            rails.began(1, second, 1 << 30);
        }
        let mut now = second;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let began = now;
            while rails.due(Among::ALL, now).is_empty() {
                now += PAUSE;
            }
            pauses.push(now - began);
            rails.failed(0, now);
        }
        assert_eq!((pauses[0], pauses[1], pauses[9]), (PAUSE, PAUSE * 2, PAUSE_MAX));
        now += PAUSE_MAX;
        assert_eq!(rails.due(Among::ALL, now), [0]);
        assert!(rails.returned(0, second));
        assert_eq!(rails.choose(Among::ALL, now, 1), Some(0));
    }

    #[test]
    fn an_only_rail_is_always_up_and_others_are_not_asked_of() {
        let mut rails = rails(3);
        let first = Among::from_iter([0]);
        let others = Among::from_iter([1, 2]);
        assert_eq!((rails.choose(first, Duration::ZERO, 1), rails.fastest(first)), (Some(0), vec![0]));
        assert_eq!(rails.choose(others, Duration::ZERO, 1), None);
        assert_eq!(rails.due(others, Duration::ZERO), [1, 2]);
        assert!(rails.returned(0, Duration::ZERO) && rails.returned(2, Duration::ZERO));
        assert_eq!(rails.choose(others, Duration::ZERO, 1), Some(2));
        // The first would be done sooner, but is not to be used.
        rails.began(2, Duration::ZERO, 100);
        assert!(rails.takes(2, others, Duration::ZERO, 1, 1));
        assert!(!rails.takes(2, Among::ALL, Duration::ZERO, 1, 1));
        rails.forget(first);
        assert!(!rails.is_up(0) && rails.is_up(2));
        assert!(Among::ALL.has(63) && !Among::ALL.has(64) && !first.has(1));
    }
}
