//! `braid ls`.

use std::path::Path;

use braid_client::{Client, Name};
use braid_wire::control::{Entry, EntryKind, FileAttributes};
use serde::Serialize;

use crate::files::names::{NameFacts, remote, show_remote};
use crate::files::{mode, namespace};
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::report::{Report, show_name};
use crate::output::{size, time};
use crate::{args, connect};

/// Nanoseconds in a millisecond.
const MS_NS: i64 = 1_000_000;

/// An entry; a line of `--json`.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    name: NameFacts,
    kind: &'static str,
    size: u64,
    /// Time of the last change in milliseconds since 1970; absent for a volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_ms: Option<i64>,
    #[serde(flatten)]
    facts: Option<AttributeFacts>,
}

/// Attributes of an entry, in `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct AttributeFacts {
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    accessed_ns: i64,
    modified_ns: i64,
    changed_ns: i64,
    /// Number of a device node, as Linux encodes it; absent for other kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<u32>,
    /// Target of a symbolic link; absent for other kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl AttributeFacts {
    /// Converts these attributes and, for a symbolic link, its target.
    pub(crate) fn of(of: &FileAttributes, target: &[u8]) -> AttributeFacts {
        let is_device = matches!(of.kind, EntryKind::CharDevice | EntryKind::BlockDevice);
        let is_link = of.kind == EntryKind::Symlink;
        AttributeFacts {
            mode: format!("{:04o}", of.mode),
            links: of.links,
            uid: of.uid,
            gid: of.gid,
            accessed_ns: of.accessed_ns,
            modified_ns: of.modified_ns,
            changed_ns: of.changed_ns,
            device: is_device.then_some(of.device),
            target: is_link.then(|| String::from_utf8_lossy(target).into_owned()),
        }
    }
}

/// Name of an entry's kind, for users.
pub(crate) fn kind_shown(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink => "symbolic link",
        EntryKind::Fifo => "named pipe",
        EntryKind::Socket => "socket",
        EntryKind::CharDevice => "character device",
        EntryKind::BlockDevice => "block device",
    }
}

impl Row {
    fn of(name: &Name, entry: &Entry, target: &[u8]) -> Row {
        let of = &entry.attributes;
        Row {
            name: NameFacts::new(name),
            kind: kind_shown(of.kind),
            size: of.size,
            modified_ms: Some(of.modified_ns / MS_NS),
            facts: Some(AttributeFacts::of(of, target)),
        }
    }
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
        if row.kind() != EntryKind::Directory {
            let entry = Entry { name: name.path().to_vec(), file: row.file, attributes: row.attributes };
            print(&client, &entry, &name, &show_name(name.path()), &ls, report).await?;
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
        let row = Row {
            name: NameFacts::new(&root),
            kind: "volume",
            size: row.file_bytes,
            modified_ms: None,
            facts: None,
        };
        report.line(&row, |row| match ls.long {
            true => format!("{}  {shown}", size_shown(row.size, ls)),
            false => shown,
        })?;
    }
    Ok(())
}

/// Names of the roots of all volumes.
async fn roots(client: &Client) -> Result<Vec<Name>, Failure> {
    let volumes = client.volumes().await?;
    volumes.iter().map(|row| Name::root(&row.name).doing(|| format!("list volume {}", row.name))).collect()
}

/// Display of each directory's name above its entries.
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
    let mut stack = vec![root.clone()];
    while let Some(name) = stack.pop() {
        let entries = match name == root {
            true => namespace::entries(client, &name).await?,
            false => namespace::entries_if_there(client, &name).await?,
        };
        if headings == Headings::Shown {
            report.say(format!("{}:", show_remote(&name)))?;
        }
        let mut below = Vec::new();
        for entry in entries {
            let full = name.join(&entry.name).doing(|| format!("list {}", show_remote(&name)))?;
            // Programs get the whole name, users the last part of it under its heading.
            print(client, &entry, &full, &show_name(&entry.name), ls, report).await?;
            if ls.recursive && entry.kind() == EntryKind::Directory {
                below.push(full);
            }
        }
        stack.extend(below.into_iter().rev());
    }
    Ok(())
}

async fn print(
    client: &Client,
    entry: &Entry,
    name: &Name,
    shown: &str,
    ls: &args::Ls,
    report: Report,
) -> Result<(), Failure> {
    let is_link = entry.kind() == EntryKind::Symlink;
    let target = match is_link && (ls.long || report.json) {
        true => client.stat_itself(name).await?.target,
        false => Vec::new(),
    };
    let row = Row::of(name, entry, &target);
    report.line(&row, |row| {
        let slash = if entry.kind() == EntryKind::Directory { "/" } else { "" };
        if !ls.long {
            return format!("{shown}{slash}");
        }
        let of = &entry.attributes;
        let leads = if is_link { format!(" -> {}", show_name(&target)) } else { String::new() };
        format!(
            "{} {:>3} {:>5} {:>5} {}  {}  {shown}{slash}{leads}",
            mode::show(of.mode, of.kind),
            of.links,
            of.uid,
            of.gid,
            size_shown(row.size, ls),
            time::show(u64::try_from(of.modified_ns / MS_NS).unwrap_or(0))
        )
    })
}

/// A size, padded to the width of its column.
fn size_shown(bytes: u64, ls: &args::Ls) -> String {
    if ls.human { format!("{:>9}", size::show(bytes)) } else { format!("{bytes:>14}") }
}
