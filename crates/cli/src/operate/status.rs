//! `braid status` and `braid drive ls`: show what the manager knows about the cluster.

pub(crate) mod managers;
pub(crate) mod transport;

use std::path::Path;

use braid_wire::control::{DriveRow, Latency};
use braid_wire::data::DriveCounts;
use serde::Serialize;

use crate::connect::{self, status_soon};
use crate::files::stat::show_state;
use crate::operate::health::{self, Risk};
use crate::operate::scrub::{StateFacts, state_facts};
use crate::operate::{heal, rebalance};
use crate::output::duration;
use crate::output::exit::{Exit, Failure};
use crate::output::report::{Report, count, table};
use crate::output::shell::quoted;
use crate::output::size;

#[derive(Debug, Serialize)]
struct StatusFacts {
    cluster: String,
    manager: ManagerFacts,
    #[serde(flatten)]
    managers: managers::Facts,
    transport: transport::Facts,
    volumes: u64,
    files: u64,
    /// Number of removed files whose components are not freed everywhere yet.
    removing: u64,
    /// Number of files that are kept for snapshots alone.
    past_files: u64,
    /// Sum of their sizes.
    past_bytes: u64,
    /// The manager's report about its own state; empty if there is nothing to report.
    notice: String,
    names: NamesFacts,
    /// True if nothing is at risk and the manager answers clients.
    well: bool,
    risks: Vec<Risk>,
    /// Drives that are bringing stale columns up to date.
    healing: Vec<heal::DriveFacts>,
    /// Balance of the drives; absent if the manager does not say.
    balance: Option<rebalance::BalanceFacts>,
    drives: Vec<DriveFacts>,
}

/// State of the names at drives.
#[derive(Debug, Serialize)]
struct NamesFacts {
    /// Drives that have all that was sent to them.
    drives: Vec<String>,
    /// Number of drives that are to have them.
    wanted: u32,
    /// Time for which changes have been at fewer than two drives; 0: none are.
    behind_ms: u64,
    bytes: u64,
}

impl NamesFacts {
    fn line(&self) -> String {
        if self.wanted == 0 {
            return String::new();
        }
        let at = match self.drives.is_empty() {
            true => "at no drive yet".to_owned(),
            false => format!("kept at {}, {}", self.drives.join(", "), size::show(self.bytes)),
        };
        let few = match usize::try_from(self.wanted) {
            Ok(wanted) if wanted > self.drives.len() => format!(" ({wanted} are to have them)"),
            _ => String::new(),
        };
        let behind = match self.behind_ms {
            0 => "up to date".to_owned(),
            ms => format!("{} s behind", ms.div_ceil(1000)),
        };
        format!("names: {at}{few}; {behind}\n")
    }
}

#[derive(Debug, Serialize)]
struct ManagerFacts {
    address: String,
    directory: String,
    pid: u32,
    uptime_ms: u64,
}

/// A drive in `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct DriveFacts {
    pub(crate) name: String,
    id: String,
    pub(crate) state: &'static str,
    /// True if the drive's columns move to other drives, or have done so.
    draining: bool,
    /// Milliseconds for which the drive is still paused; 0: it is not.
    paused_ms: u64,
    /// The first of the drive's addresses.
    address: String,
    addresses: Vec<String>,
    host: String,
    rack: String,
    pub(crate) directory: String,
    /// Process id; present only for drives on this host.
    pub(crate) pid: Option<u32>,
    pub(crate) capacity_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) live_bytes: u64,
    /// Bytes used but not live: those that cleaning may free, and the records' overhead.
    pub(crate) dead_bytes: u64,
    /// Bytes that can be written now.
    pub(crate) free_bytes: u64,
    /// Part of the free bytes that is held by files of freed segments, kept for new segments.
    pub(crate) spare_bytes: u64,
    /// Time since the drive's last heartbeat; null if there was none since the manager's start.
    silent_ms: Option<u64>,
    components: u64,
    /// Number of components that are out of their files' sets or are being brought up to date.
    stale_components: u64,
    /// Number of stale components that cannot be brought up to date: too few columns of their files are left.
    lost_components: u64,
    scrub: StateFacts,
    /// Way in which the drive sent the bytes of reads; empty before the first read.
    io: String,
    /// Time for which the drive's disk has not answered, if that is too long for it to serve.
    stalled_ms: u64,
    reads: LatencyFacts,
    commits: LatencyFacts,
    counts: CountFacts,
    /// Explanation of how much slower than its sisters the drive is, and what to do; empty if it is not slow.
    slow: String,
}

impl DriveFacts {
    /// The state in words. For a drive that is up it also says if the drive is being emptied or is empty.
    fn show_state(&self) -> String {
        match (self.draining && self.state == "up", self.components) {
            (false, _) => self.state.to_owned(),
            (true, 0) => "drained".to_owned(),
            (true, _) => "draining".to_owned(),
        }
    }
}

/// Counts since the drive's start, in `--json`. What the disk was busy for, and what waited for it, are sums
/// over requests.
#[derive(Debug, Serialize)]
struct CountFacts {
    reads: u64,
    writes: u64,
    refused: u64,
    read_bytes: u64,
    sendfile_bytes: u64,
    ahead_bytes: u64,
    written_bytes: u64,
    read_queue_us: u64,
    read_disk_us: u64,
    write_queue_us: u64,
    write_disk_us: u64,
}

impl From<DriveCounts> for CountFacts {
    fn from(of: DriveCounts) -> CountFacts {
        CountFacts {
            reads: of.reads,
            writes: of.writes,
            refused: of.refused,
            read_bytes: of.read_bytes,
            sendfile_bytes: of.sent_bytes,
            ahead_bytes: of.ahead_bytes,
            written_bytes: of.written_bytes,
            read_queue_us: of.read_queue_us,
            read_disk_us: of.read_disk_us,
            write_queue_us: of.write_queue_us,
            write_disk_us: of.write_disk_us,
        }
    }
}

/// Latency of the requests of the last minutes, in `--json`.
#[derive(Debug, Serialize)]
struct LatencyFacts {
    count: u64,
    p50_us: u64,
    p99_us: u64,
}

impl From<&Latency> for LatencyFacts {
    fn from(of: &Latency) -> LatencyFacts {
        LatencyFacts { count: of.count, p50_us: of.p50_us, p99_us: of.p99_us }
    }
}

/// Runs `braid status`.
pub(crate) async fn run(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let (client, asked_by) = connect::cluster_and_transport(cluster).await?;
    let status = status_soon(&client).await?;
    let manager = ManagerFacts {
        address: client.config().managers.leading(),
        directory: status.directory.clone(),
        pid: status.pid,
        uptime_ms: status.uptime_ms,
    };
    // A manager in doubt about its own state answers status, and nothing else.
    let healing = client.heal_status_for_now().await.ok();
    let volumes = if healing.is_some() { client.volumes().await.unwrap_or_default() } else { Vec::new() };
    let (healing, balance) = healing.map(|status| (heal::busy(&status), rebalance::facts(&status))).unzip();
    let mut risks = health::risks(&status.drives, &status.notice);
    risks.extend(managers::risks(&status));
    let verdict = health::verdict(&risks, &status.notice, status.drives.len() as u64);
    let facts = StatusFacts {
        cluster: status.cluster.to_string(),
        manager,
        managers: managers::facts(&status),
        transport: transport::facts(&client, asked_by, &status.drives).await,
        volumes: status.volumes,
        files: status.files,
        removing: status.removing,
        past_files: volumes.iter().map(|volume| volume.past_files).sum(),
        past_bytes: volumes.iter().map(|volume| volume.past_bytes).sum(),
        notice: status.notice.clone(),
        names: NamesFacts {
            drives: status.names.drives.clone(),
            wanted: status.names.wanted,
            behind_ms: status.names.behind_ms,
            bytes: status.names.bytes,
        },
        well: verdict.is_none(),
        risks,
        healing: healing.unwrap_or_default(),
        balance,
        drives: drive_facts(&status.drives),
    };
    report.facts(&facts, |facts| {
        let manager = &facts.manager;
        let removing =
            if facts.removing == 0 { String::new() } else { format!(", {} being removed", facts.removing) };
        let past = match facts.past_files {
            0 => String::new(),
            files => {
                format!(", {} of {} kept for snapshots", count(files, "file"), size::show(facts.past_bytes))
            }
        };
        format!(
            "cluster {}\nmanager at {}, process {}, up {} s\n{}, {}{removing}{past}\n{}{}{}{}{}{}\n{}{}",
            facts.cluster,
            manager.address,
            manager.pid,
            manager.uptime_ms / 1000,
            count(facts.volumes, "volume"),
            count(facts.files, "file"),
            facts.names.line(),
            transport::line(&facts.transport),
            health::show(&facts.risks, &facts.notice),
            heal::lines(&facts.healing),
            drained_lines(&facts.drives) + &paused_lines(&facts.drives),
            facts.balance.as_ref().map(rebalance::line).unwrap_or_default(),
            several(managers::show(&facts.managers)),
            drive_table(&facts.drives)
        )
    })?;
    match verdict {
        None => Ok(()),
        Some((why, remedy)) => Err(Failure::new(Exit::NotWell, "status", why).remedy(remedy)),
    }
}

/// Puts an empty line after the tables of several managers.
fn several(managers: String) -> String {
    if managers.is_empty() { managers } else { managers + "\n" }
}

/// Runs `braid drive ls`.
pub(crate) async fn drives(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let drives = drive_facts(&status_soon(&client).await?.drives);
    report.facts(&drives, |drives| drive_table(drives))
}

/// Converts the drives' rows for `--json`.
pub(crate) fn drive_facts(rows: &[DriveRow]) -> Vec<DriveFacts> {
    let here = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let facts = rows.iter().map(|row| DriveFacts {
        name: row.name.clone(),
        id: row.drive.to_string(),
        state: show_state(row.state),
        draining: row.draining,
        paused_ms: row.paused_ms,
        address: row.addresses.iter().next().unwrap_or_default().to_owned(),
        addresses: row.addresses.iter().map(str::to_owned).collect(),
        host: row.host.clone(),
        rack: row.rack.clone(),
        directory: row.directory.clone(),
        pid: (row.host == here.trim()).then_some(row.pid),
        capacity_bytes: row.capacity_bytes,
        used_bytes: row.used_bytes,
        live_bytes: row.live_bytes,
        dead_bytes: row.used_bytes.saturating_sub(row.live_bytes),
        free_bytes: row.free_bytes,
        spare_bytes: row.spare_bytes,
        silent_ms: (row.silent_ms != u64::MAX).then_some(row.silent_ms),
        components: row.components,
        stale_components: row.stale,
        lost_components: row.lost,
        scrub: state_facts(&row.scrub),
        io: row.io.clone(),
        stalled_ms: row.stalled_ms,
        reads: (&row.reads).into(),
        commits: (&row.commits).into(),
        counts: row.counts.into(),
        slow: row.slow.clone(),
    });
    facts.collect()
}

/// A line for each drive that is drained.
fn drained_lines(drives: &[DriveFacts]) -> String {
    let line = |drive: &DriveFacts| {
        let (name, typed) = (&drive.name, quoted(drive.name.as_ref()));
        match drive.components {
            0 => format!("drained: {name} holds no column: `braid drive rm {typed}`\n"),
            left => format!(
                "draining: {name} has {} left to move: `braid drive drain {typed} --wait`\n",
                count(left, "component")
            ),
        }
    };
    drives.iter().filter(|drive| drive.draining).map(line).collect()
}

/// A line for each drive that is paused.
fn paused_lines(drives: &[DriveFacts]) -> String {
    let line = |drive: &DriveFacts| {
        let left = duration::show(drive.paused_ms);
        let typed = quoted(drive.name.as_ref());
        format!(
            "paused: {} is not taken to be lost for {left} more: `braid drive resume {typed}` ends it\n",
            drive.name
        )
    };
    drives.iter().filter(|drive| drive.paused_ms > 0).map(line).collect()
}

fn drive_table(drives: &[DriveFacts]) -> String {
    let rows = drives.iter().map(|drive| {
        vec![
            drive.name.clone(),
            drive.show_state(),
            drive.addresses.join(","),
            drive.host.clone(),
            drive.pid.map_or_else(String::new, |pid| pid.to_string()),
            size::show(drive.used_bytes),
            size::show(drive.live_bytes),
            size::show(drive.dead_bytes),
            drive.components.to_string(),
            drive.stale_components.to_string(),
            drive.scrub.brief(),
            drive.io.clone(),
            drive.directory.clone(),
        ]
    });
    let header = [
        "drive",
        "state",
        "address",
        "host",
        "pid",
        "used",
        "live",
        "dead",
        "components",
        "stale",
        "scrub",
        "i/o",
        "directory",
    ];
    let slow = drives.iter().filter(|drive| !drive.slow.is_empty());
    let slow: String = slow.map(|drive| format!("slow: {}: {}\n", drive.name, drive.slow)).collect();
    slow + &table(&header, &[4, 5, 6, 7, 8, 9], rows)
}
