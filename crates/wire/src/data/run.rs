//! Methods that a drive runs on units that it holds. The drive answers for pieces of units; the records that
//! lie across their ends are put together by the asker.

use braid_layout::Version;

use super::object::Address;
use crate::refusal::Refusal;

/// Pieces of one request at most.
pub const RUN_PIECES_MAX: usize = 1024;
/// Bytes of one piece at most: the drive has one in memory at a time.
pub const RUN_PIECE_BYTES_MAX: u32 = 512 << 10;
/// Bytes of the partial answer and of all ends in one reply, at most.
pub const RUN_ANSWER_BYTES_MAX: usize = 768 << 10;
/// Bytes of a module of a user, at most.
pub const MODULE_BYTES_MAX: u32 = 4 << 20;
/// Bytes of a part of a module, at most.
pub const MODULE_PART_BYTES_MAX: usize = 512 << 10;

record! {
    /// A piece of a unit on which a method is to run.
    pub struct RunPiece {
        /// First byte, counted from the start of the unit.
        from: u32,
        /// One past the last byte: at most 512 KiB further.
        to: u32,
        /// Place of the first byte in the file.
        offset: u64,
    }
}

record! {
    /// An argument of a method.
    pub struct RunArgument {
        /// The argument's name.
        name: String,
        /// Its value, as a text.
        value: String,
    }
}

record! {
    /// Runs a method on pieces of the newest version of units.
    pub struct Run {
        /// The object that holds the units.
        at: Address,
        /// The unit of each piece; 1 to 1024 of them.
        units: Vec<u64>,
        /// The pieces, as many as `units`.
        pieces: Vec<RunPiece>,
        /// Name of the method.
        method: String,
        /// The method's arguments.
        arguments: Vec<RunArgument>,
        /// Bytes of the file.
        size: u64,
        /// Partial answer from which to go on, for a method that must see the file in order; else empty.
        state: Vec<u8>,
    }
}

record! {
    /// The outcome for a piece at a drive.
    pub struct RanPiece {
        /// False if the drive does not answer for the piece: its unit was never written or is damaged, or the
        /// piece's answer is too long. The asker reads it.
        answered: bool,
        /// Version of the unit.
        version: Version,
        /// True if a record ends where the head ends.
        closed: bool,
        /// Bytes up to the first end of a record; all of the piece if there is none.
        head: Vec<u8>,
        /// Bytes behind the last end of a record.
        tail: Vec<u8>,
    }
}

record! {
    /// The answer to a [`Run`].
    pub struct RunReply {
        /// The outcome for the first pieces, at least one. The others are to be asked for again.
        pieces: Vec<RanPiece>,
        /// The method's partial answer for all pieces that were answered; its form is the method's.
        partial: Vec<u8>,
    }
}

record! {
    /// Gives a drive a part of a module of a user, for the method `wasm`. The drive keeps modules in memory
    /// while it has room for them; one that it lacks it refuses to run, with
    /// [`Reason::NoModule`](crate::Reason::NoModule). Parts are given in order; one that the drive has is
    /// taken for given.
    pub struct ModulePart {
        /// An object on whose file the asker may run modules.
        at: Address,
        /// The BLAKE3 hash of the whole module.
        module: [u8; 32],
        /// Bytes of the whole module: at most 4 MiB.
        bytes: u32,
        /// Place of the part's first byte in the module.
        from: u32,
        /// The part: 1 byte to 512 KiB.
        part: Vec<u8>,
    }
}

impl ModulePart {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        let length = self.part.len();
        let end = u32::try_from(length).ok().and_then(|length| self.from.checked_add(length));
        let is_good = (1..=MODULE_PART_BYTES_MAX).contains(&length)
            && self.bytes <= MODULE_BYTES_MAX
            && end.is_some_and(|end| end <= self.bytes);
        if is_good {
            return Ok(());
        }
        Err(Refusal::malformed(format!(
            "a module has at most {MODULE_BYTES_MAX} bytes, and a part of it 1 to {MODULE_PART_BYTES_MAX}"
        )))
    }
}

impl Run {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        if self.units.len() != self.pieces.len() || !(1..=RUN_PIECES_MAX).contains(&self.units.len()) {
            return Err(Refusal::malformed(format!(
                "a method runs on 1 to {RUN_PIECES_MAX} pieces, each of one unit"
            )));
        }
        let is_good =
            |piece: &RunPiece| piece.from < piece.to && piece.to - piece.from <= RUN_PIECE_BYTES_MAX;
        let is_in_file = |piece: &RunPiece| {
            let bytes = u64::from(piece.to.saturating_sub(piece.from));
            piece.offset.checked_add(bytes).is_some_and(|end| end <= self.size)
        };
        if !self.pieces.iter().all(is_good) {
            return Err(Refusal::malformed(format!(
                "a piece on which a method runs has 1 to {RUN_PIECE_BYTES_MAX} bytes"
            )));
        }
        if let Some(piece) = self.pieces.iter().find(|piece| !is_in_file(piece)) {
            return Err(Refusal::malformed(format!(
                "the piece at byte {} of the file goes past its {} bytes",
                piece.offset, self.size
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::{ObjectId, PartitionId};

    use super::*;

    #[test]
    fn pieces_lie_in_their_file() {
        let run = |offset: u64, size: u64| Run {
            at: Address { partition: PartitionId(1), object: ObjectId(1) },
            units: vec![0],
            pieces: vec![RunPiece { from: 4096, to: 8192, offset }],
            method: "count".to_owned(),
            arguments: Vec::new(),
            size,
            state: Vec::new(),
        };
        assert_eq!(run(904, 5000).check_form(), Ok(()));
        assert!(run(905, 5000).check_form().is_err());
        assert!(run(u64::MAX - 100, u64::MAX).check_form().is_err());
    }
}
