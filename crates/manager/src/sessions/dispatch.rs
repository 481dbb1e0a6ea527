//! Requests by rows: each kind has its rules in `braid_wire::control::Rules` (which sessions may send it,
//! whether it is an operation, whether it needs a manager that leads), the right that it needs in
//! `braid_meta::tokens::rights`, and its handler here.

use std::sync::Arc;

use braid_layout::{ClientId, DriveId, TokenId};
use braid_meta::records::schema::TokenRecord;
use braid_meta::rules::operations::Operation;
use braid_meta::tokens::access::Access;
use braid_wire::capability::Key;
use braid_wire::control::{ControlReply, ControlRequest, Done, DriveState, ReplaceDriveReply, RequestHead};
use braid_wire::token::Standing;
use braid_wire::{Reason, Refusal};

use crate::asker::asked_by;
use crate::columns::{drain, filling, heal, healing, relayout, replacement};
use crate::core::Core;
use crate::files::{allocate, endings, layouts, opens};
use crate::own_etcd;
use crate::rates::{qualify, reserve};
use crate::restore::{backup, compare};
use crate::sessions::{
    bulk, callbacks, keys, locking, members, names, operation_turns, scrub, sisters, status, token_rights,
    tokens,
};
use crate::snapshots::{self, make};

/// The peer of a session.
#[derive(Clone)]
pub(crate) enum Caller {
    /// A program that uses files, or an operator: what it may, its token says.
    Client(TokenId),
    /// A drive that has joined the cluster.
    Drive(DriveId),
    /// A drive that joins.
    Joining {
        drive: DriveId,
        /// The token with which it joins.
        token: TokenId,
        /// The drive's master key, which both sides derive from the session's secrets.
        master: Key,
    },
    /// A host that becomes a manager.
    Manager {
        /// Number of the host, the same in each repeat.
        host: DriveId,
        /// The token with which it joins.
        token: TokenId,
    },
}

impl Caller {
    /// The token of the session; none: the drive's own key was proved.
    pub(crate) fn token(&self) -> TokenId {
        match self {
            Caller::Client(token) | Caller::Joining { token, .. } | Caller::Manager { token, .. } => *token,
            Caller::Drive(_) => TokenId::NONE,
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Caller::Client(_) => Standing::Client,
            Caller::Drive(_) => Standing::Drive,
            Caller::Joining { .. } => Standing::Join,
            Caller::Manager { .. } => Standing::Manager,
        }
    }
}

/// Answers a request, by itself or of a batch, if the rules of its kind allow it.
pub(crate) async fn answer(
    core: &Arc<Core>,
    caller: &Caller,
    head: &RequestHead,
    request: ControlRequest,
) -> Result<ControlReply, Refusal> {
    let rules = request.rules();
    if !rules.by.contains(&caller.standing()) {
        return Err(not_allowed(caller, &request));
    }
    if let Caller::Drive(drive) = caller {
        refuse_replaced(core, *drive, &request)?;
    }
    if rules.needs_leading {
        core.leadership().serving()?;
    }
    let token = match caller {
        Caller::Client(token) => *token,
        _ => TokenId::NONE,
    };
    let client = if token == TokenId::NONE { ClientId::NONE } else { head.client };
    core.clients().check(client)?;
    let record = record_of(core, token)?;
    if let Some(record) = &record {
        token_rights::may(core, token, record, &request).await?;
    }
    if let ControlRequest::Batch(batch) = request {
        // Not within `handle`, whose frame is large: a thread's stack has no room for two of them.
        return Ok(bulk::answer(core, caller, head, batch).await?.into());
    }
    let access = record.as_deref().and_then(Access::of);
    if !rules.is_operation {
        let asked = Asked { caller, operation: None, record: record.as_deref() };
        let is_limited = access.is_some();
        let reply = asked_by(client, token, access, handle(core, asked, request)).await?;
        if let (ControlReply::Opened(opened), true) = (&reply, is_limited) {
            core.opened_with().note(token, opened.stat.file);
        }
        return match &record {
            Some(record) => token_rights::shown(core, record, reply).await,
            None => Ok(reply),
        };
    }
    let turn = operation_turns::begin(core, head, &request)?;
    let asked = Asked { caller, operation: Some(turn.operation), record: record.as_deref() };
    let answer = asked_by(client, token, access, handle(core, asked, request)).await;
    turn.end(&answer);
    answer
}

fn not_allowed(caller: &Caller, request: &ControlRequest) -> Refusal {
    if matches!(request, ControlRequest::Authenticate(_)) {
        return Refusal::new(Reason::Malformed, "the session is authenticated already");
    }
    let name = request.name();
    let detail = match caller {
        Caller::Client(_) => format!("{name} is for drives: no token for clients allows it"),
        Caller::Drive(_) => {
            format!("a drive's session does not allow {name}: a client's does (braid token new NAME)")
        }
        Caller::Joining { .. } => format!(
            "the token lets a drive join, and does not allow {name}: a client's token does (braid token new NAME)"
        ),
        Caller::Manager { .. } => format!(
            "the token lets a manager join, and does not allow {name}: a client's token does (braid token new NAME)"
        ),
    };
    Refusal::new(Reason::NotAllowed, detail)
}

/// Refuses what a drive asks that was replaced: its disk may be in other hands. It is told of that in answer
/// to its heartbeats.
fn refuse_replaced(core: &Core, drive: DriveId, request: &ControlRequest) -> Result<(), Refusal> {
    let is_answered = matches!(request, ControlRequest::Heartbeat(_) | ControlRequest::CertifyDrive(_));
    if is_answered || core.drives().state(drive, core.now_ms()) != DriveState::Replaced {
        return Ok(());
    }
    let name = core.drives().name(drive);
    let detail = format!(
        "drive {name} was replaced, and has no part in the cluster: stop it, and use its disk under another name in an empty \
         directory"
    );
    Err(Refusal::new(Reason::NotAllowed, detail))
}

/// The token of a client's session, if it may still be used.
fn record_of(core: &Core, token: TokenId) -> Result<Option<Arc<TokenRecord>>, Refusal> {
    if token == TokenId::NONE {
        return Ok(None);
    }
    let now_ms = core.now_ms();
    core.tokens().check(token, DriveId(0), now_ms).map(Some)
}

/// A request's context.
struct Asked<'a> {
    caller: &'a Caller,
    operation: Option<Operation>,
    /// The token of a client's session.
    record: Option<&'a TokenRecord>,
}

impl Asked<'_> {
    /// The operation, for kinds whose rules say that they are one.
    fn once(&self) -> Result<Operation, Refusal> {
        self.operation.ok_or_else(|| Refusal::new(Reason::Unsupported, "the request is not an operation"))
    }

    /// The drive that sent the request, for kinds whose rules allow drives only.
    fn drive(&self) -> Result<DriveId, Refusal> {
        match self.caller {
            Caller::Drive(drive) => Ok(*drive),
            _ => Err(Refusal::new(Reason::NotAllowed, "only a drive may send the request")),
        }
    }

    /// The token of the session, for kinds whose rules allow clients only.
    fn token(&self) -> Result<&TokenRecord, Refusal> {
        self.record
            .ok_or_else(|| Refusal::new(Reason::NotAllowed, "only an admin's session may send the request"))
    }

    /// The drive that joins, its token and its master key, for kinds whose rules allow joining drives only.
    fn joining(&self) -> Result<(DriveId, TokenId, Key), Refusal> {
        match self.caller {
            Caller::Joining { drive, token, master } => Ok((*drive, *token, master.clone())),
            _ => Err(Refusal::new(Reason::NotAllowed, "only a drive that joins may send the request")),
        }
    }
}

/// Has the part of the manager that a kind belongs to carry out the request.
async fn handle(
    core: &Arc<Core>,
    asked: Asked<'_>,
    request: ControlRequest,
) -> Result<ControlReply, Refusal> {
    use ControlRequest as R;
    match request {
        R::VolumeCreate(_) | R::VolumeRemove(_) => handle_of_volumes(core, asked, request).await,
        R::VolumeProtect(_) | R::VolumeRekey(_) => handle_of_volumes(core, asked, request).await,
        R::VolumeMethods(_) => handle_of_volumes(core, asked, request).await,
        R::VolumeList(_) => Ok(names::volumes(core).await?.into()),
        R::QuotaSet(set) => done(names::set_quota(core, asked.once()?, set).await),
        R::QuotaRemove(remove) => done(names::remove_quota(core, asked.once()?, remove).await),
        R::QuotaList(list) => Ok(names::list_quotas(core, list).await?.into()),
        R::SnapshotMake(make) => Ok(make::make(core, asked.once()?, make).await?.into()),
        R::SnapshotRemove(remove) => done(snapshots::names::remove(core, asked.once()?, remove).await),
        R::Snapshots(list) => Ok(snapshots::names::list(core, list).await?.into()),
        R::SnapshotDiff(diff) => Ok(snapshots::diff::page(core, diff).await?.into()),
        R::SnapshotKeep(keep) => done(snapshots::keep::set(core, asked.once()?, keep).await),
        R::SnapshotSchedules(list) => Ok(snapshots::keep::list(core, list).await?.into()),

        R::Lookup(lookup) => Ok(opens::stat(core, lookup).await?.into()),
        R::ReadDirectory(read) => Ok(names::read_directory(core, read).await?.into()),
        R::MakeDirectory(make) => Ok(names::make_directory(core, asked.once()?, make).await?.into()),
        R::Rename(rename) => done(names::rename(core, asked.once()?, rename).await),
        R::Unlink(unlink) => done(names::unlink(core, asked.once()?, unlink).await),
        R::SetAttributes(set) => Ok(names::set_attributes(core, asked.once()?, set).await?.into()),
        R::MakeNode(make) => Ok(names::make_node(core, asked.once()?, make).await?.into()),
        R::HardLink(link) => Ok(names::hard_link(core, asked.once()?, link).await?.into()),
        R::SetXattr(set) => done(layouts::set_xattr(core, asked.once()?, set).await),
        R::Xattrs(of) => Ok(names::xattrs(core, of).await?.into()),
        R::SetClustering(set) => done(layouts::set_clustering(core, asked.once()?, set).await),
        R::SetLayout(set) => done(layouts::set(core, asked.once()?, set).await),
        R::LayoutOf(of) => Ok(layouts::of(core, of).await?.into()),

        R::CreateUnnamed(create) => Ok(opens::create_unnamed(core, asked.once()?, create).await?.into()),
        R::Link(link) => done(endings::link(core, asked.once()?, link).await),
        R::Open(open) => match asked.operation {
            Some(operation) => Ok(opens::open_to_write(core, operation, open).await?.into()),
            None => Ok(opens::open_to_read(core, open).await?.into()),
        },
        R::Refresh(refresh) => match asked.caller {
            Caller::Drive(drive) => Ok(filling::source(core, *drive, &refresh).await?.into()),
            _ => Ok(opens::refresh(core, refresh).await?.into()),
        },
        R::Renew(renew) => Ok(opens::renew(core, &renew).await.into()),
        R::Commit(commit) => done(opens::commit(core, commit).await),
        R::Release(release) => done(endings::release(core, asked.once()?, release).await),
        R::ReportLost(report) => Ok(opens::report_lost(core, report).await?.into()),
        R::ReserveEnd(reserve) => Ok(opens::reserve(core, asked.once()?, reserve).await?.into()),
        R::Allocate(allocate) => done(allocate::answer(core, allocate).await),

        R::Status(_) => Ok(status::status(core).await?.into()),
        R::Backup(_) | R::ReadBackup(_) | R::FreeUnnamed(_) => handle_of_state(core, asked, request).await,
        R::Jobs(_) => Ok(core.jobs().rows(core.running_ms()).into()),

        R::JoinDrive(join) => {
            let (drive, token, master) = asked.joining()?;
            Ok(members::join(core, drive, master, token, join).await?.into())
        }
        R::Heartbeat(beat) => Ok(members::heartbeat(core, asked.drive()?, beat).await?.into()),
        R::ReplaceDrive(replace) => {
            let components = replacement::replace(core, asked.once()?, replace).await?;
            Ok(ReplaceDriveReply { components }.into())
        }
        R::ScrubDrive(scrub) => Ok(scrub::scrub_drive(core, scrub).await?.into()),
        R::CalibrateDrive(asked) => Ok(scrub::calibrate_drive(core, asked).await?.into()),
        R::Sisters(sisters) => Ok(sisters::find(core, asked.drive()?, sisters).await?.into()),
        R::DrainDrive(drain) => Ok(drain::drain(core, drain).await?.into()),
        R::PauseDrive(pause) => done(drain::pause(core, pause).await),
        R::RemoveDrive(remove) => done(drain::remove(core, remove).await),
        R::KeyRotate(_) | R::Keys(_) | R::RevokeFile(_) | R::RevokeClient(_) => {
            handle_of_keys(core, asked, request).await
        }
        R::TokenNew(_) | R::Tokens(_) | R::TokenRevoke(_) => handle_of_trust(core, asked, request).await,
        R::CertifyDrive(_) => handle_of_trust(core, asked, request).await,
        R::AddManager(_) | R::RemoveManager(_) => handle_of_managers(core, asked, request).await,
        R::StaleFiles(stale) => Ok(heal::stale_files(core, stale).await?.into()),
        R::BeginHeal(begin) => Ok(heal::begin(core, asked.drive()?, begin).await?.into()),
        R::EndHeal(end) => done(heal::end(core, asked.drive()?, end).await),
        R::HealReport(report) => Ok(healing::report(core, asked.drive()?, report).await?.into()),
        R::HealStatus(asked) => Ok(healing::status(core, asked).await?.into()),
        R::Relayout(relayout) => Ok(relayout::ask(core, relayout).await?.into()),
        R::Relayouts(list) => Ok(relayout::list(core, list).await?.into()),

        R::ReserveRate(reserve) => Ok(reserve::reserve(core, asked.once()?, reserve).await?.into()),
        R::Reservations(list) => Ok(reserve::list(core, list.after).await?.into()),
        R::ExtendReservation(extend) => Ok(reserve::extend(core, extend).await?.into()),
        R::EndReservation(end) => done(reserve::end(core, asked.once()?, end).await),
        R::Qualify(asked) => Ok(qualify::answer(core, asked).await?.into()),
        R::LatenessReport(report) => done(reserve::report(core, &report)),
        R::Watch(watch) => Ok(callbacks::watch(core, watch).await?.into()),
        R::Lock(lock) => Ok(locking::lock(core, lock).await?.into()),
        // A batch's requests come here, the batch itself does not.
        request @ (R::Authenticate(_) | R::Batch(_)) => Err(not_allowed(asked.caller, &request)),
    }
}

/// Carries out a request that changes volumes.
async fn handle_of_volumes(
    core: &Arc<Core>,
    asked: Asked<'_>,
    request: ControlRequest,
) -> Result<ControlReply, Refusal> {
    use ControlRequest as R;
    match request {
        R::VolumeCreate(create) => done(names::create_volume(core, asked.once()?, create).await),
        R::VolumeRemove(remove) => done(names::remove_volume(core, asked.once()?, remove).await),
        R::VolumeProtect(protect) => done(names::protect_volume(core, asked.once()?, protect).await),
        R::VolumeRekey(rekey) => done(names::rekey_volume(core, asked.once()?, rekey).await),
        R::VolumeMethods(set) => done(names::set_methods_of_volume(core, asked.once()?, set).await),
        request => Err(not_allowed(asked.caller, &request)),
    }
}

/// Carries out a request about keys.
async fn handle_of_keys(
    core: &Arc<Core>,
    asked: Asked<'_>,
    request: ControlRequest,
) -> Result<ControlReply, Refusal> {
    use ControlRequest as R;
    match request {
        R::KeyRotate(rotate) => done(keys::rotate(core, asked.once()?, rotate).await),
        R::Keys(_) => Ok(keys::list(core).await?.into()),
        R::RevokeFile(revoke) => done(keys::revoke_file(core, revoke).await),
        R::RevokeClient(revoke) => done(keys::revoke_client(core, asked.once()?, revoke).await),
        request => Err(not_allowed(asked.caller, &request)),
    }
}

/// Carries out a request about the state as a whole.
async fn handle_of_state(
    core: &Arc<Core>,
    asked: Asked<'_>,
    request: ControlRequest,
) -> Result<ControlReply, Refusal> {
    use ControlRequest as R;
    match request {
        R::Backup(_) => Ok(backup::make(core).await?.into()),
        R::ReadBackup(part) => Ok(backup::part(core, part).await?.into()),
        R::FreeUnnamed(_) => done(compare::free_unnamed(core).await),
        request => Err(not_allowed(asked.caller, &request)),
    }
}

/// Carries out a request about tokens or certificates.
async fn handle_of_trust(
    core: &Arc<Core>,
    asked: Asked<'_>,
    request: ControlRequest,
) -> Result<ControlReply, Refusal> {
    use ControlRequest as R;
    match request {
        R::TokenNew(new) => Ok(tokens::make(core, asked.once()?, asked.token()?, new).await?.into()),
        R::Tokens(list) => Ok(tokens::list(core, list).await?.into()),
        R::TokenRevoke(revoke) => done(tokens::revoke(core, asked.once()?, revoke).await),
        R::CertifyDrive(certify) => Ok(core.trust.certify(asked.drive()?, &certify).into()),
        request => Err(not_allowed(asked.caller, &request)),
    }
}

/// Carries out a request about managers.
async fn handle_of_managers(
    core: &Arc<Core>,
    asked: Asked<'_>,
    request: ControlRequest,
) -> Result<ControlReply, Refusal> {
    use ControlRequest as R;
    match (asked.caller, request) {
        (Caller::Manager { host, token }, R::AddManager(add)) => {
            Ok(own_etcd::join::add(core, *host, *token, add).await?.into())
        }
        (Caller::Client(_), R::RemoveManager(remove)) => {
            done(own_etcd::join::remove(core, &remove.address).await)
        }
        (caller, request) => Err(not_allowed(caller, &request)),
    }
}

fn done(result: Result<(), Refusal>) -> Result<ControlReply, Refusal> {
    result.map(|()| Done {}.into())
}
