//! A drive's disk, and how its store uses it: the order of commands, their positioning, and what the cache
//! answers.
//!
//! With one lane a command positions and transfers before the next one begins. With several lanes, commands
//! position at the same time, and their transfers take turns at the disk's rate.

use std::collections::{HashMap, VecDeque};

use super::cache::Cache;
use super::server::{Class, Server};
use super::usage::Usage;
use crate::model::{DiskModel, Placement, StoreModel};
use crate::number::{index, narrow};
use crate::random::Stream;

/// Number of waiting commands among which a disk looks for more of the request it is at.
const LOOK_AHEAD: usize = 256;

/// A command for a disk; `W` tells its purpose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Command<W> {
    pub(crate) work: W,
    /// Number of the request, never used again.
    pub(crate) request: u64,
    pub(crate) object: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) write: bool,
    pub(crate) class: Class,
}

/// Result of handing in a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The cache answers it.
    Cached,
    Waits,
    Starts(Start),
    /// The queue is full.
    Refused,
}

/// The start of the commands in a slot, whose next event comes after `after` nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) slot: u32,
    pub(crate) after: u64,
}

/// Commands that are carried out together.
#[derive(Debug)]
struct Slot<W> {
    commands: Vec<Command<W>>,
    /// Bytes that are read ahead, beyond the slot's only command.
    ahead: u64,
    /// True if the bytes that the command reads came into the cache while it waited.
    cached: bool,
}

/// Position of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    Unknown,
    /// At the end of the log.
    Log,
    /// Behind these bytes of an object, read or written for this request.
    Behind {
        object: u32,
        offset: u64,
        request: u64,
        write: bool,
    },
}

/// The disk of one drive.
#[derive(Debug)]
pub(crate) struct Disk<W> {
    model: DiskModel,
    store: StoreModel,
    stream: Stream,
    waiting: [VecDeque<Command<W>>; 2],
    busy: u32,
    slots: Vec<Slot<W>>,
    free: Vec<u32>,
    bus: Server<u32>,
    head: Head,
    cache: Cache,
    /// Offset at which the last read of each object ended.
    ends: HashMap<u32, u64>,
    pub(crate) usage: Usage,
}

impl<W: Copy> Disk<W> {
    pub(crate) fn new(model: DiskModel, store: StoreModel, stream: Stream) -> Disk<W> {
        let cache = Cache::new(store.cache.0);
        Disk {
            model,
            store,
            stream,
            waiting: [VecDeque::new(), VecDeque::new()],
            busy: 0,
            slots: Vec::new(),
            free: Vec::new(),
            bus: Server::new(1),
            head: Head::Unknown,
            cache,
            ends: HashMap::new(),
            usage: Usage::default(),
        }
    }

    /// Hands in a command.
    pub(crate) fn begin(&mut self, now: u64, command: Command<W>) -> Taken {
        if !command.write && self.cache.has(command.object, command.offset, u64::from(command.bytes)) {
            self.ends.insert(command.object, command.offset + u64::from(command.bytes));
            return Taken::Cached;
        }
        let full = self.model.queue.is_some_and(|queue| self.waiting() >= queue);
        if full && self.busy == self.model.lanes {
            self.usage.refused += 1;
            return Taken::Refused;
        }
        self.waiting[command.class.index()].push_back(command);
        let start = self.start();
        self.note(now);
        start.map_or(Taken::Waits, Taken::Starts)
    }

    /// The commands of a slot have positioned. Returns their transfer if it starts now.
    pub(crate) fn positioned(&mut self, now: u64, slot: u32) -> Option<Start> {
        if self.model.lanes == 1 {
            return Some(Start { slot, after: 0 });
        }
        let service = self.transfer_ns(slot);
        let class = self.slots[index(u64::from(slot))].commands[0].class;
        let (slot, after) = self.bus.begin(now, slot, service, class)?;
        Some(Start { slot, after })
    }

    /// The commands of a slot are done, and are put into `done`. Returns the starts that follow: the next
    /// transfer, and the next commands.
    pub(crate) fn end(&mut self, now: u64, slot: u32, done: &mut Vec<Command<W>>) -> [Option<Start>; 2] {
        let transfer = if self.model.lanes == 1 { None } else { self.bus.end(now) };
        done.clear();
        let at = index(u64::from(slot));
        done.append(&mut self.slots[at].commands);
        let ahead = self.slots[at].ahead;
        self.free.push(slot);
        self.busy -= 1;
        for command in done.iter() {
            self.keep(command, ahead);
        }
        let next = self.start();
        self.note(now);
        [transfer.map(|(slot, after)| Start { slot, after }), next]
    }

    /// Share of the time in which the disk was busy: its places for commands or its transfers, whichever is
    /// greater.
    pub(crate) fn utilisation(&mut self, now: u64) -> f64 {
        let places = self.usage.utilisation(now, self.model.lanes);
        places.max(self.bus.usage.utilisation(now, 1))
    }

    /// Forgets the use up to now.
    pub(crate) fn reset(&mut self, now: u64) {
        self.usage.reset(now);
        self.bus.usage.reset(now);
    }

    /// Returns true if positioning and transfer are two events.
    pub(crate) fn has_lanes(&self) -> bool {
        self.model.lanes > 1
    }

    fn waiting(&self) -> u32 {
        narrow(self.waiting.iter().map(VecDeque::len).sum())
    }

    fn note(&mut self, now: u64) {
        self.usage.note(now, self.busy, self.waiting());
    }

    /// Starts the next commands if any wait and a place is free.
    fn start(&mut self) -> Option<Start> {
        if self.busy == self.model.lanes {
            return None;
        }
        let first = self.next()?;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { commands: Vec::new(), ahead: 0, cached: false });
            narrow(self.slots.len() - 1)
        });
        let at = index(u64::from(slot));
        self.slots[at].commands.push(first);
        self.slots[at].ahead = self.ahead(&first);
        self.slots[at].cached =
            !first.write && self.cache.has(first.object, first.offset, u64::from(first.bytes));
        if first.write && self.store.log {
            self.take_along(at, first);
        }
        self.busy += 1;
        self.usage.served += u64::from(narrow(self.slots[at].commands.len()));
        if self.slots[at].cached {
            self.slots[at].ahead = 0;
            return Some(Start { slot, after: 0 });
        }
        let positions = self.model.lanes > 1 || self.must_position(&first);
        let mut after =
            if positions { self.model.draw_positioning(first.write, &mut self.stream) } else { 0 };
        if self.model.lanes == 1 {
            after += self.transfer_ns(slot);
        }
        self.head = if first.write && self.store.log {
            Head::Log
        } else {
            let offset = first.offset + u64::from(first.bytes) + self.slots[at].ahead;
            Head::Behind { object: first.object, offset, request: first.request, write: first.write }
        };
        Some(Start { slot, after })
    }

    /// The next command: one of the request that the disk is at, if it finishes requests, else the first in
    /// the queue.
    fn next(&mut self) -> Option<Command<W>> {
        let queue = self.waiting.iter_mut().find(|queue| !queue.is_empty())?;
        if self.store.whole_requests
            && let Head::Behind { request, .. } = self.head
            && let Some(at) = queue.iter().take(LOOK_AHEAD).position(|command| command.request == request)
        {
            return queue.remove(at);
        }
        queue.pop_front()
    }

    /// Takes the other writes that wait into the same commit.
    fn take_along(&mut self, slot: usize, first: Command<W>) {
        let queue = &mut self.waiting[first.class.index()];
        let mut bytes = u64::from(first.bytes);
        let mut at = 0;
        while at < queue.len() {
            if queue[at].write && bytes + u64::from(queue[at].bytes) > self.store.commit.0 {
                // The commit is full. The commands behind are not looked at, however many there are.
                break;
            }
            if queue[at].write
                && let Some(command) = queue.remove(at)
            {
                bytes += u64::from(command.bytes);
                self.slots[slot].commands.push(command);
            } else {
                at += 1;
            }
        }
    }

    fn must_position(&self, command: &Command<W>) -> bool {
        if command.write && self.store.log {
            return self.head != Head::Log;
        }
        let Head::Behind { object, offset, request, write } = self.head else { return true };
        match self.store.placement {
            Placement::Scattered => true,
            Placement::Clustered => (request, write) != (command.request, command.write),
            Placement::Contiguous => (object, offset) != (command.object, command.offset),
        }
    }

    /// Time to transfer the commands of a slot, and to sync it if they are writes, in nanoseconds.
    fn transfer_ns(&self, slot: u32) -> u64 {
        let Slot { commands, ahead, cached } = &self.slots[index(u64::from(slot))];
        if *cached {
            return 0;
        }
        let bytes: u64 = commands.iter().map(|command| u64::from(command.bytes)).sum();
        let write = commands[0].write;
        self.model.transfer_ns(write, bytes + ahead) + if write { self.store.sync.0 } else { 0 }
    }

    /// Bytes to read ahead: none unless the read begins where the last one of its object ended.
    fn ahead(&self, command: &Command<W>) -> u64 {
        let goes_on = !command.write && self.ends.get(&command.object) == Some(&command.offset);
        if goes_on { self.store.read_ahead.0 } else { 0 }
    }

    /// Puts transferred bytes into the cache.
    fn keep(&mut self, command: &Command<W>, ahead: u64) {
        self.cache.touch(command.object, command.offset, u64::from(command.bytes) + ahead);
        if !command.write {
            self.ends.insert(command.object, command.offset + u64::from(command.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Distribution, Preset};
    use crate::random::Source;
    use crate::units::{Bytes, Rate, Span};

    fn disk(store: StoreModel) -> Disk<()> {
        let model = DiskModel {
            seek: Distribution::Constant(Span(1000)),
            read_rate: Rate(1e9),
            write_rate: Rate(1e9),
            ..DiskModel::preset("free").expect("it is listed")
        };
        Disk::new(model, store, Stream::new(1, Source::Disk(0)))
    }

    fn command(request: u64, offset: u64, write: bool) -> Command<()> {
        Command { work: (), request, object: 0, offset, bytes: 100, write, class: Class::Rest }
    }

    /// Hands in all commands at once. Returns the time and the number of commands of each service.
    fn services(disk: &mut Disk<()>, from: u64, commands: &[Command<()>]) -> Vec<(u64, usize)> {
        let mut now = from;
        let mut start = None;
        for command in commands {
            if let Taken::Starts(first) = disk.begin(now, *command) {
                start = Some(first);
            }
        }
        let mut found = Vec::new();
        let mut done = Vec::new();
        while let Some(Start { slot, after }) = start {
            now += after;
            start = disk.end(now, slot, &mut done)[1];
            found.push((after, done.len()));
        }
        found
    }

    #[test]
    fn what_positions_is_the_placements_affair() {
        let commands = [command(1, 0, false), command(1, 100, false), command(2, 200, false)];
        let run = |placement| {
            let store = StoreModel { placement, ..StoreModel::default() };
            services(&mut disk(store), 0, &commands).into_iter().map(|(time, _)| time).collect::<Vec<u64>>()
        };
        assert_eq!(run(Placement::Scattered), [1100, 1100, 1100]);
        assert_eq!(run(Placement::Clustered), [1100, 100, 1100]);
        assert_eq!(run(Placement::Contiguous), [1100, 100, 100]);
    }

    #[test]
    fn a_commit_takes_all_writes_that_wait() {
        let store = StoreModel { log: true, sync: Span(50), ..StoreModel::default() };
        let commands =
            [command(1, 0, true), command(2, 9000, true), command(3, 500, false), command(4, 50, true)];
        assert_eq!(services(&mut disk(store), 0, &commands), [(1150, 1), (250, 2), (1100, 1)]);
    }

    #[test]
    fn a_request_is_finished_before_the_next() {
        let commands = [command(1, 0, false), command(2, 100, false), command(1, 5000, false)];
        let run = |whole_requests| {
            let placement = Placement::Clustered;
            let store = StoreModel { whole_requests, placement, ..StoreModel::default() };
            services(&mut disk(store), 0, &commands).into_iter().map(|(time, _)| time).collect::<Vec<u64>>()
        };
        assert_eq!(run(true), [1100, 100, 1100]);
        assert_eq!(run(false), [1100, 1100, 1100]);
    }

    #[test]
    fn reading_ahead_serves_what_follows_from_memory() {
        let ahead = Bytes(8192 - 100);
        let mut disk = disk(StoreModel { cache: Bytes(1 << 20), read_ahead: ahead, ..StoreModel::default() });
        let at = |page: u64| Command { bytes: 4096, ..command(1, page * 4096, false) };
        assert_eq!(services(&mut disk, 0, &[at(0)]), [(1000 + 4096, 1)]);
        // The second read begins where the first ended, so the disk reads ahead, without positioning.
        assert_eq!(services(&mut disk, 9000, &[at(1)]), [(4096 + ahead.0, 1)]);
        assert_eq!(disk.begin(90_000, at(2)), Taken::Cached);
    }

    #[test]
    fn a_full_queue_refuses() {
        let mut disk = disk(StoreModel::default());
        disk.model.queue = Some(1);
        assert!(matches!(disk.begin(0, command(1, 0, false)), Taken::Starts(_)));
        assert_eq!(disk.begin(0, command(2, 0, false)), Taken::Waits);
        assert_eq!(disk.begin(0, command(3, 0, false)), Taken::Refused);
        assert_eq!(disk.usage.refused, 1);
    }

    #[test]
    fn lanes_position_together_and_transfer_in_turn() {
        let mut disk = disk(StoreModel::default());
        disk.model.lanes = 2;
        let begin = |disk: &mut Disk<()>, request| match disk.begin(0, command(request, 0, false)) {
            Taken::Starts(start) => start,
            other => panic!("{other:?}"),
        };
        let first = begin(&mut disk, 1);
        let second = begin(&mut disk, 2);
        assert_eq!((first.after, second.after), (1000, 1000));
        assert_eq!(disk.positioned(1000, first.slot), Some(Start { slot: first.slot, after: 100 }));
        assert_eq!(disk.positioned(1000, second.slot), None);
        let next = disk.end(1100, first.slot, &mut Vec::new());
        assert_eq!(next, [Some(Start { slot: second.slot, after: 100 }), None]);
    }
}
