//! `braid manager backup`, `restore`, `free-unnamed` and `replace`, and `braid cluster ls`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_client::Client;
use braid_manager::restore::backup::unpack;
use braid_manager::{Kv, ManagerError};
use braid_wire::checksum::RunningCrc;
use braid_wire::control::BackupReply;
use serde::Serialize;

use crate::args::ManagerRestore;
use crate::connect;
use crate::machine::hosting::token_spec;
use crate::machine::serve;
use crate::machine::temporary_dir::{OnDrop, TemporaryDir};
use crate::operate::status::managers;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::report::Report;

/// Bytes of the checksum at the end of a backup.
const CRC_BYTES: usize = 4;

#[derive(Debug, Serialize)]
struct Made {
    backup: PathBuf,
    bytes: u64,
    rows: u64,
}

#[derive(Debug, Serialize)]
struct Restored {
    /// The manager's directory, or the etcd.
    place: String,
    /// Number of rows restored; absent if the existing state was adopted without a backup.
    rows: Option<u64>,
}

/// Runs `braid manager backup`: the manager writes the backup into its own directory, and this command reads
/// it from there over its session, so that it may run on any machine.
pub(crate) async fn backup(to: PathBuf, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let made = client.backup().await?;
    let fresh = to.with_extension(format!("braid-{}.part", std::process::id()));
    let copied = copy(&client, &made, &fresh).await;
    let moved = copied.and_then(|()| fs::rename(&fresh, &to).doing(|| format!("write {}", to.display())));
    if moved.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    moved?;
    tell_made(to, &made, report)
}

/// Runs `braid manager backup --dir`: of a manager that is stopped.
pub(crate) fn backup_of_directory(to: PathBuf, dir: &Path, report: Report) -> Result<(), Failure> {
    let what = || format!("make a backup of {}", dir.display());
    let made = braid_manager::restore::backup::of_directory(dir, &to).doing(what)?;
    tell_made(to, &made, report)
}

fn tell_made(backup: PathBuf, made: &BackupReply, report: Report) -> Result<(), Failure> {
    let facts = Made { backup, bytes: made.bytes, rows: made.rows };
    report.facts(&facts, |facts| {
        format!(
            "{}: {} rows, {} bytes. It holds the cluster's secrets: keep it where only its owner reads it.\n",
            facts.backup.display(),
            facts.rows,
            facts.bytes
        )
    })
}

/// Copies the backup into a new file that only its owner can read.
async fn copy(client: &Client, made: &BackupReply, to: &Path) -> Result<(), Failure> {
    let what = || format!("write {}", to.display());
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).doing(what)?;
    let mut sum = Sum::new();
    loop {
        let part = client.backup_part(made, sum.bytes).await?;
        if part.is_empty() {
            break;
        }
        sum.handle(&part, made.bytes);
        out.write_all(&part).doing(what)?;
    }
    if !sum.is_of(made) {
        let why = "what came is not the backup that the manager made".to_owned();
        return Err(Failure::new(Exit::Failed, what(), why).remedy("try again"));
    }
    out.sync_all().doing(what)
}

/// The sum of a backup's bytes as they come. The checksum covers all but the last 4 bytes, which hold it: a
/// CRC over content and its own CRC would be the same for every backup.
struct Sum {
    bytes: u64,
    crc: RunningCrc,
    /// The last bytes.
    last: Vec<u8>,
}

impl Sum {
    fn new() -> Sum {
        Sum { bytes: 0, crc: RunningCrc::new(), last: Vec::new() }
    }

    /// The next part of a backup of this length.
    fn handle(&mut self, part: &[u8], length: u64) {
        let summed = length.saturating_sub(CRC_BYTES as u64).saturating_sub(self.bytes);
        let summed = usize::try_from(summed).map_or(part.len(), |summed| summed.min(part.len()));
        self.crc.update(&part[..summed]);
        self.last.extend_from_slice(&part[summed..]);
        self.bytes += part.len() as u64;
    }

    fn is_of(&self, made: &BackupReply) -> bool {
        self.bytes == made.bytes && self.crc.value() == made.crc && self.last == made.crc.to_le_bytes()
    }
}

/// Runs `braid manager restore`.
pub(crate) async fn restore(asked: ManagerRestore, report: Report) -> Result<(), Failure> {
    let ManagerRestore { backup, dir, etcd } = asked;
    let etcd = serve::etcd(&etcd, "restore the managers' state")?;
    let (place, rows) = match (dir, etcd) {
        (Some(dir), _) => {
            let what = || format!("restore the manager in {}", dir.display());
            let rows = match &backup {
                Some(backup) => Some(braid_manager::restore::backup::restore(&dir, backup).doing(what)?),
                None => {
                    braid_manager::restore::backup::adopt(&dir).doing(what)?;
                    None
                }
            };
            (dir.display().to_string(), rows)
        }
        (None, Some(etcd)) => {
            let Some(backup) = &backup else {
                return Err(Failure::usage("restore the managers' state", "no backup is named"));
            };
            let unpacked = Unpacked::of(backup)?;
            let what = || format!("restore {}", backup.display());
            braid_manager::etcd::import(&etcd, Arc::clone(&unpacked.kv))
                .await
                .map_err(ManagerError::from)
                .doing(what)?;
            (etcd.shown(), Some(unpacked.rows))
        }
        (None, None) => unreachable!("one of --dir and --state is required"),
    };
    let facts = Restored { place, rows };
    report.facts(&facts, |facts| {
        let rows = facts.rows.map_or_else(String::new, |rows| format!("{rows} rows restored. "));
        format!(
            "{rows}Start the manager on {} and its drives: it compares its names with what the drives hold before it answers; \
             `braid status` shows how that goes, and {} in the manager's directory what it found.\n",
            facts.place,
            braid_manager::restore::compare::REPORT_FILE,
        )
    })
}

/// A backup's state in a store of its own, from where it is put into an etcd.
pub(crate) struct Unpacked {
    pub(crate) kv: Arc<dyn Kv>,
    rows: u64,
    /// Removed, with the store, when this is dropped.
    _dir: TemporaryDir,
}

impl Unpacked {
    pub(crate) fn of(backup: &Path) -> Result<Unpacked, Failure> {
        let what = || format!("restore {}", backup.display());
        let bytes = fs::metadata(backup).doing(what)?.len();
        let room = bytes.saturating_mul(2);
        let dir = TemporaryDir::make(&std::env::temp_dir(), "restore", room, OnDrop::Remove)?;
        let (kv, rows) = unpack(backup, &dir.path().join("state")).doing(what)?;
        Ok(Unpacked { kv, rows, _dir: dir })
    }
}

/// Runs `braid manager free-unnamed`.
pub(crate) async fn free_unnamed(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    connect::cluster(cluster).await?.free_unnamed().await?;
    report.facts(&serde_json::json!({ "unnamed": "freed" }), |_| {
        "stored objects that belong to no file are freed from now on\n".to_owned()
    })
}

/// Runs `braid manager replace`.
pub(crate) async fn replace(old: &str, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    client.remove_manager(old).await?;
    let spec = token_spec(&format!("for-{old}"));
    let name = spec.name.clone();
    let token = client.make_token(spec).await?;
    let manager = client.config().managers.leading();
    let facts = serde_json::json!({
        "removed": old,
        "token": token.to_string(),
        "manager": manager,
    });
    report.facts(&facts, |_| {
        format!(
            "{old} is no manager any more. On the host that takes its place, within a day:\n  \
             braid cluster join --manager {manager} --listen HOST:7400 --dir DIR --token-file - <<< {token}\n\
             If none does: braid token revoke {name}\n"
        )
    })
}

/// Runs `braid cluster ls`.
pub(crate) async fn list(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let status = connect::status_soon(&client).await?;
    report.facts(&managers::facts(&status), managers::tables)
}

#[cfg(test)]
mod tests {
    use braid_wire::checksum::crc32c;

    use super::*;

    #[test]
    fn only_the_bytes_of_the_backup_that_was_made_count() {
        let content = vec![7; 1000];
        let whole = [content.as_slice(), &crc32c(&content).to_le_bytes()].concat();
        let made =
            BackupReply { path: String::new(), bytes: whole.len() as u64, rows: 1, crc: crc32c(&content) };
        let is_of = |bytes: &[u8], step: usize| {
            let mut sum = Sum::new();
            bytes.chunks(step).for_each(|part| sum.handle(part, made.bytes));
            sum.is_of(&made)
        };
        for step in [1, 3, 999, 1001, 4096] {
            assert!(is_of(&whole, step), "{step}");
        }
        let flipped = |at: usize| {
            let mut other = whole.clone();
            other[at] ^= 1;
            other
        };
        let longer = [whole.as_slice(), b"x"].concat();
        for wrong in [flipped(0), flipped(999), flipped(1003), longer, whole[..1003].to_vec(), Vec::new()] {
            assert!(!is_of(&wrong, 100), "{} bytes", wrong.len());
        }
    }
}
