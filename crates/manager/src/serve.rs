//! Sessions: who may ask what, and which part of the manager answers. One task per session; requests in order.
//!
//! Connections, frames, waits and proofs are bounded by the transport. A wrong proof is told so, counted, and its connection
//! closed. A request that does not decode is refused and the session goes on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use braid_layout::DriveId;
use braid_transport::{ControlPeer, Listener, Stream, TransportError, challenge};
use braid_wire::capability::Key;
use braid_wire::control::{
    Authenticate, ControlReply, ControlRequest, DirectoryReply, Done, JoinDriveReply, ReplaceDriveReply,
    VolumeListReply,
};
use braid_wire::data::{Hello, PeerRole};
use braid_wire::frame::WIRE_VERSION;
use braid_wire::token::{Standing, Token};
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;

use crate::core::Core;
use crate::{directories, members, opens, rebuilds, scrub, shapes, view, volumes};

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
    match conversation(&core, stream).await {
        Ok(()) => {}
        Err(TransportError::Refusal(refusal)) => {
            core.bad_tokens.fetch_add(1, Ordering::Relaxed);
            tracing::info!(%address, %refusal, "refused a session");
        }
        Err(error) if error.is_misbehaviour() => tracing::info!(%address, %error, "ended a session"),
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
    let mut peer =
        ControlPeer::accept(stream, &hello, || core.head(), |asker| secret_of(core, asker)).await?;
    let _open = (peer.standing == Standing::Drive).then(|| OpenSession::begin(core, peer.drive));
    while let Some((number, request)) = peer.next().await? {
        let answer = match request {
            Ok(request) => answer(core, &peer, request).await,
            Err(refusal) => Err(refusal),
        };
        let reply = answer.unwrap_or_else(ControlReply::Refused);
        peer.reply(number, &core.head(), &reply).await?;
    }
    Ok(())
}

/// A drive's session, counted while it is open.
struct OpenSession {
    core: Arc<Core>,
    drive: DriveId,
}

impl OpenSession {
    fn begin(core: &Arc<Core>, drive: DriveId) -> OpenSession {
        core.drives().session_begun(drive);
        OpenSession { core: Arc::clone(core), drive }
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.core.drives().session_ended(self.drive);
    }
}

/// The secret that an asker must know.
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
    request: ControlRequest,
) -> Result<ControlReply, Refusal> {
    use ControlRequest as R;
    match (peer.standing, request) {
        (Standing::Join, R::JoinDrive(join)) => {
            let master = Token::master_key(&peer.secret, &peer.binding, &peer.nonce, peer.drive);
            Ok(JoinDriveReply { name: members::join(core, peer.drive, master, join).await? }.into())
        }
        (Standing::Drive, R::Heartbeat(beat)) => Ok(members::heartbeat(core, peer.drive, beat).await?.into()),
        (Standing::Client, request) => answer_client(core, request).await,
        (_, request) => {
            Err(Refusal::new(Reason::NotAllowed, format!("this token does not allow {}", request.name())))
        }
    }
}

async fn answer_client(core: &Arc<Core>, request: ControlRequest) -> Result<ControlReply, Refusal> {
    use ControlRequest as R;
    match request {
        R::VolumeCreate(_)
        | R::VolumeRemove(_)
        | R::VolumeList(_)
        | R::Lookup(_)
        | R::ReadDirectory(_)
        | R::MakeDirectory(_)
        | R::Rename(_)
        | R::Unlink(_) => answer_names(core, request).await,
        R::CreateUnnamed(create) => Ok(opens::create_unnamed(core, create).await?.into()),
        R::Open(open) => Ok(opens::open(core, open).await?.into()),
        R::Refresh(refresh) => Ok(opens::refresh(core, refresh).await?.into()),
        R::ReportLost(report) => Ok(opens::report_lost(core, report).await?.into()),
        R::Link(link) => done(opens::link(core, link).await),
        R::Renew(renew) => done(opens::renew(core, renew).await),
        R::Commit(commit) => done(opens::commit(core, commit).await),
        R::Release(release) => done(opens::release(core, release).await),
        R::Status(_) => Ok(members::status(core).await?.into()),
        R::ReplaceDrive(replace) => {
            Ok(ReplaceDriveReply { components: members::replace(core, replace).await? }.into())
        }
        R::ScrubDrive(asked) => Ok(scrub::ask(core, asked).await?.into()),
        R::StaleFiles(stale) => Ok(rebuilds::stale_files(core, stale).await?.into()),
        R::BeginRebuild(begin) => Ok(rebuilds::begin(core, begin).await?.into()),
        R::EndRebuild(end) => done(rebuilds::end(core, end).await),
        R::Authenticate(_) => Err(Refusal::new(Reason::Malformed, "the session is authenticated already")),
        R::JoinDrive(_) | R::Heartbeat(_) => {
            Err(Refusal::new(Reason::NotAllowed, format!("a client token does not allow {}", request.name())))
        }
    }
}

async fn answer_names(core: &Arc<Core>, request: ControlRequest) -> Result<ControlReply, Refusal> {
    use ControlRequest as R;
    match request {
        R::VolumeCreate(create) => {
            let volume = core
                .write(move |core, tx| {
                    let drives =
                        core.drives().iter().filter(|drive| drive.record.replaced_by == DriveId(0)).count();
                    let shape = if create.shape.k == 0 {
                        shapes::from_spec(&create.shape, &shapes::default_spec(drives)?)?
                    } else {
                        shapes::from_spec(&create.shape, &create.shape)?
                    };
                    shapes::check_width(&shape, drives)?;
                    let spec = shapes::spec_of(&shape);
                    volumes::create(tx, &create.name, spec, create.quota_bytes, core.now_ms())
                })
                .await?;
            crate::sweep::make_partitions_of(core, volume).await;
            Ok(Done {}.into())
        }
        R::VolumeRemove(remove) => done(core.write(move |_, tx| volumes::remove(tx, &remove.name)).await),
        R::VolumeList(_) => {
            let volumes = core.read(|_, tx| volumes::rows(tx)).await?;
            Ok(VolumeListReply { volumes }.into())
        }
        R::Lookup(lookup) => {
            let row = core
                .read(move |core, tx| {
                    let found = directories::resolve(tx, &lookup.volume, &lookup.path)?;
                    Ok(view::stat(&core.drives(), found.file(), &found.inode, core.now_ms()))
                })
                .await?;
            Ok(row.into())
        }
        R::ReadDirectory(read) => {
            let (entries, more) = core
                .read(move |_, tx| directories::list(tx, &read.volume, &read.path, &read.after, read.limit))
                .await?;
            Ok(DirectoryReply { entries, more }.into())
        }
        R::MakeDirectory(make) => done(
            core.write(move |core, tx| {
                directories::make(tx, &make.volume, &make.path, make.parents, core.now_ms())
            })
            .await,
        ),
        R::Rename(rename) => {
            let work = move |core: &Core, tx: &mut _| {
                directories::rename(tx, &rename.volume, &rename.from, &rename.to, core.now_ms())
            };
            let renamed = core.write(work).await;
            core.wake.notify_waiters();
            done(renamed)
        }
        R::Unlink(unlink) => {
            let work = move |core: &Core, tx: &mut _| {
                directories::unlink(tx, &unlink.volume, &unlink.path, core.now_ms())
            };
            let removed = core.write(work).await;
            core.wake.notify_waiters();
            done(removed)
        }
        other => Err(Refusal::new(Reason::Unsupported, format!("{} has no place here", other.name()))),
    }
}

fn done(result: Result<(), Refusal>) -> Result<ControlReply, Refusal> {
    result.map(|()| Done {}.into())
}
