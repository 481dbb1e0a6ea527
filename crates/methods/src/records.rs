//! Records: how a file is cut into them, and what of them a piece of the file holds whole.

use memchr::{memchr, memrchr};

/// The longest record, in bytes, unless the caller sets another bound.
pub const RECORD_BYTES_MAX: u64 = 1 << 20;

/// The records into which a file is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// Lines: each ends with a line feed, which belongs to it. The last one may lack it.
    Lines,
    /// Records of this many bytes, from the file's beginning on. The last one may be shorter.
    Fixed(u32),
}

/// A piece of a file, cut at the ends of records. Offsets are bytes in the piece.
///
/// The bytes before `head` end a record that began in an earlier piece, or may have: where lines are asked
/// for, a piece does not tell whether it begins with one. The bytes from `tail` on begin a record that goes
/// on in the next piece. Between them are whole records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// End of the first part.
    pub head: usize,
    /// Beginning of the last part.
    pub tail: usize,
    /// True if a record ends where the head ends. If it is false, all of the piece is inside one record.
    pub closed: bool,
}

impl Records {
    /// Cuts a piece that begins at byte `offset` of the file.
    pub fn split(self, offset: u64, piece: &[u8]) -> Split {
        let open = Split { head: piece.len(), tail: piece.len(), closed: false };
        match self {
            Records::Lines => match (memchr(b'\n', piece), memrchr(b'\n', piece)) {
                (Some(first), Some(last)) => Split { head: first + 1, tail: last + 1, closed: true },
                _ => open,
            },
            Records::Fixed(bytes) => {
                let bytes = u64::from(bytes.max(1));
                let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
                let Some(first) = offset.checked_next_multiple_of(bytes) else { return open };
                let head = first - offset;
                if head > length {
                    return open;
                }
                let tail = head + (length - head) / bytes * bytes;
                let at = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
                Split { head: at(head), tail: at(tail), closed: true }
            }
        }
    }
}

/// The lines of a block, each without its line feed, with their offsets from the block's beginning.
pub(crate) fn lines(block: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = block.get(at..).filter(|rest| !rest.is_empty())?;
        let length = memchr(b'\n', rest).unwrap_or(rest.len());
        let line = Line { at, bytes: &rest[..length] };
        at += length + 1;
        Some(line)
    })
}

/// A line in a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a> {
    pub(crate) at: usize,
    pub(crate) bytes: &'a [u8],
}

/// An offset in memory, as one of a file.
pub(crate) fn wide(at: usize) -> u64 {
    u64::try_from(at).expect("memory is shorter than 2^64 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(records: Records, offset: u64, piece: &[u8], expected: [usize; 2], closed: bool) {
        let split = Split { head: expected[0], tail: expected[1], closed };
        assert_eq!(records.split(offset, piece), split, "{records:?} at {offset}");
    }

    #[test]
    fn a_piece_is_cut_after_its_first_and_its_last_end() {
        let lines = |piece: &[u8], expected, closed| check(Records::Lines, 7, piece, expected, closed);
        lines(b"ab\ncd\nef", [3, 6], true);
        lines(b"ab\n", [3, 3], true);
        lines(b"\n", [1, 1], true);
        lines(b"\nab", [1, 1], true);
        lines(b"ab", [2, 2], false);
        lines(b"", [0, 0], false);
        let fixed = |offset, bytes: usize, expected, closed| {
            check(Records::Fixed(4), offset, &vec![0; bytes], expected, closed);
        };
        fixed(0, 9, [0, 8], true);
        fixed(3, 9, [1, 9], true);
        fixed(3, 1, [1, 1], true);
        fixed(1, 2, [2, 2], false);
        fixed(4, 2, [0, 0], true);
    }

    #[test]
    fn lines_of_a_block_are_found_with_and_without_a_last_line_feed() {
        let found = |block: &[u8]| -> Vec<(usize, String)> {
            let text = |line: Line<'_>| (line.at, String::from_utf8_lossy(line.bytes).into_owned());
            lines(block).map(text).collect()
        };
        let own = |at: usize, text: &str| (at, text.to_owned());
        assert_eq!(found(b"ab\n\nc"), [own(0, "ab"), own(3, ""), own(4, "c")]);
        assert_eq!(found(b"ab\n"), [own(0, "ab")]);
        assert_eq!(found(b""), []);
    }
}
