//! Writes to etcd by who leads. Each is one transaction, conditional on the leader's key: after another has
//! taken over, it does nothing, however late it arrives.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse, TxnResponse};
use tokio::time::sleep;

use super::election::Tenure;
use super::error::EtcdError;
use super::link::{ATTEMPT, Link, Member, Trouble};

/// Pause before a write is sent again.
const PAUSE: Duration = Duration::from_millis(50);

/// Writes of one tenure.
#[derive(Clone)]
pub(super) struct Pen {
    pub(super) link: Arc<Link>,
    pub(super) tenure: Arc<Tenure>,
}

impl Pen {
    /// Carries these out; for what may be carried out twice.
    pub(super) async fn again(&self, operations: Vec<TxnOp>) -> Result<(), EtcdError> {
        loop {
            match self.once(Vec::new(), operations.clone(), Vec::new()).await? {
                Ok(answer) if answer.succeeded() => return Ok(()),
                Ok(_) => return Err(self.deposed()),
                Err(Trouble::Unknown(_) | Trouble::Untrusted(_)) => sleep(PAUSE).await,
                Err(trouble) => return Err(self.link.error(trouble)),
            }
        }
    }

    /// Makes a key with this value, which no other key of that name has. If the answer is lost, the same is
    /// sent again: etcd makes the key once, and then tells whether it has this value. If it cannot be found
    /// out within the tenure, the tenure is over: nothing may follow a write of which that is not known.
    pub(super) async fn make(&self, key: &str, value: &[u8]) -> Result<(), EtcdError> {
        let mut unsure = false;
        loop {
            let is_new = Compare::create_revision(key, CompareOp::Equal, 0);
            let make = TxnOp::put(key, value, None);
            let look = vec![TxnOp::get(key, None), TxnOp::get(self.link.names.leader(), None)];
            let answer = match self.once(vec![is_new], vec![make], look).await? {
                Ok(answer) => answer,
                Err(Trouble::Unknown(what)) => {
                    tracing::debug!(%what, "whether a change was stored is not known yet");
                    unsure = true;
                    sleep(PAUSE).await;
                    continue;
                }
                Err(trouble) => {
                    if unsure {
                        self.tenure.end("it is not known whether its last change was stored");
                    }
                    return Err(self.link.error(trouble));
                }
            };
            if answer.succeeded() {
                return Ok(());
            }
            let mut found = answer.op_responses().into_iter().map(|found| match found {
                TxnOpResponse::Get(mut found) => found.take_kvs().pop(),
                _ => None,
            });
            let there = found.next().flatten();
            let leader = found.next().flatten();
            if leader.is_none_or(|leader| leader.create_revision() != self.tenure.revision) {
                return Err(self.deposed());
            }
            return match there {
                Some(there) if there.value() == value => Ok(()),
                _ => Err(EtcdError::Deposed(self.tenure.end("its log in etcd is longer than it knows"))),
            };
        }
    }

    /// Sends a transaction once. An error: the tenure is over.
    async fn once(
        &self,
        mut when: Vec<Compare>,
        then: Vec<TxnOp>,
        otherwise: Vec<TxnOp>,
    ) -> Result<Result<TxnResponse, Trouble>, EtcdError> {
        let left = self.tenure.left().map_err(EtcdError::Deposed)?;
        when.push(self.tenure.condition(&self.link));
        let txn = Txn::new().when(when).and_then(then).or_else(otherwise);
        let ask = |mut member: Member| async move { member.kv.txn(txn).await };
        Ok(self.link.once(ATTEMPT.min(left), ask).await)
    }

    fn deposed(&self) -> EtcdError {
        EtcdError::Deposed(self.tenure.end("another manager leads, or its key in etcd is gone"))
    }
}
