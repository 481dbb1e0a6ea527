//! Payloads on their way to the drive over one connection. While its link is congested (`braid_credit`),
//! answers to writes tell the client to ask for its turn (`WriteTurn`), and it gets that as the link can take
//! it. Peers on this machine need none.
//!
//! A client asks for a turn and sends that write next, on the same connection: so each connection has at most
//! one turn that is not used. One that never is used counts no longer after a second (`AWAY_NS`), and ends
//! with the connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_layout::ClientId;
use braid_transport::{Credit, Receiver, Turn};

/// A connection's share of its link.
#[derive(Debug)]
pub(crate) struct Inward {
    credit: Arc<Credit>,
    /// The turn that was given last, and the bytes that it is for.
    given: Mutex<Option<(u64, Turn)>>,
}

impl Inward {
    pub(crate) fn new(credit: Arc<Credit>) -> Inward {
        Inward { credit, given: Mutex::default() }
    }

    /// Returns true if the client is to ask for turns.
    pub(crate) fn is_congested(&self) -> bool {
        self.credit.is_congested()
    }

    /// Waits for a client's turn. Its next write of so many bytes has it.
    pub(crate) async fn give(&self, client: ClientId, bytes: u64) {
        // What it had before it does not use any more.
        drop(self.given().take());
        let turn = self.credit.leave(client.0, client.0.into(), bytes).await;
        *self.given() = Some((bytes, turn));
    }

    /// A write's payload is on its way: under the turn that was given for it, if any.
    pub(crate) fn arriving(&self, client: ClientId, bytes: u32) -> Turn {
        let bytes = u64::from(bytes);
        let given = self.given().take_if(|given| given.0 == bytes);
        let mut turn = given.map_or_else(|| self.credit.unasked(client.0.into()), |(_, turn)| turn);
        turn.begin(bytes);
        turn
    }

    fn given(&self) -> MutexGuard<'_, Option<(u64, Turn)>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The payload is there.
pub(crate) fn arrived(turn: Turn, bytes: u32, receiver: &mut Receiver) {
    let is_lossy = turn.is_worth_a_look() && receiver.has_lost();
    turn.arrived(u64::from(bytes), is_lossy);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, advance};

    use super::*;

    const BYTES: u32 = 1 << 20;

    /// The credit of a link with room for one payload of [`BYTES`].
    async fn clamped() -> Arc<Credit> {
        let credit = Arc::new(Credit::default());
        for took in [10, 300, 300] {
            let mut turn = credit.unasked(1);
            turn.begin(u64::from(BYTES));
            advance(Duration::from_millis(took)).await;
            turn.arrived(u64::from(BYTES), true);
        }
        assert_eq!(credit.counts().window, Some(u64::from(BYTES)));
        credit
    }

    /// Returns true if the turn is given at once.
    async fn has_room(inward: &Inward) -> bool {
        let began = Instant::now();
        inward.give(ClientId(1), u64::from(BYTES)).await;
        began.elapsed().is_zero()
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_for_one_write_on_its_connection() {
        let credit = clamped().await;
        let [one, other] = [(); 2].map(|()| Inward::new(Arc::clone(&credit)));
        assert!(has_room(&one).await && has_room(&one).await, "a connection keeps one turn at most");
        drop(other.arriving(ClientId(1), BYTES));
        drop(one.arriving(ClientId(1), BYTES / 2));
        assert_eq!(credit.counts().flying, 0, "nothing is on its way");
        assert!(!has_room(&other).await, "neither was the write that the turn is for");
        drop(one);
        let arriving = other.arriving(ClientId(1), BYTES);
        let third = Inward::new(credit);
        assert!(!has_room(&third).await);
        drop((arriving, third.arriving(ClientId(1), BYTES)));
        assert!(has_room(&other).await, "it was used");
        drop(other);
        let last = Inward::new(third.credit);
        assert!(has_room(&last).await, "it ended with its connection");
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_is_congested_for_two_seconds_and_others_are_not() {
        let [here, there] = [clamped().await, Arc::default()].map(Inward::new);
        assert!(here.is_congested() && !there.is_congested());
        advance(Duration::from_secs(2)).await;
        assert!(!here.is_congested());
    }
}
