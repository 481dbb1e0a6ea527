//! Links: on each rail one medium that all hosts share, or a switch with two ports for each host.

use super::server::Server;
use crate::model::{LinkModel, Medium};
use crate::number::index;

/// All ports of all rails.
#[derive(Debug)]
pub(crate) struct Network<J> {
    pub(crate) model: LinkModel,
    rails: u32,
    pub(crate) ports: Vec<Server<J>>,
    /// Bytes that wait at each port.
    waiting_bytes: Vec<u64>,
    /// The rail on which each host sends next.
    next_rail: Vec<u32>,
}

/// Which end of a link a port is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// A host sends through it.
    Send,
    /// The switch sends to the host through it.
    Receive,
}

impl<J> Network<J> {
    pub(crate) fn new(model: LinkModel, rails: u32, hosts: u32) -> Network<J> {
        let count = match model.medium {
            Medium::Shared => rails,
            Medium::Switch => hosts * rails * 2,
        };
        Network {
            model,
            rails,
            ports: (0..count).map(|_| Server::new(1)).collect(),
            waiting_bytes: vec![0; index(u64::from(count))],
            next_rail: vec![0; index(u64::from(hosts))],
        }
    }

    /// The rail that a host's next burst takes: each in turn.
    pub(crate) fn take_rail(&mut self, host: u32) -> u32 {
        let next = &mut self.next_rail[index(u64::from(host))];
        let rail = *next;
        *next = (rail + 1) % self.rails;
        rail
    }

    /// The number of a port.
    pub(crate) fn port(&self, host: u32, rail: u32, end: End) -> u32 {
        match (self.model.medium, end) {
            (Medium::Shared, _) => rail,
            (Medium::Switch, End::Send) => (host * self.rails + rail) * 2,
            (Medium::Switch, End::Receive) => (host * self.rails + rail) * 2 + 1,
        }
    }

    /// A port's host, rail and end; of a shared medium only the rail is meant.
    pub(crate) fn of_port(&self, port: u32) -> (u32, u32, End) {
        match self.model.medium {
            Medium::Shared => (0, port, End::Send),
            Medium::Switch => {
                let end = if port.is_multiple_of(2) { End::Send } else { End::Receive };
                (port / 2 / self.rails, port / 2 % self.rails, end)
            }
        }
    }

    /// Whether a burst finds room at a switch's port. One that is refused is counted.
    pub(crate) fn has_room(&mut self, port: u32, bytes: u32) -> bool {
        let at = index(u64::from(port));
        let full = self.model.queue.is_some_and(|queue| self.waiting_bytes[at] + u64::from(bytes) > queue.0);
        if full {
            self.ports[at].usage.refused += 1;
        }
        !full
    }

    /// A burst is at a port, or has left it.
    pub(crate) fn note_bytes(&mut self, port: u32, bytes: u32, end: End) {
        let waiting = &mut self.waiting_bytes[index(u64::from(port))];
        match end {
            End::Receive => *waiting += u64::from(bytes),
            End::Send => *waiting -= u64::from(bytes),
        }
    }
}
