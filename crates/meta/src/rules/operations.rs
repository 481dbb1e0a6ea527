//! Operations: requests that are not idempotent by themselves. Each is carried out at most once.
//!
//! An answer can be lost; the client then asks again under the same number. So the result of an operation is
//! stored in the transaction that makes the change, and a repeat is answered from there, even after a
//! restart. A refusal changed nothing, so none is stored.
//!
//! Three things keep an operation from being carried out twice:
//! - One copy of it runs at a time; another is told to try again.
//! - Its result is kept until the client says that it is settled. A copy that arrives after that (delayed in
//!   a session that the client gave up) must change nothing: it is below the client's mark. Such copies are
//!   in this process's own sockets and end with it, so the marks, and refusals that were sent, are in memory
//!   only.
//! - Results for a client that left without settling them are deleted after [`KEPT_MS`]. An operation older
//!   than half of that is refused, so none is carried out again because its result was forgotten.
//!
//! A program with the token can use any number of client numbers. So at most 4,096 clients are kept in
//! memory; beyond that the one that was idle for the longest is forgotten. From then on an operation of a
//! client that is not known is refused if it was begun before the forgotten one was last heard: it may be a
//! copy of an operation that the forgotten client had settled. A client that is refused so begins its
//! operation anew.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::version::Lease;
use braid_layout::{ClientId, FileId, OperationNumber};
use braid_wire::control::{ControlRequest, RequestHead};
use braid_wire::{Reason, Refusal};

use crate::records::kv::KvError;
use crate::records::schema::{OperationRecord, key};
use crate::records::tx::Tx;

/// Time, in milliseconds, that results are kept for a client that left without settling them: an hour.
pub const KEPT_MS: u64 = 3_600_000;
/// Maximum age of an operation, in milliseconds: one begun longer ago is refused.
pub const AGE_MAX_MS: u64 = KEPT_MS / 2;
/// Maximum difference between a client's highest operation and its lowest unsettled one. Clients have far
/// fewer calls in flight.
const WINDOW_MAX: u64 = 1 << 20;
/// Maximum number of clients kept in memory. Most clients need no entry.
const ASKERS_MAX: usize = 1 << 12;
/// Maximum number of refusals kept per client: those of its unsettled operations.
const REFUSALS_MAX: usize = 1024;
/// Maximum number of rows of settled operations that one transaction deletes beside its own work.
const SETTLED_PER_WRITE: usize = 64;

/// Identity of the operation that a request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Number of the client.
    pub client: ClientId,
    pub number: OperationNumber,
    /// Mark of the client: its operations below this number are settled.
    pub settled_below: OperationNumber,
    /// CRC32C of the request: if the number comes again with another request, it was used twice.
    pub request: u32,
}

/// The result of an operation: the facts that its answer needs beyond "done".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationResult {
    /// The file that was opened; 0: none.
    pub file: FileId,
    /// The lease that was granted on that file.
    pub lease: Lease,
    /// Components to rebuild after a drive was replaced, or the first byte that was reserved.
    pub number: u64,
}

/// Result of a call, which carried the operation out or found that done.
#[derive(Debug)]
pub enum Once<R> {
    /// The operation was carried out by this call; with its result.
    Now(R),
    /// The operation was carried out before; with its result on record.
    Before(OperationResult),
}

/// State of operations beyond the stored results.
#[derive(Debug, Default)]
pub struct Operations {
    askers: BTreeMap<ClientId, Asker>,
    /// Latest time at which a client was heard that was forgotten because there were too many.
    forgotten_ms: u64,
}

#[derive(Debug, Default)]
struct Asker {
    settled_below: OperationNumber,
    running: BTreeSet<OperationNumber>,
    refused: BTreeMap<OperationNumber, Refusal>,
    heard_ms: u64,
}

impl OperationResult {
    /// The result of an operation with nothing to report but that it is done.
    pub const DONE: OperationResult = OperationResult { file: FileId(0), lease: Lease(0), number: 0 };

    /// The result of opening a file under this lease.
    pub fn opened(file: FileId, lease: Lease) -> OperationResult {
        OperationResult { file, lease, ..OperationResult::DONE }
    }
}

impl<R> Once<R> {
    /// Returns true if this call carried the operation out.
    pub fn is_now(&self) -> bool {
        matches!(self, Once::Now(_))
    }
}

impl Operations {
    pub fn begin(
        &mut self,
        client: ClientId,
        number: OperationNumber,
        settled_below: OperationNumber,
        begun_ms: u64,
        now_ms: u64,
    ) -> Result<(), Refusal> {
        if !self.askers.contains_key(&client) {
            if begun_ms <= self.forgotten_ms {
                let detail = "so many clients make changes that it is no longer known whether this one was made: look, then ask again";
                return Err(Refusal::new(Reason::Outdated, detail));
            }
            self.make_room()?;
        }
        let asker = self.askers.entry(client).or_default();
        asker.heard_ms = now_ms;
        if settled_below > asker.settled_below {
            asker.settled_below = settled_below;
            asker.refused = asker.refused.split_off(&settled_below);
        }
        if asker.running.insert(number) {
            return Ok(());
        }
        Err(Refusal::new(Reason::Busy, format!("operation {number} is being carried out: ask again")))
    }

    /// Forgets the client that was idle for the longest, if there are too many.
    fn make_room(&mut self) -> Result<(), Refusal> {
        if self.askers.len() < ASKERS_MAX {
            return Ok(());
        }
        let idle = self.askers.iter().filter(|(_, asker)| asker.running.is_empty());
        let Some((&oldest, _)) = idle.min_by_key(|(_, asker)| asker.heard_ms) else {
            let detail =
                format!("more than {ASKERS_MAX} clients change something right now: try again later");
            return Err(Refusal::new(Reason::Busy, detail));
        };
        let heard_ms = self.askers.remove(&oldest).map_or(0, |asker| asker.heard_ms);
        self.forgotten_ms = self.forgotten_ms.max(heard_ms);
        Ok(())
    }

    pub fn end(&mut self, operation: &Operation) {
        let Some(asker) = self.askers.get_mut(&operation.client) else { return };
        asker.running.remove(&operation.number);
        // Numbers begin at 1, so a mark of 1 excludes nothing.
        if asker.settled_below <= OperationNumber::FIRST
            && asker.running.is_empty()
            && asker.refused.is_empty()
        {
            self.askers.remove(&operation.client);
        }
    }

    pub fn refused(&mut self, operation: &Operation, refusal: Refusal) {
        let Some(asker) = self.askers.get_mut(&operation.client) else { return };
        asker.refused.insert(operation.number, refusal);
        if asker.refused.len() > REFUSALS_MAX {
            asker.refused.pop_first();
        }
    }

    /// Refuses a copy of an operation that was refused before or that its client has settled.
    pub fn check(&self, operation: &Operation) -> Result<(), Refusal> {
        let Some(asker) = self.askers.get(&operation.client) else { return Ok(()) };
        if operation.number < asker.settled_below {
            let detail = format!("operation {} was answered or given up already", operation.number);
            return Err(Refusal::new(Reason::Outdated, detail));
        }
        asker.refused.get(&operation.number).map_or(Ok(()), |refusal| Err(refusal.clone()))
    }

    /// Forgets clients that were not heard for so long that all their requests are too old to be carried out.
    pub fn forget(&mut self, now_ms: u64) {
        self.askers
            .retain(|_, asker| !asker.running.is_empty() || now_ms.saturating_sub(asker.heard_ms) < KEPT_MS);
    }
}

/// The operation's result on record, if it was carried out.
pub fn recorded(tx: &Tx, operation: Operation) -> Result<Option<OperationResult>, Refusal> {
    let key = key::operation(operation.client, operation.number);
    let Some(record) = tx.record::<OperationRecord>(&key)? else { return Ok(None) };
    if record.request != operation.request {
        let detail = format!(
            "operation number {} was used for another request before: numbers must rise",
            operation.number
        );
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    Ok(Some(OperationResult { file: record.file, lease: record.lease, number: record.number }))
}

/// Stores the operation's result in the transaction that carries it out, and deletes some settled results.
pub fn remember(
    tx: &mut Tx,
    operation: Operation,
    outcome: OperationResult,
    now_ms: u64,
) -> Result<(), KvError> {
    let Operation { client, number, settled_below, request } = operation;
    let OperationResult { file, lease, number: result } = outcome;
    let record = OperationRecord { done_ms: now_ms, request, file, lease, number: result };
    let settled = tx.scan(
        &key::operation(client, OperationNumber::NONE),
        &key::operation(client, settled_below),
        SETTLED_PER_WRITE,
    )?;
    settled.into_iter().for_each(|(row, _)| tx.delete(row));
    tx.set(key::operation(client, number), &record);
    Ok(())
}

/// Refuses a request whose head contradicts itself or is too old.
pub fn check_head(head: &RequestHead, request: &ControlRequest, now_ms: u64) -> Result<(), Refusal> {
    let &RequestHead { client, operation, settled_below, begun_ms } = head;
    let malformed = |what: &str| Err(Refusal::new(Reason::Malformed, format!("{}: {what}", request.name())));
    if client == ClientId::NONE || operation == OperationNumber::NONE || begun_ms == 0 {
        return malformed(
            "the request makes a change, so it must give the client's number, the operation's number and the time",
        );
    }
    if settled_below > operation {
        return malformed("the operation is one that the client says is settled");
    }
    if operation.0 - settled_below.0 > WINDOW_MAX {
        let detail = format!(
            "more than {WINDOW_MAX} operations follow the oldest that is not settled: wait for that one"
        );
        return Err(Refusal::new(Reason::Busy, detail));
    }
    let age_ms = now_ms.saturating_sub(begun_ms);
    if age_ms > AGE_MAX_MS {
        let detail = format!(
            "{} was begun {} s ago: too long to tell whether it was done. Look, then ask again",
            request.name(),
            age_ms / 1000
        );
        return Err(Refusal::new(Reason::Outdated, detail));
    }
    Ok(())
}

/// Returns true if the client takes a refusal for this reason as its answer. After the other reasons it asks
/// again under the same number; after a failure of the state it is not known whether the change is durable.
pub fn is_final(reason: Reason) -> bool {
    !matches!(reason, Reason::Busy | Reason::NotLeading | Reason::Closing) && !reason.leaves_unknown()
}

#[cfg(test)]
mod tests {
    use braid_wire::control::VolumeRemove;

    use super::*;

    fn operation(number: u64, settled_below: u64) -> Operation {
        let number = OperationNumber(number);
        let settled_below = OperationNumber(settled_below);
        Operation { client: ClientId(7), number, settled_below, request: 1 }
    }

    fn begin(
        known: &mut Operations,
        client: u64,
        number: u64,
        settled_below: u64,
        begun_ms: u64,
        now_ms: u64,
    ) -> Result<(), Refusal> {
        let number = OperationNumber(number);
        known.begin(ClientId(client), number, OperationNumber(settled_below), begun_ms, now_ms)
    }

    #[test]
    fn one_copy_runs_at_a_time_and_none_once_it_is_settled() {
        let mut known = Operations::default();
        begin(&mut known, 7, 5, 1, 1, 0).unwrap();
        assert_eq!(begin(&mut known, 7, 5, 1, 1, 0).unwrap_err().reason, Reason::Busy);
        known.check(&operation(5, 1)).unwrap();
        known.end(&operation(5, 1));
        // A delayed copy of 5 begins after its client went on.
        begin(&mut known, 7, 6, 6, 1, 0).unwrap();
        begin(&mut known, 7, 5, 1, 1, 0).unwrap();
        assert_eq!(known.check(&operation(5, 1)).unwrap_err().reason, Reason::Outdated);
        known.check(&operation(6, 6)).unwrap();
        known.check(&Operation { client: ClientId(8), ..operation(5, 1) }).unwrap();
    }

    #[test]
    fn a_refusal_that_was_told_stands_for_every_copy() {
        let mut known = Operations::default();
        begin(&mut known, 7, 5, 5, 1, 0).unwrap();
        known.refused(&operation(5, 5), Refusal::new(Reason::NotFound, "no"));
        known.end(&operation(5, 5));
        begin(&mut known, 7, 5, 5, 1, 0).unwrap();
        assert_eq!(known.check(&operation(5, 5)).unwrap_err().reason, Reason::NotFound);
        begin(&mut known, 7, 6, 6, 1, 0).unwrap();
        assert!(known.askers[&ClientId(7)].refused.is_empty(), "it is settled");
    }

    #[test]
    fn nothing_is_kept_of_an_asker_of_whom_there_is_nothing_to_say() {
        let mut known = Operations::default();
        begin(&mut known, 7, 1, 1, 1, 0).unwrap();
        known.end(&operation(1, 1));
        assert!(known.askers.is_empty());
        begin(&mut known, 7, 2, 2, 1, 10).unwrap();
        known.end(&operation(2, 2));
        known.forget(KEPT_MS);
        assert_eq!(known.askers.len(), 1);
        known.forget(KEPT_MS + 10);
        assert!(known.askers.is_empty());
    }

    #[test]
    fn of_too_many_clients_the_oldest_is_forgotten_and_no_copy_of_it_is_carried_out() {
        let mut known = Operations::default();
        let most = ASKERS_MAX as u64;
        for client in 1..=most {
            // Each client has a mark, which must be kept.
            begin(&mut known, client, 2, 2, client, client).unwrap();
        }
        let busy = begin(&mut known, most + 1, 2, 2, most + 1, most + 1).unwrap_err();
        assert_eq!(busy.reason, Reason::Busy, "all of them have something under way");
        for client in 2..=most {
            known.end(&Operation { client: ClientId(client), ..operation(2, 2) });
        }
        begin(&mut known, most + 1, 2, 2, most + 1, most + 1).unwrap();
        assert_eq!(known.askers.len(), ASKERS_MAX);
        assert!(!known.askers.contains_key(&ClientId(2)), "the first of those that were idle");
        // A copy of an operation that the forgotten client had settled, delayed in a session that it gave up.
        assert_eq!(begin(&mut known, 2, 1, 1, 1, most + 2).unwrap_err().reason, Reason::Outdated);
        // Operations that it begins now are carried out, and so are those of others, however many came.
        begin(&mut known, 2, 3, 3, most + 2, most + 2).unwrap();
        for client in 10 * most..11 * most {
            begin(&mut known, client, 2, 2, client, client).unwrap();
            known.end(&Operation { client: ClientId(client), ..operation(2, 2) });
        }
        assert_eq!(known.askers.len(), ASKERS_MAX);
        begin(&mut known, 1, 3, 2, 3, 20 * most).unwrap();
    }

    #[test]
    fn heads_that_contradict_themselves_or_are_old_are_refused() {
        let request = ControlRequest::from(VolumeRemove { name: "v".into() });
        let now_ms = 2 * KEPT_MS;
        let good = RequestHead {
            client: ClientId(7),
            operation: OperationNumber(5),
            settled_below: OperationNumber(5),
            begun_ms: now_ms - AGE_MAX_MS,
        };
        check_head(&good, &request, now_ms).unwrap();
        for (head, reason) in [
            (
                RequestHead {
                    operation: OperationNumber::NONE,
                    settled_below: OperationNumber::NONE,
                    ..good.clone()
                },
                Reason::Malformed,
            ),
            (RequestHead { begun_ms: 0, ..good.clone() }, Reason::Malformed),
            (RequestHead { settled_below: OperationNumber(6), ..good.clone() }, Reason::Malformed),
            (RequestHead { operation: OperationNumber(6 + WINDOW_MAX), ..good.clone() }, Reason::Busy),
            (RequestHead { begun_ms: now_ms - AGE_MAX_MS - 1, ..good.clone() }, Reason::Outdated),
        ] {
            assert_eq!(check_head(&head, &request, now_ms).unwrap_err().reason, reason, "{head:?}");
        }
    }
}
