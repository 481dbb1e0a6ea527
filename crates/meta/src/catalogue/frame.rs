//! Frames: the pieces of a catalogue's stream, each in a unit of its own of the stream's object.
//!
//! A frame states its cluster, stream and number, how new it is, the digest of the frame before, and rows. It
//! ends with the SHA-256 of all before. So of two drives' copies the first frame that differs is found by
//! comparing digests, and an altered frame breaks the chain.

use std::fmt;

use braid_layout::{ClusterId, ObjectId, PartitionId};
use sha2::{Digest as _, Sha256};

/// The partition of the streams' objects, on each drive that has one. Volumes have numbers below 2^63.
pub const PARTITION: PartitionId = PartitionId(0x8000_0000_0000_0001);
/// Size of a unit of a stream's object, and the most bytes of a frame.
pub const UNIT_BYTES: u32 = 1 << 20;

const MAGIC: [u8; 8] = *b"BRAIDNM\x01";
/// Bytes of a frame before its rows.
const HEAD_BYTES: usize = 112;
const DIGEST_BYTES: usize = 32;
/// In place of a value's length: the row is deleted.
const DELETED: u32 = u32::MAX;
/// Most bytes of a frame's rows.
const ROWS_BYTES_MAX: usize = UNIT_BYTES as usize - HEAD_BYTES - DIGEST_BYTES;
/// Bytes of a row beside its key and value.
const ROW_HEAD_BYTES: usize = 8;

/// The SHA-256 at the end of a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; DIGEST_BYTES]);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A key with its value; `None`: the row is deleted.
pub type Row = (Vec<u8>, Option<Vec<u8>>);

/// Age of a state: by term, then by the changes in it. Both only rise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Age {
    /// The manager's term.
    pub term: u64,
    /// Transactions that had changed the state.
    pub changes: u64,
}

/// Head of a frame: all that it says beside its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub cluster: ClusterId,
    /// The stream, which is the number of its object.
    pub stream: ObjectId,
    /// Number of the frame in the stream, from 0: the unit that it is in.
    pub number: u64,
    pub age: Age,
    /// Manager time when the frame was made.
    pub time_ms: u64,
    /// With this frame the rows are those of one state, if the stream is whole.
    pub cut: bool,
    /// The picture is whole: from this frame on the stream can be used.
    pub whole: bool,
    /// Digest of the frame before; zeros for the first.
    pub before: Digest,
}

/// Reason for which bytes are no frame of a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("nothing is there")]
    Empty,
    #[error("it does not begin as a frame of the catalogue")]
    NotAFrame,
    #[error("it is of version {0} of the format, and this build reads 1: use a newer build")]
    Version(u8),
    #[error("it is cut short")]
    Short,
    #[error("its digest is wrong: its bytes were changed")]
    Digest,
    #[error("its rows do not decode")]
    Rows,
}

/// Encodes one frame. The rows must fit: see [`pack`].
pub fn encode(head: &Head, rows: &[Row]) -> (Vec<u8>, Digest) {
    let mut body = Vec::new();
    for (key, value) in rows {
        body.extend_from_slice(&length(key).to_le_bytes());
        body.extend_from_slice(&value.as_deref().map_or(DELETED, length).to_le_bytes());
        body.extend_from_slice(key);
        body.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len() + DIGEST_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&head.cluster.0.to_le_bytes());
    for number in [head.stream.0, head.number, head.age.term, head.age.changes, head.time_ms] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&(u32::from(head.cut) | u32::from(head.whole) << 1).to_le_bytes());
    bytes.extend_from_slice(
        &u32::try_from(rows.len()).expect("a frame has less than 2^32 bytes").to_le_bytes(),
    );
    bytes.extend_from_slice(&length(&body).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&head.before.0);
    bytes.append(&mut body);
    let digest = Digest(Sha256::digest(&bytes).into());
    bytes.extend_from_slice(&digest.0);
    (bytes, digest)
}

/// Decodes a frame, which may be followed by zeros, and checks its digest.
pub fn decode(bytes: &[u8]) -> Result<(Head, Vec<Row>, Digest), FrameError> {
    let (head, rows, digest, body) = parse(bytes)?;
    let mut left = body;
    let mut found = Vec::new();
    for _ in 0..rows {
        let key = take_u32(&mut left).ok_or(FrameError::Rows)?;
        let value = take_u32(&mut left).ok_or(FrameError::Rows)?;
        let key = take(&mut left, key).ok_or(FrameError::Rows)?.to_vec();
        let value = match value {
            DELETED => None,
            bytes => Some(take(&mut left, bytes).ok_or(FrameError::Rows)?.to_vec()),
        };
        found.push((key, value));
    }
    if left.is_empty() { Ok((head, found, digest)) } else { Err(FrameError::Rows) }
}

/// Head and digest of a frame, without its rows.
pub fn check(bytes: &[u8]) -> Result<(Head, Digest), FrameError> {
    parse(bytes).map(|(head, _, digest, _)| (head, digest))
}

/// Divides rows into groups that fit in a frame each; at least one group. A row that fits in none is left
/// out, and counted in the second value.
pub fn pack(rows: impl IntoIterator<Item = Row>) -> (Vec<Vec<Row>>, u64) {
    let mut groups = vec![Vec::new()];
    let mut bytes = 0;
    let mut left_out = 0;
    for (key, value) in rows {
        let row = ROW_HEAD_BYTES + key.len() + value.as_ref().map_or(0, Vec::len);
        if row > ROWS_BYTES_MAX {
            left_out += 1;
            continue;
        }
        if bytes + row > ROWS_BYTES_MAX {
            groups.push(Vec::new());
            bytes = 0;
        }
        bytes += row;
        if let Some(group) = groups.last_mut() {
            group.push((key, value));
        }
    }
    (groups, left_out)
}

/// A frame's head, number of rows, digest, and the bytes of its rows.
fn parse(bytes: &[u8]) -> Result<(Head, u32, Digest, &[u8]), FrameError> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Err(FrameError::Empty);
    }
    let mut left = bytes;
    let magic = take(&mut left, 8).ok_or(FrameError::Short)?;
    if magic[..7] != MAGIC[..7] {
        return Err(FrameError::NotAFrame);
    }
    if magic[7] != MAGIC[7] {
        return Err(FrameError::Version(magic[7]));
    }
    let cluster = take(&mut left, 16).and_then(|bytes| bytes.first_chunk()).copied();
    let cluster = ClusterId(u128::from_le_bytes(cluster.ok_or(FrameError::Short)?));
    let mut numbers = [0; 5];
    for number in &mut numbers {
        let bytes = take(&mut left, 8).and_then(|bytes| bytes.first_chunk()).copied();
        *number = u64::from_le_bytes(bytes.ok_or(FrameError::Short)?);
    }
    let [stream, number, term, changes, time_ms] = numbers;
    let flags = take_u32(&mut left).ok_or(FrameError::Short)?;
    let rows = take_u32(&mut left).ok_or(FrameError::Short)?;
    let body_bytes = take_u32(&mut left).ok_or(FrameError::Short)?;
    take(&mut left, 4).ok_or(FrameError::Short)?;
    let before = take(&mut left, 32).and_then(|bytes| bytes.first_chunk()).copied();
    let before = Digest(before.ok_or(FrameError::Short)?);
    let body = take(&mut left, body_bytes).ok_or(FrameError::Short)?;
    let stated = take(&mut left, 32).and_then(|bytes| bytes.first_chunk()).copied();
    let stated = Digest(stated.ok_or(FrameError::Short)?);
    let summed = HEAD_BYTES + body.len();
    if stated.0 != <[u8; 32]>::from(Sha256::digest(&bytes[..summed])) {
        return Err(FrameError::Digest);
    }
    let age = Age { term, changes };
    let stream = ObjectId(stream);
    let cut = flags & 1 != 0;
    let whole = flags & 2 != 0;
    Ok((Head { cluster, stream, number, age, time_ms, cut, whole, before }, rows, stated, body))
}

fn take<'a>(left: &mut &'a [u8], bytes: u32) -> Option<&'a [u8]> {
    let (taken, rest) = left.split_at_checked(usize::try_from(bytes).ok()?)?;
    *left = rest;
    Some(taken)
}

fn take_u32(left: &mut &[u8]) -> Option<u32> {
    take(left, 4).and_then(|bytes| bytes.first_chunk()).copied().map(u32::from_le_bytes)
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a row fits in a frame")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head() -> Head {
        Head {
            cluster: ClusterId(0xc1),
            stream: ObjectId(0x51),
            number: 3,
            age: Age { term: 2, changes: 9 },
            time_ms: 700,
            cut: true,
            whole: false,
            before: Digest([0xbe; 32]),
        }
    }

    fn rows() -> Vec<Row> {
        vec![(b"da".to_vec(), Some(vec![3, 1])), (b"db".to_vec(), None)]
    }

    /// The example of docs/format-names.md.
    #[test]
    fn the_bytes_are_those_of_the_document() {
        let bytes = encode(&head(), &rows()).0;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let document = include_str!("../../../../docs/format-names.md");
        let (_, example) = document.split_once("## Worked example").expect("an example");
        let block = example.split("```").nth(1).expect("a block");
        let written: String = block.chars().filter(char::is_ascii_hexdigit).collect();
        assert_eq!(written, hex);
    }

    #[test]
    fn a_frame_comes_back_and_may_be_followed_by_zeros() {
        let (mut bytes, digest) = encode(&head(), &rows());
        bytes.extend([0; 100]);
        assert_eq!(decode(&bytes).unwrap(), (head(), rows(), digest));
        assert_eq!(check(&bytes).unwrap(), (head(), digest));
    }

    #[test]
    fn bytes_that_were_changed_are_no_frame() {
        let good = encode(&head(), &rows()).0;
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(decode(&bad).is_err(), "byte {at}");
            assert!(decode(&good[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(decode(&[0; 64]), Err(FrameError::Empty));
        let mut newer = good;
        newer[7] = 2;
        assert_eq!(decode(&newer), Err(FrameError::Version(2)));
    }

    #[test]
    fn rows_are_divided_so_that_each_group_fits() {
        let row = |n: u8, bytes| (vec![n], Some(vec![n; bytes]));
        let (groups, left_out) = pack([row(1, 600_000), row(2, 600_000), row(3, 2 << 20), row(4, 5)]);
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(left_out, 1);
        for group in &groups {
            assert!(encode(&head(), group).0.len() <= UNIT_BYTES as usize);
        }
        assert_eq!(pack([]).0, vec![Vec::new()]);
    }

    proptest! {
        /// Whoever can write a right digest can write anything before it.
        #[test]
        fn any_bytes_under_a_right_digest_decode_or_are_refused(
            rows in any::<u32>(),
            body in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()], 0..200),
        ) {
            let mut bytes = encode(&head(), &[]).0;
            bytes.truncate(HEAD_BYTES);
            bytes[68..72].copy_from_slice(&(rows % 40).to_le_bytes());
            bytes[72..76].copy_from_slice(&length(&body).to_le_bytes());
            bytes.extend(&body);
            let digest = Sha256::digest(&bytes);
            bytes.extend(digest);
            if let Ok((found, rows, _)) = decode(&bytes) {
                prop_assert_eq!(encode(&found, &rows).0, bytes);
            } else {
                prop_assert!(check(&bytes).is_ok());
            }
        }
    }
}
