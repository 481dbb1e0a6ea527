//! `braid ls`.

use std::path::Path;

use braid_client::{Client, Name};
use braid_wire::control::{Entry, EntryKind};
use serde::Serialize;

use crate::args;
use crate::connect;
use crate::exit::{Doing, Exit, Failure};
use crate::names::{NameFacts, remote, show_remote};
use crate::namespace;
use crate::report::{Report, show_name};
use crate::{size, time};

/// An entry; a line of `--json`.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    name: NameFacts,
    kind: &'static str,
    size: u64,
    /// Absent for a volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_ms: Option<u64>,
}

/// Runs the command.
pub(crate) async fn run(ls: args::Ls, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let names = ls.names.iter().map(|name| remote(name)).collect::<Result<Vec<Name>, _>>()?;
    let client = connect::cluster(cluster).await?;
    if names.is_empty() && !ls.recursive {
        return volumes(&client, &ls, report).await;
    }
    let names = if names.is_empty() { roots(&client).await? } else { names };
    let headings = if ls.recursive || names.len() > 1 { Headings::Shown } else { Headings::Hidden };
    for name in names {
        let Some(row) = namespace::stat_if_there(&client, &name).await? else {
            return Err(Failure::new(
                Exit::NotFound,
                format!("list {}", show_remote(&name)),
                "no such file or directory",
            ));
        };
        if row.kind == EntryKind::File {
            let entry = Entry {
                name: name.path().to_vec(),
                kind: row.kind,
                file: row.file,
                size: row.size,
                modified_ms: row.modified_ms,
            };
            print(&entry, &name, &show_name(name.path()), &ls, report)?;
        } else {
            tree(&client, name, &ls, headings, report).await?;
        }
    }
    Ok(())
}

/// Lists the volumes.
async fn volumes(client: &Client, ls: &args::Ls, report: Report) -> Result<(), Failure> {
    for row in client.volumes().await? {
        let shown = format!("{}{}", braid_client::PREFIX, row.name);
        let root = Name::root(&row.name).doing(|| format!("list volume {}", row.name))?;
        let row =
            Row { name: NameFacts::new(&root), kind: "volume", size: row.file_bytes, modified_ms: None };
        report.line(&row, |row| match ls.long {
            true => format!("{}  {shown}", size_shown(row.size, ls)),
            false => shown,
        })?;
    }
    Ok(())
}

/// The root of every volume.
async fn roots(client: &Client) -> Result<Vec<Name>, Failure> {
    let volumes = client.volumes().await?;
    volumes.iter().map(|row| Name::root(&row.name).doing(|| format!("list volume {}", row.name))).collect()
}

/// Whether the name of each directory stands above its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Headings {
    Shown,
    Hidden,
}

/// Lists a directory and, with -R, those below it.
async fn tree(
    client: &Client,
    root: Name,
    ls: &args::Ls,
    headings: Headings,
    report: Report,
) -> Result<(), Failure> {
    let mut stack = vec![root];
    while let Some(name) = stack.pop() {
        if headings == Headings::Shown {
            report.say(format!("{}:", show_remote(&name)))?;
        }
        let mut below = Vec::new();
        for entry in namespace::entries(client, &name).await? {
            let full = name.join(&entry.name).doing(|| format!("list {}", show_remote(&name)))?;
            // Programs get the whole name, users the last part of it under its heading.
            print(&entry, &full, &show_name(&entry.name), ls, report)?;
            if ls.recursive && entry.kind == EntryKind::Directory {
                below.push(full);
            }
        }
        stack.extend(below.into_iter().rev());
    }
    Ok(())
}

fn print(entry: &Entry, name: &Name, shown: &str, ls: &args::Ls, report: Report) -> Result<(), Failure> {
    let directory = entry.kind == EntryKind::Directory;
    let kind = if directory { "directory" } else { "file" };
    let name = NameFacts::new(name);
    let row = Row { name, kind, size: entry.size, modified_ms: Some(entry.modified_ms) };
    report.line(&row, |row| {
        let slash = if directory { "/" } else { "" };
        match ls.long {
            true => {
                format!("{}  {}  {shown}{slash}", size_shown(row.size, ls), time::show(entry.modified_ms))
            }
            false => format!("{shown}{slash}"),
        }
    })
}

/// A size, padded to the width of its column.
fn size_shown(bytes: u64, ls: &args::Ls) -> String {
    if ls.human { format!("{:>9}", size::show(bytes)) } else { format!("{bytes:>14}") }
}
