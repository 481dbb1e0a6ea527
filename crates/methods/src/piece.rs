//! One piece of a file: what of it is fed to a method, and what is left for the seams.

use crate::program::{MethodError, Program, Running};
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
        let at = from + crate::records::wide(split.head);
        running.feed(at, &piece[split.head..split.tail])?;
    }
    Ok(Edge::of(from, piece, split))
}
