//! The scheduler of one device.

use crate::bound::{Config, share_ns};
use crate::cost::Direction;
use crate::drift::InFlight;
use crate::figures::{FlowFigures, Times};
use crate::flow::{Background, BackgroundRate, Flow, FlowId, Request, Share};
use crate::queue::{Meter, Pending, Queue};
use crate::tags::{Tags, span_ns};
use crate::tree::{Node, Tree};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Weight of a tenant, a client and the system unless another is set.
pub const WEIGHT: u32 = 100;
/// Weight of all background work together unless another is set.
pub const WEIGHT_BACKGROUND: u32 = 10;
/// Idle flows that are looked at, to be forgotten, when a new one begins: more than one, so that idle flows
/// become fewer.
const FORGETS: usize = 2;

const BOTH: [Direction; 2] = [Direction::Read, Direction::Write];

fn other(direction: Direction) -> Direction {
    match direction {
        Direction::Read => Direction::Write,
        Direction::Write => Direction::Read,
    }
}

/// The right by which a request went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The system's share.
    System,
    /// The promise of a reservation, or the rate of background work.
    Promised,
    /// The share that the flow has by its weight.
    Shared,
}

/// A request that was given out. It must come back to [`Scheduler::done`], or its place below the scheduler
/// stays taken.
#[must_use]
#[derive(Debug)]
pub struct Ticket {
    queue: usize,
    direction: Direction,
    bytes: u64,
    cost_ns: u64,
    phase: Phase,
    tags: Option<Tags>,
    times: Option<Times>,
}

impl Ticket {
    pub fn phase(&self) -> Phase {
        self.phase
    }
}

/// Size and cost of a request as they were after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actual {
    pub bytes: u64,
    /// 0 if the device did nothing, for example as the bytes were in memory.
    pub cost_ns: u64,
}

/// The next thing for the device to do.
#[derive(Debug)]
pub enum Next<T> {
    Go {
        item: T,
        ticket: Ticket,
    },
    /// Only work that is held to a limit waits, until then.
    WaitUntil(u64),
    /// As much is in flight as may be: the next request goes when one is done.
    Full,
    /// No request waits.
    Empty,
}

/// The scheduler of one device. See the crate's documentation for how it decides.
#[derive(Debug)]
pub struct Scheduler<T> {
    config: Config,
    /// Latest time that was handed in: time does not go back.
    now: u64,
    queues: Vec<Option<Queue<T>>>,
    free: Vec<usize>,
    ids: BTreeMap<FlowId, usize>,
    tenants: BTreeMap<u64, Node>,
    weights: BTreeMap<Share, u32>,
    tree: Tree,
    background: Node,
    /// Heads of each direction that are promised and eligible, by due time.
    ready: [BTreeSet<(u64, usize)>; 2],
    /// Heads that are promised and not eligible yet, by the time that they will be.
    early: BTreeSet<(u64, usize)>,
    /// Queues held to their limit, by the time that it opens.
    limited: BTreeSet<(u64, usize)>,
    /// Queues that may be forgotten.
    idle: VecDeque<usize>,
    /// The system's use of the share that goes before all others.
    system: Meter,
    /// Due time of the next request from the tree of shares, if promises take all.
    rest_due: u64,
    /// Requests given out and not done, for each direction.
    requests_in_flight: [usize; 2],
    time_in_flight_ns: u128,
    waiting: usize,
}

impl<T> Scheduler<T> {
    /// A scheduler whose background work has no rates and no limits.
    pub fn new(config: Config) -> Scheduler<T> {
        let mut tree = Tree::new();
        let background = tree.add(Tree::ROOT, WEIGHT_BACKGROUND, None);
        let mut scheduler = Scheduler {
            config,
            now: 0,
            queues: Vec::new(),
            free: Vec::new(),
            ids: BTreeMap::new(),
            tenants: BTreeMap::new(),
            weights: BTreeMap::new(),
            tree,
            background,
            ready: Default::default(),
            early: BTreeSet::new(),
            limited: BTreeSet::new(),
            idle: VecDeque::new(),
            system: Meter::default(),
            rest_due: 0,
            requests_in_flight: [0; 2],
            time_in_flight_ns: 0,
            waiting: 0,
        };
        scheduler.begin(FlowId::System, Tree::ROOT);
        for kind in Background::ALL {
            scheduler.begin(FlowId::Background(kind), background);
            scheduler.set_background(0, kind, &BackgroundRate::LEFT);
        }
        scheduler
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes other bounds and shares, for example after the device was calibrated.
    pub fn set_config(&mut self, config: Config) {
        self.config = config;
    }

    /// Takes other rates for a kind of background work. They count for what waits, too.
    pub fn set_background(&mut self, now: u64, kind: Background, rates: &BackgroundRate) {
        let now = self.advance(now);
        let index = self.ids[&FlowId::Background(kind)];
        self.unhead(index);
        let begins = self.begins(now);
        self.queue_mut(index).set_background(now, begins, rates);
        self.head(index, now);
    }

    /// Takes another weight; it counts from the next request on, and for a flow that begins later too.
    pub fn set_weight(&mut self, share: Share, weight: u32) {
        if weight == WEIGHT {
            self.weights.remove(&share);
        } else {
            self.weights.insert(share, weight);
        }
        let leaf = |id| self.ids.get(&id).map(|index| self.queue(*index).node);
        let node = match share {
            Share::Background => Some(self.background),
            Share::Tenant(tenant) => self.tenants.get(&tenant).copied(),
            Share::Client { tenant, client } => leaf(FlowId::BestEffort { tenant, client }),
            Share::Reservation(reservation) => leaf(FlowId::Reserved(reservation)),
        };
        if let Some(node) = node {
            self.tree.set_weight(node, weight);
        }
    }

    /// Takes a request.
    ///
    /// # Errors
    /// Gives the request back if `waiting_max` of its flow wait already.
    pub fn submit(&mut self, now: u64, request: Request<T>) -> Result<(), Request<T>> {
        self.submit_since(now, now, request)
    }

    /// Takes a request that came at `came`: the next part of one whose earlier parts were submitted before.
    /// It is due as if all parts had been submitted then.
    ///
    /// # Errors
    /// As for [`Scheduler::submit`].
    pub fn submit_since(&mut self, now: u64, came: u64, request: Request<T>) -> Result<(), Request<T>> {
        let now = self.advance(now);
        let arrival = came.min(now);
        let index = self.queue_of(now, &request);
        if self.queue(index).waiting.len() >= self.config.waiting_max {
            return Err(request);
        }
        let Request { direction, bytes, cost_ns, item, .. } = request;
        let begins = self.begins(arrival);
        let pending = Pending { direction, bytes, cost_ns, arrival, begins, item };
        let queue = self.queue_mut(index);
        queue.waiting.push_back(pending);
        let is_head = queue.waiting.len() == 1;
        self.waiting += 1;
        if is_head {
            self.head(index, now);
        }
        Ok(())
    }

    /// The request that goes to the device now. To be called until it gives none, after each submit, each
    /// done, and at the time that it told to wait until.
    pub fn next(&mut self, now: u64) -> Next<T> {
        let now = self.advance(now);
        self.promote(now);
        let Some((index, phase)) = self.choose(now, &BOTH) else {
            return match self.limited.first() {
                Some((at, _)) => Next::WaitUntil(*at),
                None => Next::Empty,
            };
        };
        let cost_ns = self.cost_ns(index);
        let direction = self.queue(index).direction();
        if self.has_place(direction) {
            return if self.fits(cost_ns) { self.give(index, phase, now) } else { Next::Full };
        }
        // Requests of the other direction pass it, but leave it the device time that it needs when its turn
        // comes.
        match self.choose(now, &[other(direction)]) {
            Some((index, phase))
                if self.has_place(other(direction))
                    && self.fits(cost_ns.saturating_add(self.cost_ns(index))) =>
            {
                self.give(index, phase, now)
            }
            _ => Next::Full,
        }
    }

    /// A request that was given out is done, or given up. If it was other than was told, its charges are
    /// mended.
    pub fn done(&mut self, ticket: Ticket, now: u64, actual: Option<Actual>) {
        let now = self.advance(now);
        let index = ticket.queue;
        self.requests_in_flight[ticket.direction as usize] -= 1;
        self.time_in_flight_ns -= u128::from(ticket.cost_ns);
        let told = Actual { bytes: ticket.bytes, cost_ns: ticket.cost_ns };
        let actual = actual.unwrap_or(told);
        if actual != told {
            self.correct(&ticket, actual, now);
        }
        let bound_ns = self.config.kept_within_ns(ticket.direction, ticket.cost_ns);
        let queue = self.queue_mut(index);
        queue.in_flight -= 1;
        queue.figures.requests += 1;
        match ticket.phase {
            Phase::Shared => queue.figures.bytes_shared += actual.bytes,
            Phase::System | Phase::Promised => queue.figures.bytes_promised += actual.bytes,
        }
        if let Some(times) = &ticket.times {
            queue.figures.count(times, now, bound_ns);
        }
        self.note_idle(index);
    }

    /// Ends a reservation's promise: what waits competes in its tenant's share, and the flow is forgotten
    /// when it is empty.
    pub fn end(&mut self, now: u64, reservation: u64) {
        let now = self.advance(now);
        if let Some(index) = self.ids.get(&FlowId::Reserved(reservation)).copied() {
            self.unhead(index);
            self.queue_mut(index).end();
            self.head(index, now);
            self.note_idle(index);
        }
    }

    /// Takes out all waiting requests that this holds for, flow by flow, in the order of their arrival.
    pub fn remove(&mut self, now: u64, mut which: impl FnMut(FlowId, &T) -> bool) -> Vec<T> {
        let now = self.advance(now);
        let mut removed = Vec::new();
        for index in 0..self.queues.len() {
            let Some(queue) = &mut self.queues[index] else { continue };
            let id = queue.id;
            if !queue.waiting.iter().any(|pending| which(id, &pending.item)) {
                continue;
            }
            self.unhead(index);
            let queue = self.queue_mut(index);
            let waiting = std::mem::take(&mut queue.waiting);
            let before = removed.len();
            for pending in waiting {
                if which(id, &pending.item) {
                    removed.push(pending.item);
                } else {
                    queue.waiting.push_back(pending);
                }
            }
            self.waiting -= removed.len() - before;
            self.head(index, now);
            self.note_idle(index);
        }
        removed
    }

    /// Takes out all waiting requests.
    pub fn drain(&mut self, now: u64) -> Vec<T> {
        self.remove(now, |_, _| true)
    }

    /// Number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Requests given out and not done.
    pub fn in_flight(&self) -> InFlight {
        let operations: usize = self.requests_in_flight.iter().sum();
        InFlight {
            operations: u64::try_from(operations).unwrap_or(u64::MAX),
            cost_ns: u64::try_from(self.time_in_flight_ns).unwrap_or(u64::MAX),
        }
    }

    /// All flows that are known, and where they stand.
    pub fn figures(&self) -> impl Iterator<Item = FlowFigures> {
        self.ids.iter().map(|(flow, index)| {
            let queue = self.queue(*index);
            FlowFigures {
                flow: *flow,
                waiting: queue.waiting.len(),
                in_flight: queue.in_flight,
                figures: queue.figures,
            }
        })
    }

    fn advance(&mut self, now: u64) -> u64 {
        self.now = self.now.max(now);
        self.now
    }

    fn queue(&self, index: usize) -> &Queue<T> {
        self.queues[index].as_ref().expect("the queue is known")
    }

    fn queue_mut(&mut self, index: usize) -> &mut Queue<T> {
        self.queues[index].as_mut().expect("the queue is known")
    }
}

/// Flows: how they begin and are forgotten.
impl<T> Scheduler<T> {
    /// The queue of a request, begun if it is new. The promise that came with the request counts from now on.
    fn queue_of(&mut self, now: u64, request: &Request<T>) -> usize {
        match request.flow {
            Flow::System => self.ids[&FlowId::System],
            Flow::Background(kind) => self.ids[&FlowId::Background(kind)],
            Flow::BestEffort { tenant, client } => {
                self.tenant_queue(now, FlowId::BestEffort { tenant, client }, tenant)
            }
            Flow::Reserved { reservation, tenant, promise } => {
                let covered =
                    promise.direction == request.direction && promise.rate > 0 && now < promise.until_ns;
                let id = FlowId::Reserved(reservation);
                if !covered && !self.ids.contains_key(&id) {
                    return self.tenant_queue(now, FlowId::Uncovered(reservation), tenant);
                }
                let index = self.tenant_queue(now, id, tenant);
                let begins = self.begins(now);
                // A promise that is over came with an older capability, if the one that is known is not.
                let counts = now < promise.until_ns || self.queue(index).is_over(now);
                if counts && self.queue_mut(index).set_promise(now, begins, &promise) {
                    self.rehead(index, now);
                }
                if covered { index } else { self.tenant_queue(now, FlowId::Uncovered(reservation), tenant) }
            }
        }
    }

    fn tenant_queue(&mut self, now: u64, id: FlowId, tenant: u64) -> usize {
        if let Some(index) = self.ids.get(&id) {
            return *index;
        }
        self.forget(now);
        let parent = match self.tenants.get(&tenant) {
            Some(node) => *node,
            None => {
                let weight = self.weight(Share::Tenant(tenant));
                let node = self.tree.add(Tree::ROOT, weight, None);
                self.tenants.insert(tenant, node);
                node
            }
        };
        self.begin(id, parent)
    }

    fn begin(&mut self, id: FlowId, parent: Node) -> usize {
        let weight = match id {
            FlowId::Reserved(reservation) => self.weight(Share::Reservation(reservation)),
            FlowId::BestEffort { tenant, client } => self.weight(Share::Client { tenant, client }),
            FlowId::System | FlowId::Background(_) | FlowId::Uncovered(_) => WEIGHT,
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.queues.push(None);
            self.queues.len() - 1
        });
        let queue = Queue::new(id, self.tree.add(parent, weight, Some(index)));
        self.queues[index] = Some(queue);
        self.ids.insert(id, index);
        index
    }

    fn weight(&self, share: Share) -> u32 {
        self.weights.get(&share).copied().unwrap_or(WEIGHT)
    }

    /// A queue may have become idle. The system's and the background's stay.
    fn note_idle(&mut self, index: usize) {
        let queue = self.queue_mut(index);
        let stays = matches!(queue.id, FlowId::System | FlowId::Background(_));
        if !stays && !queue.listed && queue.waiting.is_empty() && queue.in_flight == 0 {
            queue.listed = true;
            self.idle.push_back(index);
        }
    }

    /// Forgets some idle queues that are as new ones would be.
    fn forget(&mut self, now: u64) {
        for _ in 0..FORGETS.min(self.idle.len()) {
            let Some(index) = self.idle.pop_front() else { return };
            let queue = self.queue_mut(index);
            if !queue.waiting.is_empty() || queue.in_flight > 0 {
                queue.listed = false;
                continue;
            }
            let promised = matches!(queue.id, FlowId::Reserved(_)) && !queue.is_over(now);
            let past = !promised && queue.clock.is_past(now);
            let id = queue.id;
            let node = queue.node;
            let Some(tenant) = self.tree.parent(node) else { continue };
            let is_last = self.tree.children(tenant) == 1;
            if !past || !self.tree.is_past(node) || (is_last && !self.tree.is_past(tenant)) {
                self.idle.push_back(index);
                continue;
            }
            self.ids.remove(&id);
            self.queues[index] = None;
            self.free.push(index);
            self.tree.remove(node);
            if is_last {
                self.tree.remove(tenant);
                self.tenants.retain(|_, known| *known != tenant);
            }
        }
    }
}

/// Decisions: tags, choice, charges.
impl<T> Scheduler<T> {
    /// Latest start of a promise's stretch that begins now. While promises are kept this is the time of the
    /// arrival. If they are overbooked, the clocks of those that wait lag, and a newcomer that began at the
    /// true time would wait until all caught up, which may be never. It begins where they are instead.
    fn begins(&self, arrival: u64) -> u64 {
        match self.first_due(&BOTH) {
            Some((due, _)) => arrival.min(due.saturating_add(self.config.lateness_ns)),
            None => arrival,
        }
    }

    /// The eligible head that is due first, of those in these directions.
    fn first_due(&self, directions: &[Direction]) -> Option<(u64, usize)> {
        directions.iter().filter_map(|way| self.ready[*way as usize].first().copied()).min()
    }

    fn cost_ns(&self, index: usize) -> u64 {
        self.queue(index).waiting.front().map_or(0, |head| head.cost_ns)
    }

    /// The queue's head competes from now on: by right of its promise if it may, and otherwise in the tree.
    fn head(&mut self, index: usize, now: u64) {
        let queue = self.queue(index);
        let node = queue.node;
        let opens = queue.opens();
        let Some(head) = queue.waiting.front() else {
            self.tree.sleep(node);
            return;
        };
        if opens > now {
            self.tree.sleep(node);
            self.limited.insert((opens, index));
            return;
        }
        let cost_ns = head.cost_ns;
        let direction = head.direction;
        if queue.promises(direction, now) {
            let charge = queue.rate.charge(head.bytes, cost_ns);
            let lags = self.begins(head.arrival) < head.arrival;
            let begins = if lags { head.begins } else { head.arrival };
            let tags = queue.clock.tags(&queue.rate, begins, charge);
            self.queue_mut(index).tags = Some(tags);
            if tags.eligible <= now {
                self.tree.sleep(node);
                self.ready[direction as usize].insert((tags.due, index));
                return;
            }
            self.early.insert((tags.eligible, index));
        }
        if self.tree.is_idle() {
            self.rest_due = self.rest_due.max(self.rest_due_after(cost_ns, now));
        }
        self.tree.wake(node, direction);
    }

    /// The queue's head stops competing by right of its promise, and the queue is not held to its limit. In
    /// the tree it stays.
    fn unhead(&mut self, index: usize) {
        let opens = self.queue(index).opens();
        self.limited.remove(&(opens, index));
        if let Some(tags) = self.queue_mut(index).tags.take() {
            for ready in &mut self.ready {
                ready.remove(&(tags.due, index));
            }
            self.early.remove(&(tags.eligible, index));
        }
    }

    fn rehead(&mut self, index: usize, now: u64) {
        self.unhead(index);
        self.head(index, now);
    }

    /// Lets in what had to wait for its time.
    fn promote(&mut self, now: u64) {
        while let Some((at, index)) = self.limited.first().copied()
            && at <= now
        {
            self.limited.remove(&(at, index));
            self.head(index, now);
        }
        while let Some((at, index)) = self.early.first().copied()
            && at <= now
        {
            self.early.remove(&(at, index));
            let queue = self.queue(index);
            if let Some(tags) = queue.tags {
                let node = queue.node;
                let direction = queue.direction();
                self.tree.sleep(node);
                self.ready[direction as usize].insert((tags.due, index));
            }
        }
        for direction in BOTH {
            while let Some((_, index)) = self.first_due(&[direction])
                && self.queue(index).is_over(now)
            {
                self.rehead(index, now);
            }
        }
    }

    /// The queue whose head goes next, of those with heads in these directions, and by which right.
    fn choose(&self, now: u64, directions: &[Direction]) -> Option<(usize, Phase)> {
        let index = self.ids[&FlowId::System];
        let system = self.queue(index);
        let waits = !system.waiting.is_empty() && directions.contains(&system.direction());
        if waits && self.system_opens() <= now {
            return Some((index, Phase::System));
        }
        let shared = self.tree.first(directions).map(|index| (index, Phase::Shared));
        match self.first_due(directions) {
            Some((due, _)) if shared.is_some() && self.rest_due <= now.min(due) => shared,
            Some((_, index)) => Some((index, Phase::Promised)),
            None => shared,
        }
    }

    /// Time from which the system's share lets its next request go before all others.
    fn system_opens(&self) -> u64 {
        match self.config.system_permille {
            0 => u64::MAX,
            share => self.system.opens(share_ns(self.config.system_burst_ns, share)),
        }
    }

    /// Due time of the next request from the tree if one of this cost is served now. If promises lag, it is
    /// counted from where they are.
    fn rest_due_after(&self, cost_ns: u64, now: u64) -> u64 {
        let at = self.first_due(&BOTH).map_or(now, |(due, _)| now.min(due));
        at.saturating_add(share_ns(cost_ns, self.config.rest_permille))
    }

    /// True if this much device time may go to the device beside what is in flight.
    fn fits(&self, cost_ns: u64) -> bool {
        self.requests_in_flight == [0; 2]
            || self.time_in_flight_ns + u128::from(cost_ns) <= u128::from(self.config.time_in_flight_ns)
    }

    /// True if one more request in this direction may go to the device.
    fn has_place(&self, direction: Direction) -> bool {
        let places = match direction {
            Direction::Read => self.config.reads_in_flight,
            Direction::Write => self.config.writes_in_flight,
        };
        self.requests_in_flight[direction as usize] < places.max(1)
    }

    /// Gives out the head of this queue.
    fn give(&mut self, index: usize, phase: Phase, now: u64) -> Next<T> {
        let tags = self.queue(index).tags;
        self.unhead(index);
        let queue = self.queue_mut(index);
        let Some(pending) = queue.waiting.pop_front() else { return Next::Empty };
        let Pending { direction, bytes, cost_ns, arrival, item, .. } = pending;
        let node = queue.node;
        let mut times = None;
        if let Some(tags) = tags {
            let promise = queue.promises(direction, now);
            let start = arrival.max(queue.due);
            let due = start.saturating_add(span_ns(bytes, queue.rate.rate));
            if promise {
                queue.due = due;
                times = Some(Times { start, eligible: tags.eligible, given: now, due });
            }
        }
        queue.meter(now, bytes, cost_ns);
        queue.in_flight += 1;
        match phase {
            Phase::System => self.system.take(now, share_ns(cost_ns, self.config.system_permille)),
            Phase::Promised => {
                if let Some(tags) = tags {
                    queue.clock.serve(tags);
                }
            }
            Phase::Shared => {
                self.tree.charge(node, cost_ns);
                self.rest_due = self.rest_due_after(cost_ns, now);
            }
        }
        self.requests_in_flight[direction as usize] += 1;
        self.time_in_flight_ns += u128::from(cost_ns);
        self.waiting -= 1;
        self.head(index, now);
        let ticket = Ticket { queue: index, direction, bytes, cost_ns, phase, tags, times };
        Next::Go { item, ticket }
    }

    /// Mends the charges of a request that was other than was told.
    fn correct(&mut self, ticket: &Ticket, actual: Actual, now: u64) {
        let index = ticket.queue;
        self.unhead(index);
        let queue = self.queue_mut(index);
        let node = queue.node;
        if let Some(limit) = queue.limit {
            let span = |bytes, cost_ns| span_ns(limit.charge(bytes, cost_ns), limit.rate);
            let told = span(ticket.bytes, ticket.cost_ns);
            queue.meter.correct(told, span(actual.bytes, actual.cost_ns));
        }
        match ticket.phase {
            Phase::System => {
                let share = |cost_ns| share_ns(cost_ns, self.config.system_permille);
                self.system.correct(share(ticket.cost_ns), share(actual.cost_ns));
            }
            Phase::Promised => {
                if let Some(tags) = ticket.tags {
                    let rate = queue.rate;
                    let told = rate.charge(ticket.bytes, ticket.cost_ns);
                    let charge = rate.charge(actual.bytes, actual.cost_ns);
                    queue.clock.correct(&rate, tags, told, charge);
                }
            }
            Phase::Shared => self.tree.correct(node, ticket.cost_ns, actual.cost_ns),
        }
        self.head(index, now);
    }
}
