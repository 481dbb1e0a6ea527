//! Payloads on their way to the drive. While the link to it is congested (`braid_credit`), its answers to
//! writes tell clients to ask for their turns (`WriteTurn`), and it gives these as the link can take them.
//! Peers on this machine need none.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_layout::ClientId;
use braid_transport::{Credit, Credits, Receiver, Turn};
use tokio::time::Instant;

/// After this long a client has given its turn up: it never needs longer to send a write.
const GIVEN_UP: Duration = Duration::from_secs(2);

/// The drive's links, and the turns that were given.
#[derive(Debug, Default)]
pub(crate) struct Inward {
    pub(crate) credits: Credits,
    given: Mutex<BTreeMap<ClientId, VecDeque<Given>>>,
}

#[derive(Debug)]
struct Given {
    turn: Turn,
    at: Instant,
}

impl Inward {
    /// Gives a client its turn: its next write of so many bytes takes it.
    pub(crate) fn give(&self, client: ClientId, turn: Turn) {
        self.give_at(Instant::now(), client, turn);
    }

    fn give_at(&self, now: Instant, client: ClientId, turn: Turn) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gone = Vec::new();
        for turns in given.values_mut() {
            while let Some(first) = turns.pop_front_if(|first| now.duration_since(first.at) >= GIVEN_UP) {
                gone.push(first.turn);
            }
        }
        given.retain(|_, turns| !turns.is_empty());
        given.entry(client).or_default().push_back(Given { turn, at: now });
    }

    /// A write's payload is on its way over this link: under the turn that its client was given, if any.
    pub(crate) fn arriving(&self, credit: &Arc<Credit>, client: ClientId, bytes: u32) -> Turn {
        if !credit.is_open() {
            let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(mut first) = given.get_mut(&client).and_then(VecDeque::pop_front) {
                first.turn.restart();
                return first.turn;
            }
        }
        credit.on_their_way(u64::from(bytes))
    }
}

/// The payload is there.
pub(crate) fn arrived(turn: Turn, receiver: &mut Receiver) {
    let is_lossy = turn.is_worth_a_look() && receiver.has_lost();
    turn.arrived(is_lossy);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_that_its_client_does_not_use_is_given_back() {
        let inward = Inward::default();
        let credit = inward.credits.of([198, 18, 0, 1].into());
        let now = Instant::now();
        inward.give_at(now, ClientId(1), credit.turn(1, 1, 100).await);
        assert_eq!(credit.counts().flying, 100);
        inward.give_at(now + GIVEN_UP, ClientId(2), credit.turn(2, 2, 10).await);
        assert_eq!(credit.counts().flying, 10);
    }
}
