//! Following the log: what etcd has after the copy's place is read and applied to the copy.
//!
//! The log is asked for at an interval, not watched: a watch that breaks without a word would have to be
//! noticed by the same questions.

use std::sync::Arc;
use std::time::Duration;

use braid_meta::records::kv::{Batch, KvError};
use braid_meta::records::log::{HeadRecord, LogError, Place, StateRecord, decode, encode, front, join};
use braid_transport::host;
use etcd_client::{
    Compare, CompareOp, GetOptions, KeyValue, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
};

use super::cache::{Cache, Fresh};
use super::checkpoint;
use super::election::Leader;
use super::error::EtcdError;
use super::link::{Link, Member};
use crate::restore::terms::random;

/// Number of records that are read at a time; each has at most about 1 MiB.
const RECORDS: i64 = 16;
/// Number of looks within which a checkpoint is read that others replace meanwhile.
const CHECKPOINT_TRIES: u32 = 8;

/// The keys of etcd at one moment.
pub(super) struct View {
    pub(super) leader: Option<Leader>,
    head: Option<HeadRecord>,
    /// Records after the copy's place, in order.
    records: Vec<KeyValue>,
}

/// State of a copy after one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Followed {
    /// It has all that the look has shown.
    Up,
    /// There is more.
    More,
}

/// Makes sure that the copy and etcd have the same state, by its identity and by how far they are. The very
/// first manager makes the state.
pub(super) async fn identify(link: &Link, cache: &Arc<Cache>, wait: Duration) -> Result<(), EtcdError> {
    let key = link.names.state();
    let fresh = StateRecord { identity: u128::from_le_bytes(random()) };
    let copy = cache.identity();
    // A copy of some state does not make another.
    let may_make = copy == 0;
    let ask = |mut member: Member| {
        let is_new = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
        let put = may_make.then(|| TxnOp::put(key.clone(), encode(&fresh), None));
        let make: Vec<TxnOp> = put.into_iter().collect();
        let look = TxnOp::get(key.clone(), None);
        let txn = Txn::new().when([is_new]).and_then(make).or_else([look]);
        async move { member.kv.txn(txn).await }
    };
    let answer = link.ask(wait, ask).await?;
    let older = |there| EtcdError::Older {
        state: link.state.clone(),
        dir: cache.dir().to_owned(),
        copy: cache.place().index,
        there,
    };
    let identity = match answer.op_responses().pop() {
        _ if answer.succeeded() && may_make => fresh.identity,
        Some(TxnOpResponse::Get(mut found)) if !answer.succeeded() => {
            let found = found.take_kvs().pop().ok_or_else(|| older(0))?;
            let record: StateRecord =
                decode(found.value()).map_err(|e| broken(link, "the state's key", e))?;
            record.identity
        }
        _ => return Err(older(0)),
    };
    if copy == 0 {
        let cache = Arc::clone(cache);
        return Ok(blocking(move || cache.become_copy_of(identity)).await?);
    }
    if copy != identity {
        return Err(EtcdError::OtherState { state: link.state.clone(), dir: cache.dir().to_owned() });
    }
    let newest = GetOptions::new()
        .with_range(link.names.records_end())
        .with_sort(SortTarget::Key, SortOrder::Descend)
        .with_limit(1);
    let reads =
        [(link.names.record(0).into_bytes(), newest), (link.names.head().into_bytes(), GetOptions::new())];
    let mut found = gets(link.read(wait, &reads).await?.op_responses());
    let head = found.pop().and_then(|mut kvs| kvs.pop());
    let head = head.map(|head| decode::<HeadRecord>(head.value())).transpose();
    let head = head.map_err(|error| broken(link, "the checkpoint's key", error))?;
    let newest = found.pop().and_then(|mut kvs| kvs.pop());
    let newest = newest.map(|newest| front(newest.value())).transpose();
    let newest = newest.map_err(|error| broken(link, "the log's newest record", error))?;
    let there = newest.map_or(0, |record| record.index).max(head.map_or(0, |head| head.index));
    if there < cache.place().index { Err(older(there)) } else { Ok(()) }
}

/// Looks at etcd once.
pub(super) async fn look(link: &Link, after: u64, wait: Duration) -> Result<View, EtcdError> {
    let names = &link.names;
    let next = GetOptions::new().with_range(names.records_end()).with_limit(RECORDS);
    let reads = [
        (names.leader().into_bytes(), GetOptions::new()),
        (names.head().into_bytes(), GetOptions::new()),
        (names.record(after + 1).into_bytes(), next),
    ];
    let mut found = gets(link.read(wait, &reads).await?.op_responses());
    let records = found.pop().unwrap_or_default();
    let head = found.pop().and_then(|mut found| found.pop());
    let leader = found.pop().and_then(|mut found| found.pop());
    let head = head.map(|head| decode(head.value())).transpose();
    Ok(View {
        leader: leader.map(|leader| Leader::of(link, &leader)).transpose()?,
        head: head.map_err(|error| broken(link, "the checkpoint's key", error))?,
        records,
    })
}

/// Applies what a look has shown to the copy.
pub(super) async fn follow(
    link: &Arc<Link>,
    cache: &Arc<Cache>,
    view: &View,
    wait: Duration,
) -> Result<Followed, EtcdError> {
    let place = cache.place();
    let first = view.records.first().map(|record| front(record.value())).transpose();
    let first = first.map_err(|error| broken(link, "a record of the log", error))?;
    let is_next = first.as_ref().is_some_and(|first| first.index == place.index + 1);
    if let Some(head) = &view.head
        && head.index > place.index
        && !is_next
    {
        load(link, cache, head, wait).await?;
        return Ok(Followed::More);
    }
    let mut batches: Vec<(Batch, Place, Place)> = Vec::new();
    let mut at = place;
    for record in &view.records {
        let what = || format!("record {} of the log", at.index + 1);
        let found = front(record.value()).map_err(|error| broken(link, &what(), error))?;
        if found.index != at.index + 1 {
            let error = LogError::Damaged(format!("is missing: record {} is the next", found.index));
            return Err(broken(link, &what(), error));
        }
        let parts = parts(link, found.index, found.leader, found.parts, wait).await?;
        let (batch, after) =
            join(at, record.value(), &parts).map_err(|error| broken(link, &what(), error))?;
        batches.push((batch, at, after));
        at = after;
    }
    let copy = Arc::clone(cache);
    blocking(move || {
        batches.iter().try_for_each(|(batch, before, after)| copy.apply(batch, *before, *after))
    })
    .await?;
    let is_full = i64::try_from(view.records.len()).is_ok_and(|records| records >= RECORDS);
    Ok(if is_full { Followed::More } else { Followed::Up })
}

/// Reads all that etcd has.
pub(super) async fn catch_up(link: &Arc<Link>, cache: &Arc<Cache>, wait: Duration) -> Result<(), EtcdError> {
    loop {
        let view = look(link, cache.place().index, wait).await?;
        if follow(link, cache, &view, wait).await? == Followed::Up {
            return Ok(());
        }
    }
}

/// Makes the copy anew from a checkpoint.
async fn load(
    link: &Arc<Link>,
    cache: &Arc<Cache>,
    head: &HeadRecord,
    wait: Duration,
) -> Result<(), EtcdError> {
    let dir = cache.dir().to_owned();
    let fresh = Arc::new(blocking(move || Fresh::begin(&dir)).await?);
    for number in 0..head.chunks {
        let Some(rows) = checkpoint::chunk(link, head, number, wait).await? else {
            // A newer checkpoint has taken its place: the next look shows it.
            tracing::info!(
                index = head.index,
                "the checkpoint was replaced while it was read: reading the next one"
            );
            return still_there(link, head, wait).await;
        };
        let fresh = Arc::clone(&fresh);
        blocking(move || fresh.add(&rows)).await?;
    }
    let fresh = Arc::into_inner(fresh).expect("no other holds it");
    let after = Place { index: head.index, sum: head.sum };
    let copy = Arc::clone(cache);
    blocking(move || copy.replace(fresh, after)).await?;
    tracing::info!(index = head.index, bytes = head.bytes, "the copy was made anew from a checkpoint");
    Ok(())
}

/// Returns an error if this is the newest checkpoint all the same: then a chunk is missing.
async fn still_there(link: &Link, head: &HeadRecord, wait: Duration) -> Result<(), EtcdError> {
    for _ in 0..CHECKPOINT_TRIES {
        let view = look(link, head.index, wait).await?;
        if view.head.as_ref() != Some(head) {
            return Ok(());
        }
    }
    Err(broken(link, "a chunk of the checkpoint", LogError::Damaged("is missing".to_owned())))
}

async fn parts(
    link: &Link,
    index: u64,
    leader: u64,
    number: u32,
    wait: Duration,
) -> Result<Vec<Vec<u8>>, EtcdError> {
    let mut parts = Vec::new();
    for part in 0..number {
        let reads = [(link.names.part(index, leader, part).into_bytes(), GetOptions::new())];
        let found = gets(link.read(wait, &reads).await?.op_responses()).pop();
        let Some(found) = found.and_then(|mut found| found.pop()) else {
            let what = format!("part {part} of record {index} of the log");
            return Err(broken(link, &what, LogError::Damaged("is missing".to_owned())));
        };
        parts.push(found.into_key_value().1);
    }
    Ok(parts)
}

/// The keys that each read of a transaction has found.
pub(super) fn gets(responses: Vec<TxnOpResponse>) -> Vec<Vec<KeyValue>> {
    let kvs = |response| match response {
        TxnOpResponse::Get(mut found) => found.take_kvs(),
        _ => Vec::new(),
    };
    responses.into_iter().map(kvs).collect()
}

/// Runs work that waits for the disk.
pub(super) async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, KvError> + Send + 'static,
) -> Result<R, KvError> {
    host::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(KvError::Storage { path: "the manager's copy".into(), what: error.to_string() })
    })
}

pub(super) fn broken(link: &Link, what: &str, error: LogError) -> EtcdError {
    EtcdError::Broken { state: link.state.clone(), what: what.to_owned(), error }
}
