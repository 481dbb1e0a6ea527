//! `braid layout set|ls|rm`: the layouts of new files, by directory.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use braid_client::{Client, Name, RateAsk};
use braid_layout::Shape;
use braid_wire::Reason;
use braid_wire::control::{Clustering, EntryKind, LayoutFrom, LayoutReply};
use serde::Serialize;

use crate::files::names::{remote, show_remote};
use crate::files::stat::{ShapeFacts, shape_facts, show_shape};
use crate::operate::reserve::bytes_per_second;
use crate::operate::volume::Asked;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::report::{Report, table};
use crate::output::{shell, size};
use crate::{args, connect};

/// A layout and where it comes from, in `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    name: String,
    layout: ShapeFacts,
    /// Kind of what has the layout: `file`, `directory` or `volume`.
    from: &'static str,
    /// Name of that file, directory or volume.
    of: String,
    /// True if the file or directory has the layout itself.
    own: bool,
    /// Small files that new ones are placed near to: `directory`, `tree` or `none`.
    clustering: &'static str,
}

/// Runs the command.
pub(crate) async fn run(
    command: args::Layout,
    cluster: Option<&Path>,
    report: Report,
) -> Result<(), Failure> {
    match command {
        args::Layout::Set(asked) => set(asked, cluster, report).await,
        args::Layout::Ls { recursive, names } => {
            let names = parse(&names)?;
            let client = connect::cluster(cluster).await?;
            let mut rows = Vec::new();
            for name in names {
                rows.push(row(&client, &name).await?);
                if recursive {
                    below(&client, name, &mut rows).await?;
                }
            }
            report.facts(&rows, |rows| show(rows))
        }
        args::Layout::Rm { names } => {
            let names = parse(&names)?;
            let client = connect::cluster(cluster).await?;
            let mut rows = Vec::new();
            for name in names {
                client.set_layout(&name, None).await?;
                rows.push(row(&client, &name).await?);
            }
            report.facts(&rows, |rows| format!("{}{}", show(rows), stays("")))
        }
    }
}

async fn set(asked: args::LayoutSet, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let what = || "layout set".to_owned();
    let names = parse(&asked.names)?;
    let wanted = asked.scheme.as_deref().map(|scheme| Asked::new(scheme, asked.width, asked.unit));
    let wanted = wanted.transpose().doing(what)?;
    let client = connect::cluster(cluster).await?;
    let shape = match wanted {
        Some(wanted) => Some(wanted.shape(&client, what).await?),
        None => None,
    };
    let rate = asked.rate.map(bytes_per_second);
    let mut rows = Vec::new();
    for name in &names {
        let shape = match rate {
            Some(rate) => Some(for_rate(&client, name, rate).await?),
            None => shape,
        };
        if let Some(shape) = shape {
            set_shape(&client, name, shape).await?;
        }
        if let Some(which) = asked.clustering {
            client.set_clustering(name, clustering(which)).await?;
        }
        rows.push(row(&client, name).await?);
    }
    let first = names.first().map(|name| shell::quoted(OsStr::new(&show_remote(name)))).unwrap_or_default();
    let remedy = shape.map(|shape| format!("; braid relayout {first} {}", flags(shape)));
    let line = remedy.map_or_else(|| STAYS.to_owned(), |remedy| stays(&remedy));
    report.facts(&rows, |rows| format!("{}{line}", show(rows)))
}

/// The layout that a reservation of a rate would give to files written there. Nothing is reserved.
async fn for_rate(client: &Client, name: &Name, rate: u64) -> Result<Shape, Failure> {
    let what = || format!("layout set {} for {}", show_remote(name), size::show_rate(rate));
    let survive = client.layout(name).await?.shape.m.min(1);
    let ask = RateAsk { survive, ..RateAsk::write(rate, PLANNED_FOR) };
    let reply = client.reserve_rate(name, &ask, true).await?;
    match (reply.admitted, reply.refused) {
        (Some(row), _) => row.plan.shape.shape().doing(what),
        (None, Some(refused)) => Err(Failure::new(Exit::NotAdmitted, what(), refused.detail)),
        (None, None) => Err(Failure::new(Exit::Failed, what(), "the manager has no plan for it")),
    }
}

async fn set_shape(client: &Client, name: &Name, shape: Shape) -> Result<(), Failure> {
    client.set_layout(name, Some(shape)).await.map_err(|error| {
        let written = error.reason() == Some(Reason::Written);
        let failure = Failure::from(error);
        let again =
            format!("braid relayout {} {}", shell::quoted(OsStr::new(&show_remote(name))), flags(shape));
        if written { failure.remedy(again) } else { failure }
    })
}

/// The clustering that `--clustering` asks for; `None`: as the directory above says.
fn clustering(which: args::Clustering) -> Option<Clustering> {
    match which {
        args::Clustering::Directory => Some(Clustering::Directory),
        args::Clustering::Tree => Some(Clustering::Tree),
        args::Clustering::None => Some(Clustering::Nothing),
        args::Clustering::Inherit => None,
    }
}

/// The line that says what a change does not do, where no one layout brings it about.
const STAYS: &str = "what exists stays as it is\n";
/// The shortest time that a rate is planned for: what is written in it must have room.
const PLANNED_FOR: Duration = Duration::from_secs(10);

/// The line that says what a change of a layout does not do; `more` is what would.
pub(crate) fn stays(more: &str) -> String {
    let more = if more.is_empty() { "; braid relayout gives it another layout" } else { more };
    format!("what exists stays as it is{more}\n")
}

/// The arguments that ask for a shape.
pub(crate) fn flags(shape: Shape) -> String {
    let unit = match shape.unit_bytes() {
        bytes if bytes >= 1 << 20 => format!("{}M", bytes >> 20),
        bytes => format!("{}K", bytes >> 10),
    };
    format!("--scheme {} --unit {unit}", shell::quoted(OsStr::new(&shape.to_string())))
}

/// The layout that counts at a name.
pub(crate) async fn row(client: &Client, name: &Name) -> Result<Row, Failure> {
    let LayoutReply { shape, from, of, path, clustering } = client.layout(name).await?;
    let own = match from {
        LayoutFrom::File => true,
        LayoutFrom::Directory => client.stat(name).await?.file == of,
        LayoutFrom::Volume => name.path().is_empty(),
    };
    let from = match from {
        LayoutFrom::File => "file",
        LayoutFrom::Directory => "directory",
        LayoutFrom::Volume => "volume",
    };
    let clustering = match clustering {
        Clustering::Directory => "directory",
        Clustering::Tree => "tree",
        Clustering::Nothing => "none",
    };
    Ok(Row { name: show_remote(name), layout: shape_facts(&shape), from, of: path, own, clustering })
}

/// Adds the directories below one that have a layout of their own, in order.
async fn below(client: &Client, name: Name, rows: &mut Vec<Row>) -> Result<(), Failure> {
    let mut left = vec![Below { name, may_have: false }];
    while let Some(directory) = left.pop() {
        let what = || show_remote(&directory.name);
        // It may be a file, and a directory may be removed meanwhile.
        if directory.may_have {
            match row(client, &directory.name).await {
                Err(failure) if failure.exit == Exit::NotFound => continue,
                found => rows.extend(Some(found?).filter(|row| row.own)),
            }
        }
        let entries = match client.list(&directory.name).all().await {
            Err(error) if matches!(error.reason(), Some(Reason::NotDirectory | Reason::NotFound)) => continue,
            entries => entries?,
        };
        for entry in entries.iter().rev().filter(|entry| entry.kind() == EntryKind::Directory) {
            let name = directory.name.join(&entry.name).doing(what)?;
            left.push(Below { name, may_have: entry.attributes.has_xattrs });
        }
    }
    Ok(())
}

/// A directory to be listed.
struct Below {
    name: Name,
    /// True if it may have a layout of its own: that counts as an extended attribute.
    may_have: bool,
}

fn parse(names: &[OsString]) -> Result<Vec<Name>, Failure> {
    names.iter().map(|name| remote(name)).collect()
}

fn show(rows: &[Row]) -> String {
    let cells = rows.iter().map(|row| {
        let from = match (row.own, row.from) {
            (true, "file") => "the file".to_owned(),
            (true, _) => "set here".to_owned(),
            (false, _) => row.of.clone(),
        };
        vec![row.name.clone(), show_shape(&row.layout), from, row.clustering.to_owned()]
    });
    table(&["name", "layout", "from", "clustering"], &[], cells)
}
