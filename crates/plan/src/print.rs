//! The printed form of a plan set, shown to users by `braid plan`.
//!
//! ```text
//! write 0..10 from buffer[0..10], size 0, reach 0, stamp 1.1.1      what was asked
//! segment 0, g1, set {0,1,2}, joining {}, away {}                   under which state
//! stripe 0: full stripe                                             how each stripe is done
//! column 0, drive 000000d0, object 7
//!   0 write stripe 0 [0..10] from buffer[0..10] stamp 1.1.1 columns {0,2}
//! column 2, drive 000000d2, object 7
//!   1 write stripe 0 [0..10] from scratch0[0..10] stamp 1.1.1 columns {0,2} cover stamp,zero after 2
//! client
//!   2 encode stripe 0 [0..10] buffer[0..10], zeros -> parity 0 scratch0[0..10]
//! totals
//!   column 0: 0 bytes in 0 reads, 10 bytes in 1 writes
//!   column 2: 0 bytes in 0 reads, 10 bytes in 1 writes
//!   all: 0 bytes read, 10 bytes written, 10 bytes of scratch, 1 round trips
//! ```
//!
//! An instruction or step begins with its id; `after` names the ids that it waits for. A range in brackets is
//! of bytes in the unit. A cover has one entry per data unit: `stamp` is the write's own version, `zero`
//! means never written, `@4` is the version that read 4 returned, `@4:1` is the version of data unit 1 in the
//! cover that read 4 returned.

use std::fmt;
use std::ops::Range;

use braid_layout::{Role, Version};

use crate::compile::Way;
use crate::ir::{
    Arithmetic, Instruction, InstructionId, MemoryRange, Op, Operand, Plan, PlanSet, Source, Step, Strategy,
    VersionOf, Want,
};
use crate::request::{Body, Request};

impl fmt::Display for PlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.request)?;
        let PlanSet { segment, g, set, joining, away, .. } = self;
        writeln!(f, "segment {segment}, {g}, set {set}, joining {joining}, away {away}")?;
        for alike in self.stripes.chunk_by(|a, b| a.strategy == b.strategy && a.stripe.0 + 1 == b.stripe.0) {
            let first = alike[0];
            let last = alike[alike.len() - 1];
            match alike.len() {
                1 => writeln!(f, "stripe {}: {}", first.stripe.0, first.strategy)?,
                _ => writeln!(f, "stripes {}..{}: {}", first.stripe.0, last.stripe.0 + 1, first.strategy)?,
            }
        }
        self.plans.iter().try_for_each(|plan| write!(f, "{plan}"))?;
        if !self.arithmetic.is_empty() {
            writeln!(f, "client")?;
        }
        self.arithmetic.iter().try_for_each(|step| writeln!(f, "  {step}"))?;
        self.print_totals(f)
    }
}

impl PlanSet {
    fn print_totals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let totals = self.totals();
        writeln!(f, "totals")?;
        for c in &totals.columns {
            let column = c.column;
            let reads = c.reads;
            let writes = c.writes;
            let read = c.read_bytes;
            let written = c.written_bytes;
            if c.run_bytes > 0 {
                let run = c.run_bytes;
                let answer = c.answer_bytes;
                writeln!(f, "  column {column}: a method runs on {run} bytes and answers about {answer}")?;
            }
            if reads + writes > 0 {
                writeln!(
                    f,
                    "  column {column}: {read} bytes in {reads} reads, {written} bytes in {writes} writes"
                )?;
            }
        }
        let read = totals.read_bytes();
        let written = totals.written_bytes();
        let scratch = totals.scratch_bytes;
        let trips = totals.round_trips;
        writeln!(
            f,
            "  all: {read} bytes read, {written} bytes written, {scratch} bytes of scratch, {trips} round trips"
        )
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Way { strategy, client_bytes, drive_bytes, round_trips } = self;
        write!(f, "{strategy}: {client_bytes} bytes on the client's link, ")?;
        write!(f, "{drive_bytes} between drives, {round_trips} round trips")
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "column {}, drive {}, object {}", self.column, self.drive.short(), self.object)?;
        self.instructions.iter().try_for_each(|instruction| writeln!(f, "  {instruction}"))
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.id)?;
        match &self.op {
            Op::Read { stripe, from, to, into, want } => {
                write!(f, "read stripe {} [{from}..{to}] into {into}", stripe.0)?;
                if *want == Want::Settled {
                    f.write_str(" settled")?;
                }
            }
            Op::Run { stripe, from, to, answer } => {
                write!(f, "run stripe {} [{from}..{to}] answer about {answer} bytes", stripe.0)?;
            }
            Op::StripeWrite { stripe, from, to, bytes, stamp, columns, cover } => {
                write!(
                    f,
                    "write stripe {} [{from}..{to}] {bytes} stamp {stamp} columns {columns}",
                    stripe.0
                )?;
                for (i, version) in cover.iter().enumerate() {
                    f.write_str(if i == 0 { " cover " } else { "," })?;
                    if version == stamp && matches!(stamp, VersionOf::Given(_)) {
                        f.write_str("stamp")?;
                    } else {
                        write!(f, "{version}")?;
                    }
                }
            }
            Op::UnitWrite { stripe, from, to, bytes, operation, stamp } => {
                write!(f, "unit write stripe {} [{from}..{to}] {bytes} operation {operation}", stripe.0)?;
                if let Some(stamp) = stamp {
                    write!(f, " stamp {stamp}")?;
                }
            }
        }
        print_after(f, &self.after)
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.step {
            Step::Copy { .. } => "copy",
            Step::Encode { .. } => "encode",
            Step::Reconstruct { .. } => "reconstruct",
            Step::Delta { .. } => "delta",
            Step::Compare { .. } => "compare",
        };
        write!(f, "{} {verb} stripe {} [{}..{}] ", self.id, self.stripe.0, self.from, self.to)?;
        match &self.step {
            Step::Copy { from, into } => write!(f, "{from} -> {into}")?,
            Step::Encode { data, parity } => {
                print_list(f, data.iter().map(|operand| operand.to_string()))?;
                f.write_str(" -> ")?;
                print_list(f, parity.iter().map(|(index, location)| format!("parity {index} {location}")))?;
            }
            Step::Reconstruct { have, lost } => {
                print_list(f, have.iter().map(|(role, operand)| format!("{} {operand}", Named(*role))))?;
                f.write_str(" -> ")?;
                print_list(f, lost.iter().map(|(role, location)| format!("{} {location}", Named(*role))))?;
            }
            Step::Delta { data, old, new, parity } => {
                write!(f, "data {data}: {old} to {new} -> ")?;
                print_list(f, parity.iter().map(|(index, location)| format!("parity {index} {location}")))?;
            }
            Step::Compare { parity, stored, computed } => {
                write!(f, "parity {parity}: {stored} with {computed}")?;
            }
        }
        print_after(f, &self.after)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Read { range, buffer } => {
                write!(f, "read {} into {}", Span(range), in_buffer(*buffer, range))
            }
            Request::Write(write) => {
                let range = &write.range;
                write!(f, "write {} ", Span(range))?;
                match write.body {
                    Body::Buffer { offset } => write!(f, "from {}", in_buffer(offset, range))?,
                    Body::Zeros => f.write_str("as a hole")?,
                }
                write!(f, ", size {}, reach ", write.size)?;
                match write.reach {
                    u64::MAX => f.write_str("unknown")?,
                    reach => write!(f, "{reach}")?,
                }
                write!(f, ", stamp {}", write.stamp)
            }
            Request::Rebuild { stripes, columns } => {
                write!(f, "rebuild columns {columns} of stripes {}", Span(stripes))
            }
            Request::Run { range, buffer } => {
                write!(f, "run on {}, the rest into {}", Span(range), in_buffer(*buffer, range))
            }
            Request::Check { stripes } => write!(f, "check stripes {}", Span(stripes)),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Strategy::Direct => "direct",
            Strategy::Copy => "from a copy",
            Strategy::Degraded => "degraded",
            Strategy::FullStripe => "full stripe",
            Strategy::ReconstructWrite => "reconstruct-write",
            Strategy::ReadModifyWrite => "read-modify-write",
            Strategy::DataOnly => "data only",
            Strategy::UnitWrites => "unit writes",
            Strategy::AtDrives => "at the drives",
            Strategy::Rebuild => "rebuild",
            Strategy::Check => "check",
        })
    }
}

impl fmt::Display for InstructionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for MemoryRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            MemoryRange::User { offset, len } => write!(f, "buffer[{offset}..{}]", offset + u64::from(len)),
            MemoryRange::Scratch { piece, offset, len } => {
                write!(f, "scratch{piece}[{offset}..{}]", u64::from(offset) + u64::from(len))
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::MemoryRange(location) => write!(f, "from {location}"),
            Source::Hole => f.write_str("as a hole"),
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::MemoryRange(location) => write!(f, "{location}"),
            Operand::Zeros => f.write_str("zeros"),
        }
    }
}

impl fmt::Display for VersionOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionOf::Given(version) if *version == Version::ZERO => f.write_str("zero"),
            VersionOf::Given(version) => write!(f, "{version}"),
            VersionOf::Read(read) => write!(f, "@{read}"),
            VersionOf::Cover { read, data } => write!(f, "@{read}:{data}"),
            VersionOf::Newest(versions) => {
                f.write_str("newest(")?;
                for (i, version) in versions.iter().enumerate() {
                    write!(f, "{}{version}", if i == 0 { "" } else { "," })?;
                }
                f.write_str(")")
            }
        }
    }
}

/// A role in words.
struct Named(Role);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Role::Data(index) => write!(f, "data {index}"),
            Role::Parity(index) => write!(f, "parity {index}"),
        }
    }
}

/// A range as `from..to`.
struct Span<'a>(&'a Range<u64>);

impl fmt::Display for Span<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.0.start, self.0.end)
    }
}

fn in_buffer(offset: u64, range: &Range<u64>) -> String {
    format!("buffer[{offset}..{}]", offset.saturating_add(range.end.saturating_sub(range.start)))
}

fn print_list(f: &mut fmt::Formatter<'_>, mut items: impl Iterator<Item = String>) -> fmt::Result {
    if let Some(first) = items.next() {
        f.write_str(&first)?;
    }
    items.try_for_each(|item| write!(f, ", {item}"))
}

fn print_after(f: &mut fmt::Formatter<'_>, after: &[InstructionId]) -> fmt::Result {
    for (i, id) in after.iter().enumerate() {
        write!(f, "{}{id}", if i == 0 { " after " } else { "," })?;
    }
    Ok(())
}
