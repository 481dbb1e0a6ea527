//! `braid check`: reads every unit and compares data with parity.

use std::path::Path;

use braid_client::{Client, Fault, Finding, Name};
use braid_layout::{FileId, Role};
use braid_wire::control::EntryKind;
use serde::Serialize;

use crate::files::names::{NameFacts, remote, show_remote};
use crate::files::namespace::{self, Recursion};
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::rate::{Bar, Progress};
use crate::output::report::{Report, complain, count};
use crate::{args, connect};

/// The result for one file; a line of `--json`.
#[derive(Debug, Serialize)]
struct Checked {
    #[serde(flatten)]
    name: NameFacts,
    /// True if no mismatch was found. Units that could not be read are in `unchecked`.
    ok: bool,
    stripes: u64,
    units: u64,
    bytes: u64,
    mismatches: Vec<Mismatch>,
    /// Number of mismatches found beyond those listed.
    mismatches_more: u64,
    unchecked: Vec<Unchecked>,
}

#[derive(Debug, Serialize)]
struct Mismatch {
    segment: usize,
    stripe: u64,
    /// The wrong column; null if it cannot be told which of the stripe's columns is wrong.
    column: Option<usize>,
    drive: Option<String>,
    what: String,
}

#[derive(Debug, Serialize)]
struct Unchecked {
    segment: usize,
    column: usize,
    drive: String,
    why: String,
}

/// Runs the command.
pub(crate) async fn run(check: args::Check, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let names = check.names.iter().map(|name| remote(name)).collect::<Result<Vec<Name>, _>>()?;
    let client = connect::cluster(cluster).await?;
    let progress = Progress::begin(None, Bar::beside(report));
    let mut files = 0_u64;
    let mut wrong = 0_u64;
    let mut incomplete = 0_u64;
    let recursion = if check.all { Recursion::Yes } else { Recursion::No };
    for name in names {
        for (file, number) in files_of(&client, name, recursion).await? {
            let found = match check_one(&client, &file, &progress).await {
                Ok(found) => found,
                Err(failure) if !check.all || failure.exit == Exit::NoCluster => return Err(failure),
                Err(_) if is_gone(&client, &file, number).await? => continue,
                // A file that cannot be read must not keep the others from being checked.
                Err(failure) => {
                    complain(&failure.to_string());
                    files += 1;
                    incomplete += 1;
                    continue;
                }
            };
            files += 1;
            wrong += u64::from(!found.ok);
            incomplete += u64::from(!found.unchecked.is_empty());
            match report.line(&found, show) {
                // The reader closed the pipe. The exit code must claim no more than was checked.
                Err(failure) if failure.exit == Exit::Ok => return Err(cut_short(wrong, files)),
                said => said?,
            }
        }
    }
    progress.end();
    match (wrong, incomplete) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::new(
            Exit::DrivesAway,
            "check",
            format!("{incomplete} of {} could not be read whole", count(files, "file")),
        )
        .remedy("start or rebuild their drives and check again")),
        _ => Err(Failure::new(
            Exit::Mismatch,
            "check",
            format!("{wrong} of {} do not match", count(files, "file")),
        )
        .remedy(REMEDY)),
    }
}

/// The remedy for wrong units on a known drive. It advises nothing that would write bytes that may be wrong.
const REMEDY: &str = "a drive that has a damaged unit rewrites it from the others: check again in a minute; if that does not help and a drive \
     is named, stop it and give its columns to another, which makes them anew from the others: braid \
     drive add, braid drive replace DRIVE NEW, braid rebuild NEW; where none is, restore the file from its source";

/// The error of a check whose output is no longer read.
fn cut_short(wrong: u64, files: u64) -> Failure {
    match wrong {
        0 => Failure::new(
            Exit::Failed,
            "check",
            format!("standard output was closed; {} done", count(files, "file")),
        ),
        _ => Failure::new(
            Exit::Mismatch,
            "check",
            format!("{wrong} of the first {} do not match", count(files, "file")),
        ),
    }
}

/// Returns true if the file with this number was removed or replaced, and no longer has the name.
pub(crate) async fn is_gone(client: &Client, name: &Name, number: FileId) -> Result<bool, Failure> {
    Ok(namespace::stat_if_there(client, name).await?.is_none_or(|row| row.file != number))
}

/// Lists the file itself or, with recursion, every file below a directory; each with its number.
pub(crate) async fn files_of(
    client: &Client,
    name: Name,
    recursion: Recursion,
) -> Result<Vec<(Name, FileId)>, Failure> {
    let row = client.stat(&name).await?;
    if row.kind() == EntryKind::File {
        return Ok(vec![(name, row.file)]);
    }
    if row.kind() != EntryKind::Directory {
        return Err(Failure::new(
            Exit::Conflict,
            format!("check {}", show_remote(&name)),
            "it is not a regular file, and has no bytes on drives",
        ));
    }
    if recursion == Recursion::No {
        return Err(Failure::new(
            Exit::Conflict,
            format!("check {}", show_remote(&name)),
            "it is a directory",
        )
        .remedy("use --all"));
    }
    let mut files = Vec::new();
    let mut stack = vec![name];
    while let Some(directory) = stack.pop() {
        for entry in namespace::entries_if_there(client, &directory).await? {
            let below = directory.join(&entry.name).doing(|| format!("check {}", show_remote(&directory)))?;
            match entry.kind() {
                EntryKind::Directory => stack.push(below),
                EntryKind::File => files.push((below, entry.file)),
                // Other kinds have no bytes on drives.
                _ => {}
            }
        }
    }
    Ok(files)
}

async fn check_one(client: &Client, name: &Name, progress: &Progress) -> Result<Checked, Failure> {
    progress.name(show_remote(name));
    let report = client.check(name, |at| progress.reached(at.bytes)).await?;
    let mismatches = report.findings.iter().map(|finding| Mismatch {
        segment: finding.segment,
        stripe: finding.stripe,
        column: finding.unit.as_ref().map(|unit| unit.column.index()),
        drive: finding.unit.as_ref().map(|unit| unit.drive.clone()),
        what: show_fault(finding),
    });
    let unchecked = report.unchecked.iter().map(|column| Unchecked {
        segment: column.segment,
        column: column.column.index(),
        drive: column.drive.clone(),
        why: column.why.clone(),
    });
    Ok(Checked {
        name: NameFacts::new(name),
        ok: report.findings.is_empty() && report.more == 0,
        stripes: report.stripes,
        units: report.units,
        bytes: report.bytes,
        mismatches: mismatches.collect(),
        mismatches_more: report.more,
        unchecked: unchecked.collect(),
    })
}

fn show_fault(finding: &Finding) -> String {
    let unit = match finding.unit.as_ref().map(|unit| unit.role) {
        Some(Role::Data(index)) => format!("data unit {index}"),
        Some(Role::Parity(index)) => format!("parity unit {index}"),
        None => "it".to_owned(),
    };
    match &finding.fault {
        Fault::Damaged(why) => format!("{unit} is damaged: {why}"),
        Fault::Behind(why) => format!("{unit} is behind: {why}"),
        Fault::Unequal { at } if finding.unit.is_some() => {
            format!("{unit} is wrong, from its byte {at} on: all the others of the stripe agree without it")
        }
        Fault::Unequal { at } => {
            format!(
                "data and parity do not match, from byte {at} of a unit on, and nobody can tell which column is wrong"
            )
        }
        Fault::VersionsDiffer => {
            "the columns name different versions of the data, with a write begun: check again".to_owned()
        }
    }
}

fn show(found: &Checked) -> String {
    let verdict = match (found.ok, found.unchecked.is_empty()) {
        (false, _) => "DOES NOT MATCH",
        (true, true) => "ok",
        (true, false) => "INCOMPLETE, what was read is ok",
    };
    let mut text =
        format!("{}: {} units in {} stripes, {verdict}", found.name.shown, found.units, found.stripes);
    for Mismatch { segment, stripe, column, drive, what } in &found.mismatches {
        text.push_str(&format!("\n  segment {segment}, stripe {stripe}"));
        if let (Some(column), Some(drive)) = (column, drive) {
            text.push_str(&format!(", column {column} on {drive}"));
        }
        text.push_str(&format!(": {what}"));
    }
    if found.mismatches_more > 0 {
        text.push_str(&format!("\n  and {} more", found.mismatches_more));
    }
    for Unchecked { segment, column, drive, why } in &found.unchecked {
        text.push_str(&format!("\n  segment {segment}, column {column} on {drive} was not checked: {why}"));
    }
    text
}
