//! Sessions: permissions, and the dispatch of requests to the parts of the manager. One task per session;
//! requests in order.
//!
//! The transport bounds connections, frames, waits and proofs. A wrong proof is answered, counted, and its
//! connection closed. A request that does not decode is refused, and the session continues.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use braid_layout::{DriveId, FileId};
use braid_meta::records::inodes;
use braid_meta::records::tx::Tx;
use braid_meta::rules::operations::{Once, Operation, Outcome};
use braid_meta::tree::directories::{self, Parents};
use braid_meta::tree::{attributes, nodes, shapes, view, volumes};
use braid_transport::{Asked, ControlPeer, Listener, Stream, TransportError, challenge};
use braid_wire::capability::Key;
use braid_wire::control::{
    Authenticate, ControlReply, ControlRequest, DirectoryReply, Done, Entry, JoinDriveReply, Lookup, Place,
    ReadDirectory, Rename, ReplaceDriveReply, RequestHead, Reserved, Unlink, VolumeCreate, VolumeListReply,
    XattrsReply,
};
use braid_wire::data::{Hello, PeerRole};
use braid_wire::frame::WIRE_VERSION;
use braid_wire::token::{Standing, Token};
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;

use crate::asker::{asked_by, asker};
use crate::columns::{drain, filling, heal, healing, relayout, replacement};
use crate::core::Core;
use crate::files::{endings, opens};
use crate::restore::{backup, compare};
use crate::sessions::session_slots::Visitor;
use crate::sessions::{bulk, callbacks, locking, members, operation_turns, scrub, sisters, status};

/// Serves until the task is dropped; the sessions end with it.
pub async fn serve(core: Arc<Core>, listener: Listener) {
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
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
    let hello = Hello {
        role: PeerRole::Manager,
        version_min: WIRE_VERSION,
        version_max: WIRE_VERSION,
        cluster: core.cluster.cluster,
        drive: DriveId(0),
        features: 0,
        challenge: challenge(),
    };
    let visitor = Visitor::of(&stream)?;
    let place_for = |asker: &Authenticate| core.session_slots.place(visitor, asker);
    let secret_of = |asker: &Authenticate| secret_of(core, asker);
    let mut peer = ControlPeer::accept(stream, &hello, || core.head(), secret_of, place_for).await?;
    while let Some(Asked { number, head, request }) = peer.next(|| core.head()).await? {
        if matches!(request, Ok(ControlRequest::Watch(_))) {
            // Each mount waits for news all the time: such sessions must not take the slots of busier ones.
            peer.rest();
        }
        let answer = match request {
            Ok(request) => answer(core, &peer, &head, request).await,
            Err(refusal) => Err(refusal),
        };
        let reply = answer.unwrap_or_else(ControlReply::Refused);
        peer.reply(number, &core.head(), &reply).await?;
    }
    Ok(())
}

/// The secret that the peer must prove.
fn secret_of(core: &Core, asker: &Authenticate) -> Result<Key, Refusal> {
    match asker.standing {
        Standing::Client => Ok(core.cluster.client_secret.clone()),
        Standing::Join => Ok(core.cluster.join_secret.clone()),
        Standing::Drive => {
            let table = core.drives();
            let known = table.drive(asker.drive).map(|drive| Token::drive_secret(&drive.record.master));
            known.ok_or_else(|| {
                Refusal::new(Reason::BadToken, format!("drive {} has not joined this cluster", asker.drive))
            })
        }
    }
}

async fn answer(
    core: &Arc<Core>,
    peer: &ControlPeer,
    head: &RequestHead,
    request: ControlRequest,
) -> Result<ControlReply, Refusal> {
    use ControlRequest as R;
    match (peer.standing, request) {
        (Standing::Join, R::JoinDrive(join)) => {
            let master = Token::master_key(&peer.secret, &peer.binding, &peer.nonce, peer.drive);
            Ok(JoinDriveReply { name: members::join(core, peer.drive, master, join).await? }.into())
        }
        (Standing::Drive, R::Heartbeat(beat)) => Ok(members::heartbeat(core, peer.drive, beat).await?.into()),
        (Standing::Drive, R::Sisters(sisters)) => Ok(sisters::find(core, peer.drive, sisters).await?.into()),
        (
            Standing::Drive,
            request @ (R::StaleFiles(_) | R::BeginHeal(_) | R::EndHeal(_) | R::HealReport(_) | R::Refresh(_)),
        ) => answer_healer(core, peer.drive, request).await,
        // These are answered also while the manager does not lead, so that an operator can see what is wrong.
        (Standing::Client, R::Status(_)) => Ok(status::status(core).await?.into()),
        (Standing::Client, R::Backup(_)) => Ok(backup::make(core).await?.into()),
        (Standing::Client, R::Batch(batch)) => Ok(bulk::answer(core, head, batch).await?.into()),
        (Standing::Client, request) => answer_asked(core, head, request).await,
        (_, request) => {
            Err(Refusal::new(Reason::NotAllowed, format!("this token does not allow {}", request.name())))
        }
    }
}

/// Answers requests that a client may send, by themselves or in a batch.
pub(crate) async fn answer_asked(
    core: &Arc<Core>,
    head: &RequestHead,
    request: ControlRequest,
) -> Result<ControlReply, Refusal> {
    core.leadership().serving()?;
    if !request.is_operation() {
        return asked_by(head.client, answer_client(core, request)).await;
    }
    let turn = operation_turns::begin(core, head, &request)?;
    let answer = asked_by(head.client, answer_operation(core, turn.operation, request)).await;
    turn.end(&answer);
    answer
}

/// Answers requests of a drive about its own stale columns.
async fn answer_healer(
    core: &Arc<Core>,
    drive: DriveId,
    request: ControlRequest,
) -> Result<ControlReply, Refusal> {
    use ControlRequest as R;
    core.leadership().serving()?;
    match request {
        R::StaleFiles(stale) => Ok(heal::stale_files(core, stale).await?.into()),
        R::BeginHeal(begin) => Ok(heal::begin(core, drive, begin).await?.into()),
        R::EndHeal(end) => done(heal::end(core, drive, end).await),
        R::HealReport(report) => Ok(healing::report(core, drive, report).await?.into()),
        R::Refresh(refresh) => Ok(filling::source(core, drive, &refresh).await?.into()),
        other => Err(misplaced(&other)),
    }
}

/// Answers requests that may be repeated freely.
async fn answer_client(core: &Arc<Core>, request: ControlRequest) -> Result<ControlReply, Refusal> {
    use ControlRequest as R;
    match request {
        R::VolumeList(_) => {
            let volumes = core.read(|_, tx| volumes::rows(tx)).await?;
            Ok(VolumeListReply { volumes }.into())
        }
        R::Lookup(lookup) => Ok(opens::stat(core, lookup).await?.into()),
        R::ReadDirectory(read) => {
            let (entries, more) = listing_of(core, read).await?;
            Ok(DirectoryReply { entries, more }.into())
        }
        R::Xattrs(of) => {
            let xattrs = core.read(move |_, tx| attributes::xattrs(tx, &of.at)).await?;
            Ok(XattrsReply { xattrs }.into())
        }
        R::Open(open) => Ok(opens::open_to_read(core, open).await?.into()),
        R::Refresh(refresh) => Ok(opens::refresh(core, refresh).await?.into()),
        R::ReportLost(report) => Ok(opens::report_lost(core, report).await?.into()),
        R::Renew(renew) => Ok(opens::renew(core, &renew).into()),
        R::Commit(commit) => done(opens::commit(core, commit).await),
        R::FreeUnnamed(_) => done(compare::free_unnamed(core).await),
        R::ScrubDrive(asked) => Ok(scrub::scrub_drive(core, asked).await?.into()),
        R::StaleFiles(stale) => Ok(heal::stale_files(core, stale).await?.into()),
        R::Authenticate(_) => Err(Refusal::new(Reason::Malformed, "the session is authenticated already")),
        R::DrainDrive(asked) => Ok(drain::drain(core, asked).await?.into()),
        R::RemoveDrive(asked) => done(drain::remove(core, asked).await),
        R::Watch(asked) => Ok(callbacks::watch(core, asked).await?.into()),
        R::Lock(asked) => Ok(locking::lock(core, asked).await?.into()),
        R::HealStatus(asked) => Ok(healing::status(core, asked).await?.into()),
        R::Relayout(asked) => Ok(relayout::ask(core, asked).await?.into()),
        R::Relayouts(asked) => Ok(relayout::list(core, asked).await?.into()),
        R::JoinDrive(_)
        | R::Heartbeat(_)
        | R::Sisters(_)
        | R::BeginHeal(_)
        | R::EndHeal(_)
        | R::HealReport(_) => {
            Err(Refusal::new(Reason::NotAllowed, format!("a client token does not allow {}", request.name())))
        }
        // Answered before this is called. Named one by one: a new kind does not compile without its arm.
        R::Status(_)
        | R::Backup(_)
        | R::Batch(_)
        | R::VolumeCreate(_)
        | R::VolumeRemove(_)
        | R::MakeDirectory(_)
        | R::Rename(_)
        | R::Unlink(_)
        | R::SetAttributes(_)
        | R::MakeNode(_)
        | R::HardLink(_)
        | R::SetXattr(_)
        | R::CreateUnnamed(_)
        | R::Link(_)
        | R::Release(_)
        | R::Reserve(_)
        | R::ReplaceDrive(_) => Err(misplaced(&request)),
    }
}

/// Lists a directory, and has the client watch it and the listed files if it asked to.
async fn listing_of(core: &Arc<Core>, read: ReadDirectory) -> Result<(Vec<Entry>, bool), Refusal> {
    let since = core.watchers().now();
    let client = asker();
    core.read(move |core, tx| {
        let directory = directories::resolve(tx, &read.at)?.file;
        let listed = directories::list(tx, &read.at, &read.after, read.limit)?;
        if read.watch {
            let mut watchers = core.watchers();
            watchers.watch(client, directory, since);
            listed.0.iter().for_each(|entry| watchers.watch(client, entry.file, since));
        }
        Ok(listed)
    })
    .await
}

/// The refusal of a request that another part of the manager answers.
fn misplaced(request: &ControlRequest) -> Refusal {
    Refusal::new(Reason::Unsupported, format!("{} has no place here", request.name()))
}

/// Answers operations: requests that are carried out at most once.
async fn answer_operation(
    core: &Arc<Core>,
    operation: Operation,
    request: ControlRequest,
) -> Result<ControlReply, Refusal> {
    use ControlRequest as R;
    match request {
        R::VolumeCreate(create) => done(create_volume(core, operation, create).await),
        R::VolumeRemove(remove) => {
            in_one(core, operation, move |_, tx| volumes::remove(tx, &remove.name)).await
        }
        R::MakeDirectory(make) => {
            let parents = if make.parents { Parents::Made } else { Parents::Required };
            made(core, operation, move |core, tx| {
                directories::make(tx, &make.at, &make.new, parents, core.now_ms())
            })
            .await
        }
        R::Rename(Rename { from, to, how, keep }) => {
            let by = asker();
            in_one(core, operation, move |core, tx| {
                let keeps = |file| callbacks::keeps(core, file, by, keep);
                directories::rename(tx, &from, &to, how, &keeps, core.now_ms())
            })
            .await
        }
        R::Unlink(Unlink { at, only, keep }) => {
            let by = asker();
            in_one(core, operation, move |core, tx| {
                let keeps = |file| callbacks::keeps(core, file, by, keep);
                directories::unlink(tx, &at, only, &keeps, core.now_ms())
            })
            .await
        }
        R::SetAttributes(set) => {
            made(core, operation, move |core, tx| attributes::set(tx, &set.at, &set.changes, core.now_ms()))
                .await
        }
        R::MakeNode(make) => {
            made(core, operation, move |core, tx| nodes::make(tx, &make, core.now_ms())).await
        }
        R::HardLink(link) => {
            made(core, operation, move |core, tx| nodes::link(tx, &link, core.now_ms())).await
        }
        R::SetXattr(set) => {
            in_one(core, operation, move |core, tx| attributes::set_xattr(tx, &set, core.now_ms())).await
        }
        R::CreateUnnamed(create) => Ok(opens::create_unnamed(core, operation, create).await?.into()),
        R::Open(open) => Ok(opens::open_to_write(core, operation, open).await?.into()),
        R::Link(link) => done(endings::link(core, operation, link).await),
        R::Release(release) => done(endings::release(core, operation, release).await),
        R::Reserve(reserve) => {
            Ok(Reserved { offset: opens::reserve(core, operation, reserve).await? }.into())
        }
        R::ReplaceDrive(replace) => {
            Ok(ReplaceDriveReply { components: replacement::replace(core, operation, replace).await? }.into())
        }
        other => Err(misplaced(&other)),
    }
}

async fn create_volume(core: &Arc<Core>, operation: Operation, create: VolumeCreate) -> Result<(), Refusal> {
    let made = core
        .once(operation, move |core, tx| {
            let drives = core.drives().iter().filter(|drive| drive.record.replaced_by == DriveId(0)).count();
            let shape = if create.shape.k == 0 {
                shapes::from_spec(&create.shape, &shapes::default_spec(drives)?)?
            } else {
                shapes::from_spec(&create.shape, &create.shape)?
            };
            shapes::check_width(&shape, drives)?;
            let volume = volumes::create(tx, &create.name, shape.into(), create.quota_bytes, core.now_ms())?;
            Ok((Outcome::DONE, volume))
        })
        .await?;
    // For a volume that was made before, the background makes missing partitions.
    if let Once::Now(volume) = made {
        crate::columns::partitions::make_partitions_of(core, volume).await;
    }
    Ok(())
}

/// Carries out an operation that is one transaction and is answered with Done. The background frees what it
/// removed.
async fn in_one(
    core: &Arc<Core>,
    operation: Operation,
    work: impl FnOnce(&Core, &mut Tx) -> Result<(), Refusal> + Send + 'static,
) -> Result<ControlReply, Refusal> {
    let once = core.once(operation, move |core, tx| work(core, tx).map(|()| (Outcome::DONE, ()))).await;
    core.wake.notify_waiters();
    done(once.map(drop))
}

/// Carries out an operation that is one transaction about one file, directory or node, and is answered with
/// its stat afterwards. The client watches it from then on.
async fn made(
    core: &Arc<Core>,
    operation: Operation,
    work: impl FnOnce(&Core, &mut Tx) -> Result<FileId, Refusal> + Send + 'static,
) -> Result<ControlReply, Refusal> {
    let since = core.watchers().now();
    let client = asker();
    let once = core.once(operation, move |core, tx| {
        let file = work(core, tx)?;
        Ok((Outcome { file, ..Outcome::DONE }, (file, inodes::get(tx, file)?)))
    });
    let row = match once.await? {
        Once::Now((file, inode)) => view::stat(&core.drives(), file, &inode, core.now_ms()),
        Once::Before(Outcome { file, .. }) => {
            opens::stat(core, Lookup { at: Place::number(file), follow: false, watch: false }).await?
        }
    };
    core.watchers().watch(client, row.file, since);
    Ok(row.into())
}

fn done(result: Result<(), Refusal>) -> Result<ControlReply, Refusal> {
    result.map(|()| Done {}.into())
}
