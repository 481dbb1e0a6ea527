//! Random numbers from a seed (splitmix64).

/// A stream of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Draws the next number.
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Draws a number below `bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// Returns true with this chance in a hundred.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Chooses one of several; `None` if there are none.
    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        let index = self.below(u64::try_from(of.len()).unwrap_or(0));
        of.get(usize::try_from(index).unwrap_or(0)).copied()
    }

    /// Begins another stream, for a part of its own.
    pub(crate) fn fork(&mut self) -> Random {
        Random(self.draw())
    }
}

/// Spreads the bits of a number.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
