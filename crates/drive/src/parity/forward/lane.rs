//! Pays the debts to one sister: a task with one session, which sends the deltas of all units that wait for
//! that sister, a batch at a time. Deltas that come meanwhile wait for the next batch, and so share the
//! sister's commit. A unit whose deltas are refused is tried again without end, after pauses that grow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{ClientId, DriveId, Generation, OperationNumber, PartitionId, Version};
use braid_schedule::Flow;
use braid_store::{DiskReads, Error, ObjectState};
use braid_transport::{DriveSession, Home, Limits, TransportError, host};
use braid_wire::capability::Protection;
use braid_wire::control::Grant;
use braid_wire::data::{Address, ColumnMap, Delta, DriveReply, DriveRequest};
use braid_wire::{Reason, Refusal, Wire};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::{handle_not_owed, handle_removed, settle, tell_owed};
use crate::core::Core;
use crate::device::gate::Slot;
use crate::parity::debts::UnitRef;
use crate::parity::forwarder::Job;

/// Maximum number of deltas of one batch, and its approximate maximum size in bytes.
const BATCH_LEN: usize = 256;
const BATCH_BYTES: usize = 8 << 20;
/// Deltas up to this size are sent together, about as many bytes at a time.
const TOGETHER_BYTES: usize = 64 << 10;
/// Pause before a refused unit is sent again: the first one, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Timeout for a sister's answers. The sister's store may be slow; one that hangs is detected elsewhere.
const SISTER_WAIT: Duration = Duration::from_secs(10);

/// Longest wait for a turn at the disk to read deltas.
const TURN_WAIT: Duration = Duration::from_secs(1);

/// A delta that is ready to be sent.
struct Item {
    job: Job,
    /// Generation in which the delta is sent.
    g: Generation,
    request: DriveRequest,
    payload: Bytes,
}

/// Sends one sister the deltas that it is owed.
pub(super) async fn run(core: Arc<Core>, sister: DriveId, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let mut session = None;
    let mut due: BTreeMap<Job, (Instant, Duration)> = BTreeMap::new();
    loop {
        let next = due.values().map(|(at, _)| *at).min();
        tokio::select! {
            job = jobs.recv() => match job {
                Some(job) => drop(due.insert(job, (Instant::now(), PAUSE_MIN))),
                None => return,
            },
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
        while let Ok(job) = jobs.try_recv() {
            due.insert(job, (Instant::now(), PAUSE_MIN));
        }
        let now = Instant::now();
        let mut batch: Vec<Job> = due.iter().filter(|(_, (at, _))| *at <= now).map(|(job, _)| *job).collect();
        batch.truncate(BATCH_LEN);
        let reused = session.is_some();
        let mut sent = send(&core, sister, &mut session, &batch).await;
        if sent.is_err() && reused {
            // A session that was idle may be broken without a fault of the sister.
            session = None;
            sent = send(&core, sister, &mut session, &batch).await;
        }
        let again = sent.unwrap_or_else(|why| {
            tracing::debug!(%sister, why, "deltas wait for a parity drive");
            session = None;
            // The writers find out soon whether the sister is lost, and then have the manager take it out.
            for (unit, _) in &batch {
                let waiters = core.forwarder.debts().take_waiters(*unit);
                tell_owed(waiters);
            }
            batch.clone()
        });
        for job in batch {
            // Done even after a batch that failed midway, so that acknowledged deltas are not sent again.
            settle(&core, job.0);
            due.entry(job).and_modify(|(at, pause)| {
                *at = Instant::now() + *pause;
                *pause = (*pause * 2).min(PAUSE_MAX);
            });
            if !again.contains(&job) {
                due.remove(&job);
            }
        }
    }
}

/// Returns true if a sister's refusal may be over soon. After other refusals the waiting writers are told at
/// once.
fn passes(reason: Reason) -> bool {
    !matches!(
        reason,
        Reason::Damaged
            | Reason::Full
            | Reason::Quota
            | Reason::Medium
            | Reason::ReadOnly
            | Reason::NoPartition
    )
}

/// Sends one batch. Returns the jobs that must be sent again; an error means that all must, on a new session.
async fn send(
    core: &Arc<Core>,
    sister: DriveId,
    session: &mut Option<DriveSession>,
    batch: &[Job],
) -> Result<Vec<Job>, String> {
    let Prepared { mut items, mut again, waiting } = prepare(core, batch, Reads::AtOnce);
    let mut bytes = 0;
    let mut reading = JoinSet::new();
    for job in waiting {
        if bytes >= BATCH_BYTES {
            again.push(job);
            continue;
        }
        let Turn { slot, wanted } = turn(core, job);
        bytes = bytes.saturating_add(usize::try_from(wanted).unwrap_or(usize::MAX));
        let preparing = Arc::clone(core);
        reading.spawn(async move {
            // A fence may wait for these deltas: after a while they are read out of turn.
            let slot = timeout(TURN_WAIT, slot).await;
            host::spawn_blocking(move || {
                let prepared = prepare(&preparing, &[job], Reads::Wait);
                drop(slot);
                prepared
            })
            .await
        });
    }
    while let Some(read) = reading.join_next().await {
        let prepared = read.and_then(|read| read).map_err(|error| error.to_string())?;
        items.extend(prepared.items);
        again.extend(prepared.again);
    }
    let mut partitions: BTreeMap<PartitionId, Vec<Item>> = BTreeMap::new();
    items.into_iter().for_each(|item| partitions.entry(item.job.0.0).or_default().push(item));
    for (partition, items) in partitions {
        let Some(now_ms) = core.manager_ms() else { return Err("this drive has no lease now".to_owned()) };
        let row = core.forwarder.sisters.find(sister, partition, now_ms).await?;
        let gone = |error: TransportError| {
            core.forwarder.sisters.forget(sister, partition);
            error.to_string()
        };
        let is_private = row.grant.capability.protection != Protection::Integrity;
        // What is private makes the lane's session one in TLS, which then carries the rest too.
        if session.as_ref().is_none_or(|session| is_private && !session.is_private()) {
            let limits = Limits { reply: SISTER_WAIT, ..core.settings.limits };
            let addresses = if is_private { row.addresses.in_tls() } else { row.addresses.clone() };
            let pin = Some(core.keys.credentials().pin);
            let home = Home { cluster: core.cluster, pin };
            let connecting = DriveSession::connect_first(&addresses, sister, home, &limits);
            *session = Some(connecting.await.map_err(gone)?);
        }
        let session = session.as_mut().expect("it was made above");
        let refused = exchange(core, session, &row.grant, &items).await.map_err(gone)?;
        for (job, refusal) in refused {
            tracing::debug!(%sister, unit = ?job.0, %refusal, "a parity drive does not accept a delta yet");
            if matches!(
                refusal.reason,
                Reason::Expired | Reason::StaleKey | Reason::Forged | Reason::Rights | Reason::Scope
            ) {
                core.forwarder.sisters.forget(sister, partition);
            }
            if !passes(refusal.reason) {
                let waiters = core.forwarder.debts().take_waiters(job.0);
                tell_owed(waiters);
            }
            again.push(job);
        }
        core.forwarder.progress.notify_waiters();
    }
    Ok(again)
}

/// A turn at the disk that was asked for.
struct Turn {
    /// Gets the place at the disk.
    slot: oneshot::Receiver<Slot>,
    /// Bytes that are to be read.
    wanted: u64,
}

/// Asks for a turn at the disk to read the deltas of a job. They are parts of writes, and so belong to the
/// writer: with the requests of the system they would hold up fences.
fn turn(core: &Arc<Core>, job: Job) -> Turn {
    let ((partition, object, number), column) = job;
    let mut all = DiskReads::default();
    let mut writer = ClientId(0);
    for (version, _) in core.forwarder.debts().unacknowledged((partition, object, number), column) {
        if let Some((client, disk)) = core.store.delta_disk_reads(partition, object, number, version) {
            writer = client;
            all = DiskReads { reads: all.reads + disk.reads, bytes: all.bytes + disk.bytes };
        }
    }
    let PartitionId(tenant) = partition;
    let flow = Flow::BestEffort { tenant, client: writer.0 };
    let (told, slot) = oneshot::channel();
    core.gate.enter_reads(flow, all.bytes, all, move |slot| drop(told.send(slot)));
    Turn { slot, wanted: all.bytes }
}

/// Sends the deltas and takes the answers. Returns the refused jobs, each with its refusal.
async fn exchange(
    core: &Core,
    session: &mut DriveSession,
    grant: &Grant,
    items: &[Item],
) -> Result<Vec<(Job, Refusal)>, TransportError> {
    let (asker, answers) = session.halves();
    let asking = async {
        for (item, tag) in items.iter().zip(0..) {
            if tag > 0 && item.payload.len() <= TOGETHER_BYTES {
                asker.put(tag, grant, &item.request, &item.payload)?;
                if asker.put_bytes() >= TOGETHER_BYTES {
                    asker.send_put().await?;
                }
                continue;
            }
            let payload: &[&[u8]] = if item.payload.is_empty() { &[] } else { &[&item.payload] };
            asker.ask(tag, grant, &item.request, payload).await?;
        }
        asker.send_put().await
    };
    let answering = async {
        let mut refused = Vec::new();
        for _ in items {
            let answer = answers.next().await?;
            let Some(item) = usize::try_from(answer.tag).ok().and_then(|tag| items.get(tag)) else {
                continue;
            };
            let (unit, column) = item.job;
            match answer.reply {
                DriveReply::Written(written) => {
                    core.forwarder.receipts.heed(&written.receipts);
                    core.forwarder.debts().handle_acknowledged(unit, column, written.version, item.g);
                }
                DriveReply::Refused(refusal) => refused.push((item.job, refusal)),
                other => {
                    let detail = format!("a delta was answered with {}", other.name());
                    refused.push((item.job, Refusal::new(Reason::Malformed, detail)));
                }
            }
        }
        Ok(refused)
    };
    let ((), refused) = tokio::try_join!(asking, answering)?;
    Ok(refused)
}

/// Policy for reading deltas: with waits for the disk, or only where no wait is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    Wait,
    AtOnce,
}

/// A batch that was read: deltas that are ready to be sent, and jobs that are not ready.
#[derive(Default)]
struct Prepared {
    items: Vec<Item>,
    /// Jobs to look at again: they do not fit the batch, or cannot be read now.
    again: Vec<Job>,
    /// Jobs to prepare in a thread, as they wait for the disk.
    waiting: Vec<Job>,
}

/// Reads the deltas that these jobs need, oldest first.
fn prepare(core: &Arc<Core>, jobs: &[Job], reads: Reads) -> Prepared {
    let mut prepared = Prepared::default();
    let mut bytes = 0;
    for &job in jobs {
        let (unit, column) = job;
        if prepared.items.len() >= BATCH_LEN || bytes >= BATCH_BYTES {
            prepared.again.push(job);
            continue;
        }
        let begun = prepared.items.len();
        let versions = core.forwarder.debts().unacknowledged(unit, column);
        for (version, watermark) in versions {
            match item(core, job, version, watermark, reads) {
                Ok(item) => {
                    core.forwarder.debts().handle_read(unit, true);
                    bytes += item.payload.len();
                    prepared.items.push(item);
                }
                Err(Error::WouldWait) => {
                    prepared.items.truncate(begun);
                    prepared.waiting.push(job);
                    break;
                }
                Err(Error::NoObject(..)) => handle_removed(core, (unit.0, unit.1)),
                Err(Error::Chain { .. }) => handle_not_owed(core, unit, version),
                Err(error) => {
                    tracing::warn!(%error, unit = ?unit, %version, "a delta cannot be read: the parity drive does not get it yet");
                    core.forwarder.debts().handle_read(unit, false);
                    prepared.again.push(job);
                    break;
                }
            }
        }
    }
    prepared
}

fn item(
    core: &Core,
    job: Job,
    version: Version,
    watermark: OperationNumber,
    reads: Reads,
) -> Result<Item, Error> {
    let (unit, column) = job;
    let (partition, object, number) = unit;
    let (g, map) = core.store.with_object(partition, object, |state: &ObjectState<'_>| {
        (state.g, ColumnMap::from_bytes(state.map))
    })?;
    let map = map.map_err(|_| Error::Malformed("the object's column map does not decode"))?;
    let delta = match reads {
        Reads::Wait => core.store.delta(partition, object, number, version)?,
        Reads::AtOnce => core.store.delta_at_once(partition, object, number, version)?,
    };
    let Some(&sister_object) = map.objects.get(column.index()) else {
        return Err(Error::Malformed("the object's column map has no such column"));
    };
    let request = Delta {
        at: Address { partition, object: sister_object },
        unit: number,
        from: delta.from,
        to: delta.to,
        column: map.column,
        from_version: delta.from_version,
        to_version: delta.to_version,
        end: delta.end,
        client: delta.client,
        operation: delta.operation,
        // With one parity column, the versions that the sister has are settled: it need not be told.
        settled_to: if map.m == 1 { Version::ZERO } else { settled(core, unit)? },
        crcs: delta.crcs,
        g,
        watermark,
    };
    Ok(Item { job, g, request: request.into(), payload: delta.bytes })
}

/// The unit's settled version. A sister may fold in the deltas up to it.
fn settled(core: &Core, unit: UnitRef) -> Result<Version, Error> {
    let (partition, object, number) = unit;
    let chains = core.store.versions(partition, object, number..number.saturating_add(1))?;
    let entries = chains.iter().flat_map(|chain| &chain.entries);
    Ok(entries.filter(|entry| entry.settled).map(|entry| entry.version).max().unwrap_or_default())
}
