//! Turns of holders that each want a file for themselves. A pure machine: time is a parameter.
//!
//! While a holder has its turn, others that ask are told when to ask again. The first that asked is next, as
//! long as it goes on asking, so that each gets the file however many want it. After its turn a holder leaves
//! the file to the others for as long as it had the file, before it gets another. If a holder that needs no
//! turn ended the turn, the rest wait for theirs as long: else turns would follow each other with no time in
//! between in which that holder gets its write done.
//!
//! A write that takes longer than a turn would never be done: each end of a turn has it sent anew. So a
//! holder whose turns ended in vain gets a longer one. Likewise a heal that takes longer than a turn would
//! begin its comparison anew with each: it may have *calm*, in which no turn begins or ends. After calm there
//! is none for as long.

use braid_layout::HolderId;

/// Minimum time, in milliseconds, for which a holder that took the file for itself has it, if others want it
/// too.
pub const TURN_MS: u64 = 500;
/// Maximum of that time, for a holder whose turns before ended in vain, and of calm.
pub const LONG_TURN_MS: u64 = 8000;
/// Maximum time, in milliseconds, after which a refused holder is to ask again: turns are often given back
/// early.
pub const AGAIN_MS_MAX: u64 = 100;
/// Time, in milliseconds, after which a holder is to ask again if another is next.
const NEXT_MS: u64 = 20;
/// Time, in milliseconds, without a request after which a holder waits no more.
const WAITS_MS: u64 = 1000;

/// The turns of one file.
#[derive(Debug, Default)]
pub struct Turns {
    now: Option<Turn>,
    /// Holders that wait, in the order in which they came, each with the time of its last request.
    waiting: Vec<(HolderId, u64)>,
    rest: Option<Rest>,
    calm: Option<Calm>,
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    holder: HolderId,
    began_ms: u64,
    until_ms: u64,
    /// Duration from its last extension, in milliseconds.
    length_ms: u64,
}

/// The time in which no turn begins or ends, so that a heal can finish.
#[derive(Debug, Clone, Copy)]
struct Calm {
    until_ms: u64,
    /// End of the time after it in which there is no other.
    rest_until_ms: u64,
}

/// Duration, in milliseconds, of a turn or of calm that was in vain this many times.
fn length_ms(in_vain: u8) -> u64 {
    (TURN_MS << in_vain.min(8)).min(LONG_TURN_MS)
}

/// The time after a turn in which its holder gets no other.
#[derive(Debug, Clone, Copy)]
struct Rest {
    until_ms: u64,
    /// Holder that had the turn.
    had_it: HolderId,
    /// Holder that ended the turn without needing one itself, if so: until the end of the rest only this
    /// holder may still take a turn.
    shares: Option<HolderId>,
}

impl Turns {
    /// Begins, or extends, the turn of a holder. `in_vain`: number of its turns that ended before the write
    /// for which it wants this one was done.
    pub fn begin(&mut self, holder: HolderId, in_vain: u8, now_ms: u64) {
        let before = self.now.filter(|turn| turn.holder == holder);
        let began_ms = before.map_or(now_ms, |turn| turn.began_ms);
        let length_ms = length_ms(in_vain);
        self.now = Some(Turn { holder, began_ms, until_ms: now_ms + length_ms, length_ms });
    }

    /// Begins calm for a heal, unless there was some not long ago. `in_vain`: number of its comparisons that
    /// ended because the file's generation rose.
    pub fn calm(&mut self, in_vain: u8, now_ms: u64) {
        if self.calm.is_none_or(|calm| calm.rest_until_ms <= now_ms) {
            let length_ms = length_ms(in_vain);
            let until_ms = now_ms + length_ms;
            self.calm = Some(Calm { until_ms, rest_until_ms: until_ms + length_ms });
        }
    }

    /// Ends calm early: the heal is done. The time without calm after it begins now.
    pub fn end_calm(&mut self, now_ms: u64) {
        if let Some(calm) = self.calm.as_mut().filter(|calm| calm.until_ms > now_ms) {
            let length_ms = calm.rest_until_ms - calm.until_ms;
            calm.until_ms = now_ms;
            calm.rest_until_ms = now_ms + length_ms;
        }
    }

    /// Gives the turn back early: others need not wait for its end.
    pub fn give(&mut self) {
        if let Some(turn) = &mut self.now {
            turn.until_ms = 0;
        }
    }

    /// A request of a holder for the file, for a turn or to write it with others. `Ok`: it may have the file
    /// now, which ends another's turn. `Err`: it is to ask again in this many milliseconds.
    pub fn ask(&mut self, holder: HolderId, takes_turn: bool, now_ms: u64) -> Result<(), u64> {
        let rest = self.rest.filter(|rest| takes_turn && rest.until_ms > now_ms);
        let rest_ms = rest.map_or(0, |rest| rest.until_ms - now_ms).min(AGAIN_MS_MAX);
        if rest.is_some_and(|rest| rest.had_it == holder) {
            // This holder is not put among those that wait: they would have to wait for its rest too.
            return Err(rest_ms);
        }
        let others_share = rest.and_then(|rest| rest.shares).is_some_and(|shares| shares != holder);
        self.waiting.retain(|(_, asked_ms)| now_ms < asked_ms + WAITS_MS);
        let left_ms = self.other(holder).map_or(0, |turn| turn.until_ms.saturating_sub(now_ms));
        let is_next = self.waiting.first().is_none_or(|(first, _)| *first == holder);
        let calm_ms = self.calm.map_or(0, |calm| calm.until_ms.saturating_sub(now_ms));
        let wait_ms = match (left_ms.max(calm_ms), others_share) {
            (0, true) => rest_ms,
            (0, false) if !is_next => NEXT_MS,
            (left_ms, _) => left_ms.min(AGAIN_MS_MAX),
        };
        if wait_ms > 0 {
            match self.waiting.iter_mut().find(|(who, _)| *who == holder) {
                Some((_, asked_ms)) => *asked_ms = now_ms,
                None => self.waiting.push((holder, now_ms)),
            }
            return Err(wait_ms);
        }
        self.has_it(holder);
        if let Some(turn) = self.other(holder) {
            let had_ms = now_ms.saturating_sub(turn.began_ms).min(turn.length_ms);
            let shares = (!takes_turn).then_some(holder);
            let rest = Rest { until_ms: now_ms + had_ms, had_it: turn.holder, shares };
            (self.now, self.rest) = (None, Some(rest));
        }
        Ok(())
    }

    /// Notes that a holder writes the file no more.
    pub fn left(&mut self, holder: HolderId) {
        self.has_it(holder);
        self.now = self.other(holder);
    }

    /// Notes that a holder waits no more: it writes the file with the others.
    pub fn has_it(&mut self, holder: HolderId) {
        self.waiting.retain(|(who, _)| *who != holder);
    }

    fn other(&self, holder: HolderId) -> Option<Turn> {
        self.now.filter(|turn| turn.holder != holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HolderId = HolderId(1);
    const B: HolderId = HolderId(2);
    const C: HolderId = HolderId(3);

    /// A has a turn from 1000 on.
    fn turns() -> Turns {
        let mut turns = Turns::default();
        assert_eq!(turns.ask(A, true, 1000), Ok(()));
        turns.begin(A, 0, 1000);
        turns
    }

    #[test]
    fn a_turn_is_left_to_its_holder_until_it_is_over_or_given_back() {
        let mut turns = turns();
        assert_eq!(turns.ask(B, false, 1000), Err(AGAIN_MS_MAX));
        assert_eq!(turns.ask(B, false, 999 + TURN_MS), Err(1), "just as it ends");
        assert_eq!(turns.ask(B, false, 1000 + TURN_MS), Ok(()));
        turns.begin(B, 0, 1600);
        turns.give();
        assert_eq!(turns.ask(A, false, 1601), Ok(()));
    }

    #[test]
    fn whoever_asked_first_is_next() {
        let mut turns = turns();
        for (at, who) in [(1400, C), (1410, B)] {
            assert!(turns.ask(who, true, at).is_err());
        }
        // The turn is over, and the one that came second asks before the first.
        assert_eq!((turns.ask(B, true, 1500), turns.ask(C, true, 1510)), (Err(NEXT_MS), Ok(())));
        turns.begin(C, 0, 1510);
        assert!(turns.ask(A, true, 1520).is_err() && turns.ask(B, true, 1600).is_err());
        assert_eq!((turns.ask(A, true, 2010), turns.ask(B, true, 2011)), (Err(NEXT_MS), Ok(())));
        turns.begin(B, 0, 2011);
        assert!(turns.ask(C, true, 2300).is_err() && turns.ask(A, true, 2400).is_err());
        assert_eq!((turns.ask(C, true, 2511), turns.ask(A, true, 2511)), (Err(NEXT_MS), Ok(())));
    }

    #[test]
    fn who_asks_no_more_holds_up_nobody() {
        let mut turns = turns();
        assert!(turns.ask(B, true, 1001).is_err() && turns.ask(C, true, 1100).is_err());
        assert!(turns.ask(C, true, 1999).is_err() && turns.ask(C, true, 2001).is_ok());
        turns.begin(C, 0, 2001);
        assert!(turns.ask(A, false, 2002).is_err() && turns.ask(B, false, 2003).is_err());
        turns.has_it(A);
        assert_eq!(turns.ask(B, false, 2001 + TURN_MS), Ok(()));
    }

    #[test]
    fn one_that_needs_no_turn_gets_on_between_those_of_others() {
        let mut turns = turns();
        assert!(turns.ask(B, false, 1100).is_err() && turns.ask(C, true, 1101).is_err());
        assert_eq!(turns.ask(B, false, 1500), Ok(()), "it was first");
        assert_eq!(turns.ask(C, true, 1510), Err(AGAIN_MS_MAX), "not at once");
        assert_eq!((turns.ask(A, true, 1990), turns.ask(C, true, 1991)), (Err(10), Err(9)));
        assert_eq!((turns.ask(A, true, 2000), turns.ask(C, true, 2001)), (Err(NEXT_MS), Ok(())));
    }

    #[test]
    fn others_have_the_file_for_as_long_as_a_turn_was() {
        let mut turns = turns();
        assert_eq!(turns.ask(B, false, 9000), Ok(()), "it had it for long, as nobody asked");
        assert_eq!((turns.ask(A, true, 9001), turns.ask(A, false, 9001)), (Err(AGAIN_MS_MAX), Ok(())));
        assert_eq!(turns.ask(B, true, 9002), Ok(()), "it has had none, and nobody waits");
        assert_eq!(
            (turns.ask(A, true, 8990 + TURN_MS), turns.ask(A, true, 9000 + TURN_MS)),
            (Err(10), Ok(()))
        );
        turns.begin(A, 0, 9500);
        turns.give();
        assert_eq!((turns.ask(B, false, 9507), turns.ask(A, true, 9510)), (Ok(()), Err(4)), "a short one");
        assert_eq!(turns.ask(A, true, 9514), Ok(()));
    }

    #[test]
    fn a_holder_whose_turns_were_in_vain_has_a_longer_one() {
        let mut turns = Turns::default();
        for (in_vain, length_ms) in [(0, TURN_MS), (1, 2 * TURN_MS), (4, LONG_TURN_MS), (255, LONG_TURN_MS)] {
            turns.begin(A, in_vain, 1000);
            assert!(turns.ask(B, true, 999 + length_ms).is_err(), "{in_vain}");
        }
        assert_eq!(turns.ask(B, true, 1000 + LONG_TURN_MS), Ok(()));
        assert_eq!(
            turns.ask(A, true, 999 + 2 * LONG_TURN_MS),
            Err(1),
            "it leaves the file to others as long"
        );
        assert_eq!(turns.ask(A, true, 1000 + 2 * LONG_TURN_MS), Ok(()));
    }

    #[test]
    fn in_calm_nobody_gets_a_turn_or_ends_one() {
        let mut turns = turns();
        turns.calm(1, 1400);
        assert_eq!(turns.ask(B, false, 1399 + 2 * TURN_MS), Err(1), "its turn is over, and stays");
        assert_eq!(turns.ask(B, false, 1400 + 2 * TURN_MS), Ok(()));
        turns.calm(4, 1399 + 4 * TURN_MS);
        assert_eq!(turns.ask(C, true, 1399 + 4 * TURN_MS), Ok(()), "others have the file for as long");
        turns.calm(4, 1400 + 4 * TURN_MS);
        assert!(turns.ask(C, true, 1399 + 4 * TURN_MS + LONG_TURN_MS).is_err());
        turns.end_calm(1400 + 4 * TURN_MS);
        assert_eq!(turns.ask(C, true, 1400 + 4 * TURN_MS), Ok(()));
        turns.calm(4, 1399 + 4 * TURN_MS + LONG_TURN_MS);
        assert_eq!(
            turns.ask(A, false, 1399 + 4 * TURN_MS + LONG_TURN_MS),
            Ok(()),
            "others had it for too short"
        );
    }
}
