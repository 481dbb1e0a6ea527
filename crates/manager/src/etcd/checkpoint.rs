//! Checkpoints: the whole state in chunks, so that the log before it can be deleted.
//!
//! The chunks are written under names of their own; then the head key is set to them in one transaction.
//! Until then the checkpoint does not exist, and whoever leads next sweeps what is left of it. So a leader
//! may die, or another take over, at any point.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_meta::records::kv::{Batch, KvError, Pair, Snapshot};
use braid_meta::records::log::{
    HeadRecord, PART_BYTES, Place, change_bytes, decode, decode_chunk, encode, encode_chunk,
};
use etcd_client::{DeleteOptions, GetOptions, TxnOp};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::cache::Cache;
use super::error::EtcdError;
use super::link::{ATTEMPT, Link, Member, Trouble};
use super::names::end_of;
use super::pen::Pen;
use super::reader::{broken, gets};

/// A checkpoint is made once the log since the last one is larger than it, and than this.
pub(super) const LOG_MAX: u64 = 64 << 20;
/// Interval at which that is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// Etcd's history of the keys is dropped at least this often.
const COMPACT_EVERY: Duration = Duration::from_secs(3600);
/// Rows that are read from the copy at a time.
const ROWS: usize = 1024;
/// Number of log records that are deleted at a time.
const DELETED: u64 = 10_000;

/// Cuts the state of a snapshot into chunks, and hands each to `put` with its number. Returns their number
/// and their bytes. Blocks on the disk.
pub(super) fn cut<E: From<KvError>>(
    snapshot: &dyn Snapshot,
    mut put: impl FnMut(u32, Vec<u8>) -> Result<(), E>,
) -> Result<(u32, u64), E> {
    let end = [u8::MAX; 64];
    let mut from = Vec::new();
    let mut rows: Vec<Pair> = Vec::new();
    let mut size = 0;
    let mut chunks = 0;
    let mut bytes = 0;
    let mut flush = |rows: &mut Vec<Pair>| -> Result<(), E> {
        let chunk = encode_chunk(chunks, rows);
        bytes += u64::try_from(chunk.len()).unwrap_or_default();
        put(chunks, chunk)?;
        chunks += 1;
        rows.clear();
        Ok(())
    };
    loop {
        let page = snapshot.scan(&from, &end, ROWS)?;
        let Some((last, _)) = page.last() else { break };
        from = [last.as_slice(), &[0]].concat();
        for (key, value) in page {
            let more = change_bytes(&key, &value);
            if size + more > PART_BYTES && !rows.is_empty() {
                flush(&mut rows)?;
                size = 0;
            }
            size += more;
            rows.push((key, value));
        }
    }
    if !rows.is_empty() {
        flush(&mut rows)?;
    }
    Ok((chunks, bytes))
}

/// Writes a checkpoint of the copy as it is now, and deletes what it takes the place of.
pub(super) async fn write(pen: &Pen, cache: &Arc<Cache>) -> Result<HeadRecord, EtcdError> {
    let runtime = Handle::current();
    let cache = Arc::clone(cache);
    let own = pen.clone();
    let cut_and_put = move || -> Result<HeadRecord, EtcdError> {
        let (snapshot, place) = cache.at()?;
        let writer = own.tenure.number();
        let names = &own.link.names;
        let (chunks, bytes) = cut(snapshot.as_ref(), |number, chunk| {
            let put = TxnOp::put(names.chunk(place.index, writer, number), chunk, None);
            runtime.block_on(own.again(vec![put]))
        })?;
        Ok(HeadRecord { index: place.index, sum: place.sum, writer, chunks, bytes })
    };
    let cutting = tokio::task::spawn_blocking(cut_and_put).await;
    let head = cutting.map_err(|error| EtcdError::Deposed(error.to_string()))??;
    pen.again(vec![TxnOp::put(pen.link.names.head(), encode(&head), None)]).await?;
    tracing::info!(index = head.index, bytes = head.bytes, "a checkpoint of the state is in etcd");
    sweep(pen, Some(&head), None).await?;
    Ok(head)
}

/// Deletes what no one reads any more: the log up to the checkpoint, other checkpoints, and, if `end` is the
/// end of the log, parts of records that were never completed.
pub(super) async fn sweep(pen: &Pen, head: Option<&HeadRecord>, end: Option<Place>) -> Result<(), EtcdError> {
    let names = &pen.link.names;
    let delete = |from: String, to: Vec<u8>| TxnOp::delete(from, Some(DeleteOptions::new().with_range(to)));
    let all = names.checkpoints();
    let mut sweeping = match head {
        Some(head) => {
            let own = names.checkpoint(head.index, head.writer);
            vec![
                delete(all.clone(), own.clone().into_bytes()),
                delete(String::from_utf8(end_of(&own)).expect("a key is text"), end_of(&all)),
            ]
        }
        None => vec![delete(all.clone(), end_of(&all))],
    };
    if let Some(end) = end {
        sweeping.push(delete(names.parts_from(end.index + 1), names.parts_end().into_bytes()));
    }
    pen.again(sweeping).await?;
    let Some(head) = head else { return Ok(()) };
    // In steps, so that no transaction holds others up for long.
    let mut from = oldest(pen).await?.unwrap_or(head.index);
    while from <= head.index {
        let to = (from + DELETED).min(head.index + 1);
        pen.again(vec![
            delete(names.record(from), names.record(to).into_bytes()),
            delete(names.parts_from(0), names.parts_from(to).into_bytes()),
        ])
        .await?;
        from = to;
    }
    Ok(())
}

/// Index of the oldest record that is still in the log.
async fn oldest(pen: &Pen) -> Result<Option<u64>, EtcdError> {
    let names = &pen.link.names;
    let first = GetOptions::new().with_range(names.records_end()).with_limit(1).with_keys_only();
    let found = gets(pen.link.read(ATTEMPT, &[(names.record(0).into_bytes(), first)]).await?.op_responses());
    let found = found.into_iter().flatten().next();
    let index = found.and_then(|found| {
        let key = found.key_str().ok()?.rsplit('/').next()?.to_owned();
        u64::from_str_radix(&key, 16).ok()
    });
    Ok(index)
}

/// Reads a chunk; `None` if it is not there.
pub(super) async fn chunk(
    link: &Link,
    head: &HeadRecord,
    number: u32,
    wait: Duration,
) -> Result<Option<Batch>, EtcdError> {
    let key = link.names.chunk(head.index, head.writer, number);
    let found = gets(link.read(wait, &[(key.into_bytes(), GetOptions::new())]).await?.op_responses());
    let Some(found) = found.into_iter().flatten().next() else { return Ok(None) };
    let rows = decode_chunk(number, found.value());
    Ok(Some(rows.map_err(|error| broken(link, &format!("chunk {number} of the checkpoint"), error))?))
}

/// The newest checkpoint.
pub(super) async fn newest(link: &Link, wait: Duration) -> Result<Option<HeadRecord>, EtcdError> {
    let found =
        gets(link.read(wait, &[(link.names.head().into_bytes(), GetOptions::new())]).await?.op_responses());
    let found = found.into_iter().flatten().next();
    let head = found.map(|found| decode(found.value())).transpose();
    head.map_err(|error| broken(link, "the checkpoint's key", error))
}

/// Makes checkpoints when they are due, and drops etcd's history of the keys, for as long as it is polled.
/// `logged`: bytes of the log since the newest checkpoint.
pub(super) async fn keep(pen: Pen, cache: Arc<Cache>, logged: Arc<AtomicU64>, newest: Option<HeadRecord>) {
    let mut bytes = newest.map_or(0, |head| head.bytes);
    let mut compacted = Instant::now();
    loop {
        sleep(LOOK).await;
        let so_far = logged.load(Ordering::Acquire);
        let is_due = so_far > bytes.max(LOG_MAX);
        if is_due {
            match write(&pen, &cache).await {
                Ok(head) => {
                    logged.fetch_sub(so_far, Ordering::AcqRel);
                    bytes = head.bytes;
                }
                Err(error) => {
                    tracing::warn!(%error, "no checkpoint of the state could be made: it is tried again");
                    continue;
                }
            }
        }
        if is_due || compacted.elapsed() > COMPACT_EVERY {
            compacted = Instant::now();
            if let Err(error) = compact(&pen).await {
                tracing::warn!(%error, "etcd's history could not be dropped: it is tried again");
            }
        }
    }
}

/// Has etcd drop its history of the keys.
async fn compact(pen: &Pen) -> Result<(), EtcdError> {
    let leader = [(pen.link.names.leader().into_bytes(), GetOptions::new().with_keys_only())];
    let answer = pen.link.read(ATTEMPT, &leader).await?;
    let revision = answer.header().map_or(0, |header| header.revision());
    let ask = |mut member: Member| async move { member.kv.compact(revision, None).await };
    match pen.link.once(ATTEMPT, ask).await {
        // Somebody else has done it.
        Err(Trouble::Refused(what)) if what.contains("compacted") => Ok(()),
        Err(trouble) => Err(pen.link.error(trouble)),
        Ok(_) => Ok(()),
    }
}

/// Bytes that the log is taken to have had when this manager began to lead, as nobody has counted them.
pub(super) fn estimate(head: Option<&HeadRecord>, place: Place) -> u64 {
    /// Bytes of a record, about.
    const RECORD: u64 = 4096;
    place.index.saturating_sub(head.map_or(0, |head| head.index)).saturating_mul(RECORD)
}
