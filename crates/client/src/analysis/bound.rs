//! What bounds a run: the part that was busy for most of it.
//!
//! A part is busy while at least one request is there, however many are. A drive's own times are durations;
//! they are laid into the request's time at the client: of a read, from the moment it was sent; of a write,
//! back from its answer. What is left of a request between its sending and its end is the wire's: the way
//! there, the way back, and the transfer.

use std::collections::BTreeMap;
use std::ops::Range;

use braid_layout::DriveId;

use super::{Act, Span, Work};

/// Share of the run, in percent, below which no part is said to bound it.
const BUSY_MIN: u64 = 40;
/// Share of the run, in percent, from which on the client's processor bounds it: then all that waits for the
/// client looks busy too. It is that of one thread, or of all processors together.
const PROCESSOR_MIN: u64 = 70;

/// The part that bounds a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The client's processor.
    Processor,
    /// A drive's disk, which reads.
    Disk(DriveId),
    /// A drive's log, which writes and syncs.
    Commit(DriveId),
    /// The wait at a drive behind requests of others.
    Queue(DriveId),
    /// The rest of a drive's time: the wait for the parity drives of a unit write, for memory, or for its
    /// index.
    Within(DriveId),
    /// The network, or a drive's or the client's part of it.
    Link,
    /// The making of new connections.
    Session,
    /// No part was busy for long: round trips after one another, or the program itself.
    Nothing,
}

/// The time of one drive's requests. Times are microseconds in which at least one request was there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveTime {
    /// The drive of the requests.
    pub drive: DriveId,
    /// Number of requests.
    pub requests: u64,
    /// Number of those that failed.
    pub failed: u64,
    /// Number of reads whose bytes were in memory.
    pub cached: u64,
    /// Bytes read and written by requests that were carried out.
    pub bytes: u64,
    /// Wait for a session.
    pub session_us: u64,
    /// Wait until the bound of what is in flight had room for a request.
    pub in_flight_us: u64,
    /// Wait for the receiver's credit: this client's of a read, the drive's of a write.
    pub credit_us: u64,
    /// Wait at the drive while none of these requests was at its disk.
    pub queue_us: u64,
    /// Reads at the disk.
    pub disk_us: u64,
    /// Writes at the log, with its sync.
    pub commit_us: u64,
    /// The rest of the drive's time.
    pub within_us: u64,
    /// The time on the wire.
    pub wire_us: u64,
    /// Checksums at the client: all of them, as they do not overlap.
    pub crc_us: u64,
    /// The last end of a request, since the run's beginning.
    pub ended_us: u64,
}

/// The parts of one request's time, in microseconds, which make up the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanParts {
    /// Wait for a session.
    pub session_us: u64,
    /// Wait until the bound of what is in flight had room for it.
    pub in_flight_us: u64,
    /// Wait for the receiver's credit: this client's of a read, the drive's of a write.
    pub credit_us: u64,
    /// Wait for its turn at the drive's disk.
    pub queue_us: u64,
    /// A read at the disk.
    pub disk_us: u64,
    /// A write at the log, with its sync.
    pub commit_us: u64,
    /// The rest of the drive's time: for the parity drives of a unit write, for memory, or for its index.
    pub within_us: u64,
    /// The wire: there, back, and the transfer.
    pub wire_us: u64,
    /// Checksums at the client.
    pub crc_us: u64,
}

impl Span {
    /// The rest of the drive's time. Of a stripe write it is the wait for the payload, which is the wire's.
    fn rest_us(&self) -> u64 {
        let times = self.times.unwrap_or_default();
        let known = times.queue_us + times.disk_us + times.commit_us;
        if self.act == Act::StripeWrite { 0 } else { times.total_us.saturating_sub(known) }
    }

    /// The time from which on it waited for room: a write's checksums are computed before.
    fn ready_us(&self) -> u64 {
        let crc_before_us = if self.act == Act::Read { 0 } else { self.crc_ns / 1000 };
        self.connected_us + crc_before_us
    }

    /// The parts of the request's time.
    pub fn parts(&self) -> SpanParts {
        let times = self.times.unwrap_or_default();
        let within_us = self.rest_us();
        let at_drive = times.queue_us + times.disk_us + times.commit_us + within_us;
        let crc_us = self.crc_ns / 1000;
        // A read's bytes are checked when they have come.
        let crc_after_us = if self.act == Act::Read { crc_us } else { 0 };
        SpanParts {
            session_us: self.connected_us.saturating_sub(self.asked_us),
            in_flight_us: self.admitted_us.saturating_sub(self.ready_us()),
            credit_us: self.granted_us.saturating_sub(self.admitted_us),
            queue_us: times.queue_us,
            disk_us: times.disk_us,
            commit_us: times.commit_us,
            within_us,
            wire_us: self.landed_us.saturating_sub(self.granted_us).saturating_sub(at_drive + crc_after_us),
            crc_us,
        }
    }
}

/// The bound of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The part that bounds it.
    pub limit: Limit,
    /// Microseconds for which it was busy.
    pub busy_us: u64,
    /// The run's length, in microseconds.
    pub wall_us: u64,
    /// Bytes that all drives moved, in megabits a second of the time in which the wire was busy.
    pub wire_mbit: u64,
    /// Processor time of checksums and of parity, in microseconds.
    pub checksum_us: u64,
    /// Processor time of all that the process did, in microseconds.
    pub processor_us: u64,
    /// The drives, the busiest at its disk first.
    pub drives: Vec<DriveTime>,
}

/// Intervals of one part.
#[derive(Default)]
struct Busy(Vec<Range<u64>>);

impl Busy {
    fn add(&mut self, from: u64, to: u64) {
        if to > from {
            self.0.push(from..to);
        }
    }

    /// Length of the union.
    fn length(&self) -> u64 {
        let mut all: Vec<&Range<u64>> = self.0.iter().collect();
        all.sort_by_key(|range| range.start);
        let mut end = 0;
        let mut length = 0;
        for range in all {
            length += range.end.saturating_sub(range.start.max(end));
            end = end.max(range.end);
        }
        length
    }

    /// Length of the union without what is in `other`.
    fn length_without(&self, other: &Busy) -> u64 {
        let both = Busy(self.0.iter().chain(&other.0).cloned().collect());
        both.length() - other.length()
    }
}

/// Intervals of one drive's requests.
#[derive(Default)]
struct Parts {
    session: Busy,
    in_flight: Busy,
    credit: Busy,
    queue: Busy,
    disk: Busy,
    commit: Busy,
    within: Busy,
    wire: Busy,
}

impl Parts {
    fn add(&mut self, span: &Span) {
        self.session.add(span.asked_us, span.connected_us);
        self.in_flight.add(span.ready_us(), span.admitted_us);
        self.credit.add(span.admitted_us, span.granted_us);
        let Some(times) = span.times else { return self.wire.add(span.granted_us, span.landed_us) };
        if span.act == Act::Read {
            let end = span.answered_us.max(span.sent_us);
            let turn = (span.sent_us + times.queue_us).min(end);
            let done = (turn + times.disk_us).min(end);
            self.queue.add(span.sent_us, turn);
            self.disk.add(turn, done);
            let left = (done + span.rest_us()).min(end);
            self.within.add(done, left);
            self.wire.add(span.granted_us, span.sent_us);
            return self.wire.add(left, span.landed_us);
        }
        let back = |from: u64, by: u64| from.saturating_sub(by).max(span.granted_us);
        let settled = back(span.answered_us, span.rest_us());
        let turn = back(settled, times.commit_us);
        let came = back(turn, times.queue_us);
        self.within.add(settled, span.answered_us);
        self.commit.add(turn, settled);
        self.queue.add(came, turn);
        self.wire.add(span.granted_us, came);
    }

    fn of_drive(&self, drive: DriveId, spans: &[&Span]) -> DriveTime {
        let count = |is: fn(&Span) -> bool| u64::try_from(spans.iter().filter(|span| is(span)).count());
        let done = spans.iter().filter(|span| span.is_done);
        let at_work = Busy(self.disk.0.iter().chain(&self.commit.0).cloned().collect());
        DriveTime {
            drive,
            requests: count(|_| true).unwrap_or(u64::MAX),
            failed: count(|span| !span.is_done).unwrap_or(u64::MAX),
            cached: count(|span| span.times.is_some_and(|times| times.cached)).unwrap_or(u64::MAX),
            bytes: done.map(|span| u64::from(span.to - span.from)).sum(),
            session_us: self.session.length(),
            in_flight_us: self.in_flight.length(),
            credit_us: self.credit.length(),
            queue_us: self.queue.length_without(&at_work),
            disk_us: self.disk.length(),
            commit_us: self.commit.length(),
            within_us: self.within.length(),
            wire_us: self.wire.length(),
            crc_us: spans.iter().map(|span| span.crc_ns).sum::<u64>() / 1000,
            ended_us: spans.iter().map(|span| span.landed_us).max().unwrap_or(0),
        }
    }
}

impl Work {
    /// The bound of the run.
    pub fn bound(&self) -> Bound {
        let mut spans: BTreeMap<DriveId, Vec<&Span>> = BTreeMap::new();
        self.spans.iter().for_each(|span| spans.entry(span.drive).or_default().push(span));
        let mut wire = Busy::default();
        let mut session = Busy::default();
        let mut drives = Vec::new();
        for (drive, spans) in &spans {
            let mut parts = Parts::default();
            spans.iter().for_each(|span| parts.add(span));
            drives.push(parts.of_drive(*drive, spans));
            wire.0.append(&mut parts.wire.0);
            session.0.append(&mut parts.session.0);
        }
        drives.sort_by_key(|drive| std::cmp::Reverse((drive.disk_us + drive.commit_us, drive.drive)));
        let wire_us = wire.length();
        let bytes: u64 = drives.iter().map(|drive| drive.bytes).sum();
        let checksum_us = self.computed_us + drives.iter().map(|drive| drive.crc_us).sum::<u64>();
        let mut parts: Vec<(Limit, u64)> = Vec::new();
        for at in &drives {
            parts.push((Limit::Disk(at.drive), at.disk_us));
            parts.push((Limit::Commit(at.drive), at.commit_us));
            parts.push((Limit::Queue(at.drive), at.queue_us));
            parts.push((Limit::Within(at.drive), at.within_us));
        }
        parts.extend([(Limit::Link, wire_us), (Limit::Session, session.length())]);
        let processor_us = self.busiest_us.max(self.cpu_us / self.processors.max(1));
        let percent = |part: u64| part.saturating_mul(100) / self.wall_us.max(1);
        // The first of those that are equally busy.
        let most = parts.into_iter().rev().max_by_key(|(_, busy)| *busy).unwrap_or((Limit::Nothing, 0));
        let (limit, busy_us) = match most {
            _ if percent(processor_us) >= PROCESSOR_MIN => (Limit::Processor, processor_us),
            (_, busy) if percent(busy) < BUSY_MIN => (Limit::Nothing, 0),
            most => most,
        };
        let wire_mbit = bytes.saturating_mul(8).checked_div(wire_us).unwrap_or(0);
        let wall_us = self.wall_us;
        Bound { limit, busy_us, wall_us, wire_mbit, checksum_us, processor_us: self.cpu_us, drives }
    }
}

impl Bound {
    /// Says how many other drives were about as busy as the busiest.
    fn alike(&self, busy: impl Fn(&DriveTime) -> u64) -> String {
        let alike = self.drives.iter().filter(|drive| busy(drive) * 5 >= self.busy_us * 4).count();
        match alike.saturating_sub(1) {
            0 => String::new(),
            1 => ", and another about as long".to_owned(),
            others => format!(", and {others} others about as long"),
        }
    }

    /// The bound in a sentence; `name` gives drives' names.
    pub fn sentence(&self, name: impl Fn(DriveId) -> String) -> String {
        let of = format!("{} of {} ms", ms(self.busy_us), ms(self.wall_us));
        match self.limit {
            Limit::Processor => format!(
                "bound by this client's processor: busy for {of}, of which checksums and parity {} ms",
                ms(self.checksum_us)
            ),
            Limit::Disk(drive) => {
                let alike = self.alike(|drive| drive.disk_us);
                format!("bound by drive {}'s disk: {of}{alike}", name(drive))
            }
            Limit::Commit(drive) => {
                let alike = self.alike(|drive| drive.commit_us);
                format!("bound by drive {}'s log and its sync: {of}{alike}", name(drive))
            }
            Limit::Queue(drive) => {
                format!("bound by the queue at drive {}, behind what others ask of it: {of}", name(drive))
            }
            Limit::Within(drive) => {
                format!("bound by drive {}'s wait for parity drives, memory or its index: {of}", name(drive))
            }
            Limit::Link => format!(
                "bound by the link: {} moved {} Mbit/s together, {of}",
                count(self.drives.iter().filter(|drive| drive.bytes > 0).count()),
                self.wire_mbit
            ),
            Limit::Session => format!("bound by making connections: {of}; later requests reuse them"),
            Limit::Nothing => format!(
                "bound by no single part: each was busy for less than {BUSY_MIN} % of {} ms; round trips one after another, or \
                 too few requests at a time",
                ms(self.wall_us)
            ),
        }
    }
}

fn count(count: usize) -> String {
    if count == 1 { "1 drive".to_owned() } else { format!("{count} drives") }
}

/// Microseconds as milliseconds, with one digit where that says more.
fn ms(us: u64) -> String {
    if us < 10_000 { format!("{}.{}", us / 1000, us % 1000 / 100) } else { (us / 1000).to_string() }
}

#[cfg(test)]
mod tests {
    use braid_layout::ObjectId;
    use braid_wire::data::Times;

    use super::*;

    /// A request to drive `drive`, sent at `sent`, answered at `answered` and in place at `landed`.
    fn span(drive: u128, act: Act, sent: u64, answered: u64, landed: u64, times: Times) -> Span {
        Span {
            drive: DriveId(drive),
            act,
            object: ObjectId(1),
            unit: 0,
            from: 0,
            to: 1_000_000,
            asked_us: 0,
            connected_us: 0,
            admitted_us: sent,
            granted_us: sent,
            sent_us: sent,
            answered_us: answered,
            landed_us: landed,
            crc_ns: 100_000,
            times: Some(times),
            is_done: true,
        }
    }

    fn check(spans: Vec<Span>, cpu_us: u64, expected: Limit, sentence: &str) -> Bound {
        let work = Work { wall_us: 50_000, cpu_us, spans, ..Work::default() };
        let bound = work.bound();
        assert_eq!(bound.limit, expected);
        assert_eq!(bound.sentence(|drive| format!("d{}", drive.0)), sentence);
        bound
    }

    #[test]
    fn intervals_that_overlap_count_once() {
        let busy = Busy(vec![10..20, 0..5, 15..30, 16..17]);
        assert_eq!(busy.length(), 25);
        assert_eq!(busy.length_without(&Busy(vec![0..12, 40..50])), 18);
    }

    #[test]
    fn reads_that_wait_for_one_disk_are_bound_by_it() {
        let slow = |sent, queue_us, answered| {
            let times = Times { queue_us, disk_us: 20_000, total_us: queue_us + 20_000, ..Times::default() };
            span(3, Act::Read, sent, answered, answered + 2000, times)
        };
        let quick = span(1, Act::Read, 0, 1000, 4000, Times { cached: true, ..Times::default() });
        let spans = vec![quick, slow(0, 0, 21_000), slow(0, 20_000, 41_000)];
        let bound = check(spans, 9000, Limit::Disk(DriveId(3)), "bound by drive d3's disk: 40 of 50 ms");
        let [d3, d1] = bound.drives.as_slice() else { panic!("two drives") };
        assert_eq!((d3.disk_us, d3.queue_us, d3.wire_us, d3.ended_us), (40_000, 0, 6000, 43_000));
        assert_eq!((d1.cached, d1.disk_us, d1.wire_us), (1, 0, 4000));
    }

    #[test]
    fn a_wait_behind_others_is_no_time_of_the_disk() {
        let times = Times { queue_us: 40_000, disk_us: 3000, total_us: 43_000, ..Times::default() };
        let sentence = "bound by the queue at drive d3, behind what others ask of it: 40 of 50 ms";
        check(vec![span(3, Act::Read, 0, 44_000, 45_000, times)], 0, Limit::Queue(DriveId(3)), sentence);
    }

    #[test]
    fn long_transfers_are_the_links_unless_the_processor_is_busy() {
        let transfer = |drive| span(drive, Act::Read, 0, 1000, 49_000, Times::default());
        let spans = vec![transfer(1), transfer(2)];
        let sentence = "bound by the link: 2 drives moved 326 Mbit/s together, 49 of 50 ms";
        check(spans.clone(), 10_000, Limit::Link, sentence);
        let sentence =
            "bound by this client's processor: busy for 45 of 50 ms, of which checksums and parity 0.2 ms";
        check(spans, 45_000, Limit::Processor, sentence);
    }

    #[test]
    fn threads_that_work_side_by_side_are_no_busy_processor() {
        let spans = vec![span(1, Act::Read, 0, 1000, 49_000, Times::default())];
        let of = |cpu_us, busiest_us, processors| {
            let spans = spans.clone();
            Work { wall_us: 50_000, cpu_us, busiest_us, processors, spans, ..Work::default() }.bound()
        };
        assert_eq!(of(60_000, 15_000, 4).limit, Limit::Link, "four threads with little to do");
        let one = of(60_000, 45_000, 4);
        assert_eq!((one.limit, one.busy_us, one.processor_us), (Limit::Processor, 45_000, 60_000));
        assert_eq!(of(160_000, 0, 4).limit, Limit::Processor, "all are busy");
    }

    #[test]
    fn a_drive_that_refuses_has_moved_nothing() {
        let read = |drive| span(drive, Act::Read, 0, 1000, 49_000, Times::default());
        let refused = Span { is_done: false, times: None, ..read(2) };
        let sentence = "bound by the link: 1 drive moved 163 Mbit/s together, 49 of 50 ms";
        let bound = check(vec![read(1), refused], 0, Limit::Link, sentence);
        assert_eq!(bound.drives.iter().map(|drive| drive.bytes).sum::<u64>(), 1_000_000);
    }

    #[test]
    fn the_parts_of_a_write_make_up_its_time() {
        let times = Times { commit_us: 3000, total_us: 3000, ..Times::default() };
        let write = span(1, Act::StripeWrite, 9000, 20_000, 20_000, times);
        let write = Span { connected_us: 500, admitted_us: 6000, crc_ns: 2_000_000, ..write };
        let parts = write.parts();
        assert_eq!((parts.session_us, parts.crc_us, parts.in_flight_us), (500, 2000, 3500));
        assert_eq!((parts.credit_us, parts.commit_us, parts.wire_us), (3000, 3000, 8000));
        let drive = &Work { wall_us: 20_000, spans: vec![write], ..Work::default() }.bound().drives[0];
        assert_eq!((drive.in_flight_us, drive.credit_us), (3500, 3000));
    }

    #[test]
    fn of_a_write_the_log_comes_last() {
        let times = Times { queue_us: 1000, commit_us: 30_000, total_us: 48_000, ..Times::default() };
        let by_stripe = span(1, Act::StripeWrite, 0, 49_000, 49_000, times);
        let bound = check(
            vec![by_stripe.clone()],
            0,
            Limit::Commit(DriveId(1)),
            "bound by drive d1's log and its sync: 30 of 50 ms",
        );
        assert_eq!((bound.drives[0].wire_us, bound.drives[0].within_us), (18_000, 0));
        let through = Span { act: Act::UnitWrite, ..by_stripe.clone() };
        let through = Work { wall_us: 50_000, spans: vec![through], ..Work::default() }.bound();
        assert_eq!((through.drives[0].within_us, through.drives[0].wire_us), (17_000, 1000));
        let both = vec![by_stripe.clone(), Span { drive: DriveId(2), ..by_stripe }];
        let sentence = "bound by drive d2's log and its sync: 30 of 50 ms, and another about as long";
        check(both, 0, Limit::Commit(DriveId(2)), sentence);
    }

    #[test]
    fn a_run_of_short_requests_one_by_one_is_bound_by_nothing() {
        let work = Work { wall_us: 50_000, ..Work::default() };
        assert_eq!(work.bound().limit, Limit::Nothing);
    }
}
