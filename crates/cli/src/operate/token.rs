//! `braid token new|ls|revoke`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use braid_client::{Client, TokenSpec, Transport};
use braid_wire::control::{TokenRow, TokenState, TokenUser};
use braid_wire::token::{Token, TokenRole};
use serde::Serialize;

use crate::files::names::remote;
use crate::machine::cluster_dir::ClusterFile;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::report::{Report, table};
use crate::output::time;
use crate::{args, connect};

/// A new token in `--json`.
#[derive(Debug, Serialize)]
struct Made {
    name: String,
    /// The token's text; absent if it is in a file.
    token: Option<String>,
    /// The file that holds it.
    file: Option<PathBuf>,
    /// Seconds since 1970 at which it ends; 0: never.
    expires_s: u64,
}

/// A token in `--json`.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// The token's number, as in its text.
    id: String,
    role: &'static str,
    /// The volumes for which it is; absent: all.
    volumes: Option<Vec<String>>,
    /// Directories to which it is confined; empty: none.
    below: Vec<String>,
    /// The user to whom it is bound, and the user's groups; absent: none.
    uid: Option<u32>,
    gids: Vec<u32>,
    read_only: bool,
    /// True if one drive or manager may join with it, and no second one.
    single_use: bool,
    /// The drive that has joined with it, or a number of the manager.
    used_by: Option<String>,
    made_ms: u64,
    /// Seconds since 1970 at which it ends; 0: never.
    expires_s: u64,
    /// `valid`, `used`, `expired` or `revoked`.
    state: &'static str,
    /// Sessions that are open with it.
    sessions: u32,
}

/// Runs the command.
pub(crate) async fn run(
    command: args::TokenCommand,
    cluster: Option<&Path>,
    report: Report,
) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    match command {
        args::TokenCommand::New(asked) => new(&client, asked, report).await,
        args::TokenCommand::Ls => {
            let rows: Vec<Row> = client.tokens().await?.into_iter().map(Row::from).collect();
            report.facts(&rows, |rows| show(rows))
        }
        args::TokenCommand::Revoke { name } => {
            client.revoke_token(&name).await?;
            report.facts(&serde_json::json!({ "revoked": name }), |_| format!("token {name} is revoked\n"))
        }
    }
}

async fn new(client: &Client, asked: args::TokenNew, report: Report) -> Result<(), Failure> {
    let volume = |text: String| match text.strip_prefix("braid://") {
        Some(name) => name.trim_end_matches('/').to_owned(),
        None => text,
    };
    let volumes: Vec<String> = asked.volumes.into_iter().map(volume).collect();
    let below = asked.below.iter().map(|name| remote(name)).collect::<Result<Vec<_>, _>>()?;
    let gids = |uid| if asked.gid.is_empty() { vec![uid] } else { asked.gid.clone() };
    let user = asked.uid.map(|uid| TokenUser { uid, gids: gids(uid) });
    let spec = TokenSpec {
        name: asked.name.clone(),
        role: match asked.role {
            args::TokenRole::Admin => TokenRole::Admin,
            args::TokenRole::Client => TokenRole::Client,
            args::TokenRole::Drive => TokenRole::Drive,
            args::TokenRole::Manager => TokenRole::Manager,
        },
        volumes: (!volumes.is_empty()).then_some(volumes),
        below,
        user,
        read_only: asked.read_only,
        lasts_s: asked.expires.unwrap_or_default(),
    };
    // The file is there before the token: one that could not be kept would be lost.
    let file = asked.out.as_deref().map(begin).transpose()?;
    let token = match client.make_token(spec).await {
        Ok(token) => token,
        Err(error) => {
            if let Some(path) = &asked.out {
                let _ = fs::remove_file(path);
            }
            return Err(error.into());
        }
    };
    let expires_s = token.expires_s;
    let text = token.to_string();
    if let Some(path) = &asked.out
        && let Some(mut file) = file
    {
        let content = content(client, &token)?;
        let write = file.write_all(content.as_bytes()).and_then(|()| file.sync_all());
        write.map_err(|error| unwritten(path, &asked.name, &error))?;
        let made = Made { name: asked.name, token: None, file: Some(path.clone()), expires_s };
        return report
            .facts(&made, |made| format!("made token {}: it is in {}\n", made.name, path.display()));
    }
    report
        .facts(&Made { name: asked.name, token: Some(text.clone()), file: None, expires_s }, |_| text + "\n")
}

/// A new file that only its owner can read.
fn begin(path: &Path) -> Result<fs::File, Failure> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match opened {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let why = "it is there already".to_owned();
            let what = format!("write {}", path.display());
            Err(Failure::new(Exit::Conflict, what, why).remedy("name a new file with --out"))
        }
        opened => opened.doing(|| format!("write {}", path.display())),
    }
}

/// The content of a token's file.
fn content(client: &Client, token: &Token) -> Result<String, Failure> {
    if matches!(token.role, TokenRole::Drive | TokenRole::Manager) {
        return Ok(format!("{token}\n"));
    }
    let manager = client.config().managers.to_string();
    let transport = client.config().transport;
    let cluster = ClusterFile {
        manager,
        token: token.to_string(),
        drives: Vec::new(),
        transport: (transport != Transport::Tcp).then(|| transport.to_string()),
        volume_keys: Default::default(),
    };
    toml::to_string(&cluster).map_err(io::Error::other).doing(|| "write the token's file".to_owned())
}

fn unwritten(path: &Path, name: &str, error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("write {}", path.display()), error.to_string())
        .remedy(format!("end the token, which nobody holds now: braid token revoke {name}"))
}

impl From<TokenRow> for Row {
    fn from(row: TokenRow) -> Row {
        Row {
            name: row.name,
            id: row.id.to_string(),
            role: row.role.word(),
            volumes: row.volumes,
            below: row.below,
            uid: row.user.as_ref().map(|user| user.uid),
            gids: row.user.map(|user| user.gids).unwrap_or_default(),
            read_only: row.read_only,
            single_use: row.single_use,
            used_by: (!row.used_by.is_empty()).then_some(row.used_by),
            made_ms: row.made_ms,
            expires_s: row.expires_s,
            state: match row.state {
                TokenState::Valid => "valid",
                TokenState::Used => "used",
                TokenState::Expired => "expired",
                TokenState::Revoked => "revoked",
            },
            sessions: row.sessions,
        }
    }
}

fn show(rows: &[Row]) -> String {
    let rows = rows.iter().map(|row| {
        let volumes = row.volumes.as_ref().map_or("all".to_owned(), |volumes| volumes.join(", "));
        let mut places = if row.below.is_empty() { volumes } else { row.below.join(", ") };
        if let Some(uid) = row.uid {
            places = format!("{places}, as user {uid}");
        }
        let allows = match (row.role, row.read_only) {
            ("drive", _) if row.single_use => "one drive joins".to_owned(),
            ("drive", _) => "drives join".to_owned(),
            ("manager", _) => "one manager joins".to_owned(),
            (_, true) => format!("{places}, read-only"),
            (_, false) => places,
        };
        let ends = match row.expires_s {
            0 => "never".to_owned(),
            seconds => time::show(seconds.saturating_mul(1000)),
        };
        let state = match &row.used_by {
            // A manager's number says nothing to people: the token's name does.
            Some(drive) if row.role != "manager" => format!("{} by {drive}", row.state),
            _ => row.state.to_owned(),
        };
        vec![row.name.clone(), row.role.to_owned(), allows, ends, state, row.sessions.to_string()]
    });
    table(&["token", "role", "allows", "ends", "state", "sessions"], &[5], rows)
}
