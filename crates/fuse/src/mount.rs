//! A mount from its begin to its end.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use braid_client::{Client, Name};
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::caretaker;
use crate::context::Context;
use crate::expiry::Expiry;
use crate::kernel::{System, Teller};
use crate::locks::Locks;
use crate::mounted::Mounted;
use crate::news;
use crate::readahead;
use crate::shared::Shared;
use crate::waits::Answers;

/// Threads that take requests from the kernel.
const THREADS: usize = 2;
/// How often it is looked whether somebody has unmounted it.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long those who use it when it ends are still served.
const LEAVE_WAIT: Duration = Duration::from_secs(3);
/// How long it may take to write what waits when it ends: more than a manager's restart.
const SETTLE_WAIT: Duration = Duration::from_secs(30);

/// What fusermount3 says is missing where users may not let others use their mounts.
const FOR_OTHERS: &str = "user_allow_other";

/// How a volume is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountOptions {
    /// Other users may use it too.
    pub allow_other: bool,
    /// It is only read.
    pub read_only: bool,
    /// No program in it is run.
    pub no_exec: bool,
    /// Each write is answered as if `fsync` followed.
    pub sync: bool,
}

/// A mounted volume. Dropped, it is unmounted.
pub struct Mount {
    at: PathBuf,
    session: BackgroundSession,
    shared: Arc<Shared>,
}

/// How a mount ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// Nobody used it, and all that was written through it is with the drives.
    Cleanly,
    /// Programs had files open in it, or were in its directories: they get errors from now on. All that they
    /// had written by then is with the drives.
    InUse,
    /// So often something could not be written, and is lost.
    Lossy(usize),
}

impl Mount {
    /// What all requests to a mounted volume share.
    pub(crate) async fn shared(client: Client, volume: &str) -> io::Result<Arc<Shared>> {
        let root = Name::root(volume).map_err(io::Error::other)?;
        let row = client.stat(&root).await.map_err(io::Error::other)?;
        let room = client.room(volume).await.ok().flatten();
        let locks = Arc::new(Locks::new(client.number()));
        let answers = Answers::of(client.clone());
        let context = Context {
            client,
            volume: volume.to_owned(),
            root: row.file,
            runtime: Handle::current(),
            teller: Teller::new(Handle::current()),
            budget: Default::default(),
            buffers: Default::default(),
            // Where it is not known it is taken for one: then closes ask first.
            has_quota: room.is_none_or(|room| room.has_quota).into(),
            lossy: Default::default(),
            remembered: Default::default(),
            told: Default::default(),
            listed: Default::default(),
            ends: Default::default(),
            kept: Default::default(),
            former: Default::default(),
            early: Default::default(),
            locks,
            said: Default::default(),
            answers,
            idle: Default::default(),
            kernel: OnceLock::new(),
        };
        Ok(Arc::new(Shared::new(Arc::new(context))))
    }

    /// Mounts a volume at a directory.
    ///
    /// # Errors
    /// There is no such volume, the directory is none or may not be mounted on, or there is no FUSE here.
    pub async fn new(client: Client, volume: &str, at: &Path, options: MountOptions) -> io::Result<Mount> {
        let shared = Mount::shared(client, volume).await?;
        let mut config = Config::default();
        config.mount_options = vec![
            if options.read_only { MountOption::RO } else { MountOption::RW },
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::DefaultPermissions,
            MountOption::FSName(format!("braid://{volume}")),
            MountOption::Subtype("braid".to_owned()),
        ];
        if options.no_exec {
            config.mount_options.push(MountOption::NoExec);
        }
        config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
        (config.n_threads, config.clone_fd) = (Some(THREADS), true);
        // Before it is mounted: from then on this process asks for nothing there (`readahead`).
        let at = std::fs::canonicalize(at)?;
        let to = at.clone();
        let mounted = Mounted { shared: Arc::clone(&shared), sync: options.sync };
        let mounting = tokio::task::spawn_blocking(move || {
            let session = Session::new(mounted, to, &config)?;
            let expiry = Expiry::new(&session)?;
            Ok((session.spawn()?, expiry))
        });
        let (session, expiry) = mounting.await.map_err(io::Error::other)?.map_err(explained)?;
        // Nobody else sets it.
        let _ = shared.context.kernel.set(Arc::new(System { notifier: session.notifier(), expiry }));
        tokio::spawn(caretaker::run(Arc::downgrade(&shared)));
        let (watching, told) = shared.context.client.watch();
        shared.context.kept.begin(watching);
        tokio::spawn(news::run(Arc::downgrade(&shared), told));
        let to = at.clone();
        let _ = tokio::task::spawn_blocking(move || readahead::extend(&to)).await;
        Ok(Mount { at, session, shared })
    }

    /// Waits until somebody has unmounted it.
    pub async fn unmounted(&self) {
        while !self.session.guard.is_finished() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// After somebody has unmounted it: waits, for a while, until all that was written is with the drives.
    pub async fn settled(self) -> Unmounted {
        self.leave(Unmounted::Cleanly).await
    }

    /// Unmounts it, when all that waits is written. If it is in use it goes from its directory all the same,
    /// and those who use it are served for a moment.
    ///
    /// # Errors
    /// It may not be unmounted.
    pub async fn end(self) -> io::Result<Unmounted> {
        caretaker::settle(&self.shared, SETTLE_WAIT).await;
        let mut ended = Unmounted::Cleanly;
        // If somebody did it meanwhile, what is there now is another's.
        if !self.session.guard.is_finished() {
            let at = self.at.clone();
            let unmounting = tokio::task::spawn_blocking(move || unmount(&at));
            ended = unmounting.await.map_err(io::Error::other)??;
        }
        if timeout(LEAVE_WAIT, self.unmounted()).await.is_err() {
            ended = Unmounted::InUse;
        }
        Ok(self.leave(ended).await)
    }

    /// Closes what is open.
    async fn leave(self, ended: Unmounted) -> Unmounted {
        let Mount { session, shared, .. } = self;
        // It is off its directory. Dropped, the session would unmount what is there, which may be another's
        // by now: fuser 0.18 takes the end of its own connection for a sign that it is still mounted.
        std::mem::forget(session);
        if ended == Unmounted::Cleanly && caretaker::closed(&shared, SETTLE_WAIT).await {
            shared.context.client.finish().await;
            return match shared.lost_files() {
                0 => ended,
                some => Unmounted::Lossy(some),
            };
        }
        let unwritten = caretaker::settle(&shared, SETTLE_WAIT).await;
        caretaker::close_all(&shared, LEAVE_WAIT).await;
        shared.context.client.finish().await;
        match shared.lost_files() + unwritten {
            0 => ended,
            some => Unmounted::Lossy(some),
        }
    }
}

/// What else it takes, for those who are not root.
fn explained(error: io::Error) -> io::Error {
    let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
    if !is_refused || rustix::process::geteuid().is_root() {
        return error;
    }
    io::Error::new(error.kind(), what_it_takes(&error.to_string()))
}

/// What one who is not root lacks, by what was said when it was refused.
fn what_it_takes(said: &str) -> &'static str {
    // fusermount3 names the option.
    if said.contains(FOR_OTHERS) {
        "only root may let other users use it, unless /etc/fuse.conf has a line user_allow_other"
    } else {
        "only root may mount without the program fusermount3 and a /dev/fuse that all may open (mode 666)"
    }
}

fn unmount(at: &Path) -> io::Result<Unmounted> {
    match rustix::mount::unmount(at, UnmountFlags::empty()) {
        Ok(()) => Ok(Unmounted::Cleanly),
        // It is not mounted any more.
        Err(Errno::INVAL) => Ok(Unmounted::Cleanly),
        Err(Errno::BUSY) => {
            rustix::mount::unmount(at, UnmountFlags::DETACH)?;
            Ok(Unmounted::InUse)
        }
        // Users have a helper that may.
        Err(Errno::PERM) => {
            let helper = |how| Command::new("fusermount3").args([how, "--"]).arg(at).status();
            if helper("-u")?.success() {
                return Ok(Unmounted::Cleanly);
            }
            match helper("-uz")?.success() {
                true => Ok(Unmounted::InUse),
                false => Err(io::Error::other("fusermount3 does not unmount it")),
            }
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_mount_is_told_what_is_missing() {
        let said =
            "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf\n";
        assert!(what_it_takes(said).contains("/etc/fuse.conf"));
        assert!(what_it_takes("Permission denied (os error 13)").contains("/dev/fuse"));
    }
}
