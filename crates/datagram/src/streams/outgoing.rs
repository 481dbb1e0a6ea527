//! The sending side of a stream: what waits to be sent, and what to be acknowledged.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use crate::codec::{narrow, wide};
use crate::ranges::Ranges;
use crate::streams::END_PREFIX;

/// A message up to this length is copied together with its length.
const COPIED_BYTES_MAX: usize = 2048;

/// The bytes that the peer has not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    /// The bytes, in pieces with their offsets. Those before `base` are acknowledged.
    pieces: VecDeque<(u64, Bytes)>,
    base: u64,
    /// One past the last byte that was sent.
    sent: u64,
    /// One past the last byte.
    end: u64,
    /// One past the last byte that the peer lets be sent.
    limit: u64,
    /// Bytes above `base` that are acknowledged.
    acked: Ranges,
    /// Bytes that are to be sent again.
    lost: Ranges,
    /// The last time that `base` rose, or that something was sent with nothing unacknowledged.
    moved_ns: u64,
    /// True after the stream's end was put.
    is_finished: bool,
    /// True if a message was refused since the stream was writable.
    is_refused: bool,
}

impl Outbound {
    pub(crate) fn new(limit: u64) -> Outbound {
        Outbound { limit, ..Outbound::default() }
    }

    /// Bytes that are not acknowledged.
    pub(crate) fn waiting(&self) -> u64 {
        self.end - self.base
    }

    /// Bytes that were not sent yet.
    pub(crate) fn unsent(&self) -> u64 {
        self.end - self.sent
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Puts a message behind the others.
    pub(crate) fn put(&mut self, message: Bytes) {
        let length = u32::try_from(message.len()).expect("a message was seen to be shorter than the window");
        if message.len() <= COPIED_BYTES_MAX {
            let whole = [length.to_le_bytes().as_slice(), &message].concat();
            self.push(whole.into());
        } else {
            self.push(Bytes::copy_from_slice(&length.to_le_bytes()));
            self.push(message);
        }
    }

    /// Puts the mark of the stream's end.
    pub(crate) fn finish(&mut self) {
        if !self.is_finished {
            self.push(Bytes::copy_from_slice(&END_PREFIX.to_le_bytes()));
            self.is_finished = true;
        }
    }

    fn push(&mut self, piece: Bytes) {
        let offset = self.end;
        self.end += wide(piece.len());
        self.pieces.push_back((offset, piece));
    }

    /// A message was refused: the owner wants to know when there is room.
    pub(crate) fn on_refused(&mut self) {
        self.is_refused = true;
    }

    /// Returns true, once, if a message was refused before and at most half of what may wait does.
    pub(crate) fn is_writable_again(&mut self, unacked_max: u64, unsent_max: u64) -> bool {
        let is_now = self.is_refused && self.waiting() <= unacked_max / 2 && self.unsent() <= unsent_max / 2;
        self.is_refused &= !is_now;
        is_now
    }

    /// Returns true if bytes may be sent now.
    pub(crate) fn can_send(&self) -> bool {
        !self.lost.is_empty() || self.sent < self.end.min(self.limit)
    }

    /// Since when the first byte that was sent waits for its acknowledgement; `None` if none does.
    pub(crate) fn waits_since(&self) -> Option<u64> {
        (self.sent > self.base).then_some(self.moved_ns)
    }

    /// The bytes to be sent next, at most `most`; they count as sent.
    pub(crate) fn next(&mut self, now_ns: u64, most: usize) -> Option<Range<u64>> {
        let most = wide(most);
        if let Some(first) = self.lost.first().cloned() {
            let range = first.start..first.end.min(first.start + most);
            self.lost.remove(range.clone());
            return Some(range);
        }
        let range = self.sent..self.end.min(self.limit).min(self.sent + most);
        if range.is_empty() {
            return None;
        }
        if self.sent == self.base {
            self.moved_ns = now_ns;
        }
        self.sent = range.end;
        Some(range)
    }

    /// Appends the bytes of a range that is not acknowledged.
    pub(crate) fn copy(&self, range: &Range<u64>, out: &mut Vec<u8>) {
        let mut at = range.start;
        let first = self.pieces.partition_point(|(offset, piece)| offset + wide(piece.len()) <= at);
        for (offset, piece) in self.pieces.iter().skip(first) {
            if at >= range.end {
                break;
            }
            let end = range.end.min(offset + wide(piece.len()));
            out.extend_from_slice(&piece[narrow(at - offset)..narrow(end - offset)]);
            at = end;
        }
        assert_eq!(at, range.end, "bytes that are not acknowledged are kept");
    }

    /// The peer has these bytes.
    pub(crate) fn on_acked(&mut self, now_ns: u64, range: Range<u64>) {
        self.lost.remove(range.clone());
        let range = range.start.max(self.base)..range.end;
        self.acked.insert(range);
        if self.acked.first().is_some_and(|first| first.start == self.base) {
            self.base = self.acked.pop_first().map_or(self.base, |first| first.end);
            self.moved_ns = now_ns;
        }
        while self.pieces.front().is_some_and(|(offset, piece)| offset + wide(piece.len()) <= self.base) {
            self.pieces.pop_front();
        }
    }

    /// These bytes are to be sent again, but for those that have arrived otherwise.
    pub(crate) fn on_lost(&mut self, range: Range<u64>) {
        self.lost.insert(range.start.max(self.base)..range.end);
        let acked = self.acked.iter().filter(|acked| acked.start < range.end && range.start < acked.end);
        acked.for_each(|acked| self.lost.remove(acked.clone()));
    }

    /// The peer lets be sent what is before this offset.
    pub(crate) fn on_credit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Drops all that is not acknowledged.
    pub(crate) fn clear(&mut self) {
        *self = Outbound { is_finished: true, ..Outbound::default() };
    }
}
