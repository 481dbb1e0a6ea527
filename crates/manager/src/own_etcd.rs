//! The etcd that Braid runs for its managers: who is a member, and what keeps it in order.
//!
//! What: on each manager's host a member of etcd runs as a child of the manager's process (the `braid`
//! program starts it). The manager that leads adds members and takes them out (`join`), and looks after all
//! of them (`tend`): it gives a vote to those that have caught up, repairs a full database, and makes a
//! snapshot each day. Nothing of this is done for an etcd of somebody else (`--state etcd://...`).
//!
//! How: what may be done, and in which order, is decided in `plan`, which is pure; [`calls`] has all that
//! is said to etcd. A member's name is the address of its manager.

pub mod calls;
pub mod endpoints;
pub(crate) mod join;
pub(crate) mod plan;
pub(crate) mod tend;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use braid_meta::records::schema::AuthorityRecord;
use braid_transport::Authority;
use braid_wire::capability::Key;
use braid_wire::{Reason, Refusal};

/// The size at which a member's database takes no more changes, in bytes: etcd's own recommended maximum.
pub const QUOTA_BYTES: u64 = 8 << 30;

/// The etcd that Braid runs, as a manager knows it.
#[derive(Debug, Clone)]
pub struct OwnEtcd {
    /// The way to etcd's members.
    pub access: calls::Access,
    /// The cluster's certificate authority, which was made before there was a state.
    pub authority: AuthorityRecord,
    /// Directory of the snapshots.
    pub snapshots: PathBuf,
    /// True if the state was put back from a snapshot: it is compared with the drives first. False again once
    /// the state itself says so.
    pub restored: Arc<AtomicBool>,
}

/// A CA as text: its key and its certificate, in hex digits, one line each.
pub fn authority_text(record: &AuthorityRecord) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("key = \"{}\"\ncertificate = \"{}\"\n", hex(record.key.secret()), hex(&record.certificate))
}

/// The CA of such a text, if it is one.
pub fn authority_of_text(text: &str) -> Option<AuthorityRecord> {
    let value = |name: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"'));
        let digits = line?.as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        (digits.len() % 2 == 0).then(|| digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>())?
    };
    let key = Key::new(value("key")?.try_into().ok()?);
    let certificate = value("certificate")?;
    Authority::of_record(&key, &certificate).ok()?;
    Some(AuthorityRecord { key, certificate })
}

/// The CA that stands in etcd by itself, from one member: for a restore on a host that knows nothing else.
pub async fn authority_in(access: &calls::Access) -> Result<AuthorityRecord, Refusal> {
    let endpoints = access.endpoints.now();
    let endpoint = endpoints.first().map(String::as_str).unwrap_or_default();
    let found = calls::value(access, endpoint, tend::AUTHORITY_KEY).await?;
    let text = found.and_then(|bytes| String::from_utf8(bytes).ok());
    text.and_then(|text| authority_of_text(&text)).ok_or_else(|| {
        let detail = "there is no certificate authority in it, so it is no snapshot of Braid's managers";
        Refusal::new(Reason::NotFound, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_comes_back_from_its_text() {
        let key = Key::new([7; 32]);
        let record = AuthorityRecord { certificate: Authority::make(&key).certificate().to_vec(), key };
        let text = authority_text(&record);
        assert_eq!(authority_of_text(&text), Some(record));
        for wrong in [&text[..40], &text.replace("key", "kex"), &text.replace("07", "0x"), ""] {
            assert!(authority_of_text(wrong).is_none(), "{wrong}");
        }
    }
}
