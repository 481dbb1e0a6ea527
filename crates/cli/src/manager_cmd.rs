//! `braid manager backup`, `restore` and `free-unnamed`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::connect;
use crate::exit::{Doing, Exit, Failure};
use crate::report::Report;

#[derive(Debug, Serialize)]
struct Made {
    backup: PathBuf,
    bytes: u64,
    rows: u64,
}

#[derive(Debug, Serialize)]
struct Restored {
    directory: PathBuf,
    /// Absent where the state that was there is taken as it is.
    rows: Option<u64>,
}

/// Runs `braid manager backup`: the manager writes it in its own directory, and it is moved to where it was asked for.
pub(crate) async fn backup(to: PathBuf, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let made = client.backup().await?;
    let from = PathBuf::from(&made.path);
    let copied = copy(&from, &to);
    match copied {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !from.exists() => {
            let why = format!("the manager has made {}, and this is not its machine", from.display());
            return Err(Failure::new(Exit::Usage, format!("back the manager up to {}", to.display()), why)
                .remedy("run it where the manager runs, or copy that file from there"));
        }
        other => other.doing(|| format!("copy {} to {}", from.display(), to.display()))?,
    }
    let facts = Made { backup: to, bytes: made.bytes, rows: made.rows };
    report.facts(&facts, |facts| {
        format!(
            "{}: {} rows, {} bytes. It holds the cluster's secrets: keep it where only its owner reads it.\n",
            facts.backup.display(),
            facts.rows,
            facts.bytes
        )
    })
}

/// Whole or not at all, for its owner only.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let fresh = to.with_extension(format!("braid-{}.part", std::process::id()));
    let copied = (|| {
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        io::copy(&mut File::open(from)?, &mut out)?;
        out.sync_all()?;
        fs::rename(&fresh, to)
    })();
    if copied.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    copied
}

/// Runs `braid manager restore`.
pub(crate) fn restore(backup: Option<PathBuf>, dir: PathBuf, report: Report) -> Result<(), Failure> {
    let what = || format!("restore the manager in {}", dir.display());
    let rows = match &backup {
        Some(backup) => Some(braid_manager::backup::restore(&dir, backup).doing(what)?),
        None => {
            braid_manager::backup::adopt(&dir).doing(what)?;
            None
        }
    };
    let facts = Restored { directory: dir, rows };
    report.facts(&facts, |facts| {
        let rows = facts.rows.map_or_else(String::new, |rows| format!("{rows} rows restored. "));
        format!(
            "{rows}Start the manager in {} and its drives: it compares its names with what the drives hold before it answers; \
             `braid status` shows how that goes, and {} in that directory what it found.\n",
            facts.directory.display(),
            braid_manager::compare::REPORT_FILE,
        )
    })
}

/// Runs `braid manager free-unnamed`.
pub(crate) async fn free_unnamed(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    connect::cluster(cluster).await?.free_unnamed().await?;
    report.facts(&serde_json::json!({ "unnamed": "freed" }), |_| {
        "objects that no name leads to are freed from now on\n".to_owned()
    })
}
