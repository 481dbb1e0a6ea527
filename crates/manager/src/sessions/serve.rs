//! Sessions with clients and drives: one task per session, requests in order. `dispatch` answers them.
//!
//! The transport bounds connections, frames, waits and proofs. A wrong proof is answered, counted, and its
//! connection closed. A request that does not decode is refused, and the session continues. A session ends
//! with its token.

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use braid_layout::DriveId;
use braid_transport::{Asked, ControlPeer, Listener, Stream, TransportError, challenge};
use braid_wire::capability::Key;
use braid_wire::control::{Authenticate, ControlReply, ControlRequest};
use braid_wire::data::{Hello, PeerRole};
use braid_wire::frame::{WIRE_VERSION, WIRE_VERSION_OLDEST};
use braid_wire::token::{Standing, Token, TokenRole};
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;

use crate::asker::asked_in;
use crate::core::Core;
use crate::sessions::dispatch::{Caller, answer};
use crate::sessions::session_slots::Visitor;
use crate::sessions::token_rights::{Counted, is_over};
use braid_meta::tree::keys::key_of;

/// Serves until the task is dropped; the sessions end with it.
pub async fn serve(core: Arc<Core>, listener: impl Borrow<Listener>) {
    let mut sessions = JoinSet::new();
    let renewing = core.trust.keep_renewed();
    tokio::pin!(renewing);
    loop {
        tokio::select! {
            () = &mut renewing => {} // it never ends
            accepted = listener.borrow().accept() => match accepted {
                Ok(stream) => {
                    sessions.spawn(session(Arc::clone(&core), stream));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot take connections for the moment");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            },
            Some(ended) = sessions.join_next(), if !sessions.is_empty() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a session failed within the manager");
                }
            }
        }
    }
}

async fn session(core: Arc<Core>, stream: Stream) {
    let address = stream.address().to_owned();
    let holder = stream.holder();
    // Any program that reaches the port can cause these lines, so they are limited.
    let due = || holder.ok().and_then(|holder| core.sessions_log.due(holder));
    match conversation(&core, stream).await {
        Ok(()) => {}
        Err(TransportError::Refusal(refusal)) => {
            core.bad_tokens.fetch_add(u64::from(refusal.reason != Reason::Busy), Ordering::Relaxed);
            if let Some(left_out) = due() {
                tracing::info!(%address, %refusal, left_out, "refused a session");
            }
        }
        Err(error) if error.is_misbehaviour() => {
            if let Some(left_out) = due() {
                tracing::info!(%address, %error, left_out, "ended a session");
            }
        }
        Err(error) => tracing::debug!(%address, %error, "a session ended"),
    }
}

async fn conversation(core: &Arc<Core>, stream: Stream) -> Result<(), TransportError> {
    let address = stream.address().to_owned();
    let hello = Hello {
        role: PeerRole::Manager,
        version_min: WIRE_VERSION_OLDEST,
        version_max: WIRE_VERSION,
        cluster: core.cluster.cluster,
        drive: DriveId(0),
        features: 0,
        challenge: challenge(),
    };
    let visitor = Visitor::of(&stream)?;
    let place_for = |asker: &Authenticate| {
        if asker.standing != Standing::Drive {
            // Only who has proved the secret is told what became of the token.
            core.tokens().check(asker.token, asker.drive, core.now_ms())?;
        }
        core.session_slots.place(visitor, asker)
    };
    let secret_of = |asker: &Authenticate| secret_of(core, asker);
    let identity = core.trust.identity();
    let managers = core.managers().told().to_vec();
    let mut peer =
        ControlPeer::accept(stream, identity, &hello, managers, || core.head(), secret_of, place_for).await?;
    let caller = match peer.standing {
        Standing::Client => Caller::Client(peer.token),
        Standing::Drive => Caller::Drive(peer.drive),
        Standing::Join => {
            let master = Token::master_key(&peer.secret, &peer.binding, &peer.nonce, peer.drive);
            Caller::Joining { drive: peer.drive, token: peer.token, master }
        }
        Standing::Manager => Caller::Manager { host: peer.drive, token: peer.token },
    };
    let token = caller.token();
    let _counted = Counted::new(core, token);
    loop {
        let asked = tokio::select! {
            asked = peer.next(|| core.head()) => asked?,
            () = is_over(core, token) => None,
        };
        let Some(Asked { number, version, head, request }) = asked else { return Ok(()) };
        if peer.standing == Standing::Drive && is_void(core, peer.drive, peer.key) {
            // The drive connects again, with its new key.
            return Ok(());
        }
        if peer.standing == Standing::Client {
            core.clients().handle_request(head.client, token, &address, core.running_ms());
        }
        let is_watch = matches!(request, Ok(ControlRequest::Watch(_)));
        if is_watch {
            // Each mount waits for news all the time: such sessions must not take the slots of busier ones.
            peer.rest();
        }
        let answering = async {
            match request {
                Ok(request) => asked_in(version, answer(core, &caller, &head, request)).await,
                Err(refusal) => Err(refusal),
            }
        };
        let answer = tokio::select! {
            answer = answering => answer,
            // What changes something is carried out to its end.
            () = is_over(core, token), if is_watch => return Ok(()),
        };
        let reply = answer.unwrap_or_else(ControlReply::Refused);
        // Another manager may lead by now, and what this one knows may be old: the peer finds it and asks it.
        if core.db.serving().is_err() {
            let refusal = Refusal::standing_by(String::new());
            return peer.reply(number, &core.head(), &refusal.into()).await;
        }
        peer.reply(number, &core.head(), &reply).await?;
    }
}

/// Returns true if a session that was proved with the drive's key of this number is over: the key was turned
/// at once, or twice.
fn is_void(core: &Core, drive: DriveId, key: u32) -> bool {
    let table = core.drives();
    let Some(known) = table.drive(drive) else { return false };
    let turn = &known.keys.turn;
    turn.number > key && (turn.at_once || turn.number - key > 1)
}

/// The secret that the peer must prove.
fn secret_of(core: &Core, asker: &Authenticate) -> Result<Key, Refusal> {
    match asker.standing {
        Standing::Client | Standing::Join | Standing::Manager => {
            let record = core.tokens().find(asker.token)?;
            if record.role.standing() == asker.standing {
                return Ok(record.secret.clone());
            }
            let detail = match record.role {
                TokenRole::Drive => {
                    "the token is for a drive that joins: clients need another (braid token new NAME)"
                }
                TokenRole::Manager => {
                    "the token is for a host that becomes a manager (braid cluster join): clients and drives need \
                     another (braid token new NAME)"
                }
                TokenRole::Admin | TokenRole::Client => {
                    "the token is for clients: a drive joins with another (braid token new NAME --role drive)"
                }
            };
            Err(Refusal::new(Reason::BadToken, detail))
        }
        Standing::Drive => {
            let table = core.drives();
            let Some(known) = table.drive(asker.drive) else {
                let detail = format!(
                    "drive {} has not joined this cluster, or was taken out of it: start it in an empty directory, with a join \
                     token (braid token new NAME --role drive)",
                    asker.drive
                );
                return Err(Refusal::new(Reason::BadToken, detail));
            };
            let turn = &known.keys.turn;
            let master = key_of(&known.record.master, turn, asker.key);
            let master = master.ok_or_else(|| {
                let name = &known.record.name;
                let detail = format!(
                    "drive {name} has key number {}, and number {} is on record: its key was revoked, or its directory, \
                     or the manager's state, was put back from before the key was turned. Let it join anew (braid key \
                     rejoin {name}), and start it with a join token",
                    asker.key, turn.number
                );
                Refusal::new(Reason::BadToken, detail)
            })?;
            Ok(Token::drive_secret(&master))
        }
    }
}
