//! The cluster's certificate authority, and the certificate by which this manager proves itself.
//!
//! The authority's key is in the state, as the cluster's other secrets are: a backup has it, and a restored
//! manager is the same one to its peers. The manager's own certificate and its key are in memory only. A new
//! one is made at each start, and while the manager runs, when half of its time is over.

use std::time::Duration;

use braid_layout::{ClusterId, DriveId};
use braid_meta::records::schema::{AuthorityRecord, key};
use braid_meta::records::tx::Tx;
use braid_transport::host::{is_simulated, wall_ms};
use braid_transport::{Authority, CERTIFICATE_S, Home, ServerIdentity};
use braid_wire::capability::Key;
use braid_wire::control::{Certificate, CertifyDrive};
use braid_wire::token::Pin;
use braid_wire::{Reason, Refusal};

use crate::restore::terms::random;

/// Interval at which the certificate's age is looked at. The clock may have been set meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Certificates of a manager.
#[derive(Debug)]
pub struct Trust {
    /// `None` on a simulated host, which needs none.
    authority: Option<Authority>,
    identity: ServerIdentity,
}

/// The authority on record; stores the `given` one with `tx` if there is none, or makes one. Refuses a given
/// one that is another than that on record. `None` on a simulated host.
pub(crate) fn on_record(
    tx: &mut Tx,
    given: Option<&AuthorityRecord>,
) -> Result<Option<AuthorityRecord>, Refusal> {
    if is_simulated() {
        return Ok(None);
    }
    if let Some(record) = tx.record::<AuthorityRecord>(&key::meta("authority"))? {
        if given.is_some_and(|given| given.certificate != record.certificate) {
            let detail = "the state is of a cluster with another certificate authority than this directory: start the \
                          manager in its own directory";
            return Err(Refusal::new(Reason::OtherCluster, detail));
        }
        return Ok(Some(record));
    }
    let record = given.cloned().unwrap_or_else(|| {
        let secret = Key::new(random());
        let certificate = Authority::make(&secret).certificate().to_vec();
        AuthorityRecord { key: secret, certificate }
    });
    tx.set(key::meta("authority"), &record);
    Ok(Some(record))
}

impl Trust {
    /// The authority of this record, and a fresh certificate.
    pub(crate) fn of(record: Option<&AuthorityRecord>) -> Result<Trust, Refusal> {
        let authority =
            record.map(|record| Authority::of_record(&record.key, &record.certificate)).transpose();
        let authority = authority.map_err(|error| {
            let detail = format!("{error}: restore a backup of the state (braid manager restore)");
            Refusal::new(Reason::Medium, detail)
        })?;
        let trust = Trust { authority, identity: ServerIdentity::default() };
        trust.renew_if_due();
        Ok(trust)
    }

    /// The pin by which peers know the authority; zeros on a simulated host.
    pub(crate) fn pin(&self) -> Pin {
        self.authority.as_ref().map(Authority::pin).unwrap_or_default()
    }

    /// The certificate by which sessions are begun.
    pub(crate) fn identity(&self) -> &ServerIdentity {
        &self.identity
    }

    /// The home of the drives that are asked by this manager.
    pub(crate) fn home(&self, cluster: ClusterId) -> Home {
        Home { cluster, pin: Some(self.pin()) }
    }

    /// A certificate for the drive, whose session has proved that it is that one.
    pub(crate) fn certify(&self, drive: DriveId, asked: &CertifyDrive) -> Certificate {
        let chain = self
            .authority
            .as_ref()
            .map(|authority| authority.certify(drive, &asked.public_key, wall_ms() / 1000));
        Certificate { chain: chain.unwrap_or_default(), lasts_s: CERTIFICATE_S }
    }

    /// Renews the certificate whenever it is due, for ever.
    pub(crate) async fn keep_renewed(&self) {
        if self.authority.is_none() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if self.renew_if_due() {
                tracing::info!("the manager's certificate was renewed");
            }
        }
    }

    /// Makes a new certificate if that is due. Returns true if it was.
    pub(crate) fn renew_if_due(&self) -> bool {
        self.authority
            .as_ref()
            .is_some_and(|authority| self.identity.renew_if_due(authority, wall_ms() / 1000))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_meta::records::db::Db;
    use braid_meta::records::memory::MemoryKv;

    use super::*;

    #[test]
    fn the_state_of_a_cluster_with_another_authority_is_refused() {
        let record = |byte: u8| {
            let key = Key::new([byte; 32]);
            AuthorityRecord { certificate: Authority::make(&key).certificate().to_vec(), key }
        };
        let db = Db::new(Arc::new(MemoryKv::new()));
        let found = |given: Option<AuthorityRecord>| db.write(move |tx| on_record(tx, given.as_ref()));
        assert_eq!(found(Some(record(1))).unwrap(), Some(record(1)));
        let refusal = found(Some(record(2))).unwrap_err();
        assert!(
            refusal.reason == Reason::OtherCluster && refusal.detail.contains("own directory"),
            "{refusal}"
        );
        assert_eq!(found(None).unwrap(), Some(record(1)), "the one on record stays");
    }
}
