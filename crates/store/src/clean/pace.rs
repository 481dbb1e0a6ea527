//! How fast the cleaner goes beside the foreground.
//!
//! It earns *credit* with every foreground byte and spends it on the bytes it moves. A victim is emptied in one go, so that what
//! it held stays together: what that takes beyond the credit is a debt, to be paid before anything more is moved. With *ample*
//! space free (an eighth of the capacity) there is nothing to earn: what is left alone dies by itself, and cleaning it would be
//! waste. Below, each foreground byte earns `share * ample / (free - victim)`: about the set share at first, twice as much when half
//! is left, without bound towards a victim's bytes, which is what emptying one may take before it is given back. So a foreground
//! that makes the cleaner move `w` bytes for each of its own settles where `free = victim + ample * share / w`, and needs no
//! measuring of `w`. With nothing free the foreground waits.

/// The part of the capacity that is ample.
const AMPLE_PART: u64 = 8;
/// The most credit that is kept, in bursts: a long pause saves up no storm.
const CREDIT_BURSTS_MAX: u64 = 2;

/// The cleaner's credit.
#[derive(Debug, Clone)]
pub struct Pacer {
    share_percent: u64,
    ample: u64,
    /// What emptying a victim may take before it is given back.
    victim: u64,
    burst: u64,
    /// Below zero: a debt.
    credit: i64,
}

impl Pacer {
    /// A pacer without credit, for victims of at most `victim` bytes and moves of about `burst` bytes. `share_percent`: moved
    /// bytes for 100 of the foreground where space begins to be scarce.
    pub fn new(share_percent: u32, capacity: u64, victim: u64, burst: u64) -> Pacer {
        let ample = (capacity / AMPLE_PART).max(1);
        Pacer { share_percent: u64::from(share_percent), ample, victim, burst: burst.max(1), credit: 0 }
    }

    /// The foreground wrote `bytes`, and `free` bytes beyond the reserve are left.
    pub fn on_foreground(&mut self, bytes: u64, free: u64) {
        if free >= self.ample {
            self.credit = self.credit.min(0);
            return;
        }
        let earned = u128::from(bytes) * u128::from(self.share_percent) * u128::from(self.ample)
            / (100 * u128::from(free.saturating_sub(self.victim).max(1)));
        let most = signed(self.burst.saturating_mul(CREDIT_BURSTS_MAX));
        let earned = i64::try_from(earned).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_add(earned).min(most);
    }

    /// Whether a burst may be moved now.
    pub fn may_move(&self) -> bool {
        self.credit >= signed(self.burst)
    }

    /// Nothing is worth a move: the credit is spent on having looked.
    pub fn rest(&mut self) {
        self.credit = self.credit.min(0);
    }

    /// The cleaner moved `bytes` as it may beside the foreground.
    pub fn on_moved(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_sub(signed(bytes));
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earns_the_share_and_more_as_space_falls() {
        let credit = |free: u64| {
            let mut pacer = Pacer::new(25, 8000, 0, 1_000_000);
            pacer.on_foreground(400, free);
            pacer.credit
        };
        assert_eq!([1000, 999, 500, 100, 10].map(credit), [0, 100, 200, 1000, 10_000]);
    }

    #[test]
    fn keeps_what_a_victim_takes() {
        let credit = |free: u64| {
            let mut pacer = Pacer::new(25, 8000, 300, 1_000_000);
            pacer.on_foreground(400, free);
            pacer.credit
        };
        assert_eq!([1000, 800, 400, 310, 300, 0].map(credit), [0, 200, 1000, 10_000, 100_000, 100_000]);
    }

    #[test]
    fn moves_when_it_has_earned_a_burst() {
        let mut pacer = Pacer::new(25, 8000, 0, 100);
        assert!(!pacer.may_move());
        pacer.on_foreground(200, 500);
        assert!(pacer.may_move());
        pacer.on_moved(1);
        assert!(!pacer.may_move());
        pacer.on_foreground(u64::MAX, 0);
        pacer.on_moved(CREDIT_BURSTS_MAX * 100);
        assert!(!pacer.may_move(), "no more than two bursts are saved up");
        pacer.on_foreground(400, 500);
        pacer.on_foreground(1, 1000);
        assert!(!pacer.may_move(), "with ample space nothing is moved");
    }

    #[test]
    fn what_a_victim_took_beyond_the_credit_is_paid_first() {
        let mut pacer = Pacer::new(25, 8000, 0, 100);
        pacer.on_foreground(200, 500);
        pacer.on_moved(1100);
        pacer.rest();
        pacer.on_foreground(1, 1000);
        pacer.on_foreground(2000, 500);
        assert!(!pacer.may_move(), "1000 were owed, and 1000 were earned");
        pacer.on_foreground(200, 500);
        assert!(pacer.may_move());
    }
}
