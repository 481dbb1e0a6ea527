//! Moving a whole state into etcd.

use std::sync::Arc;
use std::time::Duration;

use braid_meta::records::kv::Kv;
use braid_meta::records::log::{HeadRecord, StateRecord, encode};
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use tokio::runtime::Handle;

use super::checkpoint::cut;
use super::config::EtcdConfig;
use super::error::EtcdError;
use super::link::{Link, Member};
use super::reader::gets;
use crate::restore::terms::random;

/// Maximum time that etcd is waited for with each step.
const WAIT: Duration = Duration::from_secs(20);

/// Puts the state of `kv` into etcd, where none may be yet. It is a checkpoint after record 1, which no log
/// has. No manager may run on it meanwhile.
pub async fn import(config: &EtcdConfig, kv: Arc<dyn Kv>) -> Result<(), EtcdError> {
    let link = Arc::new(Link::new(config, None).await?);
    // Of this import, so that one that was cut short leaves nothing that counts.
    let identity = u128::from_le_bytes(random());
    let state = encode(&StateRecord { identity });
    let writer = u64::from_le_bytes(random());
    let runtime = Handle::current();
    let to = Arc::clone(&link);
    let own = state.clone();
    let cutting = tokio::task::spawn_blocking(move || {
        cut(kv.snapshot()?.as_ref(), |number, chunk| {
            let put = TxnOp::put(to.names.chunk(1, writer, number), chunk, None);
            runtime.block_on(put_new(&to, &own, vec![put]))
        })
    });
    let cut = cutting.await.map_err(|error| EtcdError::Config(format!("the import failed: {error}")))?;
    let (chunks, bytes) = cut?;
    let head = HeadRecord { index: 1, sum: identity, writer, chunks, bytes };
    let last = vec![
        TxnOp::put(link.names.head(), encode(&head), None),
        TxnOp::put(link.names.state(), state.clone(), None),
    ];
    put_new(&link, &state, last).await
}

/// Carries these out if there is no state yet, or the one that is being imported.
async fn put_new(link: &Link, own: &[u8], operations: Vec<TxnOp>) -> Result<(), EtcdError> {
    let key = link.names.state();
    let is_new = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
    let txn = Txn::new().when([is_new]).and_then(operations).or_else([TxnOp::get(key, None)]);
    let ask = |mut member: Member| {
        let txn = txn.clone();
        async move { member.kv.txn(txn).await }
    };
    let answer = link.ask(WAIT, ask).await?;
    let there = gets(answer.op_responses()).into_iter().flatten().next();
    if answer.succeeded() || there.is_some_and(|there| there.value() == own) {
        Ok(())
    } else {
        Err(EtcdError::Taken(link.state.clone()))
    }
}
