//! A batch of moves: appended to the log as one commit, in a segment that holds nothing else.

use std::sync::mpsc::SyncSender;

use bytes::Bytes;

use super::gather::{MoveRun, Owner};
use crate::crc::verify_blocks;
use crate::error::Error;
use crate::format::body::move_body;
use crate::format::record::{Kind, Record};
use crate::index::Index;
use crate::index::extent::Few;
use crate::segments::log::Entry;
use crate::stored_extent::{self, Stored, ViewExtent, Whose};

/// Verified bytes to be written at a new place.
#[derive(Debug)]
pub(crate) struct Move {
    run: MoveRun,
    payload: Bytes,
    crcs: Vec<u32>,
}

/// A batch of moves for the committer. An empty one only begins a new segment.
#[derive(Debug)]
pub(crate) struct MoveBatch {
    pub(crate) moves: Vec<Move>,
    pub(crate) reply: SyncSender<Result<u64, Error>>,
}

impl Move {
    /// Read and verify `run`. A block that stays whole keeps its writer's checksum. Where pieces meet inside
    /// a block, both are verified before a new checksum is made.
    pub(crate) fn read(run: &MoveRun, stored: Few<Stored>, salt: u64) -> Result<Move, Error> {
        let Owner { partition, object, unit, .. } = run.owner;
        let parts = stored_extent::load(stored, Whose { salt, partition, object, unit }, None)?;
        let range = ViewExtent::Stored { from: run.from(), to: run.to() };
        let crcs = stored_extent::block_crcs(&parts, &[range])?.into_vec();
        let mut payload = Vec::with_capacity(usize::try_from(run.bytes()).expect("at most a unit"));
        stored_extent::read_parts(&parts, &mut payload)?;
        verify_blocks(run.from(), &payload, &crcs).map_err(|at| damaged(run, at))?;
        Ok(Move { run: run.clone(), payload: payload.into(), crcs })
    }

    /// The move's record and payload, or `None` if none of its bytes is in its old place any more.
    pub(crate) fn into_entry(self, index: &Index) -> Option<Entry> {
        if !self.run.is_there(index) {
            return None;
        }
        let mut record = Record::new(Kind::Move);
        let owner = self.run.owner;
        (record.partition, record.object, record.birth) = (owner.partition, owner.object, owner.birth);
        (record.unit, record.units) = (owner.unit, 1);
        (record.from, record.to) = (self.run.from(), self.run.to());
        record.payload_bytes = record.to - record.from;
        record.crcs = self.crcs;
        record.inline = move_body(&self.run.pieces);
        Some((record, self.payload))
    }
}

/// The error for the unit's byte `at`, which is in one of the run's pieces.
fn damaged(run: &MoveRun, at: u32) -> Error {
    let piece = run.pieces.iter().find(|piece| piece.to > at).or(run.pieces.last());
    let (segment, block) = piece.map_or((0, 0), |piece| (piece.segment, piece.block));
    Error::Damaged {
        segment: u64::from(segment),
        offset: u64::from(block) * crate::format::LOG_BLOCK_U64,
        what: "a stored block does not match its checksum",
    }
}
