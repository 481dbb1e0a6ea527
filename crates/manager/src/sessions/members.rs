//! Joins and heartbeats of drives.

use std::sync::Arc;

use braid_layout::{DriveId, TokenId};
use braid_meta::records::schema::{DriveKeyRecord, DriveRecord, TokenRecord, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::rules::admission::{Last, Ruling};
use braid_meta::rules::drives::{DRIVES_MAX, no_drive};
use braid_meta::rules::leadership::{Leadership, Seen};
use braid_meta::tree::names::check_label;
use braid_meta::tree::{keys, tokens};
use braid_transport::host;
use braid_transport::process::Presence;
use braid_wire::capability::Key;
use braid_wire::control::{
    Admission, DriveState, ENDED_TOLD_MAX, Heartbeat, HeartbeatReply, JoinDrive, JoinDriveReply, KeyTurn,
    LABEL_BYTES_MAX, PATH_BYTES_MAX, PROMISES_TOLD_MAX, ProcessMark,
};
use braid_wire::data::DriveParts;
use braid_wire::{Addresses, Reason, Refusal};

use crate::asker::asker_version;
use crate::core::{Core, set_record};
use crate::restore::terms::{RESTORED_LATER_MS, begin_term, is_of_lost_state};
use crate::sessions::keys::handle_heartbeat as handle_key;

/// Maximum length of a drive's line on its method of sending the bytes of reads, in bytes.
pub const IO_BYTES_MAX: usize = 1024;
/// Maximum number of points of a drive's curves.
const CURVE_POINTS_MAX: usize = 64;

/// Refuses texts that a drive reports of itself if they are too long: they are stored, and shown in every
/// status.
fn check_facts(facts: &[(&str, &String, usize)]) -> Result<(), Refusal> {
    match facts.iter().find(|(_, text, most)| text.len() > *most) {
        Some((what, text, most)) => {
            let detail = format!("the drive's {what} has {} bytes; at most {most} are allowed", text.len());
            Err(Refusal::new(Reason::Malformed, detail))
        }
        None => Ok(()),
    }
}

/// Refuses addresses of a drive that are no list of its rails: clients are told them.
fn check_addresses(addresses: &Addresses) -> Result<(), Refusal> {
    addresses.check().map_err(|bad| Refusal::new(Reason::Malformed, bad.to_string()))
}

/// Joins a drive with the master key that its session's secrets give. Until the drive has shown that it holds
/// its key, a repeat joins it again. After that the identity cannot be joined anew, or a holder of a join
/// token could take a drive over. A token for one drive is used by this.
///
/// A name belongs to one drive that was not replaced. A replaced drive's name can be taken: the old drive is
/// then renamed to `NAME-replaced-ID`. An empty name gets the first free `drive-N`.
pub async fn join(
    core: &Arc<Core>,
    drive: DriveId,
    master: Key,
    token: TokenId,
    request: JoinDrive,
) -> Result<JoinDriveReply, Refusal> {
    check_addresses(&request.addresses)?;
    check_facts(&[
        ("host", &request.host, LABEL_BYTES_MAX),
        ("rack", &request.rack, LABEL_BYTES_MAX),
        ("directory", &request.directory, PATH_BYTES_MAX),
    ])?;
    let join = move |core: &Core, tx: &mut Tx| {
        let now_ms = core.now_ms();
        let used = tokens::handle_join(tx, token, drive, now_ms)?;
        Ok((join_tx(tx, drive, master, request, now_ms)?, used))
    };
    let joined = move |core: &Core, done: &(Joined, TokenRecord)| {
        let joined = &done.0;
        core.tokens().put(token, done.1.clone());
        let mut table = core.drives();
        joined.renamed.iter().for_each(|record| table.set_record(record.clone()));
        let drive = joined.record.drive;
        if table.drive(drive).is_some() {
            table.set_record(joined.record.clone());
        } else {
            table.insert(joined.record.clone());
        }
        table.set_keys(drive, joined.keys.clone());
    };
    let Joined { record, keys, .. } = core.write_then(join, joined).await?.0;
    tracing::info!(name = %record.name, drive = %record.drive, addresses = %record.addresses, "a drive joined");
    Ok(JoinDriveReply { name: record.name, key: keys.turn.number })
}

/// The result of a join.
struct Joined {
    record: DriveRecord,
    keys: DriveKeyRecord,
    /// The replaced drive whose name the drive has taken.
    renamed: Option<DriveRecord>,
}

/// Answers a heartbeat.
pub async fn heartbeat(core: &Arc<Core>, drive: DriveId, beat: Heartbeat) -> Result<HeartbeatReply, Refusal> {
    check_addresses(&beat.addresses)?;
    check_facts(&[
        ("host", &beat.host, LABEL_BYTES_MAX),
        ("directory", &beat.directory, PATH_BYTES_MAX),
        ("io", &beat.io, IO_BYTES_MAX),
    ])?;
    check_parts(beat.parts.as_ref())?;
    if beat.promises.len() > PROMISES_TOLD_MAX || beat.ended.len() > ENDED_TOLD_MAX {
        return Err(Refusal::new(Reason::Malformed, "a heartbeat tells of too many reservations"));
    }
    let unknown = || Refusal::new(Reason::NoDrive, format!("drive {drive} is not known here"));
    let (was, known) = {
        let now_ms = core.now_ms();
        let table = core.drives();
        (table.state(drive, now_ms), table.drive(drive).map(|known| known.record.clone()))
    };
    let known = known.ok_or_else(unknown)?;
    core.drives().set_version(drive, asker_version());
    let known = handle_key(core, known, beat.key).await?;
    if known.replaced_by != DriveId(0) {
        core.drives().heartbeat(drive, &beat, core.running_ms());
        return Ok(no_lease(core, &known, &beat, Admission::Replaced, "it was replaced".to_owned()));
    }
    if let Err(why) = look_at_seen(core, &known, &beat).await? {
        return Ok(no_lease(core, &known, &beat, Admission::ManagerOlder, why));
    }
    let record = match rule(core, &known, &beat) {
        // The process has served its last request, so the next need not wait for the lease, even if the
        // manager stops too.
        Ruling::Drive(record) if beat.closing => DriveRecord { start: 0, ..*record },
        Ruling::Drive(record) => *record,
        Ruling::Wait => {
            let why = format!(
                "{}; this process waits until the lease of that one has surely lapsed",
                elsewhere(core, drive)
            );
            return Ok(no_lease(core, &known, &beat, Admission::Wait, why));
        }
        Ruling::Superseded => {
            let why = elsewhere(core, drive);
            tracing::warn!(name = %known.name, directory = %beat.directory, host = %beat.host, pid = beat.pid, %why,
                "a second process of a drive was told to stop");
            return Ok(no_lease(core, &known, &beat, Admission::Superseded, why));
        }
    };
    let Some(record) = store_instance(core, &known, record).await? else {
        let why = "another heartbeat of the drive came at the same time".to_owned();
        return Ok(no_lease(core, &known, &beat, Admission::Wait, why));
    };
    let admission = core.drives().heartbeat(drive, &beat, core.running_ms()).ok_or_else(unknown)?;
    if let Some(heard) = admission.changed {
        // The drive's new record must be durable before the drive is told of its lease.
        core.write_then(move |_, tx| store_heard(tx, heard), set_record).await?;
    }
    store_parts(core, drive, beat.parts.as_ref()).await?;
    if !beat.promises.is_empty() {
        core.reservations().told_by_drive(drive, &beat.promises);
    }
    core.ended_rates().handle_drive(drive, &beat.ended);
    let leads = {
        let (now_ms, drives, lease_ms) = core.drives_counted();
        core.leadership().handle_time(now_ms, drives, lease_ms)
    };
    if leads || admission.readmit || (was != DriveState::Up && admission.lease_ms > 0) {
        core.wake.notify_waiters();
    }
    if admission.lease_ms == 0 {
        let why = if beat.closing {
            "it stops"
        } else if beat.stalled_ms > 0 {
            "its disk hangs"
        } else if record.stored < record.instance {
            "it must store its process number first"
        } else if record.behind {
            "its log ends before what it had acknowledged: its columns are being taken out of use until they are caught up"
        } else {
            "it is first being told which of its columns went out while it was away"
        };
        return Ok(no_lease(core, &record, &beat, Admission::Wait, why.to_owned()));
    }
    Ok(HeartbeatReply {
        lease_ms: admission.lease_ms,
        ..no_lease(core, &record, &beat, Admission::Serve, String::new())
    })
}

/// Refuses parts with texts or curves that are longer than any drive's.
fn check_parts(parts: Option<&DriveParts>) -> Result<(), Refusal> {
    let Some(parts) = parts else { return Ok(()) };
    let points = parts.cost.as_ref().map_or(0, |cost| cost.points.len());
    if points > CURVE_POINTS_MAX || parts.derate > 1000 {
        return Err(Refusal::new(Reason::Malformed, "these are no parts of a drive"));
    }
    check_facts(&[
        ("cause of a derate", &parts.derate_cause, IO_BYTES_MAX),
        ("reason of a refused calibration", &parts.refused, IO_BYTES_MAX),
    ])
}

/// Stores what a drive tells of its parts, if it differs from what is known.
async fn store_parts(core: &Arc<Core>, drive: DriveId, told: Option<&DriveParts>) -> Result<(), Refusal> {
    let known = core.drives().drive(drive).and_then(|known| known.parts.clone());
    let Some(told) = told.filter(|told| known.as_ref() != Some(told)).cloned() else { return Ok(()) };
    let store = move |_: &Core, tx: &mut Tx| {
        // The drive may have been taken out of the cluster since.
        if tx.record::<DriveRecord>(&key::drive(drive))?.is_some() {
            tx.set(key::parts(drive), &told);
        }
        Ok(told)
    };
    let stored = move |core: &Core, told: &DriveParts| core.drives().set_parts(drive, told.clone());
    core.write_then(store, stored).await.map(drop)
}

/// The answer without a lease. It returns the drive's own epoch: a drive that was out gets no lease before it
/// was fenced for each column that went out, so it need not withhold anything itself.
fn no_lease(
    core: &Core,
    record: &DriveRecord,
    beat: &Heartbeat,
    admission: Admission,
    detail: String,
) -> HeartbeatReply {
    // A process that is not admitted yet keeps the number in its directory.
    let instance = if record.start == beat.start { record.instance } else { beat.instance };
    // Drives remember the mark only of a state that leads or is being compared. If they remembered that of an
    // older copy, the right state would later be taken for older.
    let state = if core.leadership().may_be_remembered() { core.mark() } else { beat.seen.clone() };
    let ended = core.ended_rates().to_tell(core.now_ms());
    let key = core.drives().drive(record.drive).map_or(KeyTurn::FIRST, |known| known.keys.turn.clone());
    HeartbeatReply { lease_ms: 0, admission, detail, instance, state, epoch: beat.epoch, ended, key }
}

/// Compares the mark that the drive has seen with this state. The inner `Err` says why the drive gets no
/// lease.
async fn look_at_seen(
    core: &Arc<Core>,
    record: &DriveRecord,
    Heartbeat { seen, manager_ms, .. }: &Heartbeat,
) -> Result<Result<(), String>, Refusal> {
    let own = core.mark();
    let known = if seen.term == own.term {
        seen.mark == own.mark && seen.changes <= own.changes
    } else {
        let term = seen.term;
        let mark = seen.mark;
        let changes = seen.changes;
        let (stored, lost) = core
            .read(move |_, tx| Ok((tx.record::<u64>(&key::term(term))?, is_of_lost_state(tx, term)?)))
            .await?;
        term == 0 || lost || (stored == Some(mark) && changes <= own.changes)
    };
    let seen_is = if known { Seen::Known } else { Seen::Newer };
    if seen_is == Seen::Newer
        && matches!(*core.leadership(), Leadership::Comparing(_))
        && seen.term >= own.term
    {
        raise_term(core, seen.term).await?;
    }
    if seen.term != core.mark().term && matches!(*core.leadership(), Leadership::Comparing(_)) {
        // The lost manager's time may have been far ahead of the wall clock. If this one's were lower, drives
        // would take capabilities signed now for expired, and those signed then for valid.
        core.clock.raise(manager_ms.saturating_add(RESTORED_LATER_MS));
    }
    let found_out = core.leadership().handle_heartbeat(record.drive, &record.name, (seen_is, seen));
    if found_out {
        let why = core.leadership().notice();
        tracing::error!(drive = %record.name, "{why}");
        core.write(|_, tx| {
            tx.set(key::meta("older"), &1u64);
            Ok(())
        })
        .await?;
    }
    Ok(core.leadership().admits_drives())
}

/// Raises the term of a restored state above one that a drive has seen: drives accept no lower term.
async fn raise_term(core: &Arc<Core>, above: u64) -> Result<(), Refusal> {
    let begun = |core: &Core, begun: &(u64, u64)| {
        *core.term.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = *begun;
    };
    core.write_then(move |_, tx| begin_term(tx, above), begun).await.map(drop)
}

fn rule(core: &Core, record: &DriveRecord, beat: &Heartbeat) -> Ruling {
    let comparing = matches!(*core.leadership(), Leadership::Comparing(_));
    let (lapsed, processes) = {
        let now_ms = core.now_ms();
        let table = core.drives();
        (table.lapsed(record.drive, now_ms), table.processes(record.drive))
    };
    let gone = |process: &ProcessMark| host::presence(process) == Presence::Gone;
    let over = lapsed || (beat.start != record.start && !processes.is_empty() && processes.iter().all(gone));
    // A restored state does not know the processes that were admitted since its backup: it admits those that
    // come.
    let last = if over || comparing { Last::Over } else { Last::MayServe };
    let beat = Heartbeat { restarted: beat.restarted || comparing, ..beat.clone() };
    core.admissions().judge(record, &beat, last)
}

/// Stores the process that is admitted as the drive, before it is told. `None` if the state's record is not
/// the one that was judged: another heartbeat came first (one of two processes is the drive), or a
/// transaction that took too long was carried out after all. The next heartbeat is judged by the record in
/// the state.
async fn store_instance(
    core: &Arc<Core>,
    known: &DriveRecord,
    ruled: DriveRecord,
) -> Result<Option<DriveRecord>, Refusal> {
    if *known == ruled {
        return Ok(Some(ruled));
    }
    let judged_by = (known.start, known.instance, known.stored);
    let store = move |_: &Core, tx: &mut Tx| {
        let found: Option<DriveRecord> = tx.record(&key::drive(ruled.drive))?;
        let mut record = found.ok_or_else(|| no_drive(&ruled.name))?;
        let is_current = (record.start, record.instance, record.stored) == judged_by;
        if is_current {
            (record.start, record.instance, record.stored) = (ruled.start, ruled.instance, ruled.stored);
            record.behind |= ruled.behind;
            tx.set(key::drive(ruled.drive), &record);
        }
        Ok((is_current, record))
    };
    let (is_current, record) =
        core.write_then(store, |core, (_, record): &(bool, DriveRecord)| set_record(core, record)).await?;
    Ok(is_current.then_some(record))
}

/// Message that says where the process on record runs.
fn elsewhere(core: &Core, drive: DriveId) -> String {
    let table = core.drives();
    let Some(known) = table.drive(drive) else { return "the drive is not known".to_owned() };
    let record = &known.record;
    let pid = known.pid;
    let process = if pid == 0 { "a process".to_owned() } else { format!("process {pid}") };
    format!("{process} on {} in {} is drive {}", record.host, record.directory, record.name)
}

/// Stores what a drive reported of itself. Fields that are decided elsewhere (its replacement, name, key,
/// rack, process, log position) are not touched: they may have been stored since this copy of the record was
/// made, and must not be undone.
fn store_heard(tx: &mut Tx, heard: DriveRecord) -> Result<DriveRecord, Refusal> {
    let key = key::drive(heard.drive);
    // The drive may have been taken out of the cluster since.
    let known = tx.record::<DriveRecord>(&key)?.ok_or_else(|| no_drive(&heard.name))?;
    let DriveRecord { name, master, replaced_by, rack, instance, stored, start, log, behind, .. } = known;
    let record =
        DriveRecord { name, master, replaced_by, rack, instance, stored, start, log, behind, ..heard };
    tx.set(key, &record);
    Ok(record)
}

fn join_tx(
    tx: &mut Tx,
    drive: DriveId,
    master: Key,
    request: JoinDrive,
    now_ms: u64,
) -> Result<Joined, Refusal> {
    if drive == DriveId(0) {
        return Err(Refusal::new(Reason::Malformed, "a drive cannot have the identity 0"));
    }
    let all: Vec<DriveRecord> =
        tx.records(&key::all(table::DRIVE), usize::MAX)?.into_iter().map(|(_, record)| record).collect();
    let before = all.iter().find(|record| record.drive == drive);
    if let Some(known) = before.filter(|record| record.confirmed) {
        if !keys::of_drive(tx, drive)?.may_rejoin {
            let name = &known.name;
            let detail = format!(
                "drive {name} has joined already, and has a key of its own: start it without a token; if its directory \
                 was put back from an older copy, let it join anew (braid key rejoin {name})"
            );
            return Err(Refusal::new(Reason::NotAllowed, detail));
        }
        let keys = keys::rejoined(tx, drive, now_ms)?;
        let JoinDrive { addresses, host, directory, .. } = request;
        // It may lose its answer, and join once more: until its first heartbeat it may.
        let record = DriveRecord { master, confirmed: false, addresses, host, directory, ..known.clone() };
        tx.set(key::drive(drive), &record);
        return Ok(Joined { record, keys, renamed: None });
    }
    let keys = keys::of_drive(tx, drive)?;
    if let Some(known) = before.filter(|_| keys.turn.number > 1) {
        let record = DriveRecord { master, ..known.clone() };
        tx.set(key::drive(drive), &record);
        return Ok(Joined { record, keys, renamed: None });
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
        addresses: request.addresses,
        host: request.host,
        rack: request.rack,
        directory: request.directory,
        capacity_bytes: request.capacity_bytes,
        joined_ms: now_ms,
        instance: 0,
        stored: 0,
        start: 0,
        log: 0,
        behind: false,
    };
    tx.set(key::drive(drive), &record);
    Ok(Joined { record, keys, renamed })
}

/// The first `drive-N` that no drive has, replaced or not.
fn free_name(all: &[DriveRecord]) -> String {
    let taken = |name: &String| all.iter().any(|record| record.name == *name);
    let names = (1u64..).map(|number| format!("drive-{number}"));
    names.into_iter().find(|name| !taken(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use braid_meta::records::db::Db;
    use braid_meta::records::memory::MemoryKv;

    #[test]
    fn a_heartbeat_that_was_on_its_way_undoes_no_replacement() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let request = JoinDrive {
            name: "one".into(),
            addresses: "a:1".into(),
            host: "h".into(),
            rack: "r".into(),
            directory: "/d".into(),
            pid: 1,
            capacity_bytes: 1,
        };
        let joined = db.write(|tx| join_tx(tx, DriveId(1), Key::new([1; 32]), request, 5)).unwrap().record;
        // The heartbeat's copy is made, then the drive is replaced and renamed, then the copy is stored.
        let heard = DriveRecord { addresses: "b:2".into(), confirmed: true, ..joined.clone() };
        db.write(|tx| {
            let replaced =
                DriveRecord { replaced_by: DriveId(2), name: "one-replaced".into(), ..joined.clone() };
            tx.set(key::drive(DriveId(1)), &replaced);
            Ok(())
        })
        .unwrap();
        db.write(|tx| store_heard(tx, heard)).unwrap();
        let stored = db.read(|tx| Ok(tx.record::<DriveRecord>(&key::drive(DriveId(1)))?)).unwrap().unwrap();
        assert_eq!((stored.replaced_by, stored.name.as_str()), (DriveId(2), "one-replaced"));
        assert_eq!((stored.addresses, stored.confirmed), ("b:2".into(), true));
    }
}
