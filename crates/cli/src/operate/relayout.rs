//! `braid relayout`: gives files another layout, which the drives make by themselves.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use braid_client::{Client, Name};
use braid_layout::{FileId, Shape};
use braid_wire::Reason;
use braid_wire::control::RelayoutRow;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::files::names::{remote, show_remote};
use crate::files::namespace::Recursion;
use crate::files::stat::{ShapeFacts, shape_facts, show_shape};
use crate::operate::check::{files_of, is_gone};
use crate::operate::volume::Asked;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::rate::{Bar, Progress};
use crate::output::report::{Report, count, table};
use crate::output::size;
use crate::{args, connect};

/// Interval between two looks at the progress.
const POLL: Duration = Duration::from_millis(300);
/// Time without progress after which a wait gives up.
const STANDSTILL_MAX: Duration = Duration::from_secs(120);
/// Maximum number of files listed in the text form.
const SHOWN: usize = 20;

/// The request and its result, in `--json`.
#[derive(Debug, Serialize)]
struct Begun {
    /// The new shape; absent if the request cancelled an earlier one.
    shape: Option<ShapeFacts>,
    files: u64,
    bytes: u64,
    /// Number of files that need no change.
    unchanged: u64,
}

/// Files that are to be laid out anew, in `--json`.
#[derive(Debug, Serialize)]
struct Listed {
    files: u64,
    /// The first of these files, as many as the manager sends at once.
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    bytes: u64,
    from: ShapeFacts,
    to: ShapeFacts,
    /// Number of columns of the new layout; 0 means that the work has not begun.
    columns: u8,
    /// Number of those columns that are filled.
    filled: u8,
    /// Reason why the work waits; empty if it does not wait, or if its turn has not come.
    waits_for: String,
}

/// Runs `braid relayout`.
pub(crate) async fn run(
    asked: args::Relayout,
    cluster: Option<&Path>,
    report: Report,
) -> Result<(), Failure> {
    if asked.status {
        return status(&connect::cluster(cluster).await?, report).await;
    }
    let names = asked.names.iter().map(|name| remote(name)).collect::<Result<Vec<Name>, _>>()?;
    let what = || "relayout".to_owned();
    let wanted = match &asked.scheme {
        Some(scheme) => Some(Asked::new(scheme, asked.width, asked.unit).doing(what)?),
        None => None,
    };
    let client = connect::cluster(cluster).await?;
    let shape = match &wanted {
        Some(wanted) => Some(wanted.shape(&client, what).await?),
        None => None,
    };
    let (begun, listed) = ask(&client, names, shape).await?;
    report.facts(&begun, show_begun)?;
    if !asked.wait || listed.is_empty() {
        return Ok(());
    }
    wait(&client, listed, report).await?;
    report.say("done: none of them is left to be laid out anew")
}

/// Asks for a relayout of each file. Returns also the files that need one.
async fn ask(
    client: &Client,
    names: Vec<Name>,
    shape: Option<Shape>,
) -> Result<(Begun, BTreeSet<FileId>), Failure> {
    let spec = shape.map(|shape| shape_facts(&shape.into()));
    let mut begun = Begun { shape: spec, files: 0, bytes: 0, unchanged: 0 };
    let mut listed = BTreeSet::new();
    for name in names {
        for (file, number) in files_of(client, name, Recursion::Yes).await? {
            let reply = match client.relayout(&file, shape).await {
                Err(error)
                    if error.reason() == Some(Reason::NotFound) && is_gone(client, &file, number).await? =>
                {
                    continue;
                }
                reply => reply.doing(|| show_remote(&file))?,
            };
            if reply.begun {
                listed.insert(reply.file);
                begun.files += 1;
                begun.bytes += reply.size;
            } else {
                begun.unchanged += 1;
            }
        }
    }
    Ok((begun, listed))
}

fn show_begun(begun: &Begun) -> String {
    let files = count(begun.files, "file");
    let bytes = size::show(begun.bytes);
    match &begun.shape {
        Some(shape) => {
            let others = match begun.unchanged {
                0 => String::new(),
                unchanged => format!("; {} so already", count(unchanged, "file")),
            };
            let hint = if begun.files > 0 { "see braid relayout --status\n" } else { "" };
            format!("{files} ({bytes}) to be laid out as {}{others}\n{hint}", show_shape(shape))
        }
        None => format!("{files} ({bytes}) stay as they are\n"),
    }
}

async fn status(client: &Client, report: Report) -> Result<(), Failure> {
    let reply = client.relayouts(FileId(0), 0).await?;
    let listed = Listed { files: reply.files, rows: reply.rows.into_iter().map(row).collect() };
    report.facts(&listed, |listed| {
        if listed.files == 0 {
            return "no file is to be laid out anew\n".to_owned();
        }
        let rows = listed.rows.iter().take(SHOWN).map(|row| {
            let state = match (row.columns, row.waits_for.as_str()) {
                (0, "") => "its turn will come".to_owned(),
                (0, why) => why.to_owned(),
                (columns, "") => format!("{} of {columns} columns are filled", row.filled),
                (columns, why) => format!("{} of {columns} columns are filled; {why}", row.filled),
            };
            vec![row.name.clone(), size::show(row.bytes), show_shape(&row.from), show_shape(&row.to), state]
        });
        let shown = table(&["file", "size", "from", "to", "state"], &[1], rows);
        format!("{} to be laid out anew\n{shown}", count(listed.files, "file"))
    })
}

fn row(row: RelayoutRow) -> Row {
    Row {
        name: row.path,
        bytes: row.size,
        from: shape_facts(&row.from),
        to: shape_facts(&row.to),
        columns: row.columns,
        filled: row.filled,
        waits_for: row.why,
    }
}

/// Removes from `files` those that are no longer on the manager's list. Reads the list a page at a time from
/// the lowest file on, until it finds one of `files`, and returns that row.
async fn still_listed(client: &Client, files: &mut BTreeSet<FileId>) -> Result<Option<RelayoutRow>, Failure> {
    while let Some(first) = files.first() {
        let rows = client.relayouts(FileId(first.0 - 1), 0).await?.rows;
        let seen_to = rows.last().map_or(FileId(u64::MAX), |row| row.file);
        let listed: BTreeSet<FileId> = rows.iter().map(|row| row.file).collect();
        files.retain(|file| *file > seen_to || listed.contains(file));
        if let Some(row) = rows.into_iter().find(|row| files.contains(&row.file)) {
            return Ok(Some(row));
        }
    }
    Ok(None)
}

/// Waits until none of these files is to be laid out anew.
async fn wait(client: &Client, mut files: BTreeSet<FileId>, report: Report) -> Result<(), Failure> {
    let progress = Progress::begin(None, Bar::beside(report));
    let mut last = None;
    let mut moved = Instant::now();
    let mut first = None;
    loop {
        let Some(first_row) = still_listed(client, &mut files).await? else {
            progress.end();
            return Ok(());
        };
        let left = files.len();
        let heals = client.heal_status(None).await?.drives;
        let written: u64 = heals.iter().map(|row| row.progress.written_bytes).sum();
        progress.name(format!("{left} left; Ctrl-C ends the wait alone"));
        progress.reached(written.saturating_sub(*first.get_or_insert(written)));
        let now = Some((left, first_row.filled, written));
        if now != last {
            (last, moved) = (now, Instant::now());
        } else if moved.elapsed() > STANDSTILL_MAX {
            let waits = (!first_row.why.is_empty()).then(|| format!("{}: {}", first_row.path, first_row.why));
            let heals = heals.iter().find(|row| !row.progress.error.is_empty());
            let heals = heals.map(|row| format!("{}: {}", row.name, row.progress.error));
            let why = waits.or(heals).unwrap_or_else(|| "nothing says why".to_owned());
            let seconds = STANDSTILL_MAX.as_secs();
            let why = format!("nothing has happened for {seconds} s, and {left} left: {why}");
            return Err(Failure::new(Exit::DrivesAway, "relayout".to_owned(), why)
                .remedy("braid relayout --status and braid heal show what the files wait for"));
        }
        sleep(POLL).await;
    }
}
