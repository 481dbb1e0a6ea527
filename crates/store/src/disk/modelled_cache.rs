//! The bytes that a modelled device has read ahead: no others are in its page cache.
//!
//! A long read takes its bytes out again, so that reading a file a second time costs what the first time did.
//! Short reads leave them: a record's header is read together with the first of the bytes behind it. What is
//! never read goes when other bytes need the room.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes at most.
const BYTES_MAX: u64 = 256 << 20;
/// Pieces at most, to which long reads cut what was read ahead.
const PIECES_MAX: usize = 4096;
/// Reads of this many bytes or more take them out.
const LONG_BYTES: u64 = 32 << 10;

/// A piece's file, by a number of its own, and its first byte.
type Place = (u64, u64);

#[derive(Debug, Clone, Copy)]
struct Piece {
    end: u64,
    /// Time at which the device has read it, in nanoseconds.
    ready_ns: u64,
    /// Number of the read that brought it.
    age: u64,
}

/// The bytes read ahead, in pieces that do not overlap.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pieces: BTreeMap<Place, Piece>,
    bytes: u64,
    reads: u64,
}

impl Cache {
    /// Puts a range of a file in, which the device has read at `ready_ns`.
    pub(super) fn put(&mut self, file: u64, range: Range<u64>, ready_ns: u64) {
        self.remove(file, range.clone());
        self.reads += 1;
        self.insert((file, range.start), Piece { end: range.end, ready_ns, age: self.reads });
        while self.bytes > BYTES_MAX || self.pieces.len() > PIECES_MAX {
            let oldest = self.pieces.iter().min_by_key(|(_, piece)| piece.age);
            let Some(place) = oldest.map(|(&place, _)| place) else { break };
            self.take(place);
        }
    }

    /// Time at which all of a range is there; `None`: some of it was not read ahead.
    pub(super) fn ready_ns(&self, file: u64, range: &Range<u64>) -> Option<u64> {
        let mut at = range.start;
        let mut ready_ns = 0;
        while at < range.end {
            let (_, piece) = self.pieces.range((file, 0)..=(file, at)).next_back()?;
            if piece.end <= at {
                return None;
            }
            at = piece.end;
            ready_ns = ready_ns.max(piece.ready_ns);
        }
        Some(ready_ns)
    }

    /// A range was read. Returns the time at which it is there, as [`Cache::ready_ns`].
    pub(super) fn handle_read(&mut self, file: u64, range: &Range<u64>) -> Option<u64> {
        let ready_ns = self.ready_ns(file, range)?;
        if range.end - range.start >= LONG_BYTES {
            self.remove(file, range.clone());
        }
        Some(ready_ns)
    }

    /// Takes a range out: it was dropped, or written.
    pub(super) fn remove(&mut self, file: u64, range: Range<u64>) {
        while let Some((&place, _)) = self.pieces.range((file, 0)..(file, range.end)).next_back() {
            let (_, start) = place;
            let Some(piece) = self.take(place) else { return };
            if range.end < piece.end {
                self.insert((file, range.end), piece);
            }
            if start < range.start {
                let end = piece.end.min(range.start);
                self.insert(place, Piece { end, ..piece });
                // Those before it end before it begins.
                return;
            }
        }
    }

    fn insert(&mut self, place: Place, piece: Piece) {
        let (_, start) = place;
        if start < piece.end {
            self.bytes += piece.end - start;
            self.pieces.insert(place, piece);
        }
    }

    fn take(&mut self, place: Place) -> Option<Piece> {
        let (_, start) = place;
        let piece = self.pieces.remove(&place)?;
        self.bytes -= piece.end - start;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_was_read_ahead_is_there_for_one_long_read() {
        let mut cache = Cache::default();
        cache.put(1, 0..MIB, 7);
        cache.put(1, MIB..2 * MIB, 9);
        assert_eq!(cache.ready_ns(1, &(MIB / 2..MIB + 1)), Some(9), "from two pieces");
        assert_eq!(cache.ready_ns(1, &(MIB..2 * MIB + 1)), None, "a byte is missing");
        assert_eq!(cache.ready_ns(2, &(0..1)), None, "another file");
        assert_eq!(cache.handle_read(1, &(0..4096)), Some(7));
        assert_eq!(cache.handle_read(1, &(4096..MIB)), Some(7), "a short read left it");
        assert_eq!(cache.handle_read(1, &(4096..MIB)), None);
        assert_eq!(cache.bytes, MIB + 4096);
        assert_eq!(cache.ready_ns(1, &(0..4096)), Some(7));
    }

    #[test]
    fn what_is_written_or_dropped_is_not_there() {
        let mut cache = Cache::default();
        cache.put(1, 10..20, 1);
        cache.put(1, 30..40, 1);
        cache.remove(1, 15..35);
        let left: Vec<_> = cache.pieces.iter().map(|(&(_, start), piece)| start..piece.end).collect();
        assert_eq!(left, [10..15, 35..40]);
        cache.put(1, 0..100, 2);
        cache.remove(1, 50..60);
        assert_eq!(
            (cache.bytes, cache.ready_ns(1, &(0..50)), cache.ready_ns(1, &(59..61))),
            (90, Some(2), None)
        );
        cache.remove(1, 0..u64::MAX);
        assert!(cache.pieces.is_empty() && cache.bytes == 0);
    }

    #[test]
    fn the_oldest_goes_when_others_need_the_room() {
        let mut cache = Cache::default();
        for i in 0..=BYTES_MAX / MIB {
            cache.put(i, 0..MIB, 0);
        }
        assert_eq!(
            (cache.bytes, cache.ready_ns(0, &(0..1)), cache.ready_ns(1, &(0..1))),
            (BYTES_MAX, None, Some(0))
        );
    }
}
