//! Rebuilds: whole units of joining columns, made from `k` readable units of their stripe.
//!
//! A rebuilt unit is installed under the version that the cut names, not under a new stamp, so that a
//! catch-up that starts again finds what it has done. A data unit gets its version in a parity unit's cover;
//! a parity unit gets the cover that was read, and the newest version in it. The `columns` of the write are
//! the unit's own column only, as no other column has to have the write.

use std::ops::Range;

use braid_layout::{ColumnMask, Role, Stripe};

use super::draft::Draft;
use super::gather::Gather;
use crate::ir::{InstructionId, MemoryRange, Op, PlanSet, Source, Strategy, VersionOf, Want};
use crate::request::{PlanError, Request, Target};

/// Rebuilds the units of `stripes` on `columns`, which must be joining.
pub fn rebuild(target: &Target<'_>, stripes: Range<u64>, columns: ColumnMask) -> Result<PlanSet, PlanError> {
    target.check_stripes(&stripes)?;
    if let Some(column) = columns.minus(target.health.joining).iter().next() {
        return Err(PlanError::NotJoining { column });
    }
    let drafts = stripes.clone().map(Stripe).map(|stripe| draft(target, stripe, columns));
    target.finish(Request::Rebuild { stripes, columns }, drafts)
}

fn draft(target: &Target<'_>, stripe: Stripe, columns: ColumnMask) -> Result<Draft, PlanError> {
    let mut draft = Draft::new(stripe, Strategy::Rebuild);
    let mut gather = Gather::default();
    let whole = 0..target.unit();
    let lost: Vec<Role> = target
        .data()
        .chain(target.parity())
        .filter(|&role| columns.contains(target.column(stripe, role)))
        .collect();
    if lost.is_empty() {
        return Ok(draft);
    }
    let made: Vec<(Role, MemoryRange, Vec<InstructionId>)> = if target.segment.shape.scheme().is_mirror() {
        let other = target.data().chain(target.parity()).find(|&role| target.readable(stripe, role));
        let other = other.ok_or_else(|| target.too_few(stripe, target.health.readable()))?;
        let location = draft.scratch(&whole);
        let id = gather.read(target, &mut draft, other, &whole, location, Want::Newest);
        lost.iter().map(|&role| (role, location, vec![id])).collect()
    } else {
        let wanted: Vec<_> = lost.iter().map(|&role| (role, whole.clone(), draft.scratch(&whole))).collect();
        gather.reconstruct(target, &mut draft, &wanted, Want::Newest)?;
        let steps = |role| gather.known.iter().filter(move |known| known.role == role).map(|known| known.id);
        wanted.into_iter().map(|(role, _, location)| (role, location, steps(role).collect())).collect()
    };
    for (role, location, mut after) in made {
        after.extend(draft.reads());
        let (stamp, cover) = versions(target, &gather, role);
        let column = target.column(stripe, role);
        let op = Op::StripeWrite {
            stripe,
            from: whole.start,
            to: whole.end,
            bytes: Source::MemoryRange(location),
            stamp,
            columns: ColumnMask::EMPTY.with(column),
            cover,
        };
        draft.instruction(column, after, op);
    }
    Ok(draft)
}

/// The version and cover of the rebuilt unit `role`.
fn versions(target: &Target<'_>, gather: &Gather, role: Role) -> (VersionOf, Vec<VersionOf>) {
    let version = |data: u8| match (gather.read_of(Role::Data(data)), gather.parity_read()) {
        (Some(read), _) => VersionOf::Read(read),
        (None, Some(read)) => VersionOf::Cover { read, data },
        (None, None) => unreachable!("k units without data unit {data} have a parity unit among them"),
    };
    match role {
        Role::Data(data) => (version(data), Vec::new()),
        Role::Parity(_) => {
            let cover: Vec<VersionOf> = (0..target.segment.shape.k()).map(version).collect();
            (VersionOf::Newest(cover.clone()), cover)
        }
    }
}
