//! Lists of memory and places in a file: parts that are short and lie together in the file go as one.
//!
//! What is one costs one request, and a copy of its bytes; a longer part goes from or to its own memory.

use braid_client::{File, Result};
use futures_util::StreamExt;
use futures_util::stream;

use crate::errors::Failure;
use crate::memory::Memory;

/// Length from which a part goes by itself, in bytes.
const LONG_BYTES: usize = 256 << 10;
/// Maximum length of what goes as one, in bytes: a few whole stripes.
const RUN_BYTES_MAX: usize = 8 << 20;
/// Maximum number of runs under way at a time. The client bounds what they have in flight.
const TOGETHER: usize = 16;

/// A piece of memory with its offset in the file.
pub(crate) type Part = (Memory, u64);

/// Parts that lie one after the other in the file; at least one.
type Run = Vec<Part>;

/// Sum of the parts' lengths, which a call can return.
pub(crate) fn total(parts: &[Part]) -> std::result::Result<usize, Failure> {
    let sum = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.0.length()));
    sum.filter(|&sum| isize::try_from(sum).is_ok())
        .ok_or_else(|| Failure::invalid("the parts have more bytes together than a call can return"))
}

/// Reads or writes all parts. Returns the number of bytes, which is less than asked for where a file that is
/// read ends. If a part fails the others are moved all the same.
pub(crate) async fn transfer(file: &File, parts: Vec<Part>, writes: bool) -> Result<usize> {
    let runs = runs(parts).into_iter();
    if writes {
        all(runs.map(|run| write_run(file, run)).collect()).await
    } else {
        all(runs.map(|run| read_run(file, run)).collect()).await
    }
}

/// Waits for all, as a write that is dropped midway spoils the handle, and returns the first error or the
/// sum.
async fn all<F: Future<Output = Result<usize>>>(transfers: Vec<F>) -> Result<usize> {
    let done: Vec<_> = stream::iter(transfers).buffer_unordered(TOGETHER).collect().await;
    done.into_iter().sum()
}

async fn read_run(file: &File, mut run: Run) -> Result<usize> {
    if let [(memory, offset)] = &mut run[..] {
        return file.read_at(memory.bytes_mut(), *offset).await;
    }
    let mut bytes = vec![0; length(&run)];
    let read = file.read_at(&mut bytes, run[0].1).await?;
    let mut left = &bytes[..read];
    for (memory, _) in &mut run {
        let here = memory.length().min(left.len());
        memory.bytes_mut()[..here].copy_from_slice(&left[..here]);
        left = &left[here..];
    }
    Ok(read)
}

async fn write_run(file: &File, run: Run) -> Result<usize> {
    let length = length(&run);
    if let [(memory, offset)] = &run[..] {
        file.write_at(memory.bytes(), *offset).await?;
        return Ok(length);
    }
    let mut bytes = Vec::with_capacity(length);
    run.iter().for_each(|(memory, _)| bytes.extend_from_slice(memory.bytes()));
    file.write_at(&bytes, run[0].1).await?;
    Ok(length)
}

fn length(run: &[Part]) -> usize {
    run.iter().map(|part| part.0.length()).sum()
}

/// The parts in runs, without those that are empty.
fn runs(parts: Vec<Part>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut bytes = 0;
    for part in parts.into_iter().filter(|part| part.0.length() > 0) {
        let here = part.0.length();
        match runs.last_mut() {
            Some(run) if goes_on(run, &part) && bytes + here <= RUN_BYTES_MAX => {
                bytes += here;
                run.push(part);
            }
            _ => {
                bytes = here;
                runs.push(vec![part]);
            }
        }
    }
    runs
}

/// Returns true if a part is short, and lies behind a run of short ones.
fn goes_on(run: &[Part], part: &Part) -> bool {
    let is_short = |part: &Part| part.0.length() < LONG_BYTES;
    run.last().is_some_and(|last| is_short(last) && is_short(part) && end_of(last) == Some(part.1))
}

fn end_of(part: &Part) -> Option<u64> {
    part.1.checked_add(u64::try_from(part.0.length()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;

    /// The lengths of the parts in each run, of parts with these lengths and offsets.
    fn check(parts: &[(usize, u64)], expected: &[&[usize]]) {
        let mut longest = vec![0; RUN_BYTES_MAX];
        let of = |&(length, offset): &(usize, u64)| (memory::of(&mut longest[..length]), offset);
        let parts: Vec<Part> = parts.iter().map(of).collect();
        let lengths: Vec<Vec<usize>> =
            runs(parts).iter().map(|run| run.iter().map(|part| part.0.length()).collect()).collect();
        assert_eq!(lengths, expected);
    }

    #[test]
    fn short_parts_that_lie_together_go_as_one() {
        check(&[], &[]);
        check(&[(0, 5)], &[]);
        check(&[(10, 0), (20, 10), (0, 30), (30, 30)], &[&[10, 20, 30]]);
        check(&[(10, 0), (20, 11), (30, 31)], &[&[10], &[20, 30]]);
        check(&[(10, 100), (10, 90)], &[&[10], &[10]]);
    }

    #[test]
    fn long_parts_go_by_themselves() {
        let long = 256 << 10;
        let end = u64::try_from(long).expect("small");
        check(&[(long, 0), (10, end), (20, end + 10)], &[&[long], &[10, 20]]);
        check(&[(10, 0), (long, 10)], &[&[10], &[long]]);
    }

    #[test]
    fn a_run_is_bounded() {
        let part = 200 << 10;
        let parts: Vec<(usize, u64)> =
            (0..100).map(|at| (part, at * u64::try_from(part).expect("small"))).collect();
        let most = RUN_BYTES_MAX / part;
        let full = vec![part; most];
        let rest = vec![part; 100 - 2 * most];
        check(&parts, &[&full, &full, &rest]);
    }

    #[test]
    fn a_part_at_the_end_of_all_offsets_is_followed_by_none() {
        check(&[(10, u64::MAX - 3), (10, 6)], &[&[10], &[10]]);
    }
}
