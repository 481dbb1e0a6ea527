//! The receiving side of a stream: bytes that came out of order, and whole messages.

use std::collections::BTreeMap;

use crate::codec::{narrow, wide};
use crate::error::Violation;
use crate::streams::whole::Whole;
use crate::streams::{END_PREFIX, PREFIX_BYTES, message_bytes_max};

/// Number of pieces out of order beyond which a datagram that brings more is not taken, and counts as lost.
/// One that was taken is kept whole, so there are at most some more.
const PIECES_MAX: usize = 4096;

/// That which a stream has for its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// The next message.
    Message(Vec<u8>),
    /// The peer has finished the stream: nothing comes after this.
    End,
}

/// The bytes of a stream that the owner has not taken.
#[derive(Debug)]
pub(crate) struct Inbound {
    window: u32,
    /// Pieces beyond `next`, by their offset; they do not overlap.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Offset of the first byte that is missing.
    next: u64,
    /// The next message's length, as far as it has come.
    prefix: Vec<u8>,
    /// The next message as far as it has come, once its length is known.
    message: Option<(usize, Vec<u8>)>,
    whole: Whole,
    is_ended: bool,
    /// True once nobody takes messages any more.
    is_discarded: bool,
    /// Bytes whose messages the owner has taken.
    taken: u64,
    /// The bound that the peer was told.
    told: u64,
}

impl Inbound {
    pub(crate) fn new(window: u32) -> Inbound {
        Inbound {
            window,
            pieces: BTreeMap::new(),
            next: 0,
            prefix: Vec::new(),
            message: None,
            whole: Whole::default(),
            is_ended: false,
            is_discarded: false,
            taken: 0,
            told: u64::from(window),
        }
    }

    /// Drops what has come, and from now on what comes.
    pub(crate) fn discard(&mut self) {
        let Inbound { window, taken, told, .. } = *self;
        *self = Inbound { taken, told, is_discarded: true, ..Inbound::new(window) };
    }

    /// Returns true if bytes at this offset can be kept; those that come next always can.
    pub(crate) fn has_room(&self, offset: u64) -> bool {
        self.is_discarded || offset <= self.next || self.pieces.len() < PIECES_MAX
    }

    /// Takes bytes that have arrived. Returns true if there is something new for the owner.
    pub(crate) fn handle_bytes(&mut self, offset: u64, bytes: &[u8]) -> Result<bool, Violation> {
        let end = offset.saturating_add(wide(bytes.len()));
        if end > self.told {
            return Err(Violation::BeyondWindow);
        }
        if self.is_discarded || end <= self.next {
            return Ok(false);
        }
        if offset > self.next {
            self.keep(offset, bytes);
            return Ok(false);
        }
        let had = (self.whole.count(), self.is_ended);
        self.take(&bytes[narrow(self.next - offset)..])?;
        while let Some(entry) = self.pieces.first_entry().filter(|entry| *entry.key() <= self.next) {
            let (offset, piece) = entry.remove_entry();
            let known = narrow(self.next - offset).min(piece.len());
            self.take(&piece[known..])?;
        }
        Ok(had != (self.whole.count(), self.is_ended))
    }

    /// Keeps bytes beyond the next one, but for those that are there already.
    fn keep(&mut self, offset: u64, bytes: &[u8]) {
        let mut start = offset;
        let end = offset + wide(bytes.len());
        if let Some((before, piece)) = self.pieces.range(..=offset).next_back() {
            start = start.max(before + wide(piece.len()));
        }
        while start < end {
            let after = self.pieces.range(start..).next().map(|(after, piece)| (*after, wide(piece.len())));
            let stop = after.map_or(end, |(after, _)| after.min(end));
            if start < stop {
                self.pieces.insert(start, bytes[narrow(start - offset)..narrow(stop - offset)].to_vec());
            }
            start = after.map_or(end, |(after, length)| after + length);
        }
    }

    /// Takes the bytes that come next.
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Violation> {
        self.next += wide(bytes.len());
        while !bytes.is_empty() {
            if self.is_ended {
                return Err(Violation::AfterEnd);
            }
            let Some((length, message)) = &mut self.message else {
                let count = bytes.len().min(PREFIX_BYTES - self.prefix.len());
                self.prefix.extend_from_slice(&bytes[..count]);
                bytes = &bytes[count..];
                if let Some(prefix) = self.prefix.first_chunk::<PREFIX_BYTES>() {
                    let length = u32::from_le_bytes(*prefix);
                    self.prefix.clear();
                    self.begin(length)?;
                }
                continue;
            };
            let count = bytes.len().min(*length - message.len());
            if message.capacity() - message.len() < count {
                // Memory follows what has come, not what was announced, and never exceeds the message.
                message.reserve_exact((*length - message.len()).min(count.max(message.len())));
            }
            message.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            if message.len() == *length
                && let Some((_, message)) = self.message.take()
            {
                self.whole.put(message);
            }
        }
        Ok(())
    }

    /// A length has come whole.
    fn begin(&mut self, length: u32) -> Result<(), Violation> {
        if length == END_PREFIX {
            self.is_ended = true;
            return Ok(());
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > message_bytes_max(self.window) {
            return Err(Violation::MessageTooLong);
        }
        match length {
            0 => self.whole.put(Vec::new()),
            _ => self.message = Some((length, Vec::new())),
        }
        Ok(())
    }

    /// Takes the next message for the owner.
    pub(crate) fn receive(&mut self) -> Option<Incoming> {
        match self.whole.take() {
            Some(message) => {
                self.taken += wide(PREFIX_BYTES + message.len());
                Some(Incoming::Message(message))
            }
            None => self.is_ended.then_some(Incoming::End),
        }
    }

    /// Returns true if the peer should be told a higher bound.
    pub(crate) fn owes_credit(&self) -> bool {
        self.taken + u64::from(self.window) >= self.told + u64::from(self.window / 4)
    }

    /// The bound to tell the peer: it counts as told.
    pub(crate) fn tell_credit(&mut self) -> u64 {
        self.told = self.taken + u64::from(self.window);
        self.told
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::streams::Outbound;

    proptest! {
        /// Pieces in any order, that overlap in any way, give the messages that were put.
        #[test]
        fn messages_come_whole_from_any_pieces(
            lengths in prop::collection::vec(0..300usize, 1..20),
            cuts in prop::collection::vec((any::<u16>(), 1..120u64), 0..300),
        ) {
            let mut outbound = Outbound::new(u64::MAX);
            let message = |at: usize, length: usize| vec![u8::try_from(at).unwrap(); length];
            for (at, &length) in lengths.iter().enumerate() {
                outbound.put(message(at, length).into());
            }
            outbound.finish();
            let end = outbound.waiting();
            let mut inbound = Inbound::new(1 << 20);
            let pieces = cuts.iter().map(|&(start, length)| {
                let start = u64::from(start) % end;
                start..end.min(start + length)
            });
            for piece in pieces.chain(std::iter::once(0..end)) {
                let mut bytes = Vec::new();
                outbound.copy(&piece, &mut bytes);
                inbound.handle_bytes(piece.start, &bytes).unwrap();
                let kept: usize = inbound.pieces.values().map(Vec::len).sum();
                prop_assert!(wide(kept) <= end);
            }
            for (at, &length) in lengths.iter().enumerate() {
                prop_assert_eq!(inbound.receive(), Some(Incoming::Message(message(at, length))));
            }
            prop_assert_eq!(inbound.receive(), Some(Incoming::End));
        }
    }

    /// That which was acknowledged is never sent again, so nothing of it may be dropped.
    #[test]
    fn what_was_taken_is_kept_whole_however_many_pieces_there_are() {
        let message: Vec<u8> = (0..9000u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let stream = [9000u32.to_le_bytes().as_slice(), &message].concat();
        let mut inbound = Inbound::new(1 << 20);
        let mut at = 5;
        while inbound.has_room(wide(at)) {
            inbound.handle_bytes(wide(at), &stream[at..=at]).unwrap();
            at += 2;
        }
        assert_eq!(inbound.pieces.len(), PIECES_MAX);
        assert!(inbound.has_room(0));
        inbound.handle_bytes(1, &stream[1..]).unwrap();
        assert_eq!(inbound.receive(), None);
        inbound.handle_bytes(0, &stream[..1]).unwrap();
        assert_eq!(inbound.receive(), Some(Incoming::Message(message)));
        assert!(inbound.pieces.is_empty());
    }

    #[test]
    fn memory_follows_what_has_come_not_what_was_announced() {
        let mut inbound = Inbound::new(4 << 20);
        let length = 2_000_000u32;
        inbound.handle_bytes(0, &length.to_le_bytes()).unwrap();
        let held = |inbound: &Inbound| inbound.message.as_ref().map(|(_, message)| message.capacity());
        assert_eq!(held(&inbound), Some(0));
        inbound.handle_bytes(4, &[7; 1000]).unwrap();
        assert!(held(&inbound).unwrap() <= 2000, "{:?}", held(&inbound));
        let mut at = 1004;
        while inbound.whole.count() == 0 {
            inbound.handle_bytes(at, &[7; 1000]).unwrap();
            at += 1000;
            assert!(held(&inbound).is_none_or(|held| held <= 2 * narrow(at) && held <= 2_000_000));
        }
        assert_eq!(inbound.receive(), Some(Incoming::Message(vec![7; 2_000_000])));
    }

    #[test]
    fn what_nobody_takes_is_not_kept() {
        let mut inbound = Inbound::new(8192);
        let begin = [&3u32.to_le_bytes(), b"one".as_slice(), &4000u32.to_le_bytes()].concat();
        inbound.handle_bytes(0, &begin).unwrap();
        inbound.handle_bytes(20, &[7; 500]).unwrap();
        inbound.discard();
        for offset in [11, 20, 4000] {
            assert_eq!(inbound.handle_bytes(offset, &[7; 1000]), Ok(false));
        }
        assert_eq!(inbound.receive(), None);
        assert!(inbound.pieces.is_empty() && inbound.message.is_none() && inbound.has_room(8000));
        assert_eq!(inbound.handle_bytes(8192, &[1]), Err(Violation::BeyondWindow), "no more than was told");
    }

    #[test]
    fn what_the_peer_may_not_send_is_named() {
        let check = |offset, bytes: &[u8], expected| {
            assert_eq!(Inbound::new(4096).handle_bytes(offset, bytes), expected);
        };
        check(4095, &[1], Ok(false));
        check(4095, &[1, 2], Err(Violation::BeyondWindow));
        check(u64::MAX, &[1], Err(Violation::BeyondWindow));
        check(0, &2044u32.to_le_bytes(), Ok(false));
        check(0, &2045u32.to_le_bytes(), Err(Violation::MessageTooLong));
        check(0, &END_PREFIX.to_le_bytes(), Ok(true));
        check(0, &[0xff; 5], Err(Violation::AfterEnd));
    }
}
