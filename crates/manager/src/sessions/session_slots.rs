//! Connection slots for sessions, by the standing that they have proved: each kind has slots of its own, so
//! that none locks out another.
//!
//! Clients may share one token, so slots are counted by address. On the manager's machine many clients share
//! one address, so it gets a larger share, and some slots are kept for it: its operator can always connect.
//! When a slot is needed, the session that was idle longest is closed; its client reconnects with its next
//! request.

use braid_meta::rules::drives::DRIVES_MAX;
use braid_transport::{
    Bounds, Capacity, ConnectionSlot, ConnectionSlots, GivesWay, Holder, Origin, Seldom, Stream,
    TransportError,
};
use braid_wire::control::Authenticate;
use braid_wire::token::Standing;
use braid_wire::{Reason, Refusal};

/// Maximum number of sessions of clients.
const CLIENTS_MAX: usize = 1024;
/// Minimum number of slots for clients and for drives, however few descriptors the system has.
const PLACES_MIN: usize = 16;
/// Maximum number of sessions of drives that join: one each, for a moment.
const JOINING_MAX: usize = 64;
/// Maximum number of sessions per drive: one for heartbeats, one to find its sisters, two of its healer, and
/// for a while a broken one before each. The healer's may be busy for long, and a drive whose heartbeats find
/// no slot loses its lease.
const DRIVES_EACH: usize = 2 * 4;
/// Number of slots for a drive's sessions on average: broken ones are few.
const DRIVES_SHARE: usize = 4;
/// Maximum number of connections that are about to end, or have proved nothing yet.
const OTHERS_MAX: usize = 512;
/// Number of other descriptors that a manager needs: for its files, and four per drive for its own sessions
/// with drives.
const DESCRIPTORS_BESIDES: usize = 64 + 4 * DRIVES_MAX;

/// The slots of sessions that have proved their standing.
pub struct SessionSlots {
    clients: ConnectionSlots,
    joining: ConnectionSlots,
    drives: ConnectionSlots,
    /// Limits the log lines about sessions that got no slot.
    refused: Seldom,
}

impl SessionSlots {
    /// Slots for the maximum number of sessions, or shares of the descriptors that the process may have.
    pub fn new(descriptors: u64) -> SessionSlots {
        let wanted = SessionSlots::descriptors();
        let may = descriptors.min(SessionSlots::descriptors());
        let share = |all: usize| {
            let share = u64::try_from(all).unwrap_or(u64::MAX).saturating_mul(may) / wanted;
            usize::try_from(share).unwrap_or(all).max(PLACES_MIN)
        };
        SessionSlots::of(share(CLIENTS_MAX), share(DRIVES_MAX * DRIVES_SHARE))
    }

    /// Slots for this many clients and drives.
    pub fn of(clients: usize, drives: usize) -> SessionSlots {
        let bounds = Bounds {
            all: clients,
            each: (clients / 4).max(1),
            each_here: (clients / 4 * 3).max(1),
            kept_here: clients / 16,
        };
        SessionSlots {
            clients: ConnectionSlots::new(bounds, GivesWay::Idle),
            joining: ConnectionSlots::new(Bounds::new(JOINING_MAX, JOINING_MAX / 2), GivesWay::Idle),
            drives: ConnectionSlots::new(Bounds::new(drives, DRIVES_EACH), GivesWay::Idle),
            refused: Seldom::default(),
        }
    }

    /// Descriptors that a manager would like to have.
    pub fn descriptors() -> u64 {
        let all = OTHERS_MAX + CLIENTS_MAX + JOINING_MAX + DRIVES_MAX * DRIVES_SHARE + DESCRIPTORS_BESIDES;
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// Capacity of the listener: all slots, and those of connections without one.
    pub fn capacity(&self) -> Capacity {
        let connections = OTHERS_MAX + self.clients.all() + self.joining.all() + self.drives.all();
        Capacity { connections, full: full("connections", connections), ..Capacity::default() }
    }

    /// Takes a slot for a session that has proved its standing.
    pub fn place(&self, who: Visitor, asker: &Authenticate) -> Result<ConnectionSlot, Refusal> {
        let (places, holder, what) = match asker.standing {
            Standing::Client => (&self.clients, who.holder, "sessions of clients"),
            Standing::Join | Standing::Manager => (&self.joining, who.holder, "drives that join"),
            Standing::Drive => (&self.drives, Holder::Drive(asker.drive), "sessions of drives"),
        };
        places.take(holder, who.origin).ok_or_else(|| {
            if let Some(left_out) = self.refused.due(who.holder) {
                let taken = places.taken();
                tracing::warn!(what, taken, left_out, "no place is free and none idle: refused a session");
            }
            Refusal::new(Reason::Busy, full(what, places.all()))
        })
    }
}

/// The peer of a connection, as far as its address tells.
#[derive(Debug, Clone, Copy)]
pub struct Visitor {
    holder: Holder,
    origin: Origin,
}

impl Visitor {
    /// The peer of this connection.
    pub fn of(stream: &Stream) -> Result<Visitor, TransportError> {
        Ok(Visitor { holder: stream.holder()?, origin: stream.origin() })
    }
}

fn full(what: &str, most: usize) -> String {
    format!(
        "the manager has no place for more {what} (at most {most}, fewer from one address) and none is idle: end some, try again \
         later, or ask the cluster's operator, for whom places are kept on the manager's machine"
    )
}

#[cfg(test)]
mod tests {
    use braid_layout::{DriveId, TokenId};

    use super::*;

    fn asks(standing: Standing, drive: DriveId, key: u32) -> Authenticate {
        Authenticate { standing, drive, key, token: TokenId(1), nonce: [0; 16], proof: [0; 32] }
    }

    #[test]
    fn who_gets_no_place_is_told_whom_to_ask() {
        let slots = SessionSlots::of(1, 1);
        let visitor = Visitor { holder: Holder::at([127, 0, 0, 1].into()), origin: Origin::Here };
        for (standing, places, what) in [
            (Standing::Client, 1, "sessions of clients"),
            (Standing::Join, JOINING_MAX / 2, "drives that join"),
            (Standing::Drive, 1, "sessions of drives"),
        ] {
            let asker = asks(standing, DriveId(1), 0);
            let place = || slots.place(visitor, &asker);
            let taken: Vec<ConnectionSlot> = (0..places).map(|_| place().expect("one is free")).collect();
            // None of the sessions is idle, so none gives way.
            let _busy: Vec<_> = taken.iter().map(ConnectionSlot::work).collect();
            let refusal = place().expect_err("all are busy");
            assert_eq!(refusal.reason, Reason::Busy, "{refusal}");
            for words in [what, "ask the cluster's operator"] {
                assert!(refusal.detail.contains(words), "{words:?} is not in: {refusal}");
            }
        }
        // The message that the listener sends to connections that it has no slot for.
        let full = slots.capacity().full;
        assert!(full.contains("connections") && full.contains("ask the cluster's operator"), "{full}");
    }

    #[test]
    fn a_drives_heartbeats_have_a_place_beside_its_busy_sessions_and_broken_ones() {
        let slots = SessionSlots::of(64, 64);
        let visitor = Visitor { holder: Holder::at([10, 0, 0, 1].into()), origin: Origin::Elsewhere };
        let asker = |drive| asks(Standing::Drive, drive, 1);
        // The drive's healer has two sessions, and one asks for its sisters; each has a broken one before it.
        let busy: Vec<ConnectionSlot> =
            (0..6).map(|_| slots.place(visitor, &asker(DriveId(1))).expect("one is free")).collect();
        let _busy: Vec<_> = busy.iter().map(ConnectionSlot::work).collect();
        let _broken = slots.place(visitor, &asker(DriveId(1))).expect("one for heartbeats");
        let beats = slots.place(visitor, &asker(DriveId(1))).expect("and again, when that breaks");
        assert_eq!(slots.drives.taken(), 8, "none had to give way");
        let _beats = beats.work();
        slots.place(visitor, &asker(DriveId(2))).expect("another drive has its own");
    }

    #[test]
    fn slots_shrink_with_the_descriptors_that_there_are() {
        let places = |descriptors| {
            let slots = SessionSlots::new(descriptors);
            (slots.clients.all(), slots.drives.all())
        };
        assert_eq!(places(u64::MAX), (CLIENTS_MAX, DRIVES_MAX * DRIVES_SHARE));
        assert_eq!(places(SessionSlots::descriptors()), (CLIENTS_MAX, DRIVES_MAX * DRIVES_SHARE));
        let (clients, drives) = places(1024);
        assert!((100..200).contains(&clients) && (400..500).contains(&drives), "{clients} and {drives}");
        assert_eq!(places(0), (PLACES_MIN, PLACES_MIN));
    }
}
