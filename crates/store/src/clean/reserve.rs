//! The space that must stay free so that cleaning is never stuck.
//!
//! Let `C` be the capacity, `S` the most bytes of one segment, `K` the bytes of a checkpoint. Four limits:
//! - *writes* are accepted while `used + need <= C - R`, with `R = max(2 S, C / 16) + K`;
//! - *removes* (and all else that frees space) while `used + need <= C - (S + K)`;
//! - *fences*, objects that they have to make, and verdicts, which keep order and are small, while
//!   `used + need <= C - (S / 4 + K)`. Other users of the same disk may take the space that removes could
//!   have had, and a file whose fence is refused can be neither closed nor removed;
//! - the *cleaner* works while `used + need + K <= C`, and checkpoints may fill `C`.
//!
//! `K` is estimated from the last checkpoint and the records since. If a checkpoint is longer nevertheless,
//! and `C` is a setting, removes are accepted as long as the disk itself has `S + K` left: otherwise nothing
//! could bring the store below `C` again.
//!
//! **Cleaning always makes progress.** A round moves the live bytes of one victim (of more while these still
//! fit), writes a checkpoint and then removes the victim.
//! 1. At the start of a round `used <= C - (S + K)`: initially by the limits above, later by 3. Fences may
//!    have taken some of it: they are dead after the next checkpoint, which is written before a victim is
//!    chosen if a segment has nothing else.
//! 2. A victim is cleaned only if its moves take less than it has, so less than `S`; with the checkpoint that
//!    is less than `S + K`, and fits.
//! 3. After the round the victim and the older checkpoint are gone: `used` is less than at its start.
//!
//! So rounds continue until a write fits again or no victim is worth it. Then all dead bytes together are a
//! small part of the capacity, and the store is truly full. Removes do not get stuck either: their records
//! are dead after a checkpoint, for which there is space by 1, and are then freed without any move.

/// The part of the capacity that is reserved, if it is more than two segments.
const PART: u64 = 16;

/// The part of a segment that fences and verdicts leave.
const FENCES_PART: u64 = 4;

/// The reserved space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    capacity: u64,
    writes: u64,
    removes: u64,
    fences: u64,
}

impl Reserve {
    /// The reserve of `capacity` bytes with segments of at most `segment` bytes (its last commit included)
    /// and checkpoints of about `checkpoint` bytes.
    pub fn new(capacity: u64, segment: u64, checkpoint: u64) -> Reserve {
        let most = segment.saturating_mul(2).max(capacity / PART);
        Reserve {
            capacity,
            writes: most.saturating_add(checkpoint),
            removes: segment.saturating_add(checkpoint),
            fences: (segment / FENCES_PART).saturating_add(checkpoint),
        }
    }

    /// Bytes that writes may still take.
    pub fn free_for_writes(&self, used: u64) -> u64 {
        self.capacity.saturating_sub(self.writes).saturating_sub(used)
    }

    /// Bytes that removes may still take.
    pub fn free_for_removes(&self, used: u64) -> u64 {
        self.capacity.saturating_sub(self.removes).saturating_sub(used)
    }

    /// Bytes that fences and verdicts may still take.
    pub fn free_for_fences(&self, used: u64) -> u64 {
        self.capacity.saturating_sub(self.fences).saturating_sub(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_end_first_then_removes_and_fences_last() {
        let reserve = Reserve::new(100 << 20, 2 << 20, 1 << 20);
        let free = |used| {
            [reserve.free_for_writes(used), reserve.free_for_removes(used), reserve.free_for_fences(used)]
                .map(|free| free > 0)
        };
        assert_eq!(free(90 << 20), [true, true, true]);
        assert_eq!(free(96 << 20), [false, true, true]);
        assert_eq!(free(97 << 20), [false, false, true]);
        assert_eq!(free(99 << 20), [false, false, false], "the checkpoint");
    }
}
