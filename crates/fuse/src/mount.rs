//! A mount, from its beginning to its end.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use braid_client::{Client, Name};
use braid_wire::control::EntryKind;
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::caretaker;
use crate::context::Context;
use crate::files::lock_table::Locks;
use crate::kernel_side::expiry::Expiry;
use crate::kernel_side::kernel::{System, Teller};
use crate::kernel_side::readahead;
use crate::kernel_side::waits::Answers;
use crate::mounted::Mounted;
use crate::shared::Shared;
use crate::tree::news;

/// Number of threads that take requests from the kernel.
const THREADS: usize = 2;
/// Interval between two looks whether the volume was unmounted.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time for which programs that use the mount when it ends are still served.
const LEAVE_WAIT: Duration = Duration::from_secs(3);
/// Time that writing the waiting bytes may take when the mount ends: more than a manager's restart.
const SETTLE_WAIT: Duration = Duration::from_secs(30);

/// Option that fusermount3 reports as missing where users may not let others use their mounts.
const FOR_OTHERS: &str = "user_allow_other";

/// Options of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountOptions {
    /// Lets other users use the mount too.
    pub allow_other: bool,
    /// Mounts the volume read-only.
    pub read_only: bool,
    /// Refuses to run programs from the mount.
    pub no_exec: bool,
    /// Answers each write as if `fsync` followed.
    pub sync: bool,
}

/// A mounted volume. It is unmounted when dropped.
pub struct Mount {
    at: PathBuf,
    session: BackgroundSession,
    shared: Arc<Shared>,
}

/// Outcome of a mount's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// No program used the mount, and all that was written through it is with the drives.
    Cleanly,
    /// Programs had files open in the mount, or were in its directories: they get errors from now on. All
    /// that they had written by then is with the drives.
    InUse,
    /// Bytes could not be written and are lost, so many times.
    Lossy(usize),
}

impl Mount {
    /// Makes the state that all requests to a mounted volume share. `root`: the volume's, or a directory in
    /// its place.
    pub(crate) async fn shared(client: Client, root: &Name) -> io::Result<Arc<Shared>> {
        let volume = root.volume();
        let row = client.stat(root).await.map_err(io::Error::other)?;
        if row.kind() != EntryKind::Directory {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "only a directory can be mounted"));
        }
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
            // A volume of which this is unknown is taken to have a quota: then closes ask first.
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
    /// There is no such volume, `at` is not a directory or may not be mounted on, or there is no FUSE here.
    pub async fn new(client: Client, volume: &str, at: &Path, options: MountOptions) -> io::Result<Mount> {
        let root = Name::root(volume).map_err(io::Error::other)?;
        Mount::of(client, &root, at, options).await
    }

    /// Mounts a directory of a volume, with all below it, as [`Mount::new`] mounts all of the volume.
    pub async fn of(client: Client, root: &Name, at: &Path, options: MountOptions) -> io::Result<Mount> {
        let shared = Mount::shared(client, root).await?;
        let mut config = Config::default();
        config.mount_options = vec![
            if options.read_only { MountOption::RO } else { MountOption::RW },
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::DefaultPermissions,
            MountOption::FSName(root.to_string().trim_end_matches('/').to_owned()),
            MountOption::Subtype("braid".to_owned()),
        ];
        if options.no_exec {
            config.mount_options.push(MountOption::NoExec);
        }
        config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
        (config.n_threads, config.clone_fd) = (Some(THREADS), true);
        // This comes before the mount: from then on this process accesses nothing there (`readahead`).
        let at = std::fs::canonicalize(at)?;
        let to = at.clone();
        let mounted = Mounted { shared: Arc::clone(&shared), sync: options.sync };
        let mounting = tokio::task::spawn_blocking(move || {
            let session = Session::new(mounted, to, &config)?;
            let expiry = Expiry::new(&session)?;
            Ok((session.spawn()?, expiry))
        });
        let (session, expiry) = mounting.await.map_err(io::Error::other)?.map_err(explained)?;
        // It is set only here.
        let _ = shared.context.kernel.set(Arc::new(System { notifier: session.notifier(), expiry }));
        tokio::spawn(caretaker::run(Arc::downgrade(&shared)));
        let (watching, told) = shared.context.client.watch();
        shared.context.kept.begin(watching);
        tokio::spawn(news::run(Arc::downgrade(&shared), told));
        let to = at.clone();
        let _ = tokio::task::spawn_blocking(move || readahead::extend(&to)).await;
        Ok(Mount { at, session, shared })
    }

    /// Waits until the volume was unmounted from outside.
    pub async fn unmounted(&self) {
        while !self.session.guard.is_finished() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// After the volume was unmounted from outside: waits, for a while, until all that was written is with
    /// the drives.
    pub async fn settled(self) -> Unmounted {
        self.leave(Unmounted::Cleanly).await
    }

    /// Unmounts the volume, once all that waits is written. If it is in use it is detached from its directory
    /// all the same, and programs that use it are served for a moment.
    ///
    /// # Errors
    /// The volume may not be unmounted.
    pub async fn end(self) -> io::Result<Unmounted> {
        caretaker::settle(&self.shared, SETTLE_WAIT).await;
        let mut ended = Unmounted::Cleanly;
        // If it was unmounted meanwhile, a mount that is there now is another one.
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

    /// Closes all open files, and says how the mount ended.
    async fn leave(self, ended: Unmounted) -> Unmounted {
        let Mount { session, shared, .. } = self;
        // The volume is off its directory. Dropped, the session would unmount what is there, which may be
        // another mount by now: fuser 0.18 takes the end of its own connection for a sign that it is still
        // mounted.
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

/// Adds to an error what users other than root need for a mount.
fn explained(error: io::Error) -> io::Error {
    let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
    if !is_refused || rustix::process::geteuid().is_root() {
        return error;
    }
    io::Error::new(error.kind(), what_it_takes(&error.to_string()))
}

/// The requirement that a user other than root lacks, judging by the error text of the refusal.
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
        // The volume is not mounted any more.
        Err(Errno::INVAL) => Ok(Unmounted::Cleanly),
        Err(Errno::BUSY) => {
            rustix::mount::unmount(at, UnmountFlags::DETACH)?;
            Ok(Unmounted::InUse)
        }
        // Users other than root have a helper that may unmount.
        Err(Errno::PERM) => {
            let helper = |how| Command::new("fusermount3").args([how, "--"]).arg(at).status();
            if helper("-u")?.success() {
                return Ok(Unmounted::Cleanly);
            }
            match helper("-uz")?.success() {
                true => Ok(Unmounted::InUse),
                false => Err(io::Error::other("fusermount3 could not unmount it")),
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
