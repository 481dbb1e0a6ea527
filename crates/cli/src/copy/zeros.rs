//! Finds zeros in copied bytes: long runs become holes in the copy.

use std::ops::Range;

/// A block of zeros, to compare with and to write.
pub(super) static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Returns true if all bytes are zero.
pub(super) fn is_all(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROS.len()).all(|piece| *piece == ZEROS[..piece.len()])
}

/// The ranges of data that remain when pieces of `granule` bytes, counted from the first byte, that are all
/// zeros are left out.
pub(super) fn data_runs(bytes: &[u8], granule: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut from = 0;
    for piece in bytes.chunks(granule.max(1)) {
        let to = from + piece.len();
        if !is_all(piece) {
            match runs.last_mut() {
                Some(run) if run.end == from => run.end = to,
                _ => runs.push(from..to),
            }
        }
        from = to;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_leave_out_whole_pieces_of_zeros() {
        let mut bytes = vec![0; 10_000];
        assert!(data_runs(&bytes, 4096).is_empty());
        assert!(data_runs(&[], 4096).is_empty());
        bytes[4095] = 1;
        bytes[9999] = 1;
        assert_eq!(data_runs(&bytes, 4096), [0..4096, 8192..10_000]);
        bytes[5000] = 1;
        assert_eq!(data_runs(&bytes, 4096), vec![0..10_000; 1]);
        assert!(is_all(&vec![0; 100_000]));
        let last = [vec![0; 100_000], vec![1]].concat();
        assert!(!is_all(&last));
    }
}
