//! Where the bytes of a unit end that is made anew.

use std::collections::BTreeMap;

use braid_layout::{Column, Role, Stripe};

use super::Executor;

/// Bytes looked at at a time.
const PIECE: usize = 512;

impl Executor<'_> {
    /// Somebody writes the file, so that acknowledged bytes may lie beyond the size on record: how far the
    /// parity of these stripes reaches.
    pub(crate) fn reach(&mut self, reaches: BTreeMap<Stripe, u32>) {
        self.reaches = reaches;
    }

    /// The unit's bytes without the zeros at its end. But beyond the size on record nobody can tell zeros
    /// that were written from those that were not: there, none are cut off that the parity reaches. That may
    /// be too much, as when the size is settled without the column, and never too little.
    pub(super) fn with_its_end<'b>(&self, column: Column, stripe: Stripe, unit: &'b [u8]) -> &'b [u8] {
        let end = end_of_bytes(unit);
        let segment = &self.view.layout.segments()[self.set.segment];
        let kept = match segment.role(stripe, column) {
            Role::Data(data) if segment.unit_range(stripe, data).end > self.view.stat.size() => {
                self.reaches.get(&stripe).map_or(0, |&to| usize::try_from(to).expect("a unit"))
            }
            _ => 0,
        };
        &unit[..end.max(kept.min(unit.len()))]
    }
}

/// Where the zeros at the end begin. Most are passed over in pieces, as many units are zeros altogether.
fn end_of_bytes(unit: &[u8]) -> usize {
    let zeros: usize = unit.rchunks(PIECE).take_while(|piece| is_zero(piece)).map(<[u8]>::len).sum();
    unit[..unit.len() - zeros].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Whether all bytes are zeros: in pieces, each without branches, up to the first that has another byte.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(512).all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_end_behind_the_last_that_is_not_zero() {
        for len in [0, 1, PIECE, 3 * PIECE + 7] {
            let mut unit = vec![0; len];
            assert_eq!(end_of_bytes(&unit), 0);
            for at in 0..len {
                unit[at] = 1;
                assert_eq!(end_of_bytes(&unit), at + 1);
            }
        }
    }
}
