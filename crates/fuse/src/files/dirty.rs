//! Bytes of a file that were taken from the kernel and are not with the drives yet.
//!
//! Dirty bytes are kept as *runs*: bytes that lie together. A run never crosses the bound of a *chunk*, a
//! multiple of the file's stripe, so that a sequential writer's runs are written as whole stripes, and a
//! later run is collected while an earlier one is on its way. Each run has the number of the oldest write in
//! it, which shows when no writes up to a number are left.

use std::collections::BTreeMap;
use std::ops::Range;

/// Maximum number of buffers kept for later runs, of a file that is being written.
const SPARE_MAX: usize = 4;
/// Minimum capacity in bytes of a buffer that is kept.
const SPARE_BYTES_MIN: usize = 4 << 20;

/// Bytes that lie together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) bytes: Vec<u8>,
    /// Number of the oldest write in the run.
    pub(crate) order: u64,
}

/// A file's runs, by offset. No two meet within a chunk.
#[derive(Debug)]
pub(crate) struct Extents {
    chunk: u64,
    runs: BTreeMap<u64, Run>,
    bytes: u64,
    /// Buffers of runs that were written, kept for later runs.
    spare: Vec<Vec<u8>>,
}

impl Extents {
    /// Extents without runs. `chunk` is the length of a chunk in bytes.
    pub(crate) fn new(chunk: u64) -> Extents {
        Extents { chunk: chunk.max(1), runs: BTreeMap::new(), bytes: 0, spare: Vec::new() }
    }

    /// Sets the length of a chunk, which can only be changed while there are no runs.
    pub(crate) fn set_chunk(&mut self, chunk: u64) {
        if self.runs.is_empty() {
            self.chunk = chunk.max(1);
        }
    }

    /// Number of bytes in all runs.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps the buffer of a run that was written, as long as there are runs.
    pub(crate) fn written(&mut self, run: Run) {
        if self.runs.is_empty() {
            self.spare.clear();
        } else if self.spare.len() < SPARE_MAX && run.bytes.capacity() >= SPARE_BYTES_MIN {
            self.spare.push(run.bytes);
        }
    }

    /// Offset one past the last byte of all runs.
    pub(crate) fn end(&self) -> u64 {
        self.runs.last_key_value().map_or(0, |(from, run)| end(*from, run))
    }

    /// Returns true if there are writes with a number up to `order`.
    pub(crate) fn has_up_to(&self, order: u64) -> bool {
        self.runs.values().any(|run| run.order <= order)
    }

    /// Adds a write, which replaces the bytes that were there.
    pub(crate) fn put(&mut self, offset: u64, data: &[u8], order: u64) {
        for (from, piece) in self.pieces(offset, data) {
            self.put_piece(from, piece, order);
        }
    }

    /// Adds a write that is older than all bytes there, which replace it.
    pub(crate) fn put_under(&mut self, offset: u64, data: &[u8], order: u64) {
        let over: Vec<(u64, Run)> = self
            .within(offset..offset.saturating_add(length(data)))
            .map(|(from, run)| (from, run.clone()))
            .collect();
        self.put(offset, data, order);
        over.iter().for_each(|(from, run)| self.put(*from, &run.bytes, run.order));
    }

    /// Takes the first run at or after an offset for which `which` is true, else the first of all.
    pub(crate) fn take(&mut self, from: u64, which: impl Fn(u64, &Run) -> bool) -> Option<(u64, Run)> {
        let fits = |(from, run): (&u64, &Run)| which(*from, run).then_some(*from);
        let found = self.runs.range(from..).find_map(fits);
        let found = found.or_else(|| self.runs.range(..from).find_map(fits))?;
        let run = self.runs.remove(&found)?;
        self.bytes -= length(&run.bytes);
        Some((found, run))
    }

    /// Length of a chunk in bytes.
    pub(crate) fn chunk(&self) -> u64 {
        self.chunk
    }

    /// Returns true if a write reaches the end of a chunk.
    pub(crate) fn passes_chunk(&self, from: u64, to: u64) -> bool {
        from / self.chunk != to / self.chunk
    }

    /// The parts of runs within a range, with their offsets.
    pub(crate) fn copies(&self, range: Range<u64>) -> Vec<(u64, Vec<u8>)> {
        let part = |(from, run): (u64, &Run)| {
            let begin = from.max(range.start);
            let to = end(from, run).min(range.end);
            (begin, run.bytes[index(begin - from)..index(to - from)].to_vec())
        };
        self.within(range.clone()).map(part).collect()
    }

    /// Drops the bytes of a range.
    pub(crate) fn cut(&mut self, range: Range<u64>) {
        let met: Vec<u64> = self.within(range.clone()).map(|(from, _)| from).collect();
        for from in met {
            let Some(mut run) = self.runs.remove(&from) else { continue };
            self.bytes -= length(&run.bytes);
            let to = end(from, &run);
            if to > range.end {
                let rest = run.bytes.split_off(index(range.end - from));
                self.insert(range.end, Run { bytes: rest, order: run.order });
            }
            if from < range.start {
                run.bytes.truncate(index(range.start - from));
                self.insert(from, run);
            }
        }
    }

    /// Runs that have bytes in a range.
    fn within(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &Run)> {
        // A run begins in its chunk.
        let first = range.start / self.chunk * self.chunk;
        let runs = self.runs.range(first..range.end.max(first));
        runs.map(|(from, run)| (*from, run)).filter(move |(from, run)| end(*from, run) > range.start)
    }

    /// Cuts a write at the bounds of chunks.
    fn pieces<'d>(&self, offset: u64, data: &'d [u8]) -> Vec<(u64, &'d [u8])> {
        let mut at = offset;
        let mut rest = data;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let fits = index(self.chunk - at % self.chunk).min(rest.len());
            let (head, tail) = rest.split_at(fits);
            pieces.push((at, head));
            (at, rest) = (at + length(head), tail);
        }
        pieces
    }

    fn put_piece(&mut self, from: u64, data: &[u8], order: u64) {
        let first = from / self.chunk * self.chunk;
        let to = from + length(data);
        let before = self.runs.range_mut(first..=from).next_back();
        let mut base = from;
        let mut run = match before.filter(|(begin, old)| end(**begin, old) >= from) {
            Some((&begin, old)) => {
                let skip = index(from - begin);
                old.order = old.order.min(order);
                if end(begin, old) >= to {
                    old.bytes[skip..skip + data.len()].copy_from_slice(data);
                    return;
                }
                base = begin;
                let mut run = self.runs.remove(&begin).expect("it was just seen");
                self.bytes -= length(&run.bytes);
                run.bytes.truncate(skip);
                run
            }
            None => {
                let is_long = data.len() >= SPARE_BYTES_MIN / 4;
                let spare = if is_long { self.spare.pop() } else { None };
                let mut bytes = spare.unwrap_or_default();
                bytes.clear();
                Run { bytes, order }
            }
        };
        run.bytes.extend_from_slice(data);
        while let Some((&next, _)) = self.runs.range(from..=to).next() {
            if next == to && to.is_multiple_of(self.chunk) {
                break; // it is the next chunk's
            }
            let old = self.runs.remove(&next).expect("it was just seen");
            self.bytes -= length(&old.bytes);
            run.order = run.order.min(old.order);
            if end(next, &old) > to {
                run.bytes.extend_from_slice(&old.bytes[index(to - next)..]);
            }
        }
        self.insert(base, run);
    }

    fn insert(&mut self, from: u64, run: Run) {
        self.bytes += length(&run.bytes);
        self.runs.insert(from, run);
    }
}

/// Copies bytes at offset `from` of the file to their place in a buffer that begins at offset `at`.
pub(crate) fn overlay(buffer: &mut [u8], at: u64, from: u64, bytes: &[u8]) {
    let begin = from.max(at);
    let to = (from + length(bytes)).min(at + length(buffer));
    if begin < to {
        buffer[index(begin - at)..index(to - at)]
            .copy_from_slice(&bytes[index(begin - from)..index(to - from)]);
    }
}

/// Length of a slice in bytes.
pub(crate) fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("a slice is below 2^64 bytes")
}

fn end(from: u64, run: &Run) -> u64 {
    from + length(&run.bytes)
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("it is within a slice")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK: u64 = 64;
    const FILE: usize = 300;

    /// Step of the test against a naive model, which has one value per byte, or none.
    #[derive(Debug, Clone)]
    enum Step {
        Put(usize, usize),
        Under(usize, usize),
        Cut(usize, usize),
        Take(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = || (0..FILE - 1).prop_flat_map(|from| (Just(from), from + 1..FILE));
        prop_oneof![
            4 => range().prop_map(|(from, to)| Step::Put(from, to)),
            1 => range().prop_map(|(from, to)| Step::Under(from, to)),
            1 => range().prop_map(|(from, to)| Step::Cut(from, to)),
            1 => (0..FILE).prop_map(Step::Take),
        ]
    }

    fn check(extents: &Extents, model: &[Option<u8>]) {
        let mut last: Option<u64> = None;
        let mut seen = vec![None; FILE];
        for (from, run) in &extents.runs {
            assert!(!run.bytes.is_empty());
            assert_eq!(from / CHUNK, (end(*from, run) - 1) / CHUNK, "it crosses a chunk");
            if let Some(last) = last {
                let meets = last == *from && !from.is_multiple_of(CHUNK);
                assert!(last <= *from && !meets, "runs are not joined at {from}");
            }
            last = Some(end(*from, run));
            for (offset, byte) in (index(*from)..).zip(&run.bytes) {
                seen[offset] = Some(*byte);
            }
        }
        assert_eq!(seen, model);
        assert_eq!(extents.bytes(), length(&model.iter().flatten().copied().collect::<Vec<u8>>()));
        let expected = model.iter().rposition(Option::is_some).map_or(0, |at| at as u64 + 1);
        assert_eq!(extents.end(), expected);
    }

    proptest! {
        #[test]
        fn it_holds_what_a_naive_keeper_holds(steps in prop::collection::vec(step(), 1..60)) {
            let mut extents = Extents::new(CHUNK);
            let mut model = vec![None; FILE];
            for (order, step) in (1u64..).zip(steps) {
                let bytes = |from, to| vec![order.to_le_bytes()[0]; to - from];
                match step {
                    Step::Put(from, to) => {
                        extents.put(from as u64, &bytes(from, to), order);
                        model[from..to].fill(Some(order.to_le_bytes()[0]));
                    }
                    Step::Under(from, to) => {
                        extents.put_under(from as u64, &bytes(from, to), order);
                        let byte = order.to_le_bytes()[0];
                        model[from..to].iter_mut().for_each(|at| *at = at.or(Some(byte)));
                    }
                    Step::Cut(from, to) => {
                        extents.cut(from as u64..to as u64);
                        model[from..to].fill(None);
                    }
                    Step::Take(from) => {
                        if let Some((from, run)) = extents.take(from as u64, |_, _| true) {
                            let from = index(from);
                            let held: Vec<u8> = model[from..from + run.bytes.len()].iter().flatten().copied().collect();
                            prop_assert_eq!(held, run.bytes);
                            let to = model[from..].iter().position(Option::is_none).map_or(FILE, |n| from + n);
                            let to = to.min((from / 64 + 1) * 64);
                            model[from..to].fill(None);
                        }
                    }
                }
                check(&extents, &model);
                let mut read = vec![0; FILE];
                for (from, bytes) in extents.copies(7..290) {
                    overlay(&mut read, 0, from, &bytes);
                }
                let expected = model.iter().enumerate();
                let expected: Vec<u8> =
                    expected.map(|(at, byte)| byte.filter(|_| (7..290).contains(&at)).unwrap_or(0)).collect();
                prop_assert_eq!(read, expected);
            }
        }
    }

    #[test]
    fn the_oldest_write_of_a_run_is_remembered() {
        let mut extents = Extents::new(CHUNK);
        extents.put(0, &[1; 10], 5);
        extents.put(10, &[2; 10], 7);
        assert!(extents.has_up_to(5) && !extents.has_up_to(4));
        let (from, run) = extents.take(3, |_, _| true).expect("a run");
        assert_eq!((from, run.order, run.bytes.len()), (0, 5, 20));
        extents.put(60, &[3; 10], 8);
        assert_eq!(extents.runs.len(), 2, "a chunk's bound is between");
        assert!(
            extents.passes_chunk(60, 70) && extents.passes_chunk(60, 64) && !extents.passes_chunk(64, 70)
        );
    }
}
