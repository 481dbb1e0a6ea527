//! `braid plan`: the plan sets of a request, as the client would run them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use braid_client::analysis::Work;
use braid_client::{Asked, Client, Explained, Name, Way};
use braid_layout::{Column, DriveId};
use braid_sim::model::{CostModel, DiskModel, LinkModel, Preset, ProcessorModel, ProtocolModel, StoreModel};
use braid_sim::timing::{Timed, Times, time};
use braid_wire::control::{DriveRow, EntryKind, StatRow};
use serde::Serialize;

use crate::files::analyze::{self, AnalysisFacts, RequestFacts};
use crate::files::names::{remote, show_remote};
use crate::output::bar::bar;
use crate::output::exit::{Exit, Failure};
use crate::output::report::Report;
use crate::sim::{in_background, parts_of};
use crate::{args, connect};

/// Said of a range past the end.
const NOTHING: &str = "nothing to do: the range is past the end of the file\n";
/// Said after a rewrite.
const REWROTE: &str = "rewrote the range with the bytes it had: the file's time of change is now, and holes in \
                       the stripes that were written are zeros\n";

/// A plan set in `--json`.
#[derive(Debug, Serialize)]
struct PlanFacts {
    segment: usize,
    generation: u32,
    stripes: usize,
    /// Number of rounds of requests to drives that must follow one another.
    round_trips: u32,
    read_bytes: u64,
    written_bytes: u64,
    scratch_bytes: u64,
    /// Drives that are away, whose columns are left out.
    away: Vec<String>,
    columns: Vec<ColumnFacts>,
    /// Ways to write each stripe, the chosen one first; empty for a read.
    ways: Vec<StripeFacts>,
    /// With --time, when each instruction begins and is done, by instruction id.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<Timed>,
    /// With --analyze, what was measured of each instruction.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    measured: Vec<RequestFacts>,
    /// The plan set in the form that is printed.
    text: String,
}

/// With --analyze: the plan sets, and what the run was bound by.
#[derive(Debug, Serialize)]
struct Analyzed {
    sets: Vec<PlanFacts>,
    analysis: AnalysisFacts,
}

/// The ways to write a stripe.
#[derive(Debug, Serialize)]
struct StripeFacts {
    stripe: u64,
    ways: Vec<WayFacts>,
}

/// Costs of one way to write a stripe.
#[derive(Debug, Serialize)]
struct WayFacts {
    strategy: String,
    client_bytes: u64,
    drive_bytes: u64,
    round_trips: u32,
    /// All costs in one number, in bytes.
    cost: u64,
}

/// Work of one drive in a plan set.
#[derive(Debug, Serialize)]
struct ColumnFacts {
    column: usize,
    drive: String,
    drive_id: String,
    reads: u32,
    writes: u32,
    read_bytes: u64,
    written_bytes: u64,
}

/// Runs the command.
pub(crate) async fn run(plan: args::Plan, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let name = remote(&plan.name)?;
    let parts = plan.time.then(|| Parts::of(plan.parts.as_deref())).transpose()?;
    let client = connect::cluster(cluster).await?;
    let asked = match plan.direction {
        args::Direction::Read => Asked::Read,
        args::Direction::Write => Asked::Write,
        args::Direction::SharedWrite => Asked::SharedWrite,
    };
    if plan.analyze {
        may_analyze(&plan, asked, &name)?;
    }
    let row = client.stat(&name).await?;
    if row.kind() != EntryKind::File {
        let what = format!("plan {}", show_remote(&name));
        return Err(Failure::new(Exit::Conflict, what, "it is a directory: only a file has plans"));
    }
    let names = drive_names(&row);
    let down = on_file(&client, &names, plan.down.clone()).await?;
    let explained = client.plan(&name, asked, plan.range.clone(), &down).await?;
    let mut sets: Vec<PlanFacts> = explained.iter().map(|set| facts(set, &names, &row)).collect();
    if plan.analyze {
        let work = match asked {
            _ if sets.is_empty() => Work::default(),
            Asked::Read => {
                analyze::read(&client, &name, std::slice::from_ref(&plan.range), &explained).await?
            }
            Asked::Write | Asked::SharedWrite => analyze::rewrite(&client, &name, plan.range).await?,
        };
        let analysis = measured(&work, &explained, &names, &mut sets);
        let said = if asked == Asked::Read { "" } else { REWROTE };
        return report.facts(&Analyzed { sets, analysis }, |of| match of.sets.as_slice() {
            [] => NOTHING.to_owned(),
            sets => format!("{}\n{said}{}", texts(sets), analyze::show(&of.analysis)),
        });
    }
    if let Some(Parts { costs, named }) = parts {
        let timed = in_background(move |stop| {
            let bar = bar();
            bar.set_length(u64::try_from(explained.len()).unwrap_or(u64::MAX));
            bar.set_message("plan sets");
            let one = |of: &Explained| time(&of.set, &of.segment, &costs, stop).inspect(|_| bar.inc(1));
            let found = explained.iter().map(one).collect::<Option<Vec<_>>>();
            bar.finish_and_clear();
            found
        });
        for (facts, times) in sets.iter_mut().zip(timed.await?) {
            facts.text = with_times(&facts.text, &times, &named);
            facts.times = Some(times);
        }
    }
    report.facts(&sets, |sets| {
        if sets.is_empty() {
            return NOTHING.to_owned();
        }
        texts(sets)
    })
}

fn texts(sets: &[PlanFacts]) -> String {
    sets.iter().map(|set| set.text.as_str()).collect::<Vec<_>>().join("\n")
}

/// Checks that what is to be analyzed may be run.
fn may_analyze(plan: &args::Plan, asked: Asked, name: &Name) -> Result<(), Failure> {
    let what = || format!("analyze a write to {}", show_remote(name));
    match asked {
        Asked::Read if plan.rewrite => {
            Err(Failure::usage(what(), "a read has nothing to write: leave --rewrite out"))
        }
        Asked::Read => Ok(()),
        Asked::SharedWrite => Err(Failure::usage(
            what(),
            "beside other writers the bytes could be another's by the time they are written again",
        )
        .remedy("analyze `write`: it is the only writer meanwhile")),
        Asked::Write if plan.rewrite => Ok(()),
        Asked::Write => Err(Failure::usage(what(), "a write changes the file")
            .remedy("with --rewrite the range is read first, and the same bytes are written again")),
    }
}

/// Puts what was measured beside each instruction of the plan sets.
fn measured(
    work: &Work,
    explained: &[Explained],
    names: &BTreeMap<DriveId, String>,
    sets: &mut [PlanFacts],
) -> AnalysisFacts {
    let mut found = 0;
    for (of, facts) in explained.iter().zip(sets) {
        facts.measured = analyze::requests(of, work, names);
        facts.text = analyze::beside(&facts.text, &facts.measured);
        found += facts.measured.len();
    }
    analyze::facts(work, &work.bound(), names, found)
}

/// Costs of the parts, for predicted times.
struct Parts {
    costs: CostModel,
    /// Names of the parts, for users.
    named: String,
}

impl Parts {
    fn of(path: Option<&Path>) -> Result<Parts, Failure> {
        if let Some(path) = path {
            return Ok(Parts { costs: parts_of(path)?, named: path.display().to_string() });
        }
        let disk = "hdd-18tb";
        let link = "25GbE";
        let processor = "server-2026";
        let unknown = || Failure::new(Exit::Failed, "plan", "the cost of a listed part is not known");
        let processor_model = ProcessorModel::preset(processor).ok_or_else(unknown)?;
        let costs = CostModel {
            disk: DiskModel::preset(disk).ok_or_else(unknown)?,
            link: LinkModel::preset(link).ok_or_else(unknown)?,
            client: processor_model.clone(),
            drive: processor_model,
            store: StoreModel { log: true, ..StoreModel::default() },
            protocol: ProtocolModel::default(),
        };
        Ok(Parts { costs, named: format!("{disk}, {link} and {processor}; others with --parts") })
    }
}

/// Drops drives that exist but hold no column of the file: the plan is the same if such a drive is away.
async fn on_file(
    client: &Client,
    names: &BTreeMap<DriveId, String>,
    down: Vec<String>,
) -> Result<Vec<String>, Failure> {
    if down.is_empty() {
        return Ok(down);
    }
    let drives = client.status().await?.drives;
    let called = |row: &DriveRow, name: &str| {
        row.name == name || row.drive.to_string() == name || row.drive.short() == name
    };
    let elsewhere =
        |name: &String| drives.iter().any(|row| called(row, name) && !names.contains_key(&row.drive));
    Ok(down.into_iter().filter(|name| !elsewhere(name)).collect())
}

/// The names of a file's drives, by identity.
fn drive_names(row: &StatRow) -> BTreeMap<DriveId, String> {
    let columns = row.segments.iter().flat_map(|segment| &segment.columns);
    columns.map(|column| (column.drive, column.drive_name.clone())).collect()
}

fn facts(explained: &Explained, names: &BTreeMap<DriveId, String>, row: &StatRow) -> PlanFacts {
    let (set, totals) = (&explained.set, explained.set.totals());
    let columns = set.plans.iter().zip(&totals.columns).map(|(plan, column)| ColumnFacts {
        column: column.column.index(),
        drive: names.get(&plan.drive).cloned().unwrap_or_default(),
        drive_id: plan.drive.to_string(),
        reads: column.reads,
        writes: column.writes,
        read_bytes: column.read_bytes,
        written_bytes: column.written_bytes,
    });
    let rows = row.segments.get(set.segment).map_or(&[][..], |segment| &segment.columns);
    let away =
        (0..).map(Column).zip(rows).filter(|(column, _)| set.away.contains(*column)).map(|(_, row)| row);
    PlanFacts {
        segment: set.segment,
        generation: set.g.0,
        stripes: set.stripes.len(),
        round_trips: totals.round_trips,
        read_bytes: totals.read_bytes(),
        written_bytes: totals.written_bytes(),
        scratch_bytes: totals.scratch_bytes,
        columns: columns.collect(),
        away: away.map(|column| column.drive_name.clone()).collect(),
        ways: explained.ways.iter().map(|(stripe, ways)| stripe_facts(stripe.0, ways)).collect(),
        times: None,
        measured: Vec::new(),
        text: with_names(explained, names),
    }
}

fn stripe_facts(stripe: u64, ways: &[Way]) -> StripeFacts {
    let facts = ways.iter().map(|way| WayFacts {
        strategy: way.strategy.to_string(),
        client_bytes: way.client_bytes,
        drive_bytes: way.drive_bytes,
        round_trips: way.round_trips,
        cost: way.cost(),
    });
    StripeFacts { stripe, ways: facts.collect() }
}

/// The plan set's text with each drive's name before its identity (the planner knows only the latter).
fn with_names(explained: &Explained, names: &BTreeMap<DriveId, String>) -> String {
    let mut text = explained.text.clone();
    for plan in &explained.set.plans {
        if let Some(name) = names.get(&plan.drive) {
            let column = plan.column;
            let id = plan.drive.short();
            let heading = format!("column {column}, drive {id}, ");
            text = text.replace(&heading, &format!("column {column}, {name} (drive {id}), "));
        }
    }
    text
}

/// Maximum width in characters of the lines behind which times are aligned.
const TIMES_AT: usize = 80;

/// The plan set's text with the times of each instruction and step behind it.
fn with_times(text: &str, times: &Timed, parts: &str) -> String {
    let (instructions, totals) = text.split_at(text.find("\ntotals\n").map_or(text.len(), |at| at + 1));
    // An instruction's line begins with its id.
    let id = |line: &str| line.strip_prefix("  ")?.split(' ').next()?.parse::<usize>().ok();
    let width = instructions.lines().filter(|line| id(line).is_some()).map(str::len).max().unwrap_or(0);
    let width = width.min(TIMES_AT);
    let mut timed = String::new();
    for line in instructions.lines() {
        match id(line).and_then(|id| times.instructions.get(id)) {
            Some(Times { begins_ms, done_ms, .. }) => {
                let _ = writeln!(timed, "{line:width$}  | {begins_ms:9.3} to {done_ms:9.3} ms");
            }
            None => timed = timed + line + "\n",
        }
    }
    format!("{timed}{totals}predicted: {:.3} ms, alone ({parts})\n", times.done_ms)
}
