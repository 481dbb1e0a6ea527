//! Requests for advisory locks.
//!
//! Locks are in memory ([`Locks`]); the sessions that may claim theirs after a restart are in the state. A
//! session is stored before its first lock is granted, and removed before one of its locks is given to
//! another: so no session claims, after any restart, a lock that another was given (RFC 8881, section 8.4.3).
//! Before that the client's leases on the files that it had locked end too.
//!
//! A client that did not claim its locks in time, or began another session, may still write the files that it
//! had locked. This is stored too, as a session that no client has (`silence`), so that it outlives restarts.
//! Its leases on a file end before another is given a lock there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{ClientId, FileId, LockSession};
use braid_meta::records::schema::{LockSessionRecord, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::rules::locks::{LockOutcome, silence};
use braid_meta::rules::watchers::LEASE_MS;
use braid_wire::control::{Lock, LockHow, LockState, Locked};
use braid_wire::{Reason, Refusal};

use crate::asker::asker;
use crate::core::Core;
use crate::files::lapses::end_lease_alone;
use crate::jobs::{Again, Job};

/// Time after a start, in milliseconds, in which clients may claim their locks: no new lock is granted
/// before.
const CLAIM_MS: u64 = 2 * LEASE_MS as u64;
/// Interval between two looks for sessions whose clients are gone.
const IDLE_EVERY: Duration = Duration::from_secs(30);
/// Time, in milliseconds, after which a client that was not heard is to ask again.
const AGAIN_MS: u64 = 100;

/// Carries out a request for an advisory lock.
pub(crate) async fn lock(core: &Arc<Core>, asked: Lock) -> Result<Locked, Refusal> {
    let client = asker();
    let is_claim = asked.how == LockHow::Claim;
    let answer = carry_out(core, asked, client).await?;
    if is_claim && matches!(answer.state, LockState::Granted | LockState::Lost) {
        // The client knows now which locks it holds, and claims them again under each new lease.
        narrow(core, client);
    }
    Ok(answer)
}

async fn carry_out(core: &Arc<Core>, asked: Lock, client: ClientId) -> Result<Locked, Refusal> {
    let Some(span) = asked.span().filter(|_| client != ClientId::NONE && asked.session != LockSession::NONE)
    else {
        return Err(Refusal::new(Reason::Malformed, "a lock needs a client, a session and a range of bytes"));
    };
    if !core.watchers().is_heard(client, core.running_ms()) {
        let detail =
            "a client that locks must ask for changes all the time: the manager has not heard from this one";
        return Err(Refusal::new(Reason::Busy, detail).again_in(AGAIN_MS));
    }
    if let Some(state) = prepare(core, &asked, client).await? {
        return Ok(Locked { state, held: None });
    }
    let is_new = asked.how == LockHow::Set && asked.kind.is_some();
    loop {
        let mut fenced = BTreeSet::new();
        if is_new {
            fenced = fence_late(core, asked.file, client).await?;
            fence_gone(core, asked.file).await?;
        }
        let outcome = {
            let now_ms = core.running_ms();
            let mut locks = core.locking.locks();
            if is_new && !locks.late_writers(asked.file, client).is_subset(&fenced) {
                continue; // a session that held locks here has ended since
            }
            locks.ask(&asked, span, |client| core.watchers().is_heard(client, now_ms))
        };
        let (state, held) = match outcome {
            LockOutcome::Granted => (LockState::Granted, None),
            LockOutcome::Held(held) => (LockState::Held, Some(held)),
            LockOutcome::Overtaken => (LockState::Overtaken, None),
            LockOutcome::Lost => {
                end(core, asked.session).await?;
                (LockState::Lost, None)
            }
            LockOutcome::Broke(session) => {
                end(core, session).await?;
                continue;
            }
            LockOutcome::Full => {
                return Err(Refusal::new(Reason::Busy, "there are too many locks: release some"));
            }
        };
        return Ok(Locked { state, held });
    }
}

/// Begins a session before its first lock, and ends the time for claims before the first lock that is granted
/// after a start. Returns the answer if it is clear already.
async fn prepare(core: &Arc<Core>, asked: &Lock, client: ClientId) -> Result<Option<LockState>, Refusal> {
    let is_new = asked.how == LockHow::Set && asked.kind.is_some();
    // After a start a session that holds no locks claims too, to say so.
    let is_back = asked.how == LockHow::Claim && core.locking.locks().may_claim(asked.session);
    let is_begun = asked.how != LockHow::Test && (asked.kind.is_some() || is_back);
    let begins = is_begun && !core.locking.locks().knows(asked.session);
    if asked.kind.is_none() && !begins && !core.locking.locks().knows(asked.session) {
        // A request for a lock that is on its way may begin the session now.
        let _alone = core.locking.alone.lock().await;
        let holds_nothing = !core.locking.locks().knows(asked.session);
        return Ok(holds_nothing.then_some(LockState::Granted));
    }
    let ends_claims = is_new && core.locking.locks().has_before();
    if !begins && !ends_claims {
        return Ok(None);
    }
    // One at a time, so that the table in memory and the state are changed together.
    let _alone = core.locking.alone.lock().await;
    if is_new && core.locking.locks().has_before() {
        if core.locking.watched_for(core.running_ms()) < CLAIM_MS {
            return Ok(Some(LockState::Later));
        }
        end_claims(core).await?;
    }
    if core.locking.locks().is_broken(asked.session) {
        return Ok(Some(LockState::Lost));
    }
    if begins && !core.locking.locks().knows(asked.session) {
        if core.locking.locks().tell_silent(asked.session, client) {
            return Ok(Some(LockState::Lost));
        }
        begin(core, asked.session, client).await?;
    }
    Ok(None)
}

/// Ends the time for claims after a start.
async fn end_claims(core: &Arc<Core>) -> Result<(), Refusal> {
    let (unheard, late) = {
        let mut locks = core.locking.locks();
        locks.refuse_claims();
        (locks.unheard(), locks.unheard_clients())
    };
    core.write(move |_, tx| {
        unheard.iter().for_each(|session| tx.delete(key::lock_session(*session)));
        late.iter().for_each(|client| set_late(tx, *client));
        Ok(())
    })
    .await?;
    core.locking.locks().end_of_claims();
    let back = core.locking.locks().late_and_back();
    back.into_iter().for_each(|client| narrow(core, client));
    Ok(())
}

/// Begins a session. The client's former ones end.
async fn begin(core: &Arc<Core>, session: LockSession, client: ClientId) -> Result<(), Refusal> {
    let former = core.locking.locks().former(client, session);
    core.write(move |_, tx| {
        if !former.is_empty() {
            set_late(tx, client);
        }
        former.iter().for_each(|one| tx.delete(key::lock_session(*one)));
        tx.set(key::lock_session(session), &LockSessionRecord { client });
        Ok(())
    })
    .await?;
    core.locking.locks().enter(session, client);
    narrow(core, client);
    Ok(())
}

/// Records that a client may still write under locks that it has lost.
fn set_late(tx: &mut Tx, client: ClientId) {
    tx.set(key::lock_session(silence(client)), &LockSessionRecord { client });
}

/// Limits a client that may write under unknown locks, and is back, to its present leases.
fn narrow(core: &Core, client: ClientId) {
    if core.locking.locks().is_late(client) {
        let files = core.leases().files_of(client);
        core.locking.locks().narrow(client, files);
    }
}

/// Takes the locks of a session that is over. Its client's leases end first, so that none of its writes comes
/// after those of the next holder.
async fn end(core: &Arc<Core>, session: LockSession) -> Result<(), Refusal> {
    fence(core, session).await?;
    forget(core, vec![session]).await?;
    core.locking.locks().drop_session(session);
    Ok(())
}

/// Ends all sessions of a client that was shut out.
pub(crate) async fn end_all_of(core: &Arc<Core>, client: ClientId) -> Result<(), Refusal> {
    let _alone = core.locking.alone.lock().await;
    let sessions = core.locking.locks().former(client, LockSession::NONE);
    for session in sessions {
        end(core, session).await?;
    }
    Ok(())
}

/// Ends the leases under which a client may have written what its locks guarded: so none of its writes
/// reaches a drive after those of the next holder.
async fn fence(core: &Arc<Core>, session: LockSession) -> Result<(), Refusal> {
    let (client, files) = core.locking.locks().held_by(session);
    for file in files {
        let _turn = core.lock_file(file).await?;
        if core.leases().give_up_all_of(file, client) {
            end_lease_alone(core, file).await?;
        }
    }
    Ok(())
}

/// Ends the leases on a file of clients that may write it under locks that they have lost. Returns these
/// clients.
async fn fence_late(core: &Arc<Core>, file: FileId, asker: ClientId) -> Result<BTreeSet<ClientId>, Refusal> {
    let late = core.locking.locks().late_writers(file, asker);
    if late.is_empty() {
        return Ok(late);
    }
    let _turn = core.lock_file(file).await?;
    let may_write = core.leases().are_silent(file, &late);
    if may_write {
        core.leases().give_up_silent(file, &late);
        end_lease_alone(core, file).await?;
    }
    core.locking.locks().fenced(file, &late);
    Ok(late)
}

/// Ends the leases on a file of holders that are gone, or gave theirs up as a write had failed: their last
/// writes, under locks that they have released since, may still be on their way.
async fn fence_gone(core: &Arc<Core>, file: FileId) -> Result<(), Refusal> {
    if !core.leases().has_gone(file, core.now_ms()) {
        return Ok(());
    }
    let _turn = core.lock_file(file).await?;
    end_lease_alone(core, file).await
}

/// Deletes sessions from the state: they can claim nothing any more.
async fn forget(core: &Arc<Core>, sessions: Vec<LockSession>) -> Result<(), Refusal> {
    if sessions.is_empty() {
        return Ok(());
    }
    core.write(move |_, tx| {
        sessions.iter().for_each(|session| tx.delete(key::lock_session(*session)));
        Ok(())
    })
    .await
}

/// Ends sessions whose clients are gone. Those that hold locks end when others want one of them.
#[derive(Default)]
pub(crate) struct EndIdle;

impl Job for EndIdle {
    const NAME: &'static str = "idle locks";
    const ABOUT: &'static str = "Ends the lock sessions of mounts that are gone.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        let _alone = core.locking.alone.lock().await;
        let now_ms = core.running_ms();
        let idle = core.locking.locks().end_idle(|client| core.watchers().is_heard(client, now_ms));
        if let Err(refusal) = forget(core, idle.clone()).await {
            // The sessions are over all the same; their rows are deleted at the end of the next claims.
            tracing::info!(%refusal, "ended sessions of locks are on record for longer");
        }
        idle.into_iter().for_each(|session| core.locking.locks().drop_session(session));
        let harmless = core.locking.locks().forget_late(|client| core.leases().files_of(client));
        let rows = harmless.into_iter().map(silence).collect();
        // A row that stays has the client's leases fenced once more after the next start.
        forget(core, rows).await?;
        Ok(Again::In(IDLE_EVERY))
    }
}

/// Sessions that may claim their locks, each with its client. None may in a state that was put back: their
/// locks may have been given to others since.
pub(crate) fn sessions(tx: &mut Tx, is_put_back: bool) -> Result<Vec<(LockSession, ClientId)>, Refusal> {
    let rows = tx.records::<LockSessionRecord>(&key::all(table::LOCK_SESSION), usize::MAX)?;
    let sessions: Vec<(LockSession, ClientId)> =
        rows.iter().map(|(row, of)| (LockSession(key::number(row, 1)), of.client)).collect();
    if is_put_back {
        sessions.iter().for_each(|(session, _)| tx.delete(key::lock_session(*session)));
        return Ok(Vec::new());
    }
    Ok(sessions)
}
