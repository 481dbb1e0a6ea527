//! Templates: the read of a short piece, compiled and verified once and then used for every read of the same
//! class.
//!
//! A template applies to all reads of one class: reads of the same number of bytes, of the same data unit, in
//! stripes whose columns have the same roles, with the same columns to read from. Their plan sets are alike:
//! only the stripe and the place in the unit differ, and the range moves with them. So a template is compiled
//! where the first read of its class lies, is verified there, and is moved for the others. Tests compare the
//! result with a compiled one.
//!
//! Only a plan set of one read is moved. Compiling and verifying other sets takes little of the time: 5 us
//! for a degraded read that asks four drives, 4 us for a write of one unit.

use std::ops::Range;

use braid_layout::{Column, Piece, Segment, Stripe};

use crate::compile;
use crate::ir::{Op, PlanSet, Want};
use crate::request::{Health, PlanError, Target};
use crate::verify::{Violation, verify};

/// Properties that two reads in one segment must have in common to use the same template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// Stripe index modulo the number of columns: stripes with the same value have the same roles.
    turn: u64,
    /// Index of the data unit in the stripe.
    data: u8,
    bytes: u32,
    health: Health,
}

/// A read's class, and the place of the read in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Class of the read.
    pub class: Class,
    /// The first byte in the file.
    offset: u64,
    stripe: Stripe,
    /// The first byte in the unit.
    from: u32,
}

/// A verified plan set for all reads of a class.
#[derive(Debug, Clone)]
pub struct Template {
    made_for: Placed,
    set: PlanSet,
}

/// A read of part of one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitRead {
    /// The unit's stripe.
    pub stripe: Stripe,
    /// The first byte in the unit.
    pub from: u32,
    /// One past the last byte.
    pub to: u32,
    /// Version to read.
    pub want: Want,
}

/// Reason that there is no template for a read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The read cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The verifier refuses the plan set.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Violations(Vec<Violation>),
}

impl Placed {
    /// The class and place of a read of these bytes; `None` if they are not in one data unit of the segment.
    pub fn of(segment: &Segment, health: Health, range: &Range<u64>) -> Option<Placed> {
        if range.start >= range.end || range.start < segment.start || range.end > segment.end {
            return None;
        }
        let Piece { stripe, data, from, to, .. } = segment.pieces(range.clone()).next()?;
        if u64::from(to - from) != range.end - range.start {
            return None;
        }
        let turn = stripe.0 % u64::from(segment.shape.width());
        let class = Class { turn, data, bytes: to - from, health };
        Some(Placed { class, offset: range.start, stripe, from })
    }

    fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.class.bytes)
    }
}

impl Template {
    /// Compiles and verifies the template of a read's class. `compile` is [`read`](compile::read), into the
    /// beginning of the buffer, of the newest versions.
    pub fn new(target: &Target<'_>, placed: Placed) -> Result<Template, TemplateError> {
        let set = compile::read(target, placed.range(), 0, Want::Newest)?;
        verify(&set, target.segment).map_err(TemplateError::Violations)?;
        Ok(Template { made_for: placed, set })
    }

    /// Returns true if the template is for reads of this class.
    pub fn is_of(&self, class: &Class) -> bool {
        self.made_for.class == *class
    }

    /// The read's only instruction, if its plan set has no other and no step: it brings all bytes, to the
    /// beginning of the buffer.
    pub fn only_read(&self, placed: &Placed) -> Option<(Column, UnitRead)> {
        assert!(self.is_of(&placed.class), "{placed:?} is of another class than {:?}", self.made_for);
        let (plan, only) = self.set.instructions().next().filter(|_| self.set.len() == 1)?;
        let Op::Read { from, to, want, .. } = only.op else { return None };
        let read = UnitRead {
            stripe: placed.stripe,
            from: self.moved(placed, from),
            to: self.moved(placed, to),
            want,
        };
        Some((plan.column, read))
    }

    /// Moves a byte offset in the template's unit to where the read is.
    fn moved(&self, placed: &Placed, at: u32) -> u32 {
        at - self.made_for.from + placed.from
    }
}
