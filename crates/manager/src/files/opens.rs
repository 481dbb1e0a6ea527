//! Opening files, and the requests of lease holders: all that may need the procedure on a file first.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_layout::version::Lease;
use braid_layout::{ClientId, Column, DriveId, FileId, HolderId, ReservationId};
use braid_meta::records::inodes;
use braid_meta::records::schema::InodeRecord;
use braid_meta::records::tx::Tx;
use braid_meta::rules::leases::LeaseState;
use braid_meta::rules::operations::{Once, Operation, OperationResult, remember};
use braid_meta::tree::directories;
use braid_meta::tree::doors;
use braid_meta::tree::files::{self, Part, lease_lost, leased};
use braid_meta::tree::names::show;
use braid_meta::tree::seen;
use braid_meta::tree::view::{self, Opener};
use braid_wire::control::{
    Access, Commit, CreateUnnamed, DriveState, EndReserved, EntryKind, HeldLease, Lookup, Open, Opened,
    Refresh, Renew, Renewed, ReportLost, ReserveEnd, StatRow, Turn,
};
use braid_wire::{Reason, Refusal};

use crate::asker::asker;
use crate::columns::column_changes::lease_of;
use crate::columns::procedure::{self, Cause, Life, Lost, Probe, RecordedLease, drive_of, hold_lapsed};
use crate::columns::{filling, live_out};
use crate::core::{Core, busy};
use crate::files::allocate::give_back;
use crate::files::opened::{opened_by, opened_in_snapshot, opened_to_write, opened_with_room, renew_lease};
use crate::files::reach::{Need, or_wait, wanted_back};
use crate::files::{receipts, sharing};
use crate::rates::under;
use crate::sessions::callbacks;
use crate::snapshots::freeze;

/// Creates a file without a name, leased to the holder in the request.
pub async fn create_unnamed(
    core: &Arc<Core>,
    operation: Operation,
    request: CreateUnnamed,
) -> Result<Opened, Refusal> {
    let holder = request.holder;
    let alone = request.takes_sealed;
    let avoid: BTreeSet<DriveId> = request.avoid.iter().copied().collect();
    for &drive in &avoid {
        core.drives().met_full(drive);
    }
    let create = move |core: &Core, tx: &mut Tx| {
        let meant_for = request.meant_for.as_ref();
        let reserved = meant_for.map(|at| under::over_new(core, tx, at)).transpose()?.flatten();
        let plan = under::plan_of(reserved.as_ref());
        let place = |seed: u64, shape: &_| match under::place(core, reserved.as_ref(), shape, &avoid) {
            Some(promised) => Ok(promised),
            None => core.place(seed, shape, &avoid),
        };
        let (file, inode) = files::create_unnamed(tx, &request, plan, &place, core.now_ms())?;
        if let Some(reserved) = &reserved {
            core.reservations().is_under(file, reserved.reservation);
        }
        Ok((OperationResult::opened(file, inode.lease), (file, inode)))
    };
    let grant = move |core: &Core, (file, inode): &(FileId, InodeRecord)| granted(core, *file, inode, holder);
    match core.once_then(operation, create, grant).await? {
        Once::Now((file, inode)) => opened_to_write(core, file, inode, holder).await,
        Once::Before(OperationResult { file, .. }) => {
            take(core, operation, file, Part { holder, alone, range: None }).await
        }
    }
}

/// Opens a file by path for reading. The client watches it from then on.
pub async fn open_to_read(core: &Arc<Core>, request: Open) -> Result<Opened, Refusal> {
    let found = core.read(move |_, tx| files::find(tx, &request)).await?;
    let file = found.file;
    if let Some(within) = found.within {
        return in_snapshot(core, file, within.number).await;
    }
    callbacks::recall(core, file).await;
    let since = core.watchers().now();
    let client = asker();
    let opened = reader(core, file).await?;
    core.watchers().watch(client, opened.stat.file, since);
    finds(core, client, &opened.stat);
    Ok(opened)
}

/// Opens a file of a snapshot for reading.
async fn in_snapshot(core: &Arc<Core>, file: FileId, number: u32) -> Result<Opened, Refusal> {
    let look = move |_: &Core, tx: &Tx| {
        let within = seen::snapshot(tx, seen::volume_of(tx, file, number)?, number)?;
        let inode = seen::get(tx, file, Some(within))?;
        seen::with_bytes(tx, file, &inode, number)
    };
    let (data, mut inode) = core.read(look).await?;
    if inode.unfenced {
        settled(core, data).await?;
        inode = core.read(look).await?.1;
    }
    let mut opened = opened_in_snapshot(core, data, inode).await?;
    (opened.stat.file, opened.stat.snapshot) = (file, number);
    Ok(opened)
}

/// Stat of the file, directory or node at a path.
pub async fn stat(core: &Arc<Core>, request: Lookup) -> Result<StatRow, Refusal> {
    let since = core.watchers().now();
    let client = asker();
    let watches = request.watch;
    let (file, mut inode, snapshot) = core
        .read(move |core, tx| {
            if request.watch && !request.at.path.is_empty() {
                // The directory is watched also if it has no entry of this name.
                match directories::directory_of(tx, &request.at) {
                    Ok(slot) if slot.directory.within.is_none() => {
                        core.watchers().watch(client, slot.directory.file, since);
                    }
                    Ok(_) => {}
                    // That of a token's own directory is outside: what follows judges the directory itself.
                    Err(refusal) if refusal.reason == Reason::NotAllowed => {}
                    Err(refusal) => return Err(refusal),
                }
            }
            let found = match request.follow {
                true => directories::resolve_to_end(tx, &request.at)?,
                false => directories::resolve(tx, &request.at)?,
            };
            if request.watch && found.within.is_none() {
                core.watchers().watch(client, found.file, since);
            }
            match found.within {
                Some(within) if found.inode.kind == EntryKind::File => {
                    let (_, inode) = seen::with_bytes(tx, found.file, &found.inode, within.number)?;
                    Ok((found.file, inode, within.number))
                }
                // A door is in no snapshot that has a number.
                within => Ok((found.file, found.inode, within.map_or(0, |within| within.number))),
            }
        })
        .await?;
    if inode.is_left() {
        inode = settled(core, file).await?;
    }
    inode.segments.retain(|segment| segment.filling.is_none());
    let row = StatRow { snapshot, ..view::stat(&core.drives(), file, &inode, core.now_ms()) };
    if watches && snapshot == 0 && doors::behind(file).is_none() {
        finds(core, client, &row);
    }
    Ok(row)
}

/// Opens a file by path for writing, and creates it if asked to. A repeat is about the file that was found or
/// created before, whatever has the name now. The client watches the file from then on.
pub async fn open_to_write(core: &Arc<Core>, operation: Operation, request: Open) -> Result<Opened, Refusal> {
    let since = core.watchers().now();
    let client = asker();
    let opened = open_some_to_write(core, operation, request).await?;
    core.watchers().watch(client, opened.stat.file, since);
    finds(core, client, &opened.stat);
    Ok(opened)
}

/// Notes that a client has a file open that has no name any more and that it was just told of.
fn finds(core: &Core, client: ClientId, row: &StatRow) {
    let keepers = &mut core.watchers().keepers;
    if row.attributes.links == 0
        && let Some(heard_ms) = keepers.heard_ms(client)
    {
        keepers.open(client, row.file, heard_ms);
    }
}

async fn open_some_to_write(
    core: &Arc<Core>,
    operation: Operation,
    request: Open,
) -> Result<Opened, Refusal> {
    let part = Part::from(&request);
    let open = move |core: &Core, tx: &mut Tx| {
        if let Some(before) = core.recall(tx, operation)? {
            return Ok((before.file, None, None));
        }
        let reserved = under::over_new(core, tx, &request.at)?;
        let plan = under::plan_of(reserved.as_ref());
        let none = BTreeSet::new();
        let place = |seed: u64, shape: &_| match under::place(core, reserved.as_ref(), shape, &none) {
            Some(promised) => Ok(promised),
            None => core.place(seed, shape, &none),
        };
        let (file, made) = files::find_or_create(tx, &request, plan, &place, core.now_ms())?;
        if let Some(inode) = &made {
            remember(tx, operation, OperationResult::opened(file, inode.lease), core.now_ms())?;
        }
        // A client that finds the new name waits until the creator has its lease. Else it would end the lease
        // on record, which seems to have no holder, and the creator's would then replace its own.
        let turn = made.is_some().then(|| core.try_lock_file(file).ok_or_else(|| busy(file))).transpose()?;
        Ok((file, made, turn))
    };
    let grant = move |core: &Core, (file, made, _): &(FileId, Option<InodeRecord>, _)| {
        made.iter().for_each(|inode| granted(core, *file, inode, part.holder));
    };
    let gate = core.opening.read().await;
    let (file, made, _turn) = core.write_then(open, grant).await?;
    drop(gate);
    if let Some(inode) = made {
        return opened_to_write(core, file, inode, part.holder).await;
    }
    take(core, operation, file, part).await
}

/// Takes the file's lease for the holder, or shares it. A repeat gets the lease that it was given before, if
/// that is not over.
async fn take(core: &Arc<Core>, operation: Operation, file: FileId, part: Part) -> Result<Opened, Refusal> {
    callbacks::recall(core, file).await;
    let before = core.read(move |_, tx| inodes::get(tx, file)).await?;
    let _turn = core.lock_file(file).await?;
    if let Some(opened) = still_open(core, operation, part.holder).await? {
        return Ok(opened);
    }
    freeze::finish(core, file).await?;
    if !part.alone && sharing::may_join(core, file).await? {
        return sharing::join(core, operation, file, part, before.g).await;
    }
    make_free(core, file).await?;
    freeze::before_writing(core, file).await?;
    grant(core, operation, file, part).await
}

/// The operation's earlier answer, if the lease granted then is not over. The caller holds the file's lock.
pub async fn still_open(
    core: &Arc<Core>,
    operation: Operation,
    holder: HolderId,
) -> Result<Option<Opened>, Refusal> {
    let before = core
        .read(move |core, tx| {
            let Some(OperationResult { file, lease, .. }) = core.recall(tx, operation)? else {
                return Ok(None);
            };
            let inode = inodes::find(tx, file)?.filter(|inode| inode.held && inode.is_current(lease));
            Ok(inode.map(|inode| (file, lease, inode)))
        })
        .await?;
    match before {
        Some((file, lease, inode)) if core.leases().renew(file, lease, holder, core.now_ms()) => {
            Ok(Some(opened_to_write(core, file, inode, holder).await?))
        }
        _ => Ok(None),
    }
}

/// New capabilities for an open file.
pub async fn refresh(core: &Arc<Core>, request: Refresh) -> Result<Opened, Refusal> {
    let Refresh { file, access, lease, holder, turn, in_vain, reservation, reach, room, snapshot } = request;
    if snapshot != 0 {
        return in_snapshot(core, file, snapshot).await;
    }
    if access == Access::Read {
        return reader(core, file).await;
    }
    core.read(move |core, tx| sharing::must_hold(core, tx, file, lease, holder)).await?;
    if reservation != ReservationId::NONE {
        core.read(move |core, tx| {
            // A file with a name is under what is reserved for its place.
            if inodes::find(tx, file)?.is_some_and(|inode| !inode.is_named()) {
                core.reservations().is_under(file, reservation);
            }
            Ok(())
        })
        .await?;
    }
    let _turn = core.lock_file(file).await?;
    freeze::finish(core, file).await?;
    let inode = core.read(move |_, tx| leased(tx, file, lease)).await?;
    if turn == Turn::Give
        && !inode.shared
        && inode.holder == holder
        && let Some(turns) = core.leases().turns(file)
    {
        turns.give();
    }
    let inode = match turn {
        Turn::Take => sharing::take_turn(core, file, inode, holder, in_vain).await?,
        Turn::Any | Turn::Give => sharing::take_part(core, file, inode, holder).await?,
    };
    renew_lease(core, file, lease, holder)?;
    opened_with_room(core, file, inode, holder, Need { reach, room }).await
}

/// Renews leases. After a start this makes the writers known again.
pub async fn renew(core: &Arc<Core>, request: &Renew) -> Renewed {
    let lost = renewed(core, request);
    Renewed { lost, give_back: wanted_back(core, &request.leases).await }
}

/// Renews leases. Returns the holders that have lost theirs.
fn renewed(core: &Core, request: &Renew) -> Vec<HolderId> {
    let now_ms = core.running_ms();
    let renewed = |of: &&HeldLease| core.leases().renew(of.file, of.lease, of.holder, now_ms);
    let (held, lost): (Vec<&HeldLease>, Vec<&HeldLease>) = request.leases.iter().partition(renewed);
    let client = asker();
    for of in held {
        core.leases().is_of(of.file, of.holder, client);
        core.watchers().writes(of.file, of.holder, client);
    }
    lost.into_iter().map(|of| of.holder).collect()
}

/// Sets a file's size.
pub async fn commit(core: &Arc<Core>, request: Commit) -> Result<(), Refusal> {
    let Commit { file, holder, size, .. } = request;
    let committed = core.write(move |core, tx| {
        sharing::must_hold(core, tx, request.file, request.lease, request.holder)?;
        let gives_back = files::commit(tx, &request, core.now_ms())?;
        receipts::keep(core, tx, request.file, &request.backing.receipts)?;
        Ok(gives_back)
    });
    if or_wait(core, file, holder, size, committed.await).await? {
        // As it is on record by now: others may have changed it, one at a time.
        let _turn = core.lock_file(file).await?;
        if let Some(inode) = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await? {
            give_back(core, file, &inode).await;
        }
    }
    Ok(())
}

/// Reserves bytes at the file's end for a writer. Returns the offset of the first.
pub async fn reserve(
    core: &Arc<Core>,
    operation: Operation,
    request: ReserveEnd,
) -> Result<EndReserved, Refusal> {
    let ReserveEnd { file, holder, bytes, from, .. } = request;
    let reserved = core.once(operation, move |core, tx| {
        sharing::must_hold(core, tx, request.file, request.lease, request.holder)?;
        let number = files::reserve(tx, &request)?;
        Ok((OperationResult { number, ..OperationResult::DONE }, number))
    });
    let wanted = from.saturating_add(bytes);
    let offset = match or_wait(core, file, holder, wanted, reserved.await).await? {
        Once::Now(offset) | Once::Before(OperationResult { number: offset, .. }) => offset,
    };
    Ok(EndReserved { offset })
}

/// Handles a writer's report that it cannot reach columns. They go out if their drives are surely dead, or if
/// the writer insists, having tried for long; else it is told to try again.
pub async fn report_lost(core: &Arc<Core>, request: ReportLost) -> Result<Opened, Refusal> {
    let ReportLost { file, lease, holder, segment, columns, insist } = request;
    core.read(move |core, tx| sharing::must_hold(core, tx, file, lease, holder)).await?;
    let _turn = core.lock_file(file).await?;
    let inode = core.read(move |_, tx| leased(tx, file, lease)).await?;
    if inode.lease_of(holder) != Some(lease) {
        // The writer has not heard of the present lease: that may be all that it lacks.
        let inode = sharing::take_part(core, file, inode, holder).await?;
        return opened_to_write(core, file, inode, holder).await;
    }
    let columns: Vec<(u32, Column)> = match inode.segment(segment) {
        Some(known) => columns.and(known.set).iter().map(|column| (segment, column)).collect(),
        None => return Err(Refusal::new(Reason::Malformed, format!("file {file} has no segment {segment}"))),
    };
    if columns.is_empty() && !inode.unfenced {
        return opened_to_write(core, file, inode, holder).await;
    }
    if !insist {
        refuse_if_up(core, &inode, &columns).await?;
    }
    refuse_if_too_many(core, &inode, &columns)?;
    let lost = if insist {
        columns.iter().map(|&(segment, column)| live_out::hold(core, &inode, segment, column)).collect()
    } else {
        wait_until_dead(core, &inode, &columns).await?
    };
    let cause = Cause { lease: RecordedLease::Live, lost, ..Cause::nothing() };
    let inode = procedure::run(core, file, cause).await?.ok_or_else(|| lease_lost(file, lease))?;
    renew_lease(core, file, lease, holder)?;
    opened_to_write(core, file, inode, holder).await
}

/// Makes sure that the file has no lease, that the last one was recovered from, that dead drives' columns are
/// out, and that no new layout of it is being filled. The caller holds the file's lock.
pub async fn make_free(core: &Arc<Core>, file: FileId) -> Result<InodeRecord, Refusal> {
    let gone = || Refusal::new(Reason::NotFound, format!("file {file} was removed"));
    filling::give_up(core, file).await?;
    let inode = core.read(move |_, tx| inodes::get(tx, file)).await?;
    if inode.held {
        let now_ms = core.now_ms();
        let mut leases = core.leases();
        if let LeaseState::Live(left_ms) = leases.state(file, now_ms) {
            let detail = format!(
                "{:?} is open for writing by another client: try again when it is closed, or in {} s at most if that \
                 client is gone",
                show(&inode.name),
                left_ms.div_ceil(1000)
            );
            return Err(Refusal::new(Reason::Leased, detail));
        }
        leases.give_up(file);
    }
    let lost = hold_lapsed(core, &inode);
    if !inode.held && !inode.unfenced && inode.since == Lease(0) && lost.is_empty() {
        procedure::refuse_too_many(core, &inode)?;
        return Ok(inode);
    }
    let lease = if inode.held { RecordedLease::Ended } else { RecordedLease::None };
    let cause = Cause { lease, lost, ..Cause::nothing() };
    let after = procedure::run(core, file, cause).await?;
    core.leases().end(file);
    after.filter(InodeRecord::lives).ok_or_else(gone)
}

/// Grants the next lease. The caller holds the file's lock and has called [`make_free`].
pub async fn grant(
    core: &Arc<Core>,
    operation: Operation,
    file: FileId,
    part: Part,
) -> Result<Opened, Refusal> {
    let grant = move |core: &Core, tx: &mut Tx| {
        // Refuses an operation that the client has settled. A repeat whose earlier lease is over gets
        // another.
        core.recall(tx, operation)?;
        let inode = files::grant(tx, file, part)?;
        remember(tx, operation, OperationResult::opened(file, inode.lease), core.now_ms())?;
        Ok(inode)
    };
    let gate = core.opening.read().await;
    let inode = core
        .write_then(grant, move |core, inode: &InodeRecord| granted(core, file, inode, part.holder))
        .await?;
    drop(gate);
    opened_to_write(core, file, inode, part.holder).await
}

/// Enters a lease that was granted to its first holder in the table of leases.
fn granted(core: &Core, file: FileId, inode: &InodeRecord, holder: HolderId) {
    let now_ms = core.running_ms();
    let mut leases = core.leases();
    leases.grant(file, inode.lease, holder, now_ms);
    leases.changed(file, inode);
}

/// Opens a file for reading, as its record says once it is settled.
pub async fn reader(core: &Arc<Core>, file: FileId) -> Result<Opened, Refusal> {
    let inode = settled(core, file).await?;
    opened_by(core, file, inode, Opener::Reader).await
}

/// The file's record, once settled: a procedure that was left undone is finished, and a lease that a restore
/// left is ended, as writes under it may reach beyond the size on record.
async fn settled(core: &Arc<Core>, file: FileId) -> Result<InodeRecord, Refusal> {
    let is_settled = |inode: &InodeRecord| !inode.unfenced && !inode.is_left();
    let inode = core.read(move |_, tx| inodes::get(tx, file)).await?;
    if is_settled(&inode) {
        return Ok(inode);
    }
    let _turn = core.lock_file(file).await?;
    let inode = core.read(move |_, tx| inodes::get(tx, file)).await?;
    if is_settled(&inode) {
        return Ok(inode);
    }
    let lease = lease_of(core, file, &inode);
    let after = procedure::run(core, file, Cause { lease, ..Cause::nothing() }).await?;
    if lease == RecordedLease::Ended {
        core.leases().end(file);
    }
    after.ok_or_else(|| Refusal::new(Reason::NotFound, format!("file {file} was removed")))
}

/// Refuses if a drive of these columns holds its lease and answers the manager: one client's bad link must
/// take no column out.
async fn refuse_if_up(core: &Arc<Core>, inode: &InodeRecord, lost: &[(u32, Column)]) -> Result<(), Refusal> {
    for &(index, column) in lost {
        let drive = drive_of(inode, index, column);
        let up = |core: &Core| core.drives().state(drive, core.now_ms()) == DriveState::Up;
        if up(core) && procedure::probe(core, drive).await == Probe::Answers && up(core) {
            let detail = format!("{} is up and answers the manager: try again", core.drives().name(drive));
            return Err(Refusal::new(Reason::Busy, detail));
        }
    }
    Ok(())
}

/// Refuses at once if fewer than `k` ready columns would be left, as there is nothing to wait for.
fn refuse_if_too_many(core: &Core, inode: &InodeRecord, lost: &[(u32, Column)]) -> Result<(), Refusal> {
    for segment in inode.in_force() {
        let index = segment.number;
        let gone = lost.iter().filter(|(of, _)| *of == index).map(|&(_, column)| column).collect();
        let left = segment.ready().minus(gone);
        if left.count() < u32::from(segment.shape.k) {
            return Err(procedure::too_many_away(core, inode, segment.all().minus(left), segment));
        }
    }
    Ok(())
}

/// Waits until all of the drives are surely dead, and holds them back. On an error none is held.
async fn wait_until_dead(
    core: &Arc<Core>,
    inode: &InodeRecord,
    columns: &[(u32, Column)],
) -> Result<Vec<Lost>, Refusal> {
    let deadline = procedure::deadline(core);
    let mut held = Vec::new();
    for &(segment, column) in columns {
        let drive = drive_of(inode, segment, column);
        let life = procedure::life(core, drive, deadline).await;
        if life == Life::Dead {
            held.push(Lost { segment, column, drive });
            continue;
        }
        procedure::release_holds(core, held.iter().map(|lost| lost.drive));
        let name = core.drives().name(drive);
        let detail = match life {
            Life::Alive => format!("{name} is up and answers the manager: try again"),
            _ if core.drives().returning(drive, core.running_ms()) => {
                format!("{name} has returned and is being told what it missed: try again")
            }
            _ => format!("{name} does not answer, but may still hold its lease: try again"),
        };
        return Err(Refusal::new(Reason::Busy, detail));
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use braid_layout::version::Lease;
    use braid_wire::control::HeldLease;

    use super::*;
    use crate::asker::asked_by;
    use crate::sessions::session_slots::SessionSlots;
    use crate::start::{Config, start};
    use braid_meta::records::memory::MemoryKv;
    use braid_meta::records::schema::{InodeRecord, directory_record};

    const FILE: FileId = FileId(7);

    #[tokio::test]
    async fn after_a_restart_a_renewal_says_whose_lease_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::new(dir.path(), "");
        let core = start(Arc::new(MemoryKv::new()), &config, SessionSlots::of(4, 4)).await.unwrap();
        let root = directory_record(Default::default(), FileId(0), Vec::new(), 0);
        let record = InodeRecord { lease: Lease(3), holder: HolderId(1), held: true, ..root };
        core.leases().resume(FILE, &record, core.running_ms());
        let held = Renew { leases: vec![HeldLease { file: FILE, lease: Lease(3), holder: HolderId(1) }] };
        // A renewal that names no client.
        renewed(&core, &held);
        assert!(core.leases().are_silent(FILE, &BTreeSet::new()));
        asked_by(ClientId(70), braid_layout::TokenId::NONE, None, async { renewed(&core, &held) }).await;
        assert!(!core.leases().are_silent(FILE, &BTreeSet::new()));
        assert!(
            !core.leases().give_up_all_of(FILE, ClientId(71))
                && core.leases().give_up_all_of(FILE, ClientId(70))
        );
    }
}
