//! The managers that run: each has a key in etcd, under its lease, with how far it has come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_meta::records::log::{FellowRecord, decode, encode};
use braid_wire::control::ManagerRow;
use etcd_client::{GetOptions, PutOptions};
use tokio::time::sleep;

use super::cache::Cache;
use super::error::EtcdError;
use super::lease::Lease;
use super::link::{ATTEMPT, Link, Member};
use super::members;
use super::names::end_of;
use super::reader::gets;
use crate::core::Core;

/// Interval at which a manager says how far it has come, and at which the leader looks.
const EVERY: Duration = Duration::from_secs(1);
/// Interval at which etcd's members are asked how they are.
const MEMBERS_EVERY: Duration = Duration::from_secs(10);

/// A manager's own key.
pub(super) struct OwnKey {
    record: FellowRecord,
    /// The record as it was written last, and when.
    written: Option<(FellowRecord, Instant)>,
}

impl OwnKey {
    pub(super) fn new(address: String, name: String) -> OwnKey {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        OwnKey { record: FellowRecord { address, name, version, applied: 0 }, written: None }
    }

    /// Writes the key, if what it says has changed.
    pub(super) async fn keep(&mut self, link: &Link, lease: &Lease, applied: u64) {
        self.record.applied = applied;
        if self.written.as_ref().is_some_and(|(said, when)| *said == self.record || when.elapsed() < EVERY) {
            return;
        }
        let key = link.names.fellow(&self.record.address);
        let value = encode(&self.record);
        let options = PutOptions::new().with_lease(lease.id);
        let ask = |mut member: Member| async move { member.kv.put(key, value, Some(options)).await };
        match link.once(ATTEMPT, ask).await {
            Ok(_) => self.written = Some((self.record.clone(), Instant::now())),
            Err(trouble) => tracing::debug!(?trouble, "the other managers do not know how far this one is"),
        }
    }

    /// The key has gone with its lease.
    pub(super) fn forget(&mut self) {
        self.written = None;
    }
}

/// Keeps the leader's list of managers and of etcd's members, for as long as it is polled.
pub(super) async fn follow(core: Arc<Core>, link: Arc<Link>, cache: Arc<Cache>, me: String) {
    let mut heard: BTreeMap<String, (i64, Instant)> = BTreeMap::new();
    let mut members_at: Option<Instant> = None;
    loop {
        match list(&link).await {
            Ok(found) => {
                heard.retain(|address, _| found.iter().any(|(_, of)| of.address == *address));
                let rows = found.into_iter().map(|(revision, of)| {
                    let entry = heard.entry(of.address.clone()).or_insert((revision, Instant::now()));
                    if entry.0 != revision {
                        *entry = (revision, Instant::now());
                    }
                    let leads = of.address == me;
                    let lag = if leads { 0 } else { cache.place().index.saturating_sub(of.applied) };
                    // Who is up to date has nothing to say.
                    let silent_ms = if lag == 0 { 0 } else { entry.1.elapsed().as_millis() };
                    let silent_ms = u64::try_from(silent_ms).unwrap_or(u64::MAX);
                    ManagerRow { address: of.address, leads, silent_ms, lag, version: of.version }
                });
                core.managers().handle_managers(rows.collect());
            }
            Err(error) => tracing::debug!(%error, "the list of managers is not known"),
        }
        // Of an etcd that Braid runs itself a job tells how its members are.
        if core.own_etcd.is_none() && members_at.is_none_or(|at| at.elapsed() > MEMBERS_EVERY) {
            members_at = Some(Instant::now());
            let rows = members::ask(&link).await;
            core.managers().handle_members(rows);
        }
        sleep(EVERY).await;
    }
}

/// The managers that run, each with the revision of its key.
async fn list(link: &Link) -> Result<Vec<(i64, FellowRecord)>, EtcdError> {
    let from = link.names.fellows();
    let all = GetOptions::new().with_range(end_of(&from));
    let found = gets(link.read(ATTEMPT, &[(from.into_bytes(), all)]).await?.op_responses());
    // A key that a newer build wrote in a way that is not known here names no manager here.
    let records = found.into_iter().flatten();
    Ok(records.filter_map(|found| Some((found.mod_revision(), decode(found.value()).ok()?))).collect())
}
