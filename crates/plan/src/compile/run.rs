//! Runs of methods: each unit is answered for by the drive that holds it; what no drive can answer for is
//! read, as a read does it, and left to the client.

use std::ops::Range;

use braid_layout::{Piece, Role, Stripe};

use super::draft::Draft;
use super::read;
use crate::ir::{MemoryRange, Op, PlanSet, Strategy, Want};
use crate::request::{PlanError, Request, Target};

/// The cost of a method, as a guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodCost {
    /// Bytes of the answer for each 1,000 bytes of the file.
    pub answer_permille: u64,
    /// Time of a processor for each byte, in picoseconds.
    pub byte_ps: u64,
    /// True if the method must see the file from the first byte to the last, a piece at a time.
    pub is_sequential: bool,
}

/// The facts about the places where a method may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunSite {
    /// Bytes a second of the client's link to the drives.
    pub link_bytes_per_second: u64,
    /// Time of a round trip to a drive, in nanoseconds.
    pub round_trip_ns: u64,
    /// Bytes of a piece that a drive answers for at a time.
    pub piece_bytes: u64,
}

/// The cost of one way to run a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunCost {
    /// Bytes on the client's link.
    pub moved_bytes: u64,
    /// Time that it takes, in nanoseconds: of what is slowest.
    pub time_ns: u64,
}

/// The two ways to run a method, and what they cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunWays {
    /// At the drives, as far as they can answer.
    pub drives: RunCost,
    /// At the client, which reads all.
    pub client: RunCost,
}

impl RunWays {
    /// Returns true if the drives are the cheaper way. Where both take the same time, fewer bytes move.
    pub fn is_at_drives(&self) -> bool {
        let cost = |way: &RunCost| (way.time_ns, way.moved_bytes);
        cost(&self.drives) < cost(&self.client)
    }
}

/// Runs a method on the bytes `range` of the file. What is left to the client goes into its buffer, from its
/// byte `buffer` on. The caller has cut `range` at the file's size. `permille`: bytes of the answer that are
/// expected for each 1,000 bytes.
pub fn run(target: &Target<'_>, range: Range<u64>, buffer: u64, permille: u64) -> Result<PlanSet, PlanError> {
    let stripes = target.check_range(&range)?;
    let mut pieces = target.segment.pieces(range.clone()).peekable();
    let drafts = stripes.map(Stripe).map(|stripe| {
        let mut own = Vec::new();
        let mut left = Vec::new();
        while let Some(piece) = pieces.next_if(|piece| piece.stripe == stripe) {
            let offset = buffer + (piece.file_offset - range.start);
            let location = MemoryRange::User { offset, len: piece.len() };
            if target.readable(stripe, Role::Data(piece.data)) {
                own.push(piece);
            } else {
                left.push((piece, location));
            }
        }
        let mut draft = if left.is_empty() {
            Draft::new(stripe, Strategy::AtDrives)
        } else {
            read::draft(target, stripe, &left, Want::Newest)?
        };
        own.iter().for_each(|piece| add(target, &mut draft, piece, permille));
        Ok(draft)
    });
    target.finish(Request::Run { range: range.clone(), buffer }, drafts)
}

fn add(target: &Target<'_>, draft: &mut Draft, piece: &Piece, permille: u64) {
    let column = target.column(draft.stripe, Role::Data(piece.data));
    let answer = u64::from(piece.len()).saturating_mul(permille).div_ceil(1000);
    let answer = u32::try_from(answer).unwrap_or(u32::MAX);
    let op = Op::Run { stripe: draft.stripe, from: piece.from, to: piece.to, answer };
    draft.instruction(column, Vec::new(), op);
}

/// The costs of a method at the drives of this plan set and at the client.
pub fn run_ways(set: &PlanSet, cost: MethodCost, site: &RunSite) -> RunWays {
    let totals = set.totals();
    let link_ns = |bytes: u64| scaled(bytes, 1_000_000_000, site.link_bytes_per_second.max(1));
    let work_ns = |bytes: u64| scaled(bytes, cost.byte_ps, 1000);
    let here = totals.read_bytes();
    let there: u64 = totals.columns.iter().map(|column| column.run_bytes).sum();
    let slowest = totals.columns.iter().map(|column| column.run_bytes).max().unwrap_or(0);
    let answers = totals.columns.iter().map(|column| column.answer_bytes).sum::<u64>();
    let moved_bytes = here + answers;
    let rounds = there.div_ceil(site.piece_bytes.max(1));
    let time_ns = if cost.is_sequential {
        // A piece after another, each with a round trip.
        rounds.saturating_mul(site.round_trip_ns).saturating_add(work_ns(there))
    } else {
        site.round_trip_ns.saturating_add(work_ns(slowest).max(link_ns(moved_bytes)).max(work_ns(here)))
    };
    let drives = RunCost { moved_bytes, time_ns };
    let all = here + there;
    let time_ns = site.round_trip_ns.saturating_add(link_ns(all).max(work_ns(all)));
    RunWays { drives, client: RunCost { moved_bytes: all, time_ns } }
}

fn scaled(number: u64, by: u64, per: u64) -> u64 {
    let scaled = u128::from(number) * u128::from(by) / u128::from(per.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
