//! The check of a file: reads every data and parity unit that its drives hold, recomputes parity and
//! compares. Memory is bounded by the plan sets in flight, and the report by [`FINDINGS_MAX`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use braid_layout::{Column, ColumnMask, Role, Stripe};
use braid_plan::Target;
use braid_wire::Reason;
use braid_wire::data::Listing;

use crate::client::Client;
use crate::concurrent;
use crate::data::buffers::User;
use crate::data::planning::{Patience, or_with_joining};
use crate::error::Result;
use crate::executor::{Executor, Failed};
use crate::handle::Handle;
use crate::naming::name::Name;
use crate::open::OpenOptions;
use crate::peers::drive_requests::Failure;
use crate::peers::faults::{Learnt, Remedy};

/// Most findings listed; further ones are only counted.
pub const FINDINGS_MAX: usize = 1000;

/// Result of a check.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Number of stripes checked, in all segments.
    pub stripes: u64,
    /// Units read, data and parity.
    pub units: u64,
    /// Bytes read from the drives, data and parity.
    pub bytes: u64,
    /// The mismatches, in the order of segments and stripes.
    pub findings: Vec<Finding>,
    /// The number of findings beyond the first [`FINDINGS_MAX`].
    pub more: u64,
    /// Columns that could not be checked: away, stale, or being rebuilt. By segment and column.
    pub unchecked: Vec<Unchecked>,
}

/// A mismatch in a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The segment's index.
    pub segment: usize,
    /// The stripe's number in the segment.
    pub stripe: u64,
    /// The wrong unit; absent if it cannot be told which of the stripe's units is wrong.
    pub unit: Option<WrongUnit>,
    /// The kind of fault.
    pub fault: Fault,
}

/// A wrong unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongUnit {
    /// The column that holds it.
    pub column: Column,
    /// Name of the column's drive.
    pub drive: String,
    /// The column's role in this stripe.
    pub role: Role,
}

/// Fault of a unit, or of a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The unit's bytes do not match their checksum, at its drive or in transit; the text gives details.
    Damaged(String),
    /// The unit is intact, but of an older version than the stripe's other columns mention: its drive was
    /// restored to an older state.
    Behind(String),
    /// The unit is intact and of the right version, but differs from what all others of the stripe give, from
    /// this byte of the unit on. If [`Finding::unit`] is absent: data and parity do not match, and there are
    /// too few other units to tell which is wrong.
    Unequal {
        /// First byte that differs, as an offset in the unit.
        at: u32,
    },
    /// The stripe's columns keep naming different versions of its data, with a write in progress or begun.
    VersionsDiffer,
}

/// A column that could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unchecked {
    /// The segment's index.
    pub segment: usize,
    /// The unchecked column.
    pub column: Column,
    /// Name of the column's drive.
    pub drive: String,
    /// The reason, for users.
    pub why: String,
}

impl Report {
    /// Returns true if every unit was available and correct.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.more == 0 && self.unchecked.is_empty()
    }
}

/// Common result of the plan sets in flight.
struct Sink<F> {
    report: Report,
    /// Columns found away, with the reason.
    away: BTreeMap<(usize, Column), String>,
    progress: F,
}

impl Client {
    /// Checks every stripe of a file. Calls `progress` with the report so far after every plan set.
    pub async fn check(&self, name: &Name, progress: impl FnMut(&Report) + Send) -> Result<Report> {
        let file = self.open(name, &OpenOptions::new().read(true).stored_bytes()).await?;
        let handle = file.handle();
        let end = file.size();
        let sink = Mutex::new(Sink { report: Report::default(), away: BTreeMap::new(), progress });
        let view = handle.view();
        for (segment, layout) in view.layout.segments().iter().enumerate() {
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
            if layout.start >= end {
                continue;
            }
            let last = layout.stripe_at(end.min(layout.end) - 1).0;
            let mut held = handle.held(segment, Listing::Written, 0..last + 1);
            loop {
                let runs = held.next_to_read().await?;
                if runs.is_empty() {
                    break;
                }
                let step = handle.stripes_per_set(&handle.view(), segment);
                let checks = runs.into_iter().flat_map(|run| in_sets(run, step)).map(|stripes| {
                    let sink = &sink;
                    async move {
                        let _permit = self.set_permit().await;
                        check_stripes(handle, segment, stripes, sink).await
                    }
                });
                concurrent::windowed(self.config().sets_per_request, checks).await?;
            }
        }
        let sink = sink.into_inner().expect("no holder panics");
        let mut report = sink.report;
        report.unchecked.extend(sink.away.into_iter().map(|((segment, column), why)| {
            let drive = view.segments[segment].columns[column.index()].name.clone();
            Unchecked { segment, column, drive, why }
        }));
        report.unchecked.sort_by_key(|unchecked| (unchecked.segment, unchecked.column));
        report.findings.sort_by_key(|finding| {
            (finding.segment, finding.stripe, finding.unit.as_ref().map(|unit| unit.column))
        });
        Ok(report)
    }
}

/// A run of stripes in parts of at most `step`.
fn in_sets(run: std::ops::Range<u64>, step: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    let starts = std::iter::successors(Some(run.start), move |at| at.checked_add(step));
    starts.take_while(move |at| *at < run.end).map(move |at| at..run.end.min(at.saturating_add(step)))
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
        let Some(set) = handle.compile_with(&view, segment, &learnt, or_with_joining(compile))? else {
            handle.wait_for_columns(&view, segment, part.clone(), "read", &mut learnt, &mut patience).await?;
            todo.push((part, learnt));
            continue;
        };
        let mut executor = Executor::new(handle, &view, set, User::Nothing)?;
        let read = executor.read().await;
        if executor.saw_absent && !handle.is_hole(&view).await? {
            todo.push((part, learnt)); // a column has moved
            handle.pause(&mut patience).await?;
            continue;
        }
        let failed = match read {
            Err(crate::Error::Torn { stripe, .. }) if part.end - part.start == 1 => {
                let fault = Fault::VersionsDiffer;
                sink.lock().expect("no holder panics").find(Finding { segment, stripe, unit: None, fault });
                continue;
            }
            // Checking each stripe alone shows which one is torn, and whether it stays torn.
            Err(crate::Error::Torn { .. }) => {
                todo.extend(part.map(|stripe| (stripe..stripe + 1, learnt.clone())));
                continue;
            }
            other => other?,
        };
        let without: BTreeSet<Stripe> = failed.iter().map(|one| one.stripe).collect();
        let unequal: BTreeMap<Stripe, u32> =
            executor.compute(&without)?.into_iter().rev().map(|one| (one.stripe, one.at)).collect();
        let remedy = {
            let mut sink = sink.lock().expect("no holder panics");
            sink.count(&executor, &without);
            sink.note(&executor, segment, &failed, &learnt, &mut todo)
        };
        for (stripe, at) in unequal {
            let unit = culprit(handle, segment, stripe, &learnt).await?;
            let unit = unit.map(|column| wrong_unit(&executor, segment, stripe, column));
            let finding = Finding { segment, stripe: stripe.0, unit, fault: Fault::Unequal { at } };
            sink.lock().expect("no holder panics").find(finding);
        }
        handle.mend(&view, remedy, &mut patience).await?;
    }
    Ok(())
}

/// The column of a stripe without which all the others agree. `None` if there are too few to tell, or if more
/// than one is wrong.
async fn culprit(handle: &Handle, segment: usize, stripe: Stripe, learnt: &Learnt) -> Result<Option<Column>> {
    let view = handle.view();
    let shape = view.layout.segments()[segment].shape;
    let mut found = Vec::new();
    for column in ColumnMask::all(shape.width()).minus(learnt.away()).iter() {
        let without = learnt.clone().with(ColumnMask::EMPTY.with(column));
        let compile = |target: &Target<'_>| braid_plan::check(target, stripe.0..stripe.0 + 1);
        let Some(set) = handle.compile_with(&view, segment, &without, compile)? else { continue };
        // With nothing to compare, nothing can disagree.
        if set.arithmetic.is_empty() {
            continue;
        }
        let mut executor = Executor::new(handle, &view, set, User::Nothing)?;
        let read = executor.read().await;
        if executor.saw_absent && !handle.is_hole(&view).await? {
            return Ok(None);
        }
        match read {
            Ok(failed) if failed.is_empty() => {
                if executor.compute(&BTreeSet::new())?.is_empty() {
                    found.push(column);
                }
            }
            // The stripe changes during the check: report the mismatch, but no culprit.
            Ok(_) | Err(crate::Error::Torn { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(match found[..] {
        [one] => Some(one),
        _ => None,
    })
}

fn wrong_unit(executor: &Executor<'_>, segment: usize, stripe: Stripe, column: Column) -> WrongUnit {
    let role = executor.view.layout.segments()[segment].role(stripe, column);
    let drive = executor.view.segments[segment].columns[column.index()].name.clone();
    WrongUnit { column, drive, role }
}

impl<F: FnMut(&Report)> Sink<F> {
    fn find(&mut self, finding: Finding) {
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(finding);
        } else {
            self.report.more += 1;
        }
    }

    /// Counts the stripes whose reads all succeeded.
    fn count(&mut self, executor: &Executor<'_>, without: &BTreeSet<Stripe>) {
        let notes = executor.set.stripes.iter().filter(|note| !without.contains(&note.stripe));
        self.report.stripes += u64::try_from(notes.count()).unwrap_or(u64::MAX);
        for (_, instruction) in executor.set.instructions().filter(|(_, i)| !without.contains(&i.op.stripe()))
        {
            let range = instruction.op.range();
            self.report.units += 1;
            self.report.bytes += u64::from(range.end - range.start);
        }
        (self.progress)(&self.report);
    }

    /// Records failed reads: damage is a finding, temporary failures are retried, other columns are away. The
    /// stripes concerned are checked again without these columns.
    fn note(
        &mut self,
        executor: &Executor<'_>,
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
            if let Some(fault) = fault(&one.failure) {
                let unit = Some(wrong_unit(executor, segment, one.stripe, one.column));
                self.find(Finding { segment, stripe: one.stripe.0, unit, fault });
            } else {
                self.away.entry((segment, one.column)).or_insert_with(|| one.failure.to_string());
            }
        }
        todo.extend(stripes.into_iter().map(|(stripe, learnt)| (stripe.0..stripe.0 + 1, learnt)));
        remedy
    }
}

/// The fault that a failed read proves; `None` if its column is merely away.
fn fault(failure: &Failure) -> Option<Fault> {
    match failure {
        Failure::Behind { .. } => Some(Fault::Behind(failure.to_string())),
        Failure::Corrupt(_) => Some(Fault::Damaged(failure.to_string())),
        _ if failure.is(Reason::Damaged) || failure.is(Reason::Medium) => {
            Some(Fault::Damaged(failure.to_string()))
        }
        _ => None,
    }
}
