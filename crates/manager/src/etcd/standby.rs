//! A manager that stands by: it refuses every session, and names the manager that leads.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_layout::{ClusterId, DriveId};
use braid_meta::records::db::Db;
use braid_meta::records::kv::Kv;
use braid_meta::records::schema::{AuthorityRecord, ClusterRecord, key};
use braid_meta::tree::tokens;
use braid_transport::{ControlPeer, Listener, Stream, TransportError, challenge};
use braid_wire::Refusal;
use braid_wire::control::ControlHead;
use braid_wire::data::{Hello, PeerRole};
use braid_wire::frame::{WIRE_VERSION, WIRE_VERSION_OLDEST};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::cache::Cache;
use super::reader::blocking;
use crate::sessions::trust::Trust;
use crate::start::{Ready, ready_of};

/// Pause after connections could not be taken.
const PAUSE: Duration = Duration::from_millis(100);

/// The means by which a manager that stands by proves itself.
pub(super) struct Proof {
    cluster: ClusterId,
    trust: Trust,
}

impl Proof {
    /// The means that the copy of the state has for it, and the word for the manager's starter; `None` if the
    /// state is still empty.
    pub(super) async fn of(
        cache: &Arc<Cache>,
        address: &str,
    ) -> Result<Option<(Arc<Proof>, Ready)>, Refusal> {
        let copy = Arc::clone(cache);
        let found = blocking(move || {
            Ok(Db::new(copy as Arc<dyn Kv>).read(|tx| {
                let cluster: Option<ClusterRecord> = tx.record(&key::meta("cluster"))?;
                let authority: Option<AuthorityRecord> = tx.record(&key::meta("authority"))?;
                Ok((cluster, authority, tokens::all(tx)?))
            }))
        });
        let (Some(cluster), Some(authority), tokens) = found.await?? else { return Ok(None) };
        let trust = Trust::of(Some(&authority))?;
        let Some(ready) = ready_of(&tokens, &trust, cluster.cluster, address) else { return Ok(None) };
        Ok(Some((Arc::new(Proof { cluster: cluster.cluster, trust }), ready)))
    }
}

/// Facts for the sessions of a manager that stands by.
#[derive(Default)]
pub(super) struct Known {
    proof: Mutex<Option<Arc<Proof>>>,
    /// Address of the leader; empty: not known.
    leader: Mutex<String>,
    /// The reason for which this manager knows of no leader; empty: there is none for now.
    trouble: Mutex<&'static str>,
}

impl Known {
    pub(super) fn set_proof(&self, proof: Arc<Proof>) {
        *self.proof.lock().unwrap_or_else(PoisonError::into_inner) = Some(proof);
    }

    pub(super) fn set_leader(&self, address: &str) {
        let mut leader = self.leader.lock().unwrap_or_else(PoisonError::into_inner);
        if *leader != address {
            address.clone_into(&mut leader);
        }
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = "";
    }

    /// Etcd does not answer, for this reason, which tells the remedy: whoever led before leads no more.
    pub(super) fn set_trouble(&self, trouble: &'static str) {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner).clear();
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    fn proof(&self) -> Option<Arc<Proof>> {
        self.proof.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn refusal(&self) -> Refusal {
        let trouble = *self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal =
            Refusal::standing_by(self.leader.lock().unwrap_or_else(PoisonError::into_inner).clone());
        if trouble.is_empty() { refusal } else { Refusal { detail: trouble.to_owned(), ..refusal } }
    }
}

/// Refuses sessions until the task is dropped.
pub(super) async fn turn_away(listener: Arc<Listener>, known: Arc<Known>) {
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                // Without a state there is nothing to prove this manager with: who asks tries again.
                Ok(stream) => if let Some(proof) = known.proof() {
                    proof.trust.renew_if_due();
                    sessions.spawn(refuse(Arc::clone(&known), proof, stream));
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot take connections for the moment");
                    sleep(PAUSE).await;
                }
            },
            Some(_) = sessions.join_next(), if !sessions.is_empty() => {}
        }
    }
}

async fn refuse(known: Arc<Known>, proof: Arc<Proof>, stream: Stream) {
    let hello = Hello {
        role: PeerRole::Manager,
        version_min: WIRE_VERSION_OLDEST,
        version_max: WIRE_VERSION,
        cluster: proof.cluster,
        drive: DriveId(0),
        features: 0,
        challenge: challenge(),
    };
    let head = || ControlHead { term: 0, now_ms: 0, managers: 0 };
    let identity = proof.trust.identity();
    let refused = ControlPeer::accept(
        stream,
        identity,
        &hello,
        Vec::new(),
        head,
        |_| Err(known.refusal()),
        |_| Err(known.refusal()),
    );
    match refused.await {
        Ok(_) | Err(TransportError::Refusal(_)) => {}
        Err(error) => tracing::debug!(%error, "a session ended before it was refused"),
    }
}
