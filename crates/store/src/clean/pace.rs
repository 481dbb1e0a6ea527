//! The pace of the cleaner relative to the foreground.
//!
//! The cleaner earns *credit* with every foreground byte and spends it on the bytes it moves. A victim is
//! emptied in one go, so that its contents stay together. What that costs beyond the credit is a debt, to be
//! paid before anything more is moved. With *ample* space free (an eighth of the capacity) no credit is
//! earned: segments left alone empty by themselves, and cleaning them would be waste. Below that, each
//! foreground byte earns `share * ample / (free - victim)`: about the configured share at first, twice as
//! much at half of `ample`, and without bound as `free` approaches a victim's bytes, which emptying one may
//! take before it is freed. So a foreground that makes the cleaner move `w` bytes for each of its own settles
//! at `free = victim + ample * share / w`, without measuring `w`. With nothing free the foreground waits.

/// The part of the capacity that is ample free space.
const AMPLE_PART: u64 = 8;
/// The most credit, in batches of moves, so that a long pause saves up no flood of moves.
const CREDIT_BATCHES_MAX: u64 = 2;

/// The cleaner's credit.
#[derive(Debug, Clone)]
pub struct Pacer {
    share_percent: u64,
    ample: u64,
    /// Bytes that emptying a victim may take before it is freed.
    victim: u64,
    batch: u64,
    /// Negative: a debt.
    credit: i64,
}

impl Pacer {
    /// A pacer without credit, for victims of at most `victim` bytes and batches of about `batch` bytes.
    /// `share_percent`: moved bytes per 100 foreground bytes when space begins to be scarce.
    pub fn new(share_percent: u32, capacity: u64, victim: u64, batch: u64) -> Pacer {
        let ample = (capacity / AMPLE_PART).max(1);
        Pacer { share_percent: u64::from(share_percent), ample, victim, batch: batch.max(1), credit: 0 }
    }

    /// The foreground wrote `bytes`, and `free` bytes beyond the reserve are left.
    pub fn on_foreground(&mut self, bytes: u64, free: u64) {
        if free >= self.ample {
            self.credit = self.credit.min(0);
            return;
        }
        let earned = u128::from(bytes) * u128::from(self.share_percent) * u128::from(self.ample)
            / (100 * u128::from(free.saturating_sub(self.victim).max(1)));
        let most = signed(self.batch.saturating_mul(CREDIT_BATCHES_MAX));
        let earned = i64::try_from(earned).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_add(earned).min(most);
    }

    /// Returns true if a batch of moves may be made now.
    pub fn may_move(&self) -> bool {
        self.credit >= signed(self.batch)
    }

    /// Drop the credit, as nothing is worth a move, so that the search is not repeated at once.
    pub fn rest(&mut self) {
        self.credit = self.credit.min(0);
    }

    /// The cleaner moved `bytes` beside the foreground.
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
        pacer.on_moved(CREDIT_BATCHES_MAX * 100);
        assert!(!pacer.may_move(), "no more than two batches are saved up");
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
