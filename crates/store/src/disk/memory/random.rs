//! Numbers from a seed (splitmix64): the same ones on every machine.

/// A stream of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % bound).unwrap_or_default()
    }

    /// How likely something unsynced is to survive this time, in eighths: often all or nothing, so that long writes
    /// survive whole too.
    pub(crate) fn odds(&mut self) -> usize {
        [0, 1, 4, 7, 8][self.below(5)]
    }

    /// True as often as the eighths say.
    pub(crate) fn chance(&mut self, eighths: usize) -> bool {
        self.below(8) < eighths
    }
}
