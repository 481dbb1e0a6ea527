//! The end of a unit's bytes, and the bounds on it that a write of the unit gives.

/// Bounds that a write sets on the end of a unit's bytes. The end is one past the last byte that is not in a
/// hole, or 0 if there is no such byte. Written bytes put the end at or past their own end; a hole that
/// reaches the end puts it at or before the hole's beginning. A writer that knows the end gives it exactly.
/// Applied one after another, in the order of the writes, the bounds give the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EndBound {
    /// Lower bound of the end.
    pub least: u32,
    /// Upper bound of the end; not below `least`.
    pub most: u32,
}

impl EndBound {
    /// No bounds: the end stays where it is.
    pub const NONE: EndBound = EndBound { least: 0, most: u32::MAX };

    /// Bounds of a known end.
    pub fn exactly(end: u32) -> EndBound {
        EndBound { least: end, most: end }
    }

    /// Bounds of a write of bytes up to `to`.
    pub fn at_least(to: u32) -> EndBound {
        EndBound { least: to, ..EndBound::NONE }
    }

    /// Bounds of a hole that begins at `from` and reaches the end.
    pub fn at_most(from: u32) -> EndBound {
        EndBound { most: from, ..EndBound::NONE }
    }

    /// The end after the write, if it was `before`.
    pub fn after(self, before: u32) -> u32 {
        before.max(self.least).min(self.most)
    }

    /// Returns true if the bounds give the end exactly.
    pub fn is_exact(self) -> bool {
        self.least == self.most
    }

    /// Returns true if some end satisfies both bounds.
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
