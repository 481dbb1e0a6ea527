//! One piece of a file: what of it is fed to a method, and what is left for the seams.

use crate::program::{MethodError, Program, Running};
use crate::records::{Records, Split, wide};
use crate::seams::Edge;

/// Feeds the whole records of a piece, which begins at byte `from` of the file. Returns the piece's ends,
/// which are for [`Seams`](crate::Seams).
pub fn run_piece(
    program: &dyn Program,
    running: &mut dyn Running,
    from: u64,
    piece: &[u8],
) -> Result<Edge, MethodError> {
    let split = program.records().split(from, piece);
    if split.head < split.tail {
        let at = from + wide(split.head);
        running.feed(at, &piece[split.head..split.tail])?;
    }
    Ok(Edge::of(from, piece, split))
}

/// Does the same at a drive, in steps: before each `goes_on` is asked. Returns `None` if it says no, or if a
/// record is longer than a step may be.
pub fn run_piece_in_steps(
    program: &dyn Program,
    running: &mut dyn Running,
    from: u64,
    piece: &[u8],
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Edge>, MethodError> {
    let split = program.records().split(from, piece);
    let Split { head, tail, .. } = split;
    let mut at = head;
    while at < tail {
        let Some(end) = step_end(program, &piece[..tail], at).filter(|_| goes_on()) else {
            return Ok(None);
        };
        running.feed(from + wide(at), &piece[at..end])?;
        at = end;
    }
    Ok(Some(Edge::of(from, piece, split)))
}

/// The end of the step that begins at byte `at` of whole records; `None` if its first record is too long.
fn step_end(program: &dyn Program, whole: &[u8], at: usize) -> Option<usize> {
    let most = at.saturating_add(program.step_bytes());
    if most >= whole.len() {
        return Some(whole.len());
    }
    let bytes = match program.records() {
        Records::Lines => memchr::memrchr(b'\n', &whole[at..most])? + 1,
        Records::Fixed(bytes) => {
            let bytes = usize::try_from(bytes.max(1)).unwrap_or(usize::MAX);
            (most - at) / bytes * bytes
        }
    };
    (bytes > 0).then_some(at + bytes)
}
