//! Random numbers from a seed (splitmix64), the same on every machine.

/// Way in which unsynced changes survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Survival {
    None,
    All,
    /// The earliest changes survive, up to some point.
    Begin,
    /// Each change survives independently, with this probability in eighths.
    Odds(usize),
}

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

    /// A random number below `bound`; 0 if that is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % bound).unwrap_or_default()
    }

    /// Choose the way in which unsynced changes survive this time.
    pub(crate) fn survival(&mut self) -> Survival {
        match self.below(6) {
            0 => Survival::None,
            1 => Survival::All,
            2 | 3 => Survival::Begin,
            4 => Survival::Odds(1),
            _ => Survival::Odds(7),
        }
    }
}

impl Survival {
    /// Returns true if the next change survives.
    pub(crate) fn next(&mut self, random: &mut Random) -> bool {
        match *self {
            Survival::None => false,
            Survival::All => true,
            Survival::Begin => {
                if random.below(8) == 0 {
                    *self = Survival::None;
                }
                *self != Survival::None
            }
            Survival::Odds(eighths) => random.below(8) < eighths,
        }
    }

    /// Returns true if some changes may survive and others not.
    pub(crate) fn is_partial(self) -> bool {
        matches!(self, Survival::Begin | Survival::Odds(_))
    }
}
