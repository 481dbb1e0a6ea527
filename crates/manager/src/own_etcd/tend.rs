//! The upkeep of the etcd that Braid runs: votes, room, snapshots. Two jobs of the manager that leads.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use braid_meta::rules::jobs::Progress;
use braid_transport::host::wall_ms;
use braid_wire::control::MemberRow;
use braid_wire::{Reason, Refusal};
use tokio::time::Instant;

use super::plan::{self, Member, Step};
use super::{OwnEtcd, QUOTA_BYTES, calls};
use crate::core::Core;
use crate::jobs::{Again, Job};

/// Pause between two looks at the members.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Pause while a member catches up.
const LEARN_EVERY: Duration = Duration::from_secs(1);
/// Time after which a member that was added and never started is taken out again.
const UNSTARTED_MAX: Duration = Duration::from_secs(600);
/// Age of the newest snapshot at which another one is made.
const SNAPSHOT_EVERY_S: u64 = 24 * 3600;
/// Pause between two looks at the snapshots.
const SNAPSHOT_LOOK: Duration = Duration::from_secs(600);
/// Number of snapshots that are kept.
const SNAPSHOTS_KEPT: usize = 7;
/// End of a snapshot's name.
const SNAPSHOT_END: &str = ".snapshot";
/// Key under which the CA stands in etcd by itself, for a restore on a host that knows nothing else.
pub(crate) const AUTHORITY_KEY: &str = "braid-authority";

/// Looks after the members.
#[derive(Default)]
pub(crate) struct TendEtcd {
    /// A member that was added and has not started, with the time at which that was seen first.
    unstarted: Option<(u64, Instant)>,
    /// True once the CA is known to be in etcd by itself.
    has_authority: bool,
}

impl Job for TendEtcd {
    const NAME: &'static str = "etcd";
    const ABOUT: &'static str = "Looks after the managers' etcd: votes of new members, and room.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        let Some(own) = &core.own_etcd else { return Ok(Again::Never) };
        let members = calls::look(&own.access).await?;
        let alarms = calls::alarms(&own.access).await?;
        core.managers().handle_members(rows(&members, &alarms));
        core.managers().handle_voters(plan::voters(&members));
        if let Some((id, alarm)) = alarms.iter().find(|(_, alarm)| *alarm == "CORRUPT") {
            let name = members.iter().find(|member| member.id == *id).map_or("a member", Member::shown);
            let detail = format!(
                "{name} has raised {alarm}: its disk holds another state than the others'. Stop its manager, take it out \
                 (braid manager replace {name}) and join an empty directory"
            );
            return Err(Refusal::new(Reason::Damaged, detail));
        }
        let full: Vec<u64> =
            alarms.iter().filter(|(_, alarm)| *alarm == "NOSPACE").map(|(id, _)| *id).collect();
        keep_up(own, &members, &full).await?;
        if !self.has_authority {
            let record = super::authority_text(&own.authority);
            calls::put(&own.access, AUTHORITY_KEY, record.into_bytes()).await?;
            self.has_authority = true;
        }
        if let Some(learner) = plan::learner(&members) {
            return match calls::promote(&own.access, learner).await {
                Ok(()) => {
                    tracing::info!(manager = %learner.shown(), "a manager that joined has its vote");
                    Ok(Again::Now)
                }
                Err(refusal) if refusal.reason == Reason::Busy => Ok(Again::In(LEARN_EVERY)),
                Err(refusal) => Err(refusal),
            };
        }
        self.sweep(own, &members).await?;
        let joins = plan::unstarted(&members).is_some();
        Ok(Again::In(if joins { LEARN_EVERY } else { LOOK_EVERY }))
    }
}

impl TendEtcd {
    /// Takes a member out that was added and did not start.
    async fn sweep(&mut self, own: &OwnEtcd, members: &[Member]) -> Result<(), Refusal> {
        let Some(member) = plan::unstarted(members) else {
            self.unstarted = None;
            return Ok(());
        };
        let since = match self.unstarted {
            Some((id, since)) if id == member.id => since,
            _ => Instant::now(),
        };
        self.unstarted = Some((member.id, since));
        if since.elapsed() >= UNSTARTED_MAX {
            calls::remove(&own.access, member.id).await?;
            tracing::warn!(peer = %member.peer, "a host that was to become a manager has not started: it is taken out again");
        }
        Ok(())
    }
}

/// Does the upkeep that is due. `full`: members that are out of space.
async fn keep_up(own: &OwnEtcd, members: &[Member], full: &[u64]) -> Result<(), Refusal> {
    let steps = plan::upkeep(members, full, QUOTA_BYTES);
    if steps.is_empty() {
        return Ok(());
    }
    if !full.is_empty() {
        tracing::warn!("the managers' etcd is out of space: room is being made");
    }
    for step in steps {
        match step {
            Step::Compact => calls::compact(&own.access).await?,
            Step::Defragment(id) => {
                let Some(member) = members.iter().find(|member| member.id == id) else { continue };
                calls::defragment(&own.access, member).await?;
                tracing::info!(member = %member.shown(), "a member of etcd has given free space back");
            }
            Step::Disarm(id) => {
                plan::has_room(&calls::look(&own.access).await?, QUOTA_BYTES)?;
                calls::disarm(&own.access, id).await?;
                tracing::info!("the managers' etcd takes changes again");
            }
        }
    }
    Ok(())
}

fn rows(members: &[Member], alarms: &[(u64, &'static str)]) -> Vec<MemberRow> {
    let row = |member: &Member| MemberRow {
        name: member.shown().to_owned(),
        peer: member.peer.clone(),
        healthy: member.state.as_ref().is_some_and(|state| state.leader != 0),
        leads: member.state.as_ref().is_some_and(|state| state.leader == member.id),
        database_bytes: member.state.as_ref().map_or(0, |state| state.database_bytes),
        alarms: alarms
            .iter()
            .filter(|(id, _)| *id == member.id)
            .map(|(_, name)| (*name).to_owned())
            .collect(),
    };
    let mut rows: Vec<MemberRow> = members.iter().map(row).collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

/// Makes a snapshot each day.
#[derive(Default)]
pub(crate) struct SnapshotEtcd;

impl Job for SnapshotEtcd {
    const NAME: &'static str = "etcd snapshots";
    const ABOUT: &'static str =
        "Writes the managers' state to a file of its directory each day, and keeps seven.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        let Some(own) = &core.own_etcd else { return Ok(Again::Never) };
        let failed = |error: std::io::Error| {
            let detail = format!("the snapshots in {}: {error}", own.snapshots.display());
            Refusal::new(Reason::Medium, detail)
        };
        let now_s = wall_ms() / 1000;
        let names = names(&own.snapshots).map_err(failed)?;
        let newest_s = names.iter().filter_map(|name| made_s(name)).filter(|made_s| *made_s <= now_s).max();
        if newest_s.is_some_and(|made_s| now_s - made_s < SNAPSHOT_EVERY_S) {
            return Ok(Again::In(SNAPSHOT_LOOK));
        }
        // Sorts by time, as it has ten digits until the year 2286.
        let path = own.snapshots.join(format!("braid-{now_s:010}{SNAPSHOT_END}"));
        let part = path.with_extension("part");
        let bytes = calls::snapshot(&own.access, &part).await;
        let bytes = bytes.inspect_err(|_| drop(fs::remove_file(&part)))?;
        fs::rename(&part, &path).map_err(failed)?;
        fs::File::open(&own.snapshots).and_then(|dir| dir.sync_all()).map_err(failed)?;
        tracing::info!(path = %path.display(), bytes, "a snapshot of the managers' state was made");
        SnapshotEtcd::progress(core, Progress { done: bytes, total: bytes, unit: "bytes" });
        let names = self::names(&own.snapshots).map_err(failed)?;
        for name in plan::superfluous(names, SNAPSHOTS_KEPT) {
            fs::remove_file(own.snapshots.join(name)).map_err(failed)?;
        }
        Ok(Again::In(SNAPSHOT_LOOK))
    }
}

/// Names of the snapshots in the directory, which is made if it is not there.
fn names(dir: &Path) -> std::io::Result<Vec<String>> {
    crate::disk::private::make_dir_all(dir)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        names.extend(name.to_str().filter(|name| made_s(name).is_some()).map(str::to_owned));
    }
    Ok(names)
}

/// Time at which a snapshot was made, in seconds since 1970, from its name.
fn made_s(name: &str) -> Option<u64> {
    name.strip_prefix("braid-")?.strip_suffix(SNAPSHOT_END)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshots_name_says_when_it_was_made() {
        assert_eq!(made_s("braid-1795929286.snapshot"), Some(1_795_929_286));
        for name in ["braid-1795929286.part", "braid-.snapshot", "other-1.snapshot", "braid-x.snapshot"] {
            assert_eq!(made_s(name), None, "{name}");
        }
    }
}
