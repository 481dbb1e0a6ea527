//! Drives join, send heartbeats, are replaced; the cluster's status.

use std::sync::Arc;

use braid_layout::DriveId;
use braid_wire::capability::Key;
use braid_wire::control::{
    DriveRow, DriveState, Heartbeat, HeartbeatReply, JoinDrive, ReplaceDrive, StatusReply,
};
use braid_wire::{Reason, Refusal};
use tokio::time::Instant;

use crate::core::Core;
use crate::inodes;
use crate::kv::Tx;
use crate::names::check_label;
use crate::procedure::{self, Life};
use crate::schema::{DriveRecord, StaleRecord, key, table};
use crate::view::drive_row;
use crate::volumes;

/// Most drives of a cluster that were not replaced. A status names each, in one reply.
pub const DRIVES_MAX: usize = 1000;

/// A drive joins with the master key that its session's secrets give. Repeated, as long as the drive has not yet shown that it
/// holds its key, it is done again; after that the identity cannot be joined anew, or a join token could take a drive over.
///
/// A name belongs to one drive that was not replaced; a replaced drive's name can be taken, and the old one is renamed to
/// `NAME-replaced-ID`. An empty name gets the first free `drive-N`.
pub async fn join(
    core: &Arc<Core>,
    drive: DriveId,
    master: Key,
    request: JoinDrive,
) -> Result<String, Refusal> {
    let stored = core.write(move |core, tx| join_tx(tx, drive, master, request, core.now_ms())).await?;
    let (record, renamed) = stored;
    let name = record.name.clone();
    tracing::info!(%name, drive = %record.drive, address = %record.address, "a drive joined");
    let mut table = core.drives();
    renamed.into_iter().for_each(|record| table.set_record(record));
    table.insert(record, false);
    Ok(name)
}

/// A heartbeat.
pub async fn heartbeat(core: &Arc<Core>, drive: DriveId, beat: Heartbeat) -> Result<HeartbeatReply, Refusal> {
    let was = core.drives().state(drive, core.now_ms());
    let admission = core.drives().heartbeat(drive, &beat, core.now_ms());
    let unknown = || Refusal::new(Reason::NoDrive, format!("drive {drive} is not known here"));
    let admission = admission.ok_or_else(unknown)?;
    if let Some(record) = admission.changed {
        // The lease just granted counts from the address on record: store it before the answer.
        core.write(move |_, tx| {
            tx.set(key::drive(drive), &record);
            Ok(())
        })
        .await?;
    }
    if admission.readmit || (was != DriveState::Up && admission.lease_ms > 0) {
        core.wake.notify_waiters();
    }
    // The drive's own epoch: a drive that was out gets no lease before it was fenced for each column that went out, so it has
    // nothing to hold back by itself.
    Ok(HeartbeatReply { lease_ms: admission.lease_ms, replaced: admission.replaced, epoch: beat.epoch })
}

/// `new` takes the place of `old`, which must be dead: one durable record. Files are changed one by one as they are rebuilt.
/// Gives the number of components that are to be rebuilt.
pub async fn replace(core: &Arc<Core>, request: ReplaceDrive) -> Result<u64, Refusal> {
    let (old, new) = replaceable(core, &request)?;
    // One look: a drive that was killed just now need not be waited for.
    let life = procedure::life(core, old, Instant::now()).await;
    let no = |what: &str| Err(Refusal::new(Reason::DriveInUse, format!("{} {what}", request.old)));
    match life {
        Life::Dead => {}
        Life::Alive => return no("is up: stop it before it is replaced"),
        Life::Unknown => return no("may still hold its lease: try again in some seconds"),
    }
    let stored = core
        .write(move |_, tx| {
            let mut record: DriveRecord =
                tx.record(&key::drive(old))?.ok_or_else(|| no_drive(&old.to_string()))?;
            if record.replaced_by == DriveId(0) {
                record.replaced_by = new;
            }
            tx.set(key::drive(old), &record);
            Ok((record, inodes::counts(tx, old)?.components))
        })
        .await;
    let stored = stored.inspect(|(record, _)| core.drives().set_record(record.clone()));
    procedure::release_holds(core, [old]);
    let (_, components) = stored?;
    tracing::info!(old = %request.old, new = %request.new, components, "a drive was replaced");
    core.wake.notify_waiters();
    Ok(components)
}

/// The drive that is to be replaced, and the one that takes its place.
fn replaceable(core: &Core, request: &ReplaceDrive) -> Result<(DriveId, DriveId), Refusal> {
    let (now_ms, table) = (core.now_ms(), core.drives());
    let known = |name: &str| table.find(name).map(|drive| drive.record.drive).ok_or_else(|| no_drive(name));
    let (old, new) = (known(&request.old)?, known(&request.new)?);
    let refuse = |reason, detail: String| Err(Refusal::new(reason, detail));
    match (table.state(old, now_ms), table.state(new, now_ms)) {
        _ if old == new => refuse(Reason::DriveInUse, "a drive cannot take its own place".to_owned()),
        // The same again.
        (DriveState::Replaced, _) if table.successor(old) == new => Ok((old, new)),
        (DriveState::Replaced, _) => refuse(Reason::NoDrive, format!("{} was replaced already", request.old)),
        (_, DriveState::Replaced) => refuse(Reason::NoDrive, format!("{} was replaced itself", request.new)),
        (_, DriveState::Away) => refuse(Reason::NoDrive, format!("{} is away: start it", request.new)),
        _ => Ok((old, new)),
    }
}

/// The cluster.
pub async fn status(core: &Arc<Core>) -> Result<StatusReply, Refusal> {
    core.read(|core, tx| {
        let volumes = volumes::all(tx)?;
        let (now_ms, table) = (core.now_ms(), core.drives());
        let mut drives: Vec<DriveRow> =
            table.iter().map(|drive| drive_row(tx, &table, drive, now_ms)).collect::<Result<_, _>>()?;
        drives.sort_by_key(|row: &DriveRow| natural(&row.name));
        Ok(StatusReply {
            cluster: core.cluster.cluster,
            volumes: u64::try_from(volumes.len()).unwrap_or(u64::MAX),
            files: volumes.iter().map(|volume| volume.files).sum(),
            removing: tx.number("removing")?,
            drives,
            pid: std::process::id(),
            uptime_ms: core.uptime_ms(),
            directory: core.directory.clone(),
        })
    })
    .await
}

/// Whether a drive has columns that went out and that it was not told of.
pub fn has_untold(tx: &Tx, drive: DriveId) -> Result<bool, Refusal> {
    let (mut from, to) = key::of_drive(table::STALE, drive);
    loop {
        let rows = tx.records::<StaleRecord>(&(from.clone(), to.clone()), 512)?;
        if rows.iter().any(|(_, stale)| !stale.told) {
            return Ok(true);
        }
        match rows.last() {
            Some((last, _)) if rows.len() == 512 => from = [last.as_slice(), &[0]].concat(),
            _ => return Ok(false),
        }
    }
}

/// "No such drive".
pub fn no_drive(name: &str) -> Refusal {
    Refusal::new(Reason::NoDrive, format!("no drive {name:?}"))
}

fn join_tx(
    tx: &mut Tx,
    drive: DriveId,
    master: Key,
    request: JoinDrive,
    now_ms: u64,
) -> Result<(DriveRecord, Option<DriveRecord>), Refusal> {
    if drive == DriveId(0) {
        return Err(Refusal::new(Reason::Malformed, "drive identity zero stands for none"));
    }
    let all: Vec<DriveRecord> =
        tx.records(&key::all(table::DRIVE), usize::MAX)?.into_iter().map(|(_, record)| record).collect();
    let before = all.iter().find(|record| record.drive == drive);
    if before.is_some_and(|record| record.confirmed) {
        let detail =
            format!("drive {drive} has joined already: start it without a token; it has a key of its own");
        return Err(Refusal::new(Reason::NotAllowed, detail));
    }
    let serving = all.iter().filter(|record| record.replaced_by == DriveId(0)).count();
    if before.is_none() && serving >= DRIVES_MAX {
        return Err(Refusal::new(Reason::Quota, format!("a cluster has at most {DRIVES_MAX} drives")));
    }
    let name = match (request.name.as_str(), before) {
        ("", Some(before)) => before.name.clone(),
        ("", None) => free_name(&all),
        (asked, _) => {
            check_label("drive", asked)?;
            asked.to_owned()
        }
    };
    let mut renamed = None;
    if let Some(other) = all.iter().find(|record| record.name == name && record.drive != drive) {
        if other.replaced_by == DriveId(0) {
            let detail = format!(
                "the name {name} belongs to drive {}: join under another name (and if that drive is lost for good, \
                 let the new one take its place)",
                other.drive.short()
            );
            return Err(Refusal::new(Reason::DriveInUse, detail));
        }
        let old = DriveRecord { name: format!("{name}-replaced-{}", other.drive.short()), ..other.clone() };
        tx.set(key::drive(other.drive), &old);
        renamed = Some(old);
    }
    let record = DriveRecord {
        drive,
        name,
        master,
        confirmed: false,
        replaced_by: DriveId(0),
        address: request.address,
        host: request.host,
        rack: request.rack,
        directory: request.directory,
        capacity_bytes: request.capacity_bytes,
        joined_ms: now_ms,
    };
    tx.set(key::drive(drive), &record);
    Ok((record, renamed))
}

/// The first `drive-N` that no drive has, replaced or not.
fn free_name(all: &[DriveRecord]) -> String {
    let taken = |name: &String| all.iter().any(|record| record.name == *name);
    let names = (1u64..).map(|number| format!("drive-{number}"));
    names.into_iter().find(|name| !taken(name)).unwrap_or_default()
}

/// A name in the order people expect: `drive-2` before `drive-10`.
fn natural(name: &str) -> (String, u64, String) {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (head, tail) = name.split_at(name.len() - digits);
    (head.to_owned(), tail.parse().unwrap_or(0), name.to_owned())
}
