//! The check of a file: every unit and parity unit is read, and parity is made anew and compared. Memory is bounded by the
//! plan sets under way, and the report by [`FINDINGS_MAX`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use braid_layout::{Column, Role, Stripe};
use braid_plan::Target;
use braid_wire::Reason;

use crate::buffers::User;
use crate::client::Client;
use crate::error::Result;
use crate::exchange::Failure;
use crate::faults::{Learnt, Remedy};
use crate::handle::Handle;
use crate::join;
use crate::name::Name;
use crate::open::{self, OpenOptions};
use crate::read::Patience;
use crate::run::{Failed, Run};

/// Most findings listed; the others are counted.
pub const FINDINGS_MAX: usize = 1000;

/// What a check found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Stripes looked at.
    pub stripes: u64,
    /// Units read, data and parity.
    pub units: u64,
    /// Bytes read.
    pub bytes: u64,
    /// What does not match, in the order of segments and stripes.
    pub findings: Vec<Finding>,
    /// Findings past the first [`FINDINGS_MAX`].
    pub more: u64,
    /// Columns that could not be checked: away, stale, or being rebuilt. By segment and column.
    pub unchecked: Vec<Unchecked>,
}

/// A unit that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The segment's index.
    pub segment: usize,
    /// The stripe.
    pub stripe: u64,
    /// The column that holds the unit.
    pub column: Column,
    /// Its drive's name.
    pub drive: String,
    /// What the column holds in this stripe.
    pub role: Role,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Its bytes do not match their checksum: at its drive, or on the way, from this byte of the unit on.
    Damaged(String),
    /// It is whole, but not the parity of its stripe's data; from this byte of the unit on.
    ParityMismatch {
        /// First byte that differs.
        at: u32,
    },
    /// The columns of the stripe name different versions of its data, and go on doing so.
    VersionsDiffer,
}

/// A column that could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unchecked {
    /// The segment's index.
    pub segment: usize,
    /// The column.
    pub column: Column,
    /// Its drive's name.
    pub drive: String,
    /// Why.
    pub why: String,
}

impl Report {
    /// Whether every unit was there and right.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.more == 0 && self.unchecked.is_empty()
    }
}

/// What the sets under way report to.
struct Sink<F> {
    report: Report,
    /// Columns found away, with why.
    away: BTreeMap<(usize, Column), String>,
    progress: F,
}

impl Client {
    /// Checks every stripe of a file; `progress` is called with the report so far after every plan set.
    pub async fn check(&self, name: &Name, progress: impl FnMut(&Report) + Send) -> Result<Report> {
        let file = self.open(name, &OpenOptions::new().read(true)).await?;
        let handle = file.handle();
        let end = open::reach(handle).await?.min(file.size());
        let sink = Mutex::new(Sink { report: Report::default(), away: BTreeMap::new(), progress });
        let view = handle.view();
        for (segment, place) in view.layout.segments().iter().enumerate() {
            let columns = &view.segments[segment];
            for (column, row) in (0..).map(Column).zip(&columns.columns) {
                let why = if !columns.set.contains(column) {
                    "it was away during writes and is stale until it is rebuilt"
                } else if columns.joining.contains(column) {
                    "it is being rebuilt"
                } else {
                    continue;
                };
                let unchecked = Unchecked { segment, column, drive: row.name.clone(), why: why.to_owned() };
                sink.lock().expect("no holder panics").report.unchecked.push(unchecked);
            }
            if place.start >= end {
                continue;
            }
            let last = place.stripe_at(end.min(place.end) - 1).0;
            let step = handle.stripes_per_set(&view, segment);
            let starts = (0..=last).step_by(usize::try_from(step).unwrap_or(usize::MAX));
            let checks = starts.map(|first| {
                let (stripes, sink) = (first..(first + step).min(last + 1), &sink);
                async move {
                    let _permit = self.set_permit().await;
                    check_stripes(handle, segment, stripes, sink).await
                }
            });
            join::windowed(self.config().sets_per_request, checks).await?;
        }
        let sink = sink.into_inner().expect("no holder panics");
        let mut report = sink.report;
        report.unchecked.extend(sink.away.into_iter().map(|((segment, column), why)| {
            let drive = view.segments[segment].columns[column.index()].name.clone();
            Unchecked { segment, column, drive, why }
        }));
        report.unchecked.sort_by_key(|unchecked| (unchecked.segment, unchecked.column));
        report.findings.sort_by_key(|finding| (finding.segment, finding.stripe, finding.column));
        Ok(report)
    }
}

async fn check_stripes<F: FnMut(&Report) + Send>(
    handle: &Handle,
    segment: usize,
    stripes: std::ops::Range<u64>,
    sink: &Mutex<Sink<F>>,
) -> Result<()> {
    let mut patience = Patience::new(handle);
    let mut todo = vec![(stripes.clone(), Learnt::default())];
    while let Some((part, mut learnt)) = todo.pop() {
        let view = handle.view();
        let compile = |target: &Target<'_>| braid_plan::check(target, part.clone());
        let Some(set) = handle.compile_with(&view, segment, &learnt, compile)? else {
            handle.wait_for_columns(&view, segment, part.clone(), "read", &mut learnt, &mut patience).await?;
            todo.push((part, learnt));
            continue;
        };
        let mut run = Run::new(handle, &view, set, User::Nothing)?;
        let failed = match run.read().await {
            Err(crate::Error::Torn { stripe, .. }) if part.end - part.start == 1 => {
                let finding = finding(&run, segment, Stripe(stripe), Role::Parity(0), Fault::VersionsDiffer);
                sink.lock().expect("no holder panics").find(finding);
                continue;
            }
            // Which stripe it is, and whether it stays so, shows when each is looked at by itself.
            Err(crate::Error::Torn { .. }) => {
                todo.extend(part.map(|stripe| (stripe..stripe + 1, learnt.clone())));
                continue;
            }
            other => other?,
        };
        let without: BTreeSet<Stripe> = failed.iter().map(|one| one.stripe).collect();
        let unequal = run.compute(&without)?;
        let remedy = {
            let mut sink = sink.lock().expect("no holder panics");
            sink.count(&run, &without);
            for one in unequal {
                let fault = Fault::ParityMismatch { at: one.at };
                sink.find(finding(&run, segment, one.stripe, Role::Parity(one.parity), fault));
            }
            sink.note(&run, segment, &failed, &learnt, &mut todo)
        };
        handle.mend(&view, remedy, &mut patience).await?;
    }
    Ok(())
}

fn finding(run: &Run<'_>, segment: usize, stripe: Stripe, role: Role, fault: Fault) -> Finding {
    let column = run.view.layout.segments()[segment].column(stripe, role);
    let drive = run.view.segments[segment].columns[column.index()].name.clone();
    Finding { segment, stripe: stripe.0, column, drive, role, fault }
}

impl<F: FnMut(&Report)> Sink<F> {
    fn find(&mut self, finding: Finding) {
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(finding);
        } else {
            self.report.more += 1;
        }
    }

    /// Counts the stripes whose reads all came.
    fn count(&mut self, run: &Run<'_>, without: &BTreeSet<Stripe>) {
        let notes = run.set.stripes.iter().filter(|note| !without.contains(&note.stripe));
        self.report.stripes += u64::try_from(notes.count()).unwrap_or(u64::MAX);
        for (_, instruction) in run.set.instructions().filter(|(_, i)| !without.contains(&i.op.stripe())) {
            let range = instruction.op.range();
            self.report.units += 1;
            self.report.bytes += u64::from(range.end - range.start);
        }
        (self.progress)(&self.report);
    }

    /// Takes failed reads into account: damage is found, what passes is asked again, the rest is away. The stripes concerned
    /// are looked at again without these columns.
    fn note(
        &mut self,
        run: &Run<'_>,
        segment: usize,
        failed: &[Failed],
        learnt: &Learnt,
        todo: &mut Vec<(std::ops::Range<u64>, Learnt)>,
    ) -> Remedy {
        let mut stripes: BTreeMap<Stripe, Learnt> = BTreeMap::new();
        let mut remedy = Remedy::Without;
        for one in failed {
            let own = stripes.entry(one.stripe).or_insert_with(|| learnt.clone());
            match own.note(one) {
                Remedy::Refresh => remedy = Remedy::Refresh,
                Remedy::Again if remedy != Remedy::Refresh => remedy = Remedy::Again,
                _ => {}
            }
            if !own.away().contains(one.column) {
                continue;
            }
            let role = run.view.layout.segments()[segment].role(one.stripe, one.column);
            if is_damage(&one.failure) {
                let fault = Fault::Damaged(one.failure.to_string());
                self.find(finding(run, segment, one.stripe, role, fault));
            } else {
                self.away.entry((segment, one.column)).or_insert_with(|| one.failure.to_string());
            }
        }
        todo.extend(stripes.into_iter().map(|(stripe, learnt)| (stripe.0..stripe.0 + 1, learnt)));
        remedy
    }
}

fn is_damage(failure: &Failure) -> bool {
    matches!(failure, Failure::Corrupt(_)) || failure.is(Reason::Damaged) || failure.is(Reason::Medium)
}
