//! Records that hold in each part the number of the write that it is of.

/// Bytes of a part. Units are multiples of it, so that no part lies in two units.
pub(super) const CHUNK: usize = 64;
/// Bytes of a record: not a multiple of any size that the system uses.
pub(super) const RECORD: usize = 47 * CHUNK;

/// The record's content as of a write.
pub(super) fn content(record: usize, seq: u64) -> Vec<u8> {
    (0..RECORD / CHUNK).flat_map(|part| chunk(record, part, seq)).collect()
}

/// Returns the number of the write that a part is of; 0 if it was never written.
pub(super) fn seq_of(record: usize, part: usize, found: &[u8]) -> u64 {
    if found.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let seq = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
    assert_eq!(found, chunk(record, part, seq), "record {record}, part {part}: bytes that nobody wrote");
    seq
}

fn chunk(record: usize, part: usize, seq: u64) -> [u8; CHUNK] {
    let mut bytes = [0; CHUNK];
    bytes[..8].copy_from_slice(&seq.to_le_bytes());
    let mut state = seq ^ ((record as u64) << 40) ^ ((part as u64) << 32) | 1;
    for eight in bytes[8..].chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        eight.copy_from_slice(&state.to_le_bytes());
    }
    bytes
}
