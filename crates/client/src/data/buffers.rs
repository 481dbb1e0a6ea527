//! The memory of one plan set: the caller's buffer and scratch pieces, split without copying.
//!
//! Bytes go from the socket straight into the caller's buffer. So that several drives can fill it in
//! parallel, without `unsafe`, the memory is split into disjoint slices: the ranges are sorted and cut off
//! one after another. A plan whose ranges overlap or lie outside is wrong, and refused.

use braid_plan::MemoryRange;

use crate::data::scratch::Scratch;

/// The caller's part of the memory.
pub(crate) enum User<'a> {
    /// A buffer to fill.
    Into(&'a mut [u8]),
    /// Data to send.
    From(&'a [u8]),
    /// The request has no bytes from the caller.
    Nothing,
}

/// The caller's buffer and the scratch pieces.
pub(crate) struct Memory<'a> {
    user: User<'a>,
    scratch: Vec<Vec<u8>>,
    pool: &'a Scratch,
}

/// A range that lies outside the memory or overlaps another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the plan's memory range {0:?} overlaps another or lies outside the memory")]
pub(crate) struct BadRange(pub(crate) MemoryRange);

/// Slices of the memory, in the order of the request.
#[derive(Debug, Default)]
pub(crate) struct Split<'s> {
    pub(crate) inputs: Vec<&'s [u8]>,
    pub(crate) outputs: Vec<&'s mut [u8]>,
}

/// A requested range, within one of the memories: 0 is the caller's, 1 the first scratch piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    memory: usize,
    from: usize,
    to: usize,
    /// Index in the list of outputs or inputs.
    index: usize,
    output: bool,
}

impl<'a> Memory<'a> {
    /// Takes scratch pieces of these lengths from `pool`, and returns them on drop.
    pub(crate) fn new(user: User<'a>, scratch: &[u32], pool: &'a Scratch) -> Memory<'a> {
        let piece = |&bytes: &u32| pool.take(usize::try_from(bytes).expect("a piece is at most a unit"));
        Memory { user, scratch: scratch.iter().map(piece).collect(), pool }
    }

    /// The bytes of a range.
    pub(crate) fn at(&self, range: MemoryRange) -> Result<&[u8], BadRange> {
        let (memory, from, to) = bounds(range)?;
        let whole = match (memory, &self.user) {
            (0, User::Into(bytes)) => Some(&**bytes),
            (0, User::From(bytes)) => Some(*bytes),
            (0, User::Nothing) => None,
            (piece, _) => self.scratch.get(piece - 1).map(Vec::as_slice),
        };
        whole.and_then(|bytes| bytes.get(from..to)).ok_or(BadRange(range))
    }

    /// Borrows slices to read and slices to write at the same time. An output must not overlap any other
    /// range; two inputs may be equal, but must not overlap partly.
    pub(crate) fn split(
        &mut self,
        inputs: &[MemoryRange],
        outputs: &[MemoryRange],
    ) -> Result<Split<'_>, BadRange> {
        let range_of = |wish: &Wish| if wish.output { outputs[wish.index] } else { inputs[wish.index] };
        let mut wishes = Vec::with_capacity(inputs.len() + outputs.len());
        for (ranges, output) in [(inputs, false), (outputs, true)] {
            for (index, &range) in ranges.iter().enumerate() {
                let (memory, from, to) = bounds(range)?;
                wishes.push(Wish { memory, from, to, index, output });
            }
        }
        wishes.sort_unstable();
        let mut found_in: Vec<Option<&[u8]>> = vec![None; inputs.len()];
        let mut found_out: Vec<Option<&mut [u8]>> = outputs.iter().map(|_| None).collect();
        let mut pieces = self.scratch.iter_mut().enumerate();
        let mut user = Some(&mut self.user);
        for group in wishes.chunk_by(|a, b| a.memory == b.memory) {
            let memory = group[0].memory;
            let whole: &mut [u8] = if memory == 0 {
                match user.take() {
                    Some(User::Into(bytes)) => bytes,
                    Some(User::From(bytes)) => {
                        let bytes: &[u8] = bytes;
                        for wish in group {
                            let slice = bytes.get(wish.from..wish.to).filter(|_| !wish.output);
                            found_in[wish.index] = Some(slice.ok_or(BadRange(range_of(wish)))?);
                        }
                        continue;
                    }
                    _ => return Err(BadRange(range_of(&group[0]))),
                }
            } else {
                let piece = pieces.find(|(index, _)| index + 1 == memory);
                piece.map(|(_, bytes)| bytes.as_mut_slice()).ok_or(BadRange(range_of(&group[0])))?
            };
            carve(whole, group, &mut found_in, &mut found_out).map_err(|wish| BadRange(range_of(&wish)))?;
        }
        Ok(Split {
            inputs: found_in.into_iter().map(Option::unwrap_or_default).collect(),
            outputs: found_out.into_iter().map(Option::unwrap_or_default).collect(),
        })
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        self.pool.give_back(self.scratch.drain(..));
    }
}

/// Cuts the ranges, sorted by their starts, off one memory. Fails with a range that is impossible.
fn carve<'s>(
    mut rest: &'s mut [u8],
    group: &[Wish],
    inputs: &mut [Option<&'s [u8]>],
    outputs: &mut [Option<&'s mut [u8]>],
) -> Result<(), Wish> {
    let mut cut = 0;
    let mut last: Option<(Wish, &'s [u8])> = None;
    for &wish in group {
        if let Some((same, bytes)) = last
            && (same.from, same.to, wish.output) == (wish.from, wish.to, false)
        {
            inputs[wish.index] = Some(bytes);
            continue;
        }
        if wish.from < cut || wish.to < wish.from || wish.to - cut > rest.len() {
            return Err(wish);
        }
        let (head, tail) = std::mem::take(&mut rest).split_at_mut(wish.to - cut);
        let slice = &mut head[wish.from - cut..];
        (rest, cut) = (tail, wish.to);
        if wish.output {
            outputs[wish.index] = Some(slice);
            last = None;
        } else {
            let slice: &'s [u8] = slice;
            inputs[wish.index] = Some(slice);
            last = Some((wish, slice));
        }
    }
    Ok(())
}

fn bounds(range: MemoryRange) -> Result<(usize, usize, usize), BadRange> {
    let (memory, from, len) = match range {
        MemoryRange::User { offset, len } => (0, usize::try_from(offset).map_err(|_| BadRange(range))?, len),
        MemoryRange::Scratch { piece, offset, len } => (wide(piece) + 1, wide(offset), len),
    };
    let to = from.checked_add(wide(len)).ok_or(BadRange(range))?;
    Ok((memory, from, to))
}

fn wide(value: u32) -> usize {
    usize::try_from(value).expect("this runs on 32 bits and up")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn user(offset: u64, len: u32) -> MemoryRange {
        MemoryRange::User { offset, len }
    }

    fn scratch(piece: u32, offset: u32, len: u32) -> MemoryRange {
        MemoryRange::Scratch { piece, offset, len }
    }

    #[test]
    fn slices_come_in_the_order_asked_for() {
        let pool = Scratch::default();
        let mut buffer: Vec<u8> = (0..10).collect();
        let mut memory = Memory::new(User::Into(&mut buffer), &[4, 4], &pool);
        let split = memory
            .split(&[user(8, 2), user(0, 3), user(8, 2)], &[scratch(1, 1, 2), user(3, 4)])
            .expect("good");
        assert_eq!(split.inputs, [&[8, 9][..], &[0, 1, 2], &[8, 9]]);
        assert_eq!(split.outputs.iter().map(|slice| slice.len()).collect::<Vec<_>>(), [2, 4]);
    }

    #[test]
    fn places_that_cannot_be_are_refused() {
        let mut buffer = vec![0; 10];
        let pool = Scratch::default();
        let mut memory = Memory::new(User::Into(&mut buffer), &[4], &pool);
        for (inputs, outputs) in [
            (vec![], vec![user(0, 4), user(3, 4)]),
            (vec![user(0, 4)], vec![user(0, 4)]),
            (vec![user(0, 4), user(2, 4)], vec![]),
            (vec![user(8, 3)], vec![]),
            (vec![user(u64::MAX, 3)], vec![]),
            (vec![], vec![scratch(0, 2, 3)]),
            (vec![], vec![scratch(1, 0, 1)]),
        ] {
            assert!(memory.split(&inputs, &outputs).is_err(), "{inputs:?} {outputs:?}");
        }
        let source = vec![0; 4];
        let pool = Scratch::default();
        let mut memory = Memory::new(User::From(&source), &[], &pool);
        assert!(memory.split(&[user(0, 4), user(1, 2)], &[]).is_ok(), "a source may be read in any way");
        assert!(memory.split(&[], &[user(0, 4)]).is_err(), "a source is not written");
        assert!(Memory::new(User::Nothing, &[], &pool).split(&[user(0, 1)], &[]).is_err());
    }

    proptest! {
        /// For any disjoint ranges in any order, what is written to each is found at its position.
        #[test]
        fn what_is_put_into_a_place_lies_there(
            cuts in proptest::collection::vec((0u32..40, 0usize..3, any::<bool>(), any::<u32>()), 1..40),
        ) {
            let mut ends = [0u32; 3];
            let mut ranges = Vec::new();
            for &(len, memory, used, order) in &cuts {
                let from = ends[memory];
                ends[memory] += len;
                let range = match memory {
                    0 => user(u64::from(from), len),
                    piece => scratch(u32::try_from(piece).expect("small") - 1, from, len),
                };
                if used && len > 0 {
                    ranges.push((order, range));
                }
            }
            ranges.sort_by_key(|(order, _)| *order);
            let ranges: Vec<MemoryRange> = ranges.into_iter().map(|(_, range)| range).collect();
            let pool = Scratch::default();
            let mut buffer = vec![0; wide(ends[0])];
            let mut memory = Memory::new(User::Into(&mut buffer), &ends[1..], &pool);
            let split = memory.split(&[], &ranges).expect("disjoint");
            for (index, slice) in split.outputs.into_iter().enumerate() {
                slice.fill(u8::try_from(index).expect("few") + 1);
            }
            for (index, &range) in ranges.iter().enumerate() {
                let expected = vec![u8::try_from(index).expect("few") + 1; wide(range.len())];
                prop_assert_eq!(memory.at(range).expect("it is there"), expected.as_slice());
            }
        }
    }
}
