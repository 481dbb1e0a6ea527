//! Requests that turn keys, and that end capabilities before they expire.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{ClientId, FileId};
use braid_meta::records::inodes;
use braid_meta::records::schema::{DriveKeyRecord, DriveRecord, key};
use braid_meta::records::tx::Tx;
use braid_meta::rules::drives::no_drive;
use braid_meta::rules::operations::{Operation, OperationResult};
use braid_meta::tree::{directories, keys, volumes};
use braid_wire::control::{
    CLIENTS_TOLD_MAX, ClientRow, EntryKind, KeyRotate, KeyTurning, KeysReply, RevokeClient, RevokeFile,
};
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::columns::partitions::tell_partitions;
use crate::columns::procedure::{self, Cause};
use crate::core::Core;
use crate::files::lapses::end_lease_alone;
use crate::sessions::locking;

/// Maximum time that a request waits for drives to hear of a turn; the rest hear of it later.
const TELL_WAIT: Duration = Duration::from_secs(10);

/// Turns keys, or lets a drive join anew. Drives that are up have heard of a volume's turn when this returns,
/// as a rule.
pub(crate) async fn rotate(core: &Arc<Core>, operation: Operation, asked: KeyRotate) -> Result<(), Refusal> {
    let KeyRotate { of, name, at_once } = asked;
    if of == KeyTurning::Volume {
        let turned = core.once(operation, move |core, tx| {
            keys::rotate_volume(tx, &name, at_once, core.now_ms())?;
            Ok((OperationResult::DONE, ()))
        });
        turned.await?;
        tell_all(core).await;
        return Ok(());
    }
    let drive = core.drives().find(&name).map(|known| known.record.drive).ok_or_else(|| no_drive(&name))?;
    let mut random = [0; 32];
    getrandom::fill(&mut random).expect("the system gives random bytes");
    let turn = move |core: &Core, tx: &mut Tx| {
        let turned = match of {
            KeyTurning::Rejoin => (None, keys::allow_rejoin(tx, drive)?),
            KeyTurning::Revoke => {
                let (record, keys) = keys::revoke_drive(tx, drive, random, core.now_ms())?;
                (Some(record), keys)
            }
            _ => (None, keys::rotate_drive(tx, drive, random, at_once, core.now_ms())?),
        };
        Ok((OperationResult::DONE, turned))
    };
    let turned = move |core: &Core, (record, keys): &(Option<DriveRecord>, DriveKeyRecord)| {
        let mut table = core.drives();
        if let Some(record) = record {
            table.set_record(record.clone());
        }
        table.set_keys(drive, keys.clone());
    };
    core.once_then(operation, turn, turned).await?;
    if of == KeyTurning::Revoke {
        tracing::warn!(%name, "a drive's key was revoked");
        tell_all(core).await;
    }
    Ok(())
}

/// Takes note of the number of the key that a drive has proved. If it has turned its key, capabilities are
/// made with the new one from now on. Returns the drive's record after that.
///
/// The state is looked at each time: a change of which nobody heard whether it was stored is in no table.
pub(crate) async fn handle_heartbeat(
    core: &Arc<Core>,
    known: DriveRecord,
    number: u32,
) -> Result<DriveRecord, Refusal> {
    let drive = known.drive;
    let (stored, keys) =
        core.read(move |_, tx| Ok((tx.record(&key::drive(drive))?, keys::of_drive(tx, drive)?))).await?;
    let stored: DriveRecord = stored.ok_or_else(|| no_drive(&known.name))?;
    let is_turned = keys.turn.next.is_some() && keys.turn.number != number;
    {
        let mut table = core.drives();
        table.set_keys(drive, keys);
        if stored.master != known.master {
            table.set_record(DriveRecord { master: stored.master.clone(), ..known.clone() });
        }
    }
    let known = DriveRecord { master: stored.master, ..known };
    if !is_turned {
        return Ok(known);
    }
    let turn = move |core: &Core, tx: &mut Tx| keys::handle_turned(tx, drive, number, core.now_ms());
    let turned = |core: &Core, turned: &Option<(DriveRecord, DriveKeyRecord)>| {
        if let Some((record, keys)) = turned {
            let mut table = core.drives();
            table.set_record(record.clone());
            table.set_keys(record.drive, keys.clone());
        }
    };
    match core.write_then(turn, turned).await? {
        Some((record, _)) => {
            tracing::info!(name = %record.name, number, "a drive's key was turned");
            Ok(record)
        }
        None => Ok(known),
    }
}

/// Lists the states of keys, and the clients.
pub(crate) async fn list(core: &Arc<Core>) -> Result<KeysReply, Refusal> {
    let (volumes, drives) = core.read(|_, tx| Ok((keys::volume_rows(tx)?, keys::drive_rows(tx)?))).await?;
    let heard = core.clients().heard(core.running_ms());
    let leases = core.leases();
    let row = |(client, address, silent_ms)| {
        let writes = u64::try_from(leases.files_of(client).len()).unwrap_or(u64::MAX);
        ClientRow { client, address, silent_ms, writes }
    };
    let clients = heard.into_iter().take(CLIENTS_TOLD_MAX).map(row).collect();
    Ok(KeysReply { volumes, drives, clients })
}

/// Ends the capabilities for a file: its lease is over, and its generation rises, so that drives refuse what
/// was made before.
pub(crate) async fn revoke_file(core: &Arc<Core>, asked: RevokeFile) -> Result<(), Refusal> {
    let found = core.read(move |_, tx| directories::resolve(tx, &asked.at)).await?;
    if found.within.is_some() {
        let detail = "what a snapshot shows is only read: name the file itself".to_owned();
        return Err(Refusal::new(Reason::SnapshotReadOnly, detail));
    }
    if found.inode.kind != EntryKind::File {
        let detail = "capabilities are for files: this is none".to_owned();
        return Err(Refusal::new(Reason::NotFile, detail));
    }
    let file = found.file;
    let _turn = core.lock_file(file).await?;
    let generation = move |_: &Core, tx: &Tx| Ok(inodes::find(tx, file)?.map(|inode| inode.g));
    let before = core.read(generation).await?;
    core.leases().give_up(file);
    end_lease_alone(core, file).await?;
    if core.read(generation).await? != before {
        return Ok(());
    }
    procedure::run(core, file, Cause::nothing()).await.map(drop)
}

/// Ends a client's session. It gets no more capabilities from when this is stored; those it has end with the
/// keys of all volumes, and others get new ones.
pub(crate) async fn revoke_client(
    core: &Arc<Core>,
    operation: Operation,
    asked: RevokeClient,
) -> Result<(), Refusal> {
    let client = asked.client;
    if client == ClientId::NONE {
        return Err(Refusal::new(Reason::Malformed, "clients are numbered from 1"));
    }
    let shut_out = move |core: &Core, tx: &mut Tx| {
        let now_ms = core.now_ms();
        keys::shut_out(tx, client, now_ms)?;
        for volume in volumes::all(tx)? {
            keys::rotate_volume(tx, &volume.name, true, now_ms)?;
        }
        Ok((OperationResult::DONE, ()))
    };
    // Before any drive can hear of the keys: then no capability for the client is made with them.
    core.once_then(operation, shut_out, move |core, ()| core.clients().shut_out(client)).await?;
    core.clients().shut_out(client);
    tell_all(core).await;
    end_client(core, client).await?;
    are_told(core, "the client is shut out").await
}

/// Ends the leases and locks of a client.
pub(crate) async fn end_client(core: &Arc<Core>, client: ClientId) -> Result<(), Refusal> {
    locking::end_all_of(core, client).await?;
    let files: Vec<FileId> = core.leases().files_of(client).into_iter().collect();
    for file in files {
        let _turn = core.lock_file(file).await?;
        if core.leases().give_up_all_of(file, client) {
            end_lease_alone(core, file).await?;
        }
    }
    Ok(())
}

/// Ok if all drives have heard of the turned keys of all volumes; else the refusal says what is done already,
/// and what is not.
pub(crate) async fn are_told(core: &Arc<Core>, done: &str) -> Result<(), Refusal> {
    let rows = core.read(|_, tx| keys::volume_rows(tx)).await?;
    let behind: BTreeSet<String> = rows.into_iter().flat_map(|row| row.behind).collect();
    if behind.is_empty() {
        return Ok(());
    }
    let behind: Vec<String> = behind.into_iter().collect();
    let detail = format!(
        "{done}, and has no lease any more; but {} did not hear that its capabilities are over, and may let it read until \
         they expire, in two minutes",
        behind.join(", ")
    );
    Err(Refusal::new(Reason::NotServing, detail))
}

/// Tells all drives that are up of turned keys. Those that do not answer hear of them later.
pub(crate) async fn tell_all(core: &Arc<Core>) {
    let drives = core.drives().up(core.now_ms());
    let mut calls = JoinSet::new();
    for drive in drives {
        let core = Arc::clone(core);
        calls.spawn(async move { (drive, tell_partitions(&core, drive).await) });
    }
    let all = async {
        while let Some(done) = calls.join_next().await {
            match done {
                Ok((_, Ok(()))) => {}
                Ok((drive, Err(error))) => {
                    tracing::info!(%drive, %error, "a drive has not heard of turned keys yet");
                }
                Err(error) => tracing::error!(%error, "telling of turned keys failed within the manager"),
            }
        }
    };
    let _ = timeout(TELL_WAIT, all).await;
    core.wake.notify_waiters();
}
