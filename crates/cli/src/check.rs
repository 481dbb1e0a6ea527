//! `braid check`: every unit and its parity, read and compared.

use std::path::Path;

use braid_client::{Client, Name};
use braid_wire::control::EntryKind;
use serde::Serialize;

use crate::args;
use crate::connect;
use crate::exit::{Doing, Exit, Failure};
use crate::names::{remote, show_remote};
use crate::namespace;
use crate::rate::Progress;
use crate::report::Report;

/// What was found in one file; a line of `--json`.
#[derive(Debug, Serialize)]
struct Checked {
    name: String,
    units: u64,
    ok: bool,
    mismatches: Vec<String>,
}

/// Runs the command.
pub(crate) async fn run(check: args::Check, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let names = check.names.iter().map(|name| remote(name)).collect::<Result<Vec<Name>, _>>()?;
    let client = connect::cluster(cluster).await?;
    let progress = Progress::begin(None, !report.json);
    let (mut files, mut wrong) = (0_u64, 0_u64);
    for name in names {
        for file in files_of(&client, name, check.all).await? {
            let found = check_one(&client, &file, &progress).await?;
            files += 1;
            wrong += u64::from(!found.ok);
            report.line(&found, show)?;
        }
    }
    progress.end();
    if wrong == 0 {
        Ok(())
    } else {
        Err(Failure::new(
            Exit::Mismatch,
            "check",
            format!("{wrong} of {files} files do not match their parity"),
        ))
    }
}

/// The file, or with `all` every file below a directory.
async fn files_of(client: &Client, name: Name, all: bool) -> Result<Vec<Name>, Failure> {
    let row = client.stat(&name).await?;
    if row.kind == EntryKind::File {
        return Ok(vec![name]);
    }
    if !all {
        return Err(Failure::new(
            Exit::Conflict,
            format!("check {}", show_remote(&name)),
            "it is a directory",
        )
        .remedy("use --all"));
    }
    let (mut files, mut stack) = (Vec::new(), vec![name]);
    while let Some(directory) = stack.pop() {
        for entry in namespace::entries(client, &directory).await? {
            let below = directory.join(&entry.name).doing(|| format!("check {}", show_remote(&directory)))?;
            match entry.kind {
                EntryKind::Directory => stack.push(below),
                EntryKind::File => files.push(below),
            }
        }
    }
    Ok(files)
}

async fn check_one(client: &Client, name: &Name, progress: &Progress) -> Result<Checked, Failure> {
    progress.name(show_remote(name));
    let report = client.check(name, |at| progress.reached(at.bytes, at.bytes_total)).await?;
    let mismatches: Vec<String> = report.mismatches.iter().map(ToString::to_string).collect();
    Ok(Checked { name: show_remote(name), units: report.units, ok: mismatches.is_empty(), mismatches })
}

fn show(found: &Checked) -> String {
    let verdict = if found.ok { "ok" } else { "DOES NOT MATCH" };
    let mut text = format!("{}: {} units, {verdict}", found.name, found.units);
    for mismatch in &found.mismatches {
        text.push_str(&format!("\n  {mismatch}"));
    }
    text
}
