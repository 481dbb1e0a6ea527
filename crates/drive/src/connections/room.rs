//! Slots for connections whose peers have shown a capability. The manager has its own slots, and so have the
//! other drives, so that clients never lock them out.
//!
//! When a slot is needed, an idle connection is closed, the longest idle first; its peer connects again.

use braid_transport::{
    Bounds, Capacity, ConnectionSlot, ConnectionSlots, GivesWay, Holder, Origin, Stream, TransportError,
};
use braid_wire::capability::Rights;
use braid_wire::{Capability, Reason, Refusal};

/// Connections that are about to end, and those whose peers have not shown a capability.
const OTHERS_MAX: usize = 512;
/// Connections of the manager: it has four at a time, and for a while those that broke.
const MANAGERS_MAX: usize = 32;
/// Connections of other drives: each has one, and for a while one that broke.
const SISTERS_MAX: usize = 512;
/// File descriptors that a drive needs beyond its connections: its store's files.
const DESCRIPTORS_BESIDES: usize = 1024;
/// The fewest connections of clients, where the system is short of descriptors.
const PEERS_MIN: usize = 16;

/// The slots of peers that have shown a capability.
pub(crate) struct PeerSlots {
    peers: ConnectionSlots,
    managers: ConnectionSlots,
    sisters: ConnectionSlots,
}

/// The peer of a connection, as far as its address identifies it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visitor {
    holder: Holder,
    origin: Origin,
}

impl PeerSlots {
    /// Slots for `connections_max` peers besides the manager; fewer in proportion if the process may have
    /// fewer descriptors than that needs.
    pub(crate) fn new(connections_max: usize, descriptors: u64) -> PeerSlots {
        let wanted = PeerSlots::descriptors(connections_max);
        let asked = u64::try_from(connections_max).unwrap_or(u64::MAX);
        let share = asked.saturating_mul(descriptors.min(wanted)) / wanted;
        let all =
            usize::try_from(share).unwrap_or(connections_max).max(connections_max.min(PEERS_MIN)).max(1);
        let each = all - all / 4;
        PeerSlots {
            peers: ConnectionSlots::new(Bounds::new(all, each), GivesWay::Idle),
            managers: ConnectionSlots::new(Bounds::new(MANAGERS_MAX, MANAGERS_MAX), GivesWay::Idle),
            sisters: ConnectionSlots::new(Bounds::new(SISTERS_MAX, SISTERS_MAX), GivesWay::Idle),
        }
    }

    /// Descriptors that a drive with this many connections asks for.
    pub(crate) fn descriptors(connections_max: usize) -> u64 {
        let all = OTHERS_MAX + MANAGERS_MAX + SISTERS_MAX + DESCRIPTORS_BESIDES + connections_max;
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// Maximum number of connections of the listener, and the text of the refusal beyond it.
    pub(crate) fn capacity(&self) -> Capacity {
        let connections = OTHERS_MAX + self.peers.all() + self.managers.all() + self.sisters.all();
        Capacity { connections, full: full(connections), ..Capacity::default() }
    }

    /// The slot of a peer that has shown this capability.
    pub(crate) fn place(&self, who: Visitor, capability: &Capability) -> Result<ConnectionSlot, Refusal> {
        let places = if capability.rights.include(Rights::MANAGE) {
            &self.managers
        } else if capability.rights.include(Rights::DELTA) {
            &self.sisters
        } else {
            &self.peers
        };
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
