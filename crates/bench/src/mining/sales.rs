//! Sales transactions, generated: the same bytes for the same seed.
//!
//! A line is a transaction: its items, which are numbers, with spaces between them. Some sets of items are
//! planted in every so-manieth line, and are in no other: so it is known in how many lines they are. The
//! other items are drawn, low numbers more often. No line lies across the end of a chunk, as in the paper:
//! the last line of a chunk is filled up with spaces.

use std::ops::AddAssign;

use crate::content::Random;

/// Bytes of a chunk, which one client counts.
pub const CHUNK_BYTES: u64 = 2 << 20;
/// Items from this number on are drawn; those below are planted.
const DRAWN_FROM: u64 = 100;
/// Number of the items that are drawn.
const DRAWN: u64 = 900;
/// Number of drawn items in a line: the least, and how many more there may be.
const LINE_ITEMS: (u64, u64) = (5, 10);
/// Steps of a draw, whose square is spread over the items.
const STEPS: u64 = 1_000;

/// A set that is in every so-manieth line of a chunk, from the first on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planted {
    /// The set's items, in order.
    pub items: &'static [u32],
    /// Lines from one with the set to the next.
    pub every: u64,
}

/// The planted sets.
pub const PLANTED: [Planted; 3] = [
    Planted { items: &[1, 2, 3], every: 10 },
    Planted { items: &[11, 12], every: 16 },
    Planted { items: &[21, 22, 23, 24], every: 20 },
];

/// A file of transactions, as it is generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sales {
    /// Seed of the draws.
    pub seed: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// A chunk of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The bytes of its lines.
    pub bytes: Vec<u8>,
    /// Facts about them that nobody has to count.
    pub known: Known,
}

/// Facts about transactions that are known without counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Known {
    /// Number of lines.
    pub lines: u64,
    /// Number of lines that hold each of [`PLANTED`].
    pub planted: [u64; PLANTED.len()],
}

impl AddAssign for Known {
    fn add_assign(&mut self, other: Known) {
        self.lines += other.lines;
        self.planted.iter_mut().zip(other.planted).for_each(|(own, more)| *own += more);
    }
}

impl Sales {
    /// Number of chunks; the last one may be shorter.
    pub fn chunks(&self) -> u64 {
        self.bytes.div_ceil(CHUNK_BYTES)
    }

    /// A chunk, by its number from 0.
    pub fn chunk(&self, number: u64) -> Chunk {
        let left = self.bytes.saturating_sub(number.saturating_mul(CHUNK_BYTES));
        let length = usize::try_from(left.min(CHUNK_BYTES)).expect("a chunk fits memory");
        let mut random = Random(self.seed ^ (number << 32));
        let mut bytes = Vec::with_capacity(length);
        let mut known = Known::default();
        let mut items = Vec::new();
        loop {
            items.clear();
            let is_planted = |set: &&Planted| known.lines.is_multiple_of(set.every);
            PLANTED.iter().filter(is_planted).for_each(|set| items.extend_from_slice(set.items));
            for _ in 0..LINE_ITEMS.0 + random.below(LINE_ITEMS.1) {
                items.push(drawn(&mut random));
            }
            let before = bytes.len();
            for (index, item) in items.iter().enumerate() {
                let space = if index > 0 { " " } else { "" };
                bytes.extend_from_slice(format!("{space}{item}").as_bytes());
            }
            if bytes.len() >= length {
                bytes.truncate(before);
                break;
            }
            bytes.push(b'\n');
            for (set, lines) in PLANTED.iter().zip(&mut known.planted) {
                *lines += u64::from(known.lines.is_multiple_of(set.every));
            }
            known.lines += 1;
        }
        // The last line's spaces end with its line feed.
        if bytes.len() < length {
            bytes.pop();
            bytes.resize(length - 1, b' ');
            bytes.push(b'\n');
            known.lines = known.lines.max(1);
        }
        Chunk { bytes, known }
    }
}

/// A drawn item: the square of an even draw, so that low numbers come more often.
fn drawn(random: &mut Random) -> u32 {
    let step = random.below(STEPS);
    u32::try_from(DRAWN_FROM + step * step * DRAWN / (STEPS * STEPS)).expect("it is small")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALES: Sales = Sales { seed: 7, bytes: CHUNK_BYTES + 30_000 };

    /// Lines of these bytes that hold all of `set`, by a search that knows nothing of the generator.
    fn lines_with(bytes: &[u8], set: &[u32]) -> u64 {
        let text = std::str::from_utf8(bytes).expect("text");
        let holds = |line: &&str| {
            let items: Vec<u32> =
                line.split_whitespace().map(|item| item.parse().expect("a number")).collect();
            set.iter().all(|item| items.contains(item))
        };
        text.lines().filter(holds).count().try_into().expect("it is small")
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let first = SALES.chunk(1);
        assert_eq!(first, SALES.chunk(1));
        assert_ne!(first.bytes, SALES.chunk(0).bytes[..30_000]);
        assert_ne!(first.bytes, Sales { seed: 8, ..SALES }.chunk(1).bytes);
        // These bytes are what a seed stands for: another text would make results incomparable.
        let begin = String::from_utf8(first.bytes[..46].to_vec()).expect("text");
        assert_eq!(begin, "1 2 3 11 12 21 22 23 24 154 187 430 116 255 11");
    }

    #[test]
    fn chunks_are_whole_lines_and_as_long_as_asked_for() {
        assert_eq!((SALES.chunks(), Sales { bytes: 0, ..SALES }.chunks()), (2, 0));
        for (number, length) in [(0, 2 << 20), (1, 30_000), (2, 0)] {
            let chunk = SALES.chunk(number);
            assert_eq!(chunk.bytes.len(), length, "chunk {number}");
            assert!(chunk.bytes.last().is_none_or(|&last| last == b'\n'), "chunk {number}");
        }
        for bytes in 1..60 {
            assert_eq!(Sales { seed: 7, bytes }.chunk(0).bytes.len(), usize::try_from(bytes).expect("small"));
        }
    }

    #[test]
    fn planted_sets_are_in_as_many_lines_as_is_said() {
        let mut known = Known::default();
        let mut bytes = Vec::new();
        for number in 0..SALES.chunks() {
            let chunk = SALES.chunk(number);
            known += chunk.known;
            bytes.extend(chunk.bytes);
        }
        assert_eq!(lines_with(&bytes, &[]), known.lines);
        for (set, lines) in PLANTED.iter().zip(known.planted) {
            assert_eq!(lines_with(&bytes, set.items), lines, "{set:?}");
            assert!(lines.abs_diff(known.lines / set.every) <= 2, "{set:?}");
        }
    }
}
