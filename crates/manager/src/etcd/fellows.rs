//! The managers: each that runs has a key in etcd, under its lease, with how far it has come.
//!
//! The key of one that dies goes with its lease. Where Braid runs etcd, such a manager is told all the same,
//! as long as it votes in it.

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
    let mut heard = Heard::new(Instant::now());
    let mut members_at: Option<Instant> = None;
    loop {
        match list(&link).await {
            Ok(found) => {
                let now = Instant::now();
                heard.handle(found, now);
                let voters = core.managers().voters().to_vec();
                let rows = heard.rows(&me, &voters, cache.place().index, now);
                core.managers().handle_managers(rows);
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

/// The managers as they were heard since this one leads.
struct Heard {
    /// Time since which this one listens.
    since: Instant,
    known: BTreeMap<String, Fellow>,
}

/// A manager that was heard.
struct Fellow {
    record: FellowRecord,
    /// Revision of its key, and the time at which that was seen first.
    revision: i64,
    said: Instant,
    /// Time at which its key was there last: its lease in etcd had not ended.
    there: Instant,
}

impl Heard {
    fn new(since: Instant) -> Heard {
        Heard { since, known: BTreeMap::new() }
    }

    /// The keys that are there now, each with its revision.
    fn handle(&mut self, found: Vec<(i64, FellowRecord)>, now: Instant) {
        for (revision, record) in found {
            let before = self.known.remove(&record.address).filter(|before| before.revision == revision);
            let said = before.map_or(now, |before| before.said);
            self.known.insert(record.address.clone(), Fellow { record, revision, said, there: now });
        }
    }

    /// Rows of the managers: those whose keys are there, and those that are to vote in the managers' etcd
    /// all the same, with the time for which they have been silent.
    fn rows(&mut self, me: &str, voters: &[String], index: u64, now: Instant) -> Vec<ManagerRow> {
        self.known.retain(|address, known| known.there == now || voters.contains(address));
        let ms = |since: Instant| u64::try_from((now - since).as_millis()).unwrap_or(u64::MAX);
        let row = |known: &Fellow| {
            let leads = known.record.address == me;
            let lag = if leads { 0 } else { index.saturating_sub(known.record.applied) };
            let silent_ms = match known.there == now {
                // Who is up to date has nothing to say.
                true if lag == 0 => 0,
                true => ms(known.said),
                false => ms(known.there),
            };
            let FellowRecord { address, version, .. } = known.record.clone();
            ManagerRow { address, leads, silent_ms, lag, version }
        };
        let mut rows: Vec<ManagerRow> = self.known.values().map(row).collect();
        let unheard = voters.iter().filter(|voter| !self.known.contains_key(*voter));
        rows.extend(unheard.map(|voter| ManagerRow {
            address: voter.clone(),
            leads: false,
            silent_ms: ms(self.since),
            lag: 0,
            version: String::new(),
        }));
        rows
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_whose_key_is_gone_is_told_for_as_long_as_it_votes() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let key = |address: &str, applied| FellowRecord {
            address: address.to_owned(),
            name: String::new(),
            version: "1".to_owned(),
            applied,
        };
        let told = |rows: Vec<ManagerRow>| -> Vec<(String, bool, u64, u64)> {
            rows.into_iter().map(|row| (row.address, row.leads, row.silent_ms, row.lag)).collect()
        };
        let row = |address: &str, leads, silent_ms, lag| (address.to_owned(), leads, silent_ms, lag);
        let voters = ["a:1".to_owned(), "b:1".to_owned(), "c:1".to_owned()];
        let mut heard = Heard::new(begun);
        heard.handle(vec![(1, key("a:1", 5)), (2, key("b:1", 5))], at(1));
        let all = [row("a:1", true, 0, 0), row("b:1", false, 0, 0), row("c:1", false, 1000, 0)];
        assert_eq!(told(heard.rows("a:1", &voters, 5, at(1))), all, "c was never heard");
        // Both say nothing more. The key of b goes with its lease.
        heard.handle(vec![(1, key("a:1", 5))], at(4));
        let all = [row("a:1", true, 0, 0), row("b:1", false, 3000, 2), row("c:1", false, 4000, 0)];
        assert_eq!(told(heard.rows("a:1", &voters, 7, at(4))), all);
        assert_eq!(told(heard.rows("a:1", &voters[..1], 7, at(4))), all[..1], "b was taken out");
    }
}
