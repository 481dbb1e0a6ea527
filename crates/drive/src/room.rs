//! Room for connections whose peers have shown a capability: the manager's apart, so that clients never lock it out.
//!
//! A connection that is idle when its place is needed is closed, the longest idle first; its peer connects anew.

use braid_transport::{Bounds, Capacity, GivesWay, Holder, Origin, Place, Places, Stream, TransportError};
use braid_wire::capability::Rights;
use braid_wire::{Capability, Reason, Refusal};

/// Connections that are about to end, and those whose peers have shown nothing.
const OTHERS_MAX: usize = 512;
/// Connections of the manager: it has four at a time, and for a while those that broke.
const MANAGERS_MAX: usize = 32;
/// What else of descriptors a drive needs: its store's files.
const DESCRIPTORS_BESIDES: usize = 1024;
/// The fewest connections of clients, where the system is short of descriptors.
const PEERS_MIN: usize = 16;

/// The places of peers that have shown a capability.
pub(crate) struct Room {
    peers: Places,
    managers: Places,
}

/// Who is at the other end of a connection, as far as its address tells.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visitor {
    holder: Holder,
    origin: Origin,
}

impl Room {
    /// Room for `connections_max` peers besides the manager, or for their share of the descriptors that the process may
    /// have.
    pub(crate) fn new(connections_max: usize, descriptors: u64) -> Room {
        let wanted = Room::descriptors(connections_max);
        let asked = u64::try_from(connections_max).unwrap_or(u64::MAX);
        let share = asked.saturating_mul(descriptors.min(wanted)) / wanted;
        let all =
            usize::try_from(share).unwrap_or(connections_max).max(connections_max.min(PEERS_MIN)).max(1);
        let each = all - all / 4;
        Room {
            peers: Places::new(Bounds::new(all, each), GivesWay::Idle),
            managers: Places::new(Bounds::new(MANAGERS_MAX, MANAGERS_MAX), GivesWay::Idle),
        }
    }

    /// Descriptors that a drive with so many connections would like to have.
    pub(crate) fn descriptors(connections_max: usize) -> u64 {
        let all = OTHERS_MAX + MANAGERS_MAX + DESCRIPTORS_BESIDES + connections_max;
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// What the listener holds.
    pub(crate) fn capacity(&self) -> Capacity {
        let connections = OTHERS_MAX + self.peers.all() + self.managers.all();
        Capacity { connections, full: full(connections), ..Capacity::default() }
    }

    /// The place of a peer that has shown this capability.
    pub(crate) fn place(&self, who: Visitor, capability: &Capability) -> Result<Place, Refusal> {
        let places = if capability.rights.include(Rights::MANAGE) { &self.managers } else { &self.peers };
        places.take(who.holder, who.origin).ok_or_else(|| Refusal::new(Reason::Busy, full(places.all())))
    }
}

impl Visitor {
    /// The peer of this connection.
    pub(crate) fn of(stream: &Stream) -> Result<Visitor, TransportError> {
        Ok(Visitor { holder: stream.holder()?, origin: stream.origin() })
    }
}

fn full(most: usize) -> String {
    format!(
        "the drive has no place for more connections (at most {most}, fewer from one address) and none is idle: end clients that \
         are not needed, try again later, or ask the operator of the drive's machine"
    )
}
