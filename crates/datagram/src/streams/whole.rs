//! Messages that have come whole and that the owner has not taken.
//!
//! Short ones lie packed, one behind the other: else a window full of empty messages would take many times
//! its bytes of memory.

use std::collections::VecDeque;

/// The shortest message that lies alone.
const ALONE_BYTES_MIN: usize = 255;
/// Length at which a pack is full.
const PACK_BYTES: usize = 4096;

/// Messages, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    parts: VecDeque<Part>,
    count: usize,
}

#[derive(Debug)]
enum Part {
    Alone(Vec<u8>),
    /// Short messages, each behind a byte that is its length. Those before `at` are taken.
    Pack {
        bytes: Vec<u8>,
        at: usize,
    },
}

impl Whole {
    /// Number of messages.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn put(&mut self, message: Vec<u8>) {
        self.count += 1;
        let length = match u8::try_from(message.len()) {
            Ok(length) if message.len() < ALONE_BYTES_MIN => length,
            _ => return self.parts.push_back(Part::Alone(message)),
        };
        let has_room =
            |part: &&mut Part| matches!(part, Part::Pack { bytes, .. } if bytes.len() < PACK_BYTES);
        if self.parts.back_mut().filter(has_room).is_none() {
            self.parts.push_back(Part::Pack { bytes: Vec::new(), at: 0 });
        }
        if let Some(Part::Pack { bytes, .. }) = self.parts.back_mut() {
            bytes.push(length);
            bytes.extend_from_slice(&message);
        }
    }

    /// Takes the oldest message out.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let message = match self.parts.front_mut()? {
            Part::Alone(message) => std::mem::take(message),
            Part::Pack { bytes, at } => {
                let begin = *at + 1;
                *at = begin + usize::from(bytes[*at]);
                bytes[begin..*at].to_vec()
            }
        };
        self.count -= 1;
        let is_empty = |part: &Part| match part {
            Part::Alone(_) => true,
            Part::Pack { bytes, at } => *at == bytes.len(),
        };
        if self.parts.front().is_some_and(is_empty) {
            self.parts.pop_front();
        }
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_their_order_and_short_ones_take_little_memory() {
        let message = |at: usize| vec![u8::try_from(at % 251).unwrap(); at * at % 700];
        let mut whole = Whole::default();
        for at in 0..2000 {
            whole.put(message(at));
            if at % 3 == 0 {
                assert_eq!(whole.take(), Some(message(at / 3)));
            }
        }
        for at in 667..2000 {
            assert_eq!(whole.take(), Some(message(at)));
        }
        assert_eq!((whole.take(), whole.count()), (None, 0));
        // On the stream an empty message has 4 bytes.
        (0..100_000).for_each(|_| whole.put(Vec::new()));
        let held = |part: &Part| match part {
            Part::Alone(message) => message.capacity(),
            Part::Pack { bytes, .. } => bytes.capacity(),
        };
        let held: usize = whole.parts.iter().map(held).sum();
        let parts = whole.parts.capacity() * size_of::<Part>();
        assert!(held + parts <= 400_000, "{held} and {parts}");
    }
}
