//! `braid quota set|ls|rm`.

use std::path::Path;

use braid_client::{Client, Name};
use braid_wire::control::QuotaRow;
use serde::Serialize;

use crate::files::attributes::user_id;
use crate::files::names::remote;
use crate::output::exit::{Exit, Failure};
use crate::output::report::{Report, table};
use crate::output::size;
use crate::{args, connect};

/// A quota in `--json`.
#[derive(Debug, Serialize)]
struct Row {
    /// The volume or directory.
    place: String,
    /// The user, by number; absent for a quota of the place.
    user: Option<u32>,
    /// Maximum number of bytes; 0: any.
    limit_bytes: u64,
    /// Maximum number of files; 0: any.
    limit_files: u64,
    /// Bytes that count now.
    bytes: u64,
    /// Files that count now.
    files: u64,
}

/// Runs the command.
pub(crate) async fn run(command: args::Quota, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    match command {
        args::Quota::Set(set) => {
            let (name, user) = of(&set.of)?;
            let client = connect::cluster(cluster).await?;
            client.set_quota(&name, user, set.bytes, set.files).await?;
            let is_it = |row: &QuotaRow| row.user == user && is_at(&name, row);
            let row = client.quotas(Some(name.volume())).await?.into_iter().find(is_it).map(Row::from);
            report.facts(&row, |row| {
                row.as_ref().map_or_else(String::new, |row| show(std::slice::from_ref(row)))
            })
        }
        args::Quota::Rm { of: place } => {
            let (name, user) = of(&place)?;
            Ok(connect::cluster(cluster).await?.remove_quota(&name, user).await?)
        }
        args::Quota::Ls { volume } => {
            let named = volume.as_deref().map(remote).transpose()?;
            if let Some(name) = named.as_ref().filter(|name| !name.is_root()) {
                let why = format!("{name} is not a volume");
                let remedy = format!("name the volume alone: braid://{}", name.volume());
                return Err(Failure::new(Exit::Usage, "list quotas".to_owned(), why).remedy(remedy));
            }
            list(&connect::cluster(cluster).await?, named.as_ref().map(Name::volume), report).await
        }
    }
}

/// The place and the user that the arguments name.
fn of(of: &args::QuotaOf) -> Result<(Name, Option<u32>), Failure> {
    let name = remote(&of.place)?;
    let user = of.user.as_deref().map(user_id).transpose()?;
    Ok((name, user))
}

/// Returns true if the row is of this place.
fn is_at(name: &Name, row: &QuotaRow) -> bool {
    row.place.trim_end_matches('/') == name.to_string().trim_end_matches('/')
}

async fn list(client: &Client, volume: Option<&str>, report: Report) -> Result<(), Failure> {
    let rows: Vec<Row> = client.quotas(volume).await?.into_iter().map(Row::from).collect();
    report.facts(&rows, |rows| if rows.is_empty() { "no quotas\n".to_owned() } else { show(rows) })
}

impl From<QuotaRow> for Row {
    fn from(row: QuotaRow) -> Row {
        let QuotaRow { place, user, limit_bytes, limit_files, bytes, files } = row;
        Row { place, user, limit_bytes, limit_files, bytes, files }
    }
}

fn show(rows: &[Row]) -> String {
    let cells = rows.iter().map(|row| {
        let bytes = if row.limit_bytes == 0 { "any".to_owned() } else { size::show(row.limit_bytes) };
        let files = if row.limit_files == 0 { "any".to_owned() } else { row.limit_files.to_string() };
        vec![
            row.place.clone(),
            row.user.map_or_else(|| "-".to_owned(), |user| user.to_string()),
            size::show(row.bytes),
            bytes,
            row.files.to_string(),
            files,
        ]
    });
    table(&["place", "user", "bytes", "quota", "files", "quota"], &[2, 3, 4, 5], cells)
}
