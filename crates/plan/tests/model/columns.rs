//! Runs plan sets on columns in memory: the meaning of every instruction, as a program. For tests, and slow.
//!
//! [`Columns`] keeps what the drives of one segment would keep: the bytes, version and cover of each column's
//! unit in each stripe. The drives' protocol is minimal: a stripe write with a stamp newer than the unit's
//! version is applied, an equal or older one changes nothing (PROTOCOL R1), and everything is settled at
//! once. [`Execution`] runs one plan set, one instruction or step at a time. The caller picks the order among
//! those allowed, so that tests and simulations can try many.

use std::collections::BTreeMap;

use braid_layout::code::Code;
use braid_layout::{Column, ColumnMask, Generation, Role, Segment, Stripe, Version};

use braid_plan::{Instruction, InstructionId, MemoryRange, Op, Operand, PlanSet, Source, Step, VersionOf};

/// The columns of one segment.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    segment: Segment,
    units: BTreeMap<(Column, Stripe), Unit>,
}

/// A unit as its drive keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Content of the unit; its length is the unit size.
    pub(crate) bytes: Vec<u8>,
    /// Version of the last write that was applied; [`Version::ZERO`] if there was none.
    pub(crate) version: Version,
    /// In a parity unit, the version of each data unit counted in; otherwise empty.
    pub(crate) cover: Vec<Version>,
}

/// Error of a run. It does not happen with verified plans and one writer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ModelError {
    /// The reads of a stripe are not of one consistent cut.
    #[error("stripe {}: the reads are not of one cut", stripe.0)]
    Torn {
        /// Stripe whose reads differ.
        stripe: Stripe,
    },
    /// Instructions wait for one another.
    #[error("nothing can go on, and not all is done")]
    Stuck,
}

/// A parity unit that failed a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Stripe of the unit.
    pub(crate) stripe: Stripe,
    /// Index of the parity unit in the stripe.
    pub(crate) parity: u8,
}

impl Columns {
    /// Columns of `segment` that were never written.
    pub(crate) fn new(segment: Segment) -> Columns {
        Columns { segment, units: BTreeMap::new() }
    }

    /// The unit that `column` holds in `stripe`.
    pub(crate) fn unit(&self, column: Column, stripe: Stripe) -> Unit {
        self.units.get(&(column, stripe)).cloned().unwrap_or_else(|| self.empty(column, stripe))
    }

    /// Sets a unit, whatever was there before.
    pub(crate) fn put(&mut self, column: Column, stripe: Stripe, unit: Unit) {
        self.units.insert((column, stripe), unit);
    }

    /// Loses all that `column` holds, as when an empty drive replaces its drive.
    pub(crate) fn lose(&mut self, column: Column) {
        self.units.retain(|(held, _), _| *held != column);
    }

    fn empty(&self, column: Column, stripe: Stripe) -> Unit {
        let covered = match self.segment.role(stripe, column) {
            Role::Data(_) => 0,
            Role::Parity(_) => usize::from(self.segment.shape.k()),
        };
        let bytes = vec![0; length(self.segment.shape.unit_bytes())];
        Unit { bytes, version: Version::ZERO, cover: vec![Version::ZERO; covered] }
    }

    /// Applies a write, as the drive would (R1).
    fn apply(
        &mut self,
        column: Column,
        stripe: Stripe,
        from: u32,
        bytes: &[u8],
        version: Version,
        cover: Vec<Version>,
    ) {
        let mut unit = self.unit(column, stripe);
        if version > unit.version {
            unit.bytes[length(from)..length(from) + bytes.len()].copy_from_slice(bytes);
            unit.version = version;
            unit.cover = cover;
            self.put(column, stripe, unit);
        }
    }
}

/// One plan set being run.
#[derive(Debug, Clone)]
pub(crate) struct Execution<'a> {
    set: &'a PlanSet,
    code: Code,
    scratch: Vec<Vec<u8>>,
    done: Vec<bool>,
    /// Number of each plan's instructions that are done.
    heads: Vec<usize>,
    /// The version and cover that each read returned.
    versions: BTreeMap<InstructionId, (Version, Vec<Version>)>,
    mismatches: Vec<Mismatch>,
}

impl<'a> Execution<'a> {
    /// An execution of `set` of which nothing is done yet.
    pub(crate) fn new(set: &'a PlanSet, segment: &Segment) -> Execution<'a> {
        Execution {
            set,
            code: Code::new(segment.shape),
            scratch: set.scratch.iter().map(|&len| vec![0xee; length(len)]).collect(),
            done: vec![false; set.len()],
            heads: vec![0; set.plans.len()],
            versions: BTreeMap::new(),
            mismatches: Vec::new(),
        }
    }

    /// Runs all that is left; `pick` gets the number of instructions and steps that can run, and chooses one.
    pub(crate) fn finish(
        &mut self,
        columns: &mut Columns,
        buffer: &mut [u8],
        mut pick: impl FnMut(usize) -> usize,
    ) -> Result<Vec<Mismatch>, ModelError> {
        while self.step(columns, buffer, &mut pick)? {}
        Ok(std::mem::take(&mut self.mismatches))
    }

    /// Runs one instruction or step. Returns false if all were done.
    pub(crate) fn step(
        &mut self,
        columns: &mut Columns,
        buffer: &mut [u8],
        mut pick: impl FnMut(usize) -> usize,
    ) -> Result<bool, ModelError> {
        if self.done.iter().all(|done| *done) {
            return Ok(false);
        }
        let ready = |after: &[InstructionId]| after.iter().all(|id| self.done[id.index()]);
        let heads: Vec<(usize, &'a Instruction)> = (0..)
            .zip(&self.set.plans)
            .filter_map(|(at, plan)| Some((at, plan.instructions.get(self.heads[at])?)))
            .filter(|(_, head)| ready(&head.after))
            .collect();
        let steps: Vec<usize> = (0..)
            .zip(&self.set.arithmetic)
            .filter(|(_, step)| !self.done[step.id.index()] && ready(&step.after))
            .map(|(at, _)| at)
            .collect();
        let choices = heads.len() + steps.len();
        if choices == 0 {
            return Err(ModelError::Stuck);
        }
        let choice = pick(choices) % choices;
        let id = match heads.get(choice) {
            Some((plan, instruction)) => {
                self.heads[*plan] += 1;
                self.exchange(columns, buffer, self.set.plans[*plan].column, instruction)?;
                instruction.id
            }
            None => {
                let step = &self.set.arithmetic[steps[choice - heads.len()]];
                self.compute(buffer, step.stripe, &step.step);
                step.id
            }
        };
        self.done[id.index()] = true;
        Ok(true)
    }

    /// Returns true if all reads and steps are done.
    pub(crate) fn has_read(&self) -> bool {
        let reads = self.set.instructions().filter(|(_, i)| !i.op.is_write()).map(|(_, i)| i.id);
        reads.chain(self.set.arithmetic.iter().map(|step| step.id)).all(|id| self.done[id.index()])
    }

    /// Sends every write again under `g`, only to the columns of `set` (PROTOCOL C3), with the bytes in
    /// scratch and the versions read, as [`PlanSet::retarget`] requires.
    pub(crate) fn resend(
        &self,
        columns: &mut Columns,
        buffer: &mut [u8],
        g: Generation,
        set: ColumnMask,
        joining: ColumnMask,
    ) -> Result<(), ModelError> {
        assert!(self.has_read(), "a set is only sent again when its reads and steps are done");
        let mut again = self.set.clone();
        again.retarget(g, set, joining);
        let mut repeat = self.clone();
        for plan in &again.plans {
            for instruction in plan.instructions.iter().filter(|instruction| instruction.op.is_write()) {
                repeat.exchange(columns, buffer, plan.column, instruction)?;
            }
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        columns: &mut Columns,
        buffer: &mut [u8],
        column: Column,
        instruction: &Instruction,
    ) -> Result<(), ModelError> {
        match &instruction.op {
            Op::Read { stripe, from, to, into, .. } => {
                let unit = columns.unit(column, *stripe);
                let bytes = unit.bytes[length(*from)..length(*to)].to_vec();
                self.store(buffer, into, &bytes);
                self.versions.insert(instruction.id, (unit.version, unit.cover));
                self.check_cut(*stripe, &columns.segment)
            }
            Op::Run { .. } => Ok(()),
            Op::StripeWrite { stripe, from, to, bytes, stamp, cover, .. } => {
                let bytes = self.source(buffer, bytes, to - from);
                let stamp = self.version(stamp);
                let cover = cover.iter().map(|v| self.version(v)).collect();
                columns.apply(column, *stripe, *from, &bytes, stamp, cover);
                Ok(())
            }
            Op::UnitWrite { stripe, from, to, bytes, stamp, .. } => {
                let new = self.source(buffer, bytes, to - from);
                self.unit_write(columns, column, *stripe, *from, &new, *stamp);
                Ok(())
            }
        }
    }

    /// Applies the data drive's write and, at once, the deltas that it owes.
    fn unit_write(
        &self,
        columns: &mut Columns,
        column: Column,
        stripe: Stripe,
        from: u32,
        new: &[u8],
        stamp: Option<Version>,
    ) {
        let Role::Data(data) = columns.segment.role(stripe, column) else {
            panic!("a verified unit write is to a data unit")
        };
        let tip = columns.unit(column, stripe);
        let old = &tip.bytes[length(from)..length(from) + new.len()];
        let delta: Vec<u8> = old.iter().zip(new).map(|(a, b)| a ^ b).collect();
        let version = stamp.unwrap_or(Version { n: tip.version.n + 1, ..tip.version });
        columns.apply(column, stripe, from, new, version, Vec::new());
        for index in 0..columns.segment.shape.m() {
            let parity = columns.segment.column(stripe, Role::Parity(index));
            if self.set.set.contains(parity) {
                let mut unit = columns.unit(parity, stripe);
                self.code.add(data, &delta, index, &mut unit.bytes[length(from)..length(from) + new.len()]);
                unit.cover[usize::from(data)] = version;
                unit.version = unit.version.max(version);
                columns.put(parity, stripe, unit);
            }
        }
    }

    /// Checks that all reads of the stripe so far are of one cut, if the strategy needs one.
    fn check_cut(&self, stripe: Stripe, segment: &Segment) -> Result<(), ModelError> {
        let note = self.set.stripes.iter().find(|note| note.stripe == stripe);
        if !note.is_some_and(|note| note.strategy.needs_cut()) {
            return Ok(());
        }
        let mut cut: Vec<Option<Version>> = vec![None; usize::from(segment.shape.k())];
        let mut agree = |data: usize, version: Version| *cut[data].get_or_insert(version) == version;
        for (plan, instruction) in self.set.instructions().filter(|(_, i)| i.op.stripe() == stripe) {
            let Some((version, cover)) = self.versions.get(&instruction.id) else { continue };
            let one = match segment.role(stripe, plan.column) {
                Role::Data(data) => agree(usize::from(data), *version),
                Role::Parity(_) => cover.iter().enumerate().all(|(data, version)| agree(data, *version)),
            };
            if !one {
                return Err(ModelError::Torn { stripe });
            }
        }
        Ok(())
    }

    fn compute(&mut self, buffer: &mut [u8], stripe: Stripe, step: &Step) {
        match step {
            Step::Copy { from, into } => {
                let bytes = self.operand(buffer, from, into.len());
                self.store(buffer, into, &bytes);
            }
            Step::Encode { data, parity } => {
                for (index, location) in parity {
                    let mut bytes = vec![0; length(location.len())];
                    for (unit, operand) in (0..).zip(data) {
                        self.code.add(
                            unit,
                            &self.operand(buffer, operand, location.len()),
                            *index,
                            &mut bytes,
                        );
                    }
                    self.store(buffer, location, &bytes);
                }
            }
            Step::Reconstruct { have, lost } => {
                let size = lost.first().map_or(0, |(_, location)| location.len());
                let have: Vec<(Role, Vec<u8>)> =
                    have.iter().map(|(role, operand)| (*role, self.operand(buffer, operand, size))).collect();
                let have: Vec<(Role, &[u8])> = have.iter().map(|(role, bytes)| (*role, &bytes[..])).collect();
                let mut made = vec![vec![0; length(size)]; lost.len()];
                let mut out: Vec<(Role, &mut [u8])> =
                    lost.iter().zip(&mut made).map(|((role, _), bytes)| (*role, &mut bytes[..])).collect();
                self.code.reconstruct(&have, &mut out).expect("a verified step has k units");
                for ((_, location), bytes) in lost.iter().zip(&made) {
                    self.store(buffer, location, bytes);
                }
            }
            Step::Delta { data, old, new, parity } => {
                for (index, location) in parity {
                    let mut bytes = self.load(buffer, location);
                    self.code.add(*data, &self.operand(buffer, old, location.len()), *index, &mut bytes);
                    self.code.add(*data, &self.operand(buffer, new, location.len()), *index, &mut bytes);
                    self.store(buffer, location, &bytes);
                }
            }
            Step::Compare { parity, stored, computed } => {
                if self.load(buffer, stored) != self.load(buffer, computed) {
                    self.mismatches.push(Mismatch { stripe, parity: *parity });
                }
            }
        }
    }

    fn version(&self, version: &VersionOf) -> Version {
        match version {
            VersionOf::Given(version) => *version,
            VersionOf::Read(read) => self.versions[read].0,
            VersionOf::Cover { read, data } => self.versions[read].1[usize::from(*data)],
            VersionOf::Newest(versions) => {
                versions.iter().map(|version| self.version(version)).max().unwrap_or(Version::ZERO)
            }
        }
    }

    fn source(&self, buffer: &[u8], source: &Source, len: u32) -> Vec<u8> {
        match source {
            Source::MemoryRange(location) => self.load(buffer, location),
            Source::Hole => vec![0; length(len)],
        }
    }

    fn operand(&self, buffer: &[u8], operand: &Operand, len: u32) -> Vec<u8> {
        match operand {
            Operand::MemoryRange(location) => self.load(buffer, location),
            Operand::Zeros => vec![0; length(len)],
        }
    }

    fn load(&self, buffer: &[u8], location: &MemoryRange) -> Vec<u8> {
        match *location {
            MemoryRange::User { offset, len } => {
                let from = usize::try_from(offset).expect("the buffer is in memory");
                buffer[from..from + length(len)].to_vec()
            }
            MemoryRange::Scratch { piece, offset, len } => {
                self.scratch[length(piece)][length(offset)..length(offset) + length(len)].to_vec()
            }
        }
    }

    fn store(&mut self, buffer: &mut [u8], location: &MemoryRange, bytes: &[u8]) {
        match *location {
            MemoryRange::User { offset, .. } => {
                let from = usize::try_from(offset).expect("the buffer is in memory");
                buffer[from..from + bytes.len()].copy_from_slice(bytes);
            }
            MemoryRange::Scratch { piece, offset, .. } => {
                self.scratch[length(piece)][length(offset)..length(offset) + bytes.len()]
                    .copy_from_slice(bytes);
            }
        }
    }
}

fn length(bytes: u32) -> usize {
    usize::try_from(bytes).expect("usize has at least 32 bits")
}
