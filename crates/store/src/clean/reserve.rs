//! The space that must stay free so that cleaning is never stuck.
//!
//! Let `C` be the capacity, `S` the most bytes of one segment, `K` the bytes of a checkpoint. Three lines:
//! - *writes* are taken while `used + need <= C - R`, with `R = max(2 S, C / 16) + K`;
//! - *removes* (and whatever else frees space or keeps order) while `used + need <= C - (S + K)`;
//! - the *cleaner* while `used + need + K <= C`, and checkpoints up to `C`.
//!
//! `K` is told by the last checkpoint and the records since. Should one be longer nevertheless, and `C` be a setting,
//! removes are taken as long as the disk itself has `S + K` left: else nothing would ever lead below `C` again.
//!
//! **It always makes progress.** A round moves the live bytes of one victim (it may take more while these still fit),
//! writes a checkpoint and then removes the victim.
//! 1. At the begin of a round `used <= C - (S + K)`: at first by the lines above, then by 3.
//! 2. A victim is cleaned only if its moves take less than it has, so less than `S`; with the checkpoint that is less
//!    than `S + K`, and fits.
//! 3. After the round the victim and the older checkpoint are gone: `used` is less than at its begin.
//!
//! So rounds go on until a write fits again or no victim is worth it; then all dead bytes together are a small part of
//! the capacity, and "full" is the truth. Nor are removes stuck: what they wrote is dead after a checkpoint, for which
//! there is room by 1, and then is given back without any move.

/// The capacity's part that is kept, if it is more than two segments.
const PART: u64 = 16;

/// Space that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    capacity: u64,
    writes: u64,
    removes: u64,
}

impl Reserve {
    /// The reserve of `capacity` bytes with segments of at most `segment` bytes (its last commit included) and
    /// checkpoints of about `checkpoint` bytes.
    pub fn new(capacity: u64, segment: u64, checkpoint: u64) -> Reserve {
        let most = segment.saturating_mul(2).max(capacity / PART);
        Reserve {
            capacity,
            writes: most.saturating_add(checkpoint),
            removes: segment.saturating_add(checkpoint),
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
}
