//! Seams: the records that lie across the ends of pieces, put together from the pieces' ends.

use std::collections::BTreeMap;

use crate::records::{Split, wide};

/// The ends of a piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// First byte of the piece, in the file.
    pub from: u64,
    /// One past its last byte.
    pub to: u64,
    /// Bytes up to the first end of a record; all of the piece if there is none.
    pub head: Vec<u8>,
    /// Bytes behind the last end of a record.
    pub tail: Vec<u8>,
    /// True if a record ends where the head ends.
    pub closed: bool,
}

/// A record, or several that follow each other, with their place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// First byte, in the file.
    pub from: u64,
    /// The record with its end mark.
    pub bytes: Vec<u8>,
}

/// A record that is too long, or pieces that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeamsError {
    /// A record is longer than the bound.
    #[error(
        "the record at byte {from} is longer than {max} bytes: set a higher bound, or another kind of record"
    )]
    TooLong {
        /// First byte of the record, in the file.
        from: u64,
        /// The bound in bytes.
        max: u64,
    },
    /// Two answers for the same bytes, or an edge whose ends do not fit its place.
    #[error("the answer for bytes {from}..{to} does not fit those of its neighbours")]
    Place {
        /// First byte of the piece.
        from: u64,
        /// One past its last byte.
        to: u64,
    },
}

/// Puts the records across the ends of pieces together. Pieces may come in any order; those whose
/// predecessors are still to come wait here.
#[derive(Debug)]
pub struct Seams {
    record_max: u64,
    /// All before this byte has been put together.
    next: u64,
    /// The beginning of a record that goes on at `next`, and its place in the file.
    begun: Vec<u8>,
    begun_at: u64,
    waiting: BTreeMap<u64, Edge>,
}

impl Edge {
    /// The ends of this piece of a file, which begins at byte `from` and was cut like this.
    pub fn of(from: u64, piece: &[u8], split: Split) -> Edge {
        let to = from + wide(piece.len());
        let head = piece[..split.head].to_vec();
        let tail = piece[split.tail..].to_vec();
        Edge { from, to, head, tail, closed: split.closed }
    }

    /// Bytes of both ends.
    pub fn bytes(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Checks that the ends lie in the piece. A peer may have made them.
    pub fn check(&self) -> Result<(), SeamsError> {
        let length = self.to.saturating_sub(self.from);
        let fits = if self.closed {
            wide(self.bytes()) <= length
        } else {
            wide(self.head.len()) == length && self.tail.is_empty()
        };
        if fits && self.to > self.from { Ok(()) } else { Err(self.misplaced()) }
    }

    fn misplaced(&self) -> SeamsError {
        SeamsError::Place { from: self.from, to: self.to }
    }
}

impl Seams {
    /// Begins at the file's first byte; no record may be longer than `record_max` bytes.
    pub fn new(record_max: u64) -> Seams {
        Seams { record_max, next: 0, begun: Vec::new(), begun_at: 0, waiting: BTreeMap::new() }
    }

    /// Takes the ends of one more piece. Returns the records that are whole now, in the file's order.
    pub fn add(&mut self, edge: Edge) -> Result<Vec<Record>, SeamsError> {
        edge.check()?;
        if edge.from < self.next {
            return Err(edge.misplaced());
        }
        if let Some(other) = self.waiting.insert(edge.from, edge) {
            return Err(other.misplaced());
        }
        let mut whole = Vec::new();
        while let Some(edge) = self.waiting.remove(&self.next) {
            self.next = edge.to;
            self.begun.extend_from_slice(&edge.head);
            self.check_length()?;
            if edge.closed {
                let from = std::mem::replace(&mut self.begun_at, edge.to - wide(edge.tail.len()));
                let bytes = std::mem::replace(&mut self.begun, edge.tail);
                if !bytes.is_empty() {
                    whole.push(Record { from, bytes });
                }
                self.check_length()?;
            }
        }
        match self.waiting.first_key_value() {
            Some((&from, other)) if from < self.next => Err(other.misplaced()),
            _ => Ok(whole),
        }
    }

    /// Byte of the file up to which all has come.
    pub fn reached(&self) -> u64 {
        self.next
    }

    /// The last record, if it lacks its end mark, once all pieces up to byte `end` have come.
    pub fn finish(self, end: u64) -> Result<Option<Record>, SeamsError> {
        if self.next != end || !self.waiting.is_empty() {
            return Err(SeamsError::Place { from: self.next, to: end });
        }
        let from = self.begun_at;
        Ok((!self.begun.is_empty()).then_some(Record { from, bytes: self.begun }))
    }

    fn check_length(&self) -> Result<(), SeamsError> {
        let length = wide(self.begun.len());
        if length <= self.record_max {
            return Ok(());
        }
        Err(SeamsError::TooLong { from: self.begun_at, max: self.record_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Records;

    fn edge(from: u64, piece: &[u8]) -> Edge {
        Edge::of(from, piece, Records::Lines.split(from, piece))
    }

    #[test]
    fn a_record_may_lie_across_many_pieces_and_they_come_in_any_order() {
        let mut seams = Seams::new(100);
        assert_eq!(seams.add(edge(5, b"cd")), Ok(vec![]));
        assert_eq!(seams.add(edge(7, b"e\nfg\nh")), Ok(vec![]));
        let record = |from, bytes: &[u8]| Record { from, bytes: bytes.to_vec() };
        assert_eq!(seams.add(edge(0, b"a\nxyb")), Ok(vec![record(0, b"a\n"), record(2, b"xybcde\n")]));
        assert_eq!(seams.reached(), 13);
        assert_eq!(seams.finish(13), Ok(Some(record(12, b"h"))));
    }

    #[test]
    fn a_record_that_is_too_long_is_named_by_its_first_byte() {
        let mut seams = Seams::new(4);
        assert_eq!(seams.add(edge(0, b"a\nbcd")).map(|records| records.len()), Ok(1));
        assert_eq!(seams.add(edge(5, b"efg")), Err(SeamsError::TooLong { from: 2, max: 4 }));
    }

    #[test]
    fn answers_that_overlap_or_lie_about_their_ends_are_refused() {
        let mut seams = Seams::new(100);
        assert!(seams.add(edge(0, b"ab\n")).is_ok());
        assert_eq!(seams.add(edge(2, b"x\n")), Err(SeamsError::Place { from: 2, to: 4 }));
        let open = Edge { from: 3, to: 9, head: b"ab".to_vec(), tail: Vec::new(), closed: false };
        assert_eq!(seams.add(open), Err(SeamsError::Place { from: 3, to: 9 }));
        let long = Edge { from: 3, to: 5, head: b"ab".to_vec(), tail: b"c".to_vec(), closed: true };
        assert_eq!(seams.add(long), Err(SeamsError::Place { from: 3, to: 5 }));
        assert_eq!(seams.finish(9), Err(SeamsError::Place { from: 3, to: 9 }));
    }
}
