//! The leader's store: each commit is a record of the log in etcd first, and then in the copy.
//!
//! A record of more than about 1 MiB is written in parts, one after another; only its last value, under the
//! record's own key, makes it one. If the leader dies in between, the parts are swept by the next one.
//!
//! If etcd does not answer, the commit waits until it does or the tenure is over. So no commit begins while
//! it is not known what became of the one before it.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use braid_meta::records::kv::{Batch, Kv, KvError, Snapshot};
use braid_meta::records::log::{Cut, PART_BYTES, cut};
use etcd_client::TxnOp;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::cache::Cache;
use super::error::EtcdError;
use super::pen::Pen;

/// The leader's store.
pub(super) struct EtcdKv {
    cache: Arc<Cache>,
    pen: Pen,
    /// Bytes of the log since the newest checkpoint.
    logged: Arc<AtomicU64>,
    runtime: Handle,
    /// One commit at a time.
    turn: Mutex<()>,
    /// Dropped with the store, for [`EtcdKv::closed`].
    closing: Option<oneshot::Sender<()>>,
}

impl EtcdKv {
    /// The store of this tenure, on a copy that has all of the log.
    pub(super) fn new(cache: Arc<Cache>, pen: Pen, logged: Arc<AtomicU64>) -> EtcdKv {
        EtcdKv { cache, pen, logged, runtime: Handle::current(), turn: Mutex::default(), closing: None }
    }

    /// Completes once the store was dropped: no commit is under way any more.
    pub(super) fn closed(&mut self) -> impl Future<Output = ()> + use<> {
        let (closing, closed) = oneshot::channel();
        self.closing = Some(closing);
        async move { drop(closed.await) }
    }

    /// Writes a record to etcd.
    async fn write(&self, record: &Cut) -> Result<(), EtcdError> {
        write_parts(&self.pen, record).await?;
        self.pen.make(&self.pen.link.names.record(record.after.index), &record.last).await
    }
}

/// Writes what comes before the value that makes a record valid.
pub(super) async fn write_parts(pen: &Pen, record: &Cut) -> Result<(), EtcdError> {
    let leader = pen.tenure.number();
    for (number, part) in (0..).zip(&record.parts) {
        let key = pen.link.names.part(record.after.index, leader, number);
        pen.again(vec![TxnOp::put(key, part.clone(), None)]).await?;
    }
    Ok(())
}

impl Kv for EtcdKv {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, KvError> {
        self.serving()?;
        self.cache.snapshot()
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.serving()?;
        let before = self.cache.place();
        let record = cut(before, self.pen.tenure.number(), batch, PART_BYTES);
        let written = self.runtime.block_on(self.write(&record));
        written.map_err(|error| kv_error(&self.pen, error))?;
        let bytes = record.last.len() + record.parts.iter().map(Vec::len).sum::<usize>();
        self.logged.fetch_add(u64::try_from(bytes).unwrap_or_default(), Ordering::AcqRel);
        // Etcd has the record: a leader whose copy lacks it must not decide anything more.
        self.cache.apply(batch, before, record.after).inspect_err(|error| {
            self.pen.tenure.end(format!("its copy of the state could not be written: {error}"));
        })
    }

    fn serving(&self) -> Result<(), KvError> {
        self.pen.tenure.check()
    }
}

fn kv_error(pen: &Pen, error: EtcdError) -> KvError {
    let path = pen.link.state.clone().into();
    match error {
        EtcdError::Deposed(what) => KvError::Deposed { what },
        EtcdError::Full(_) => KvError::Full { path, what: error.to_string() },
        EtcdError::Copy(error) => error,
        _ => KvError::Storage { path, what: error.to_string() },
    }
}
