//! Scratch memory of plan sets, kept for reuse: fresh memory would cost page faults with every set.
//!
//! Until a step of the plan fills it, a piece holds what an earlier set left there. A verified plan never
//! reads scratch bytes that none of its steps has written. In debug builds pieces are filled with a poison
//! pattern, so that tests would notice.

use std::sync::{Mutex, PoisonError};

/// The most bytes kept for reuse.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Free pieces of scratch memory.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    pieces: Vec<Vec<u8>>,
    bytes: usize,
}

impl Scratch {
    /// A piece of exactly this length.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is a little longer serves too: lengths of parts of units are seldom the same.
        let fits = |piece: &Vec<u8>| piece.capacity() >= bytes && piece.capacity() / 2 <= bytes;
        let same = free.pieces.iter().rposition(|piece| piece.len() == bytes);
        let found = same.or_else(|| free.pieces.iter().rposition(fits));
        let piece = found.map(|index| free.pieces.swap_remove(index));
        free.bytes -= piece.as_ref().map_or(0, Vec::capacity);
        drop(free);
        let mut piece = piece.unwrap_or_else(|| Vec::with_capacity(bytes));
        piece.resize(bytes, 0);
        if cfg!(debug_assertions) {
            piece.fill(0xdb);
        }
        piece
    }

    /// Returns pieces for reuse.
    pub(crate) fn give_back(&self, pieces: impl IntoIterator<Item = Vec<u8>>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in pieces {
            // Many pieces of another size are evicted by those in use now.
            while free.bytes + piece.capacity() > KEPT_BYTES_MAX && !free.pieces.is_empty() {
                free.bytes -= free.pieces.remove(0).capacity();
            }
            if piece.capacity() <= KEPT_BYTES_MAX {
                free.bytes += piece.capacity();
                free.pieces.push(piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_used_again_and_few_are_kept() {
        let scratch = Scratch::default();
        let piece = scratch.take(4096);
        let address = piece.as_ptr();
        scratch.give_back([piece]);
        assert_eq!(scratch.take(512).len(), 512, "a much shorter one is another piece");
        let mut piece = scratch.take(4000);
        assert_eq!((piece.as_ptr(), piece.len()), (address, 4000), "it is long enough");
        piece.resize(4000, 0);
        scratch.give_back([piece]);
        let again = scratch.take(4096);
        assert_eq!(again.as_ptr(), address);
        scratch.give_back((0..20).map(|_| vec![0; 8 << 20]));
        let free = scratch.free.lock().expect("not poisoned");
        assert_eq!((free.bytes, free.pieces.len()), (64 << 20, 8));
    }

    #[test]
    fn a_piece_over_the_bound_is_not_kept() {
        let scratch = Scratch::default();
        scratch.give_back([vec![0; KEPT_BYTES_MAX + 1], vec![0; 1]]);
        let free = scratch.free.lock().expect("not poisoned");
        assert_eq!((free.bytes, free.pieces.len()), (1, 1));
    }
}
