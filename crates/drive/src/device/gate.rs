//! The gate before the disk: requests wait here, in no thread and with no place of anything else, until the
//! scheduler has them go.
//!
//! What goes holds a [`Slot`] until the disk has done it. The scheduler lets only so much device time be in
//! flight: so a request that is due is not behind many others in the store's queue or the kernel's.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_layout::ReservationId;
use braid_schedule::drift::InFlight;
use braid_schedule::{
    Actual, Background, BackgroundRate, Cause, Config, DeviceCost, Direction, Flow, FlowFigures, FlowId,
    Next, Request, Scheduler, Ticket,
};
use braid_store::DiskReads;
use braid_wire::control::PromiseRow;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::device::served::Served;

/// Writes in flight at most: they wait for a commit together.
const WRITES_IN_FLIGHT: usize = 1024;
/// Longest wait of best effort: clients take a drive for lost that does not answer for 8 s.
const WAIT_MAX_NS: u64 = 4_000_000_000;
/// Interval between two looks for requests that have waited too long.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time for which an ended reservation is remembered after the manager has told of it: longer than a
/// capability lasts.
const ENDED_KEPT_NS: u64 = 600_000_000_000;
/// Ended reservations that are remembered at most; the latest are.
const ENDED_MAX: usize = 65_536;
/// Time after the last request under a promise for which the drive is taken to keep promises.
const PROMISES_KEPT_NS: u64 = 10_000_000_000;
/// Difference of the manager's clock beyond which the ends of promises are reckoned anew.
const CLOCKS_APART_MS: u64 = 100;

/// A request that waits.
struct Waiting {
    direction: Direction,
    /// Time at which it came, in the scheduler's nanoseconds.
    entered_ns: u64,
    /// A part of a request whose first part has gone: it is not given up.
    goes_on: bool,
    /// Called when the request's turn has come.
    begin: Box<dyn FnOnce(Slot) + Send>,
}

/// A request, or a part of one, as the scheduler is told of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) flow: Flow,
    pub(crate) direction: Direction,
    pub(crate) bytes: u64,
    pub(crate) cost_ns: u64,
    /// For a part that is not the first: the time at which the request came, in the scheduler's nanoseconds.
    pub(crate) goes_on: Option<u64>,
}

/// The gate before a drive's disk.
pub(crate) struct Gate {
    state: Mutex<State>,
    /// Reads in flight at most: each takes a thread.
    reads_max: usize,
    runtime: Handle,
    /// The beginning of the scheduler's time.
    began: Instant,
    /// Notified when work waits for a time.
    alarm: Notify,
}

struct State {
    scheduler: Scheduler<Waiting>,
    cost: DeviceCost,
    /// Reads, and writes, that have gone and are not done.
    reads: usize,
    writes: usize,
    /// The drive has ended: nothing goes any more.
    is_closed: bool,
    /// Reservations that have ended although capabilities promise their rates, with the time until which they
    /// are remembered.
    ended: BTreeMap<ReservationId, u64>,
    /// Time of the last request under a promise.
    promised_ns: Option<u64>,
    /// Milliseconds by which the manager's clock is ahead of the scheduler's.
    manager_ahead_ms: u64,
    /// Sums over the reads, and over the writes, that are done.
    served: [Served; 2],
    /// A thread is beginning what may go: it also begins what may go meanwhile.
    is_turning: bool,
}

/// A request's place at the disk, until it is dropped.
pub(crate) struct Slot {
    /// Time at which the request came, and at which its turn came, in the scheduler's nanoseconds.
    entered_ns: u64,
    began_ns: u64,
    gate: Arc<Gate>,
    /// `None` if the request did not wait, or has given its place back.
    ticket: Option<Ticket>,
    direction: Direction,
    actual: Option<Actual>,
    /// It is in the sums of what is done.
    is_counted: bool,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("direction", &self.direction).finish_non_exhaustive()
    }
}

impl Gate {
    /// A gate for a disk with these costs; at most `reads_max` reads are in flight, each of which takes a
    /// thread. Called within the runtime in which requests are carried out.
    pub(crate) fn new(cost: DeviceCost, reads_max: usize) -> Arc<Gate> {
        Gate::since(Instant::now(), cost, config(&cost, reads_max))
    }

    /// A gate with these settings whose times are those of this one. Its requests tell their costs.
    pub(crate) fn beside(&self, config: Config) -> Arc<Gate> {
        Gate::since(self.began, DeviceCost::FREE, config)
    }

    fn since(began: Instant, cost: DeviceCost, config: Config) -> Arc<Gate> {
        let reads_max = config.reads_in_flight;
        let scheduler = Scheduler::new(config);
        Arc::new(Gate {
            state: Mutex::new(State {
                scheduler,
                cost,
                reads: 0,
                writes: 0,
                is_closed: false,
                ended: BTreeMap::new(),
                promised_ns: None,
                manager_ahead_ms: 0,
                served: Default::default(),
                is_turning: false,
            }),
            reads_max,
            runtime: Handle::current(),
            began,
            alarm: Notify::new(),
        })
    }

    /// Wakes work that waits for a time, and drops what has waited too long. Runs until it is dropped.
    pub(crate) async fn keep_time(self: Arc<Gate>) {
        let mut look = Instant::now() + LOOK_EVERY;
        loop {
            let alarm = self.alarm.notified();
            let wait = self.turn().map(|at_ns| self.began + Duration::from_nanos(at_ns));
            let at = wait.map_or(look, |at| at.min(look));
            tokio::select! { () = sleep_until(at) => {}, () = alarm => {} }
            if Instant::now() >= look {
                look = Instant::now() + LOOK_EVERY;
                drop(self.too_late(self.now_ns()));
            }
        }
    }

    /// Takes out best effort that has waited so long that its clients would soon take the drive for lost. It
    /// is refused as it is dropped, and comes again.
    fn too_late(&self, now: u64) -> Vec<Waiting> {
        let is_best_effort = |id| matches!(id, FlowId::BestEffort { .. } | FlowId::Uncovered(_));
        let is_late =
            |waiting: &Waiting| !waiting.goes_on && now.saturating_sub(waiting.entered_ns) > WAIT_MAX_NS;
        let mut state = self.state();
        state.scheduler.remove(now, |id, waiting| is_best_effort(id) && is_late(waiting))
    }

    /// Takes other costs, as after a calibration.
    pub(crate) fn set_cost(&self, cost: DeviceCost) {
        let now = self.now_ns();
        let mut state = self.state();
        state.cost = cost;
        state.scheduler.set_config(config(&cost, self.reads_max));
        for kind in Background::ALL {
            let rate = BackgroundRate::of_share(kind, &cost);
            state.scheduler.set_background(now, kind, &rate);
        }
    }

    /// Costs of the disk.
    pub(crate) fn cost(&self) -> DeviceCost {
        self.state().cost
    }

    /// Ends promises before their time: what comes under them is best effort.
    pub(crate) fn end_promises(&self, ended: &[ReservationId]) {
        let now = self.now_ns();
        let mut state = self.state();
        state.ended.retain(|_, until_ns| now < *until_ns);
        for id in ended {
            if state.ended.insert(*id, now.saturating_add(ENDED_KEPT_NS)).is_none() {
                state.scheduler.end(now, id.0);
            }
        }
        while state.ended.len() > ENDED_MAX {
            state.ended.pop_first();
        }
    }

    /// Sums over the requests in this direction that are done and counted.
    pub(crate) fn served(&self, direction: Direction) -> Served {
        *self.state().served(direction)
    }

    /// Returns true if this promise has ended before its time.
    pub(crate) fn is_ended(&self, id: ReservationId) -> bool {
        self.state().ended.contains_key(&id)
    }

    /// Returns true if requests under promises came in the last seconds: what takes longer than the usual
    /// operations would make them late.
    pub(crate) fn keeps_promises(&self) -> bool {
        let now = self.now_ns();
        self.state().promised_ns.is_some_and(|last| now.saturating_sub(last) < PROMISES_KEPT_NS)
    }

    /// Figures of reservations that the scheduler knows, at most `count` of them.
    pub(crate) fn promises(&self, count: usize) -> Vec<PromiseRow> {
        let state = self.state();
        let of = |flow: FlowFigures| match flow.flow {
            FlowId::Reserved(reservation) => Some(PromiseRow {
                reservation: ReservationId(reservation),
                late: flow.figures.late,
                beyond_rate: flow.figures.late_by(Cause::Rate),
                in_queue: flow.figures.late_by(Cause::Queue),
                at_disk: flow.figures.late_by(Cause::Device),
                worst_us: flow.figures.worst_lateness_ns / 1000,
            }),
            _ => None,
        };
        state.scheduler.figures().filter_map(of).take(count).collect()
    }

    /// Reads that have gone and are not done; `None` if there are writes too.
    pub(crate) fn only_reads_in_flight(&self) -> Option<InFlight> {
        let state = self.state();
        (state.writes == 0).then(|| state.scheduler.in_flight())
    }

    /// The scheduler's time at which the manager's clock shows `at_ms`; it shows `now_ms` now, or is not
    /// known. The clocks' difference is kept until it has changed by more than [`CLOCKS_APART_MS`], so that
    /// the same time is always the same.
    pub(crate) fn at_manager_ms(&self, at_ms: u64, now_ms: Option<u64>) -> u64 {
        let own_ms = self.now_ns() / 1_000_000;
        let mut state = self.state();
        if let Some(now_ms) = now_ms {
            let ahead_ms = now_ms.saturating_sub(own_ms);
            if state.manager_ahead_ms.abs_diff(ahead_ms) > CLOCKS_APART_MS {
                state.manager_ahead_ms = ahead_ms;
            }
        }
        at_ms.saturating_sub(state.manager_ahead_ms).saturating_mul(1_000_000)
    }

    /// The scheduler's present time, in nanoseconds.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Has `begin` called when it is the request's turn, here or in another thread. `begin` must not block.
    pub(crate) fn enter(
        self: &Arc<Gate>,
        flow: Flow,
        direction: Direction,
        bytes: u64,
        begin: impl FnOnce(Slot) + Send + 'static,
    ) {
        let cost_ns = self.state().cost_ns(direction, bytes);
        self.enter_at(Entry { flow, direction, bytes, cost_ns, goes_on: None }, begin);
    }

    /// As [`Gate::enter`], for work that reads and then writes in one turn.
    pub(crate) fn enter_both(
        self: &Arc<Gate>,
        flow: Flow,
        read: u64,
        written: u64,
        begin: impl FnOnce(Slot) + Send + 'static,
    ) {
        if written == 0 {
            return self.enter(flow, Direction::Read, read, begin);
        }
        let cost_ns = {
            let state = self.state();
            let reading = if read > 0 { state.cost_ns(Direction::Read, read) } else { 0 };
            reading.saturating_add(state.cost_ns(Direction::Write, written))
        };
        let bytes = read.saturating_add(written);
        self.enter_at(Entry { flow, direction: Direction::Write, bytes, cost_ns, goes_on: None }, begin);
    }

    /// As [`Gate::enter`], for a read of `bytes` bytes for which the disk reads in several places.
    pub(crate) fn enter_reads(
        self: &Arc<Gate>,
        flow: Flow,
        bytes: u64,
        disk: DiskReads,
        begin: impl FnOnce(Slot) + Send + 'static,
    ) {
        let cost_ns = reads_ns(&self.cost(), disk);
        self.enter_at(Entry { flow, direction: Direction::Read, bytes, cost_ns, goes_on: None }, begin);
    }

    /// As [`Gate::enter`], at a cost that the caller tells.
    pub(crate) fn enter_at(self: &Arc<Gate>, entry: Entry, begin: impl FnOnce(Slot) + Send + 'static) {
        let Entry { flow, direction, bytes, cost_ns, goes_on } = entry;
        let now = self.now_ns();
        let came = goes_on.unwrap_or(now);
        let begin = Box::new(begin);
        let item = Waiting { direction, entered_ns: now, goes_on: goes_on.is_some(), begin };
        let mut state = self.state();
        if state.is_closed {
            drop(state);
            return drop(item);
        }
        if matches!(flow, Flow::Reserved { promise, .. } if promise.rate > 0 && now < promise.until_ns) {
            state.promised_ns = Some(now);
        }
        let submitted =
            state.scheduler.submit_since(now, came, Request { flow, direction, bytes, cost_ns, item });
        drop(state);
        if let Err(refused) = submitted {
            // More of this flow wait than all connections may have unanswered.
            let _runtime = self.runtime.enter();
            return (refused.item.begin)(Slot {
                gate: Arc::clone(self),
                ticket: None,
                direction,
                actual: None,
                entered_ns: now,
                began_ns: now,
                is_counted: false,
            });
        }
        if self.turn().is_some() {
            self.alarm.notify_one();
        }
    }

    /// Drops all that waits, and all that comes.
    fn close(&self) {
        let now = self.now_ns();
        let mut state = self.state();
        state.is_closed = true;
        let waiting = state.scheduler.drain(now);
        drop(state);
        drop(waiting);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins all that may go, unless another thread does. Returns the time for which work waits, if only
    /// such work is left. (A request may be done at once, so this may be called while it runs.)
    fn turn(self: &Arc<Gate>) -> Option<u64> {
        let mut state = self.state();
        if std::mem::replace(&mut state.is_turning, true) {
            return None;
        }
        let turning = Turning(self);
        let wait = loop {
            let (waiting, ticket) = match state.scheduler.next(self.now_ns()) {
                Next::Go { item, ticket } => (item, ticket),
                Next::WaitUntil(at_ns) => break Some(at_ns),
                Next::Full | Next::Empty => break None,
            };
            let Waiting { direction, begin, entered_ns, .. } = waiting;
            *state.in_flight(direction) += 1;
            drop(state);
            {
                let gate = Arc::clone(self);
                let ticket = Some(ticket);
                let began_ns = self.now_ns();
                let _runtime = self.runtime.enter();
                begin(Slot {
                    gate,
                    ticket,
                    direction,
                    actual: None,
                    entered_ns,
                    began_ns,
                    is_counted: false,
                });
            }
            state = self.state();
        };
        state.is_turning = false;
        std::mem::forget(turning);
        wait
    }
}

/// Lets other threads begin work again if this one has panicked in between.
struct Turning<'a>(&'a Gate);

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        self.0.state().is_turning = false;
    }
}

impl State {
    /// Number of requests in this direction that have gone and are not done.
    fn in_flight(&mut self, direction: Direction) -> &mut usize {
        match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        }
    }

    fn served(&mut self, direction: Direction) -> &mut Served {
        let [reads, writes] = &mut self.served;
        if direction == Direction::Read { reads } else { writes }
    }

    /// Device time of a request. A write goes to the end of the log; the first of those that share a commit
    /// pays for the commit.
    fn cost_ns(&self, direction: Direction, bytes: u64) -> u64 {
        match direction {
            Direction::Read => self.cost.time_ns(direction, bytes),
            Direction::Write => {
                let payload = self.cost.append_ns(bytes);
                match self.writes {
                    0 => payload.saturating_add(self.cost.commit_ns()),
                    _ => payload,
                }
            }
        }
    }
}

impl Slot {
    /// Time for which the request waited for its turn.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.began_ns.saturating_sub(self.entered_ns))
    }

    /// Counts this among the requests that are done. What the drive reads ahead or looks up is none.
    pub(crate) fn count(&mut self) {
        self.is_counted = true;
    }

    /// The disk did nothing for the request after all: its bytes were in memory.
    pub(crate) fn did_nothing(mut self) {
        self.actual = Some(Actual { bytes: 0, cost_ns: 0 });
    }

    /// The request was for this many bytes, and took this time.
    pub(crate) fn took(mut self, bytes: u64, time: Duration) {
        let cost_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.actual = Some(Actual { bytes, cost_ns });
    }

    /// These are the reads that the disk did for the request after all.
    pub(crate) fn did_reads(mut self, disk: DiskReads) {
        let cost_ns = if disk.reads == 0 { 0 } else { reads_ns(&self.gate.cost(), disk) };
        self.actual = Some(Actual { bytes: disk.bytes, cost_ns });
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let now = self.gate.now_ns();
        let mut state = self.gate.state();
        *state.in_flight(self.direction) -= 1;
        if self.is_counted {
            let queue_ns = self.began_ns.saturating_sub(self.entered_ns);
            state.served(self.direction).add(queue_ns, now.saturating_sub(self.began_ns));
        }
        state.scheduler.done(ticket, now, self.actual);
        drop(state);
        if self.gate.turn().is_some() {
            self.gate.alarm.notify_one();
        }
    }
}

/// Closes the gate when it is dropped: what waits holds the drive's state, which holds the gate.
pub(crate) struct CloseOnDrop(pub(crate) Arc<Gate>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Device time of these reads, each of which is taken for one of their average size.
pub(crate) fn reads_ns(cost: &DeviceCost, disk: DiskReads) -> u64 {
    let reads = disk.reads.max(1);
    cost.time_ns(Direction::Read, disk.bytes.div_ceil(reads)).saturating_mul(reads)
}

fn config(cost: &DeviceCost, reads_max: usize) -> Config {
    let usual = Config::for_device(cost);
    Config { reads_in_flight: reads_max, writes_in_flight: WRITES_IN_FLIGHT, ..usual }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use braid_schedule::{Charge, DirectionCost};

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A disk of 100 MB/s: 10 ms for each MiB, of which three are in flight.
    fn gate() -> Arc<Gate> {
        let way = DirectionCost { operation_ns: 0, bytes_per_second: 100 << 20 };
        let cost = DeviceCost { charge: Charge::Sum, read: way, write: way, sync_ns: 0 };
        let gate = Gate::new(cost, 32);
        gate.set_cost(cost);
        gate
    }

    fn client(client: u64) -> Flow {
        Flow::BestEffort { tenant: 1, client }
    }

    /// Enters reads of a MiB each; what has begun is received with its slot.
    fn enter(gate: &Arc<Gate>, flow: Flow, count: usize) -> mpsc::Receiver<Slot> {
        let (begun, slots) = mpsc::channel();
        for _ in 0..count {
            let begun = begun.clone();
            gate.enter(flow, Direction::Read, MIB, move |slot| {
                let _ = begun.send(slot);
            });
        }
        slots
    }

    fn reads_in_flight(gate: &Gate) -> Option<u64> {
        gate.only_reads_in_flight().map(|in_flight| in_flight.operations)
    }

    /// A parity unit with deltas is read in many places: its read takes the disk as long as all of these.
    #[tokio::test]
    async fn a_read_of_many_places_has_the_device_time_of_all() {
        let gate = gate();
        let disk = DiskReads { reads: 3, bytes: 3 * MIB };
        let (begun, slots) = mpsc::channel();
        gate.enter_reads(client(1), MIB, disk, move |slot| drop(begun.send(slot)));
        let slot = slots.recv().expect("it has begun");
        assert_eq!(gate.only_reads_in_flight(), Some(InFlight { operations: 1, cost_ns: 30_000_000 }));
        let beside = enter(&gate, client(2), 1);
        assert!(beside.try_recv().is_err(), "no other fits beside it");
        drop(slot);
        assert!(beside.recv().is_ok());
    }

    #[tokio::test]
    async fn as_much_as_fits_goes_and_the_rest_when_something_is_done() {
        let gate = gate();
        let slots = enter(&gate, client(1), 10);
        let mut held: Vec<Slot> = slots.try_iter().collect();
        let depth = held.len();
        assert!((2..10).contains(&depth), "{depth}");
        assert_eq!(reads_in_flight(&gate), u64::try_from(depth).ok());
        for left in (0..10 - depth).rev() {
            drop(held.pop());
            held.extend(slots.try_iter());
            assert_eq!(held.len(), depth, "{left} are left");
        }
        held.clear();
        assert_eq!((slots.try_iter().count(), reads_in_flight(&gate)), (0, Some(0)));
    }

    #[tokio::test]
    async fn one_client_with_many_requests_does_not_hold_up_another() {
        let gate = gate();
        let many = enter(&gate, client(1), 200);
        let mut held: Vec<Slot> = many.try_iter().collect();
        let few = enter(&gate, client(2), 1);
        drop(held.pop());
        held.extend(many.try_iter());
        drop(held.pop());
        held.extend(many.try_iter());
        assert_eq!(few.try_iter().count(), 1, "its turn comes before the other 190");
    }

    /// Of a payload that has begun the rest must follow.
    #[tokio::test]
    async fn what_waits_too_long_is_given_up_unless_it_goes_on() {
        let gate = gate();
        let _held: Vec<Slot> = enter(&gate, client(1), 3).try_iter().collect();
        let (told, given_up) = mpsc::channel();
        for goes_on in [None, Some(0)] {
            let told = told.clone();
            let entry = Entry {
                flow: client(2),
                direction: Direction::Read,
                bytes: MIB,
                cost_ns: 10_000_000,
                goes_on,
            };
            gate.enter_at(entry, move |_| {
                let _ = told.send(goes_on);
            });
        }
        let later = gate.now_ns() + WAIT_MAX_NS + 1;
        let late = gate.too_late(later);
        assert_eq!(late.iter().map(|waiting| waiting.goes_on).collect::<Vec<_>>(), [false]);
        drop((late, _held));
        assert_eq!(given_up.try_iter().collect::<Vec<_>>(), [Some(0)], "the other has its turn");
    }

    #[tokio::test]
    async fn requests_that_are_done_at_once_do_not_pile_up_on_the_stack() {
        let gate = gate();
        let held: Vec<Slot> = enter(&gate, client(1), 3).try_iter().collect();
        let (begun, done) = mpsc::channel();
        for _ in 0..50_000 {
            let begun = begun.clone();
            gate.enter(client(2), Direction::Read, MIB, move |slot| {
                drop(slot);
                let _ = begun.send(());
            });
        }
        drop(held);
        assert_eq!(done.try_iter().count(), 50_000);
    }

    #[tokio::test]
    async fn a_closed_gate_drops_what_waits_and_what_comes() {
        let gate = gate();
        let slots = enter(&gate, client(1), 10);
        drop(CloseOnDrop(Arc::clone(&gate)));
        let begun: Vec<Slot> = slots.try_iter().collect();
        drop(begun);
        let later = enter(&gate, client(1), 1);
        assert_eq!((slots.try_iter().count(), later.try_iter().count()), (0, 0));
    }

    #[tokio::test]
    async fn what_was_in_memory_uses_nothing_up() {
        let gate = gate();
        let slots = enter(&gate, client(1), 1);
        slots.try_iter().for_each(Slot::did_nothing);
        assert_eq!((reads_in_flight(&gate), gate.served(Direction::Read).requests), (Some(0), 0));
        // Only what is counted is in the sums.
        enter(&gate, client(1), 1).try_iter().for_each(|mut slot| slot.count());
        assert_eq!((gate.served(Direction::Read).requests, gate.served(Direction::Write).requests), (1, 0));
    }

    #[tokio::test]
    async fn promises_are_kept_while_requests_come_under_them() {
        let gate = gate();
        let come = |rate, until_ns| {
            let promise = braid_schedule::Promise {
                direction: Direction::Read,
                rate,
                burst: MIB,
                operation_bytes: MIB,
                operation_ns: 10_000_000,
                until_ns,
            };
            drop(enter(&gate, Flow::Reserved { reservation: 1, tenant: 1, promise }, 1));
            gate.keeps_promises()
        };
        drop(enter(&gate, client(1), 1));
        assert!(!gate.keeps_promises());
        assert!(!come(0, u64::MAX) && !come(MIB, 0), "nothing is promised any more");
        assert!(come(MIB, u64::MAX));
    }

    #[tokio::test]
    async fn an_ended_promise_is_remembered() {
        let gate = gate();
        let id = ReservationId(7);
        assert!(!gate.is_ended(id));
        gate.end_promises(&[id]);
        gate.end_promises(&[]);
        assert!(gate.is_ended(id) && !gate.is_ended(ReservationId(8)));
    }

    #[tokio::test]
    async fn reads_beside_a_write_are_no_measure_of_the_disk() {
        let gate = gate();
        let reads = enter(&gate, client(1), 1);
        let (begun, writes) = mpsc::channel();
        gate.enter(client(2), Direction::Write, MIB, move |slot| drop(begun.send(slot)));
        let write = writes.try_recv().expect("it has begun");
        assert_eq!(reads_in_flight(&gate), None);
        drop(write);
        assert_eq!(reads_in_flight(&gate), Some(1));
        drop(reads);
    }
}
