//! Where the bytes of a unit end, and what a write of it says about that.

/// What a write says of the end of a unit's bytes: one past the last byte that is not in a hole; 0: it has
/// none. Bytes put the end at least behind them; a hole that reaches the end puts it at most where the hole
/// begins. Who knows the end says it exactly. Applied one after another, in the order of the writes, they
/// give the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EndBound {
    /// The end is not below this,
    pub least: u32,
    /// and not above this, which is not below `least`.
    pub most: u32,
}

impl EndBound {
    /// Nothing is said: the end stays where it is.
    pub const NONE: EndBound = EndBound { least: 0, most: u32::MAX };

    /// The end is here.
    pub fn exactly(end: u32) -> EndBound {
        EndBound { least: end, most: end }
    }

    /// Bytes up to here are written.
    pub fn at_least(to: u32) -> EndBound {
        EndBound { least: to, ..EndBound::NONE }
    }

    /// From here on nothing but a hole is left.
    pub fn at_most(from: u32) -> EndBound {
        EndBound { most: from, ..EndBound::NONE }
    }

    /// The end after the write, if it was `before`.
    pub fn after(self, before: u32) -> u32 {
        before.max(self.least).min(self.most)
    }

    /// Whether it says where the end is.
    pub fn is_exact(self) -> bool {
        self.least == self.most
    }

    /// Whether some end is within it.
    pub fn is_possible(self) -> bool {
        self.least <= self.most
    }
}

impl Default for EndBound {
    fn default() -> EndBound {
        EndBound::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_move_the_end_up_and_holes_that_reach_it_down() {
        let check = |bound: EndBound, expected: [u32; 3]| {
            assert_eq!([0, 100, 4096].map(|before| bound.after(before)), expected, "{bound:?}");
        };
        check(EndBound::NONE, [0, 100, 4096]);
        check(EndBound::at_least(200), [200, 200, 4096]);
        check(EndBound::at_most(50), [0, 50, 50]);
        check(EndBound::exactly(70), [70, 70, 70]);
    }
}
