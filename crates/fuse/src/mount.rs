//! A mount from its begin to its end.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use braid_client::{Client, Name};
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::mounted::Mounted;

/// Threads that take requests from the kernel.
const THREADS: usize = 2;
/// How often it is looked whether somebody has unmounted it.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long those who use it when it ends are still served.
const LEAVE_WAIT: Duration = Duration::from_secs(3);

/// How a volume is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountOptions {
    /// Other users may use it too.
    pub allow_other: bool,
}

/// A mounted volume. Dropped, it is unmounted.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
    session: BackgroundSession,
}

/// How a mount ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// Nobody used it.
    Cleanly,
    /// Programs had files open in it, or were in its directories: they get errors from now on.
    InUse,
}

impl Mount {
    /// Mounts a volume at a directory, to be read.
    ///
    /// # Errors
    /// There is no such volume, the directory is none or may not be mounted on, or there is no FUSE here.
    pub async fn new(client: Client, volume: &str, at: &Path, options: MountOptions) -> io::Result<Mount> {
        let root = Name::root(volume).map_err(io::Error::other)?;
        let row = client.stat(&root).await.map_err(io::Error::other)?;
        let mounted = Mounted::new(client, volume.to_owned(), row.file, Handle::current());
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::RO,
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::DefaultPermissions,
            MountOption::FSName(format!("braid://{volume}")),
            MountOption::Subtype("braid".to_owned()),
        ];
        config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
        (config.n_threads, config.clone_fd) = (Some(THREADS), true);
        let at = std::path::absolute(at)?;
        let to = at.clone();
        let mounting = tokio::task::spawn_blocking(move || fuser::spawn_mount(mounted, to, &config));
        let session = mounting.await.map_err(io::Error::other)??;
        Ok(Mount { at, session })
    }

    /// Waits until somebody has unmounted it.
    pub async fn unmounted(&self) {
        while !self.session.guard.is_finished() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Unmounts it. If it is in use it goes from its directory all the same, and those who use it are served
    /// for a moment.
    ///
    /// # Errors
    /// It may not be unmounted.
    pub async fn end(self) -> io::Result<Unmounted> {
        let at = self.at.clone();
        let unmounting = tokio::task::spawn_blocking(move || unmount(&at));
        let mut ended = unmounting.await.map_err(io::Error::other)??;
        if timeout(LEAVE_WAIT, self.unmounted()).await.is_err() {
            ended = Unmounted::InUse;
        }
        Ok(ended)
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
