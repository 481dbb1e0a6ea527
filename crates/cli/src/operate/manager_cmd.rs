//! `braid manager backup`, `restore`, `free-unnamed` and `replace`, and `braid cluster ls`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use braid_wire::checksum::RunningCrc;
use braid_wire::control::{BackupReply, ManagerRow, MemberRow};
use serde::Serialize;

use crate::connect;
use crate::machine::hosting::token_spec;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::report::{Report, table};
use crate::output::size;

/// Number of bytes of a backup copied at a time.
const COPY_BYTES: usize = 1 << 20;
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
    directory: PathBuf,
    /// Number of rows restored; absent if the existing state was adopted without a backup.
    rows: Option<u64>,
}

/// Runs `braid manager backup`: the manager writes the backup into its own directory, and this command copies
/// it to the path asked for.
pub(crate) async fn backup(to: PathBuf, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let made = client.backup().await?;
    let from = PathBuf::from(&made.path);
    let elsewhere = |why: String| {
        Failure::new(Exit::Usage, format!("back the manager up to {}", to.display()), why)
            .remedy("run it where the manager runs, or copy that file from there")
    };
    match copy(&made, &to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !from.exists() => {
            let why = format!("the manager has made {}, and this is not its machine", from.display());
            return Err(elsewhere(why));
        }
        // The path also exists on this machine, for example as the backup of an earlier manager here.
        Ok(Is::Another) => {
            let why = format!(
                "{} on this machine is not the backup that the manager has just made: it runs on another (or made one more \
                 meanwhile)",
                from.display()
            );
            return Err(elsewhere(why));
        }
        other => other.doing(|| format!("copy {} to {}", from.display(), to.display()))?,
    };
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

/// Identity of the file found at the manager's path.
#[derive(Debug, PartialEq, Eq)]
enum Is {
    /// The backup that the manager reported; it was copied.
    Told,
    /// Another file; nothing of it is kept.
    Another,
}

/// Copies the backup whole or not at all, readable by its owner only.
fn copy(made: &BackupReply, to: &Path) -> io::Result<Is> {
    let fresh = to.with_extension(format!("braid-{}.part", std::process::id()));
    let copied = (|| {
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        let mut from = File::open(&made.path)?;
        let is = copy_checked(&mut from, &mut out, made)?;
        if is == Is::Told {
            out.sync_all()?;
            fs::rename(&fresh, to)?;
        }
        Ok(is)
    })();
    if !matches!(copied, Ok(Is::Told)) {
        let _ = fs::remove_file(&fresh);
    }
    copied
}

/// Copies a file if it has the reported length and checksum. The checksum covers all but the last 4 bytes,
/// which hold it: a CRC over content and its own CRC would be the same for every backup.
fn copy_checked(from: &mut impl Read, out: &mut impl Write, made: &BackupReply) -> io::Result<Is> {
    let mut crc = RunningCrc::new();
    let mut buffer = vec![0; COPY_BYTES];
    let Some(mut left) = made.bytes.checked_sub(CRC_BYTES as u64) else { return Ok(Is::Another) };
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = match from.read(&mut buffer[..most]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if count == 0 {
            return Ok(Is::Another);
        }
        crc.update(&buffer[..count]);
        out.write_all(&buffer[..count])?;
        left -= count as u64;
    }
    let mut rest = Vec::new();
    from.take(CRC_BYTES as u64 + 1).read_to_end(&mut rest)?;
    if crc.value() != made.crc || rest != made.crc.to_le_bytes() {
        return Ok(Is::Another);
    }
    out.write_all(&rest)?;
    Ok(Is::Told)
}

/// Runs `braid manager restore`.
pub(crate) fn restore(backup: Option<PathBuf>, dir: PathBuf, report: Report) -> Result<(), Failure> {
    let what = || format!("restore the manager in {}", dir.display());
    let rows = match &backup {
        Some(backup) => Some(braid_manager::restore::backup::restore(&dir, backup).doing(what)?),
        None => {
            braid_manager::restore::backup::adopt(&dir).doing(what)?;
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
            braid_manager::restore::compare::REPORT_FILE,
        )
    })
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
    let token = client.make_token(token_spec(&format!("for-{old}"))).await?;
    let manager = client.config().managers.leading();
    let facts = serde_json::json!({
        "removed": old,
        "token": token.to_string(),
        "manager": manager,
    });
    report.facts(&facts, |_| {
        format!(
            "{old} is no manager any more. On the host that takes its place, within a day:\n  \
             braid cluster join {token} --manager {manager} --listen HOST:7400 --dir DIR\n"
        )
    })
}

/// The managers and the members of etcd in `--json`.
#[derive(Debug, Serialize)]
struct ClusterFacts {
    managers: Vec<ManagerFacts>,
    members: Vec<MemberFacts>,
}

#[derive(Debug, Serialize)]
struct ManagerFacts {
    address: String,
    leads: bool,
    /// Time since it was last heard.
    silent_ms: u64,
    /// Changes that it has not taken over yet.
    lag: u64,
    version: String,
}

#[derive(Debug, Serialize)]
struct MemberFacts {
    name: String,
    peer: String,
    healthy: bool,
    leads: bool,
    database_bytes: u64,
    alarms: Vec<String>,
}

/// Runs `braid cluster ls`.
pub(crate) async fn list(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let status = connect::status_soon(&client).await?;
    let manager = |row: ManagerRow| {
        let ManagerRow { address, leads, silent_ms, lag, version } = row;
        ManagerFacts { address, leads, silent_ms, lag, version }
    };
    let member = |row: MemberRow| {
        let MemberRow { name, peer, healthy, leads, database_bytes, alarms } = row;
        MemberFacts { name, peer, healthy, leads, database_bytes, alarms }
    };
    let facts = ClusterFacts {
        managers: status.managers.into_iter().map(manager).collect(),
        members: status.members.into_iter().map(member).collect(),
    };
    report.facts(&facts, show)
}

fn show(facts: &ClusterFacts) -> String {
    let managers = facts.managers.iter().map(|manager| {
        let role = if manager.leads { "leads" } else { "stands by" };
        let address = manager.address.clone();
        vec![address, role.to_owned(), manager.lag.to_string(), manager.version.clone()]
    });
    let managers = table(&["manager", "role", "lag", "version"], &[2], managers);
    if facts.members.is_empty() {
        return managers;
    }
    let members = facts.members.iter().map(|member| {
        let state = match (member.healthy, member.leads) {
            (false, _) => "does not answer",
            (true, true) => "leads",
            (true, false) => "follows",
        };
        let alarms = if member.alarms.is_empty() { "-".to_owned() } else { member.alarms.join(", ") };
        let bytes = size::show(member.database_bytes);
        vec![member.name.clone(), member.peer.clone(), state.to_owned(), bytes, alarms]
    });
    managers + "\n" + &table(&["etcd of", "peer address", "state", "size", "alarms"], &[3], members)
}

#[cfg(test)]
mod tests {
    use braid_wire::checksum::crc32c;

    use super::*;

    fn backup(content: &[u8]) -> Vec<u8> {
        [content, &crc32c(content).to_le_bytes()].concat()
    }

    #[test]
    fn only_the_backup_that_the_manager_told_of_is_copied() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, to) = (dir.path().join("backup"), dir.path().join("copy"));
        let content = vec![7; COPY_BYTES + 5];
        let told = backup(&content);
        let made = BackupReply {
            path: path.display().to_string(),
            bytes: told.len() as u64,
            rows: 1,
            crc: crc32c(&content),
        };
        let another = backup(&vec![8; content.len()]);
        let longer = [told.as_slice(), b"x"].concat();
        let mut torn = told.clone();
        *torn.last_mut().expect("not empty") ^= 1;
        for wrong in [&another, &longer, &torn, &told[..told.len() - 1].to_vec(), &Vec::new()] {
            fs::write(&path, wrong).expect("written");
            assert_eq!(copy(&made, &to).expect("read"), Is::Another, "{} bytes", wrong.len());
            assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1, "something of it is there");
        }
        fs::write(&path, &told).expect("written");
        assert_eq!(copy(&made, &to).expect("copied"), Is::Told);
        assert!(fs::read(&to).expect("there") == told);
    }
}
