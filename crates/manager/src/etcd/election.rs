//! Who leads: the manager whose lease the leader's key is under. Etcd makes the key for one only, and deletes
//! it with the lease.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use braid_meta::records::kv::KvError;
use braid_meta::records::log::{LeaderRecord, decode, encode};
use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp};
use tokio::time::sleep;

use super::error::EtcdError;
use super::lease::Lease;
use super::link::{ATTEMPT, Link, Member};

/// Interval at which the end of a tenure is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// The manager that leads, by the leader's key.
#[derive(Debug, Clone)]
pub(super) struct Leader {
    pub(super) record: LeaderRecord,
    pub(super) lease: i64,
    /// Revision at which the key was made.
    pub(super) revision: i64,
}

impl Leader {
    /// The leader of this key and value.
    pub(super) fn of(link: &Link, found: &KeyValue) -> Result<Leader, EtcdError> {
        let broken = |error| EtcdError::Broken {
            state: link.state.clone(),
            what: "the leader's key".to_owned(),
            error,
        };
        let record = decode(found.value()).map_err(broken)?;
        Ok(Leader { record, lease: found.lease(), revision: found.create_revision() })
    }
}

/// Tries to become the leader. Returns the revision of the leader's key if this manager is it now. After an
/// error it may be it all the same: the key tells.
pub(super) async fn campaign(
    link: &Link,
    lease: &Lease,
    me: &LeaderRecord,
) -> Result<Option<i64>, EtcdError> {
    let key = link.names.leader();
    let is_free = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
    let take = TxnOp::put(key, encode(me), Some(PutOptions::new().with_lease(lease.id)));
    let txn = Txn::new().when([is_free]).and_then([take]);
    let ask = |mut member: Member| async move { member.kv.txn(txn).await };
    let answer = link.once(ATTEMPT, ask).await.map_err(|trouble| link.error(trouble))?;
    Ok(answer.succeeded().then(|| answer.header().map_or(0, |header| header.revision())))
}

/// The time in which this manager leads.
pub(super) struct Tenure {
    /// Revision at which the leader's key was made: no other tenure has the same.
    pub(super) revision: i64,
    lease: Arc<Lease>,
    /// Reason for which it has ended.
    ended: OnceLock<String>,
}

impl Tenure {
    pub(super) fn new(revision: i64, lease: Arc<Lease>) -> Tenure {
        Tenure { revision, lease, ended: OnceLock::new() }
    }

    /// The number by which records name it.
    pub(super) fn number(&self) -> u64 {
        self.revision.unsigned_abs()
    }

    /// Holds in etcd as long as this tenure does.
    pub(super) fn condition(&self, link: &Link) -> Compare {
        Compare::create_revision(link.names.leader(), CompareOp::Equal, self.revision)
    }

    /// Ends it. Returns the reason for which it ended first.
    pub(super) fn end(&self, why: impl Into<String>) -> String {
        self.ended.get_or_init(|| why.into()).clone()
    }

    /// Time that is left of it for sure; the reason if it is over.
    pub(super) fn left(&self) -> Result<Duration, String> {
        if let Some(why) = self.ended.get() {
            return Err(why.clone());
        }
        match self.lease.left() {
            // For good: a renewal that is answered late revives nothing.
            Duration::ZERO => Err(self.end("its lease in etcd was not renewed in time")),
            left => Ok(left),
        }
    }

    /// Returns an error once it is over.
    pub(super) fn check(&self) -> Result<(), KvError> {
        self.left().map(drop).map_err(|what| KvError::Deposed { what })
    }

    /// Returns the reason once it is over.
    pub(super) async fn over(&self) -> String {
        loop {
            if let Err(why) = self.left() {
                return why;
            }
            sleep(LOOK).await;
        }
    }
}
