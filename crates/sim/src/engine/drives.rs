//! The work at a drive: from a message to the disk, and from the disk to the answer.

use std::rc::Rc;

use super::{Engine, Event, Work, WorkKind};
use crate::number::{index, narrow};
use crate::parts::disk::{Command, Start, Taken};
use crate::program::Act;
use crate::spec::Reserved;

/// Returns true for a write through a data drive that has parity drives to update before it answers.
fn has_parity(act: &Act) -> bool {
    matches!(act, Act::UnitWrite { parity, .. } if !parity.is_empty())
}

impl Engine<'_> {
    /// A request for all reads that can begin has reached a host: the reads of its drives go to their
    /// disks.
    pub(super) fn ask_all(&mut self, host: u32, request: u32) {
        let program = Rc::clone(&self.requests[index(u64::from(request))].program);
        for &node in &program.roots {
            if let Act::Read { column, .. } = program.node(node).act
                && self.host_of(self.drive_of(request, column)) == host
            {
                self.ask_disk(Work { kind: WorkKind::Ask, request, node, place: 0 });
            }
        }
    }

    /// The bytes of a write have reached their drive. A drive that sends the change to parity drives first
    /// reads the bytes that are replaced, before the new ones are in the cache.
    pub(super) fn put(&mut self, work: Work) {
        let active = &self.requests[index(u64::from(work.request))];
        let fresh = self.spec.load[index(u64::from(active.load))].fresh;
        let reads = has_parity(&active.program.node(work.node).act) && !fresh;
        self.ask_disk(if reads { Work { kind: WorkKind::Old, ..work } } else { work });
    }

    /// Hands the command of an instruction to the disk of its drive.
    pub(super) fn ask_disk(&mut self, work: Work) {
        let active = &self.requests[index(u64::from(work.request))];
        let (column, offset, bytes) = match &active.program.node(work.node).act {
            Act::Read { column, offset, bytes, .. } | Act::Write { column, offset, bytes, .. } => {
                (*column, *offset, *bytes)
            }
            Act::UnitWrite { column, offset, bytes, parity } => {
                let column = match work.kind {
                    WorkKind::Delta => parity[usize::from(work.place)],
                    _ => *column,
                };
                (column, *offset, *bytes)
            }
            Act::Compute { .. } => unreachable!("arithmetic is the client's"),
        };
        let command = Command {
            work,
            request: active.number,
            object: active.file,
            offset: offset + active.shift,
            bytes,
            write: matches!(work.kind, WorkKind::Put | WorkKind::Delta),
            class: self.class_of(work.request, Reserved::Disks),
        };
        self.hand_in(self.drive_of(work.request, column), command);
    }

    fn hand_in(&mut self, drive: u32, command: Command<Work>) {
        match self.disks[index(u64::from(drive))].begin(self.now, command) {
            Taken::Cached => self.events.push(self.now, Event::Cached { work: command.work }),
            Taken::Waits => {}
            Taken::Starts(start) => self.started(drive, start),
            Taken::Refused => {
                let at = self.refused_free.pop().unwrap_or_else(|| {
                    self.refused.push((drive, command));
                    narrow(self.refused.len() - 1)
                });
                self.refused[index(u64::from(at))] = (drive, command);
                self.events.push(self.now + self.spec.parts.disk.retry.0, Event::Retry { at });
            }
        }
    }

    pub(super) fn retry(&mut self, at: u32) {
        let (drive, command) = self.refused[index(u64::from(at))];
        self.refused_free.push(at);
        self.hand_in(drive, command);
    }

    fn started(&mut self, disk: u32, Start { slot, after }: Start) {
        let event = if self.disks[index(u64::from(disk))].has_lanes() {
            Event::Positioned { disk, slot }
        } else {
            Event::DiskDone { disk, slot }
        };
        self.events.push(self.now + after, event);
    }

    pub(super) fn positioned(&mut self, disk: u32, slot: u32) {
        if let Some(Start { slot, after }) = self.disks[index(u64::from(disk))].positioned(self.now, slot) {
            self.events.push(self.now + after, Event::DiskDone { disk, slot });
        }
    }

    pub(super) fn disk_done(&mut self, disk: u32, slot: u32) {
        let mut done = std::mem::take(&mut self.done);
        let [transfer, next] = self.disks[index(u64::from(disk))].end(self.now, slot, &mut done);
        if let Some(Start { slot, after }) = transfer {
            self.events.push(self.now + after, Event::DiskDone { disk, slot });
        }
        if let Some(start) = next {
            self.started(disk, start);
        }
        done.iter().for_each(|command| self.on_disk_done(command.work));
        self.done = done;
    }

    /// The disk is done with an instruction's command: the drive answers, or goes on to the next step.
    pub(super) fn on_disk_done(&mut self, work: Work) {
        let Work { request, node, .. } = work;
        let protocol = &self.spec.parts.protocol;
        let reply = protocol.reply.0;
        let acknowledgement = protocol.acknowledgement.0;
        let client = self.client_of(request);
        let program = Rc::clone(&self.requests[index(u64::from(request))].program);
        match (&program.node(node).act, work.kind) {
            (Act::Read { column, sent, .. }, _) => {
                let host = self.host_of(self.drive_of(request, *column));
                let answer = Work { kind: WorkKind::Reply, ..work };
                self.send(host, Some(client), reply + u64::from(*sent), true, answer);
            }
            // Without parity a unit write is done when it is durable.
            (Act::Write { column, .. }, _) | (Act::UnitWrite { column, .. }, WorkKind::Put)
                if !has_parity(&program.node(node).act) =>
            {
                let host = self.host_of(self.drive_of(request, *column));
                let answer = Work { kind: WorkKind::Acknowledge, ..work };
                self.send(host, Some(client), acknowledgement, false, answer);
            }
            (Act::UnitWrite { .. }, WorkKind::Old) => self.ask_disk(Work { kind: WorkKind::Put, ..work }),
            (Act::UnitWrite { column, bytes, parity, .. }, WorkKind::Put) => {
                self.requests[index(u64::from(request))].waits[index(u64::from(node))] = narrow(parity.len());
                let from = self.host_of(self.drive_of(request, *column));
                for (place, &parity) in (0..).zip(parity) {
                    let to = self.host_of(self.drive_of(request, parity));
                    let bytes = self.spec.parts.protocol.request.0 + u64::from(*bytes);
                    self.send(from, Some(to), bytes, true, Work { kind: WorkKind::Delta, place, ..work });
                }
            }
            (Act::UnitWrite { column, parity, .. }, _) => {
                let from = self.host_of(self.drive_of(request, parity[usize::from(work.place)]));
                let to = self.host_of(self.drive_of(request, *column));
                let answer = Work { kind: WorkKind::DeltaDone, ..work };
                self.send(from, Some(to), acknowledgement, false, answer);
            }
            (Act::Write { .. } | Act::Compute { .. }, _) => unreachable!("arithmetic is the client's"),
        }
    }

    /// A parity drive has stored the change of a unit write. After the last of them the data drive answers
    /// the client.
    pub(super) fn delta_done(&mut self, work: Work) {
        let active = &mut self.requests[index(u64::from(work.request))];
        let waits = &mut active.waits[index(u64::from(work.node))];
        *waits -= 1;
        if *waits > 0 {
            return;
        }
        let Act::UnitWrite { column, .. } = active.program.node(work.node).act else {
            unreachable!("only a unit write has deltas");
        };
        let host = self.host_of(self.drive_of(work.request, column));
        let client = self.client_of(work.request);
        let bytes = self.spec.parts.protocol.acknowledgement.0;
        self.send(host, Some(client), bytes, false, Work { kind: WorkKind::Acknowledge, ..work });
    }
}
