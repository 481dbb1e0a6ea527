//! Reads of units, on their way: answered at once, from what was read ahead, or in their turn at the disk.

use std::sync::Arc;
use std::time::Instant;

use braid_layout::Generation;
use braid_schedule::Flow;
use braid_store::DiskReads;
use braid_transport::host;
use braid_wire::Capability;
use braid_wire::authorise::Verified;
use braid_wire::data::{DriveRequest, Read};

use crate::connections::answerer::{Ticket, micros};
use crate::connections::facts::StoredFacts;
use crate::connections::outbox::{self, Outbox};
use crate::connections::queries::{self, Room};
use crate::connections::reply::Answer;
use crate::connections::requests::Requests;
use crate::core::{Arrival, Core, Figures};
use crate::device::flows::flow_of;
use crate::device::rail::Turns;
use crate::readahead::chunks::{self, Route};

impl Requests {
    /// Answers a short read into `outbox` if that needs no wait. Returns false otherwise: then the request is
    /// to be carried out like any other, which also gives the reason of any refusal.
    pub(crate) fn answer_at_once(
        &mut self,
        verified: &Verified,
        arrival: &Arrival,
        outbox: &mut Outbox,
    ) -> bool {
        let DriveRequest::Read(read) = &verified.request else { return false };
        let came = read.timed.then(Instant::now);
        let bytes = read.to.saturating_sub(read.from);
        // Where the rail is shared, every answer waits for its turn.
        if self.core.rails.is_some()
            || bytes > outbox::PAYLOAD_BYTES_MAX
            || self.sendfile_min().is_some_and(|min| bytes >= min)
        {
            return false;
        }
        if self.serving(verified, arrival).is_err() {
            return false;
        }
        match self.examine(verified, (read.at.partition, read.at.object)) {
            Ok(Some(facts)) if queries::not_caught_up(&self.core, Some(&facts), read).is_none() => {
                let is_put = queries::read_at_once(&self.core, verified, read, came, outbox);
                if is_put {
                    // What is to be read ahead for it does not wait until it is needed.
                    let flow = flow_of(&self.core, &verified.capability);
                    chunks::handle_read(&self.core, &flow, &verified.capability, &facts.map, read);
                }
                is_put
            }
            _ => false,
        }
    }

    /// Reads in a thread: from memory if it was read ahead, else when it is this request's turn at the disk.
    pub(crate) fn read(
        &self,
        capability: &Capability,
        facts: Option<&StoredFacts>,
        room: Room,
        read: Read,
        ticket: Ticket,
    ) {
        ticket.waits();
        let core = self.core();
        let flow = flow_of(&core, capability);
        let route = facts.map_or(Route::Disk, |facts| chunks::route(&core, &flow, capability, facts, &read));
        let mut reading = Reading { core, flow, g: capability.g, room, read, ticket };
        match route {
            Route::Disk => reading.in_turn(),
            Route::Memory => reading.at_once(),
            Route::After(chunk) => {
                let core = self.core();
                let began = Instant::now();
                core.readahead.after(chunk, move || {
                    reading.ticket.time(|times| times.disk_us = micros(began.elapsed()));
                    reading.at_once();
                });
            }
        }
    }
}

/// A read that is to be answered.
struct Reading {
    core: Arc<Core>,
    flow: Flow,
    g: Generation,
    room: Room,
    read: Read,
    ticket: Ticket,
}

impl Reading {
    /// Reads what should be in memory: that needs no turn at the disk. If it is not there after all, it gets
    /// its turn.
    fn at_once(self) {
        drop(host::spawn_blocking(move || {
            let Reading { core, flow, g, room, read, mut ticket } = self;
            match queries::read_from_memory(&core, room, g, &read) {
                Ok(answer) => {
                    Figures::add(&core.figures.at_once, 1);
                    ticket.time(|times| times.cached = times.disk_us == 0);
                    send(&core, flow, ticket, answer);
                }
                Err(room) => Reading { core, flow, g, room, read, ticket }.in_turn(),
            }
        }));
    }

    fn in_turn(self) {
        let Reading { core, flow, g, room, read, mut ticket } = self;
        let bytes = u64::from(read.to - read.from);
        let range = read.from..read.to;
        // A parity unit has as many places as deltas that are not folded in yet.
        let newest = core.store.disk_reads(read.at.partition, read.at.object, read.unit, &range);
        let disk = newest.unwrap_or(DiskReads { reads: 1, bytes });
        let gate = Arc::clone(&core.gate);
        gate.enter_reads(flow, bytes, disk, move |mut slot| {
            slot.count();
            host::spawn_blocking(move || {
                let began = Instant::now();
                let waited = slot.waited();
                let (answer, was_cached) = queries::read(&core, room, g, &read);
                ticket.time(|times| {
                    times.queue_us = micros(waited);
                    times.cached = was_cached;
                    times.disk_us += if was_cached { 0 } else { micros(began.elapsed()) };
                });
                if was_cached {
                    slot.did_nothing();
                } else {
                    drop(slot);
                }
                send(&core, flow, ticket, answer);
            });
        });
    }
}

/// Answers, if the rail is shared in turns.
fn send(core: &Core, flow: Flow, ticket: Ticket, answer: Answer) {
    let bytes = answer.payload.bytes();
    match &core.rails {
        Some(rails) if bytes > 0 => {
            let turns = rails.outward.turns(flow, bytes);
            tokio::spawn(answer_in_turns(ticket, answer, turns));
        }
        _ => ticket.answer(answer),
    }
}

/// Answers when the first piece of the payload has its turn at the rail. Without one the ticket is dropped,
/// which refuses the request.
async fn answer_in_turns(ticket: Ticket, answer: Answer, mut turns: Turns) {
    if turns.first().await.is_ok() {
        ticket.answer(Answer { turns: Some(turns), ..answer });
    }
}
