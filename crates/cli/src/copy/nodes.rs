//! The parts of `cp -a` besides files and directories: links and special files as they are, further names of
//! files, and the attributes of directories.
//!
//! Whatever has the name of a link or special file to be made is removed first: unlike a file, a link or
//! special file has no other way to replace it. A directory in the way stays, and is an error.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use braid_client::{AttributeChanges, Client, Name, NewAttributes, Node};
use braid_wire::Reason;
use braid_wire::control::{EntryKind, StatRow, UnlinkOnly};
use rustix::fs::{AtFlags, FileType, Mode, linkat, mknodat, symlinkat};

use super::jobs::{Job, Kind};
use super::keep;
use crate::files::beneath::LocalPath;
use crate::files::names::Location;
use crate::output::exit::{Doing, Exit, Failure};

/// A link or special file found at a source, local or remote.
struct Found {
    kind: EntryKind,
    /// Device number; 0 if this is no device node.
    device: u32,
    /// Target of a symbolic link; otherwise empty.
    target: Vec<u8>,
    attributes: AttributeChanges,
}

/// Runs a job that makes neither a file's bytes nor a new directory.
pub(super) async fn make(client: &Client, job: &Job) -> Result<(), Failure> {
    match (&job.kind, &job.target) {
        (Kind::Link(first), target) => link(client, first, target).await,
        (Kind::Finish, target) => give(client, target, look(client, &job.source).await?.attributes).await,
        (_, Location::Remote { name, .. }) => {
            make_remote(client, name, look(client, &job.source).await?).await
        }
        (_, Location::Local(path)) => {
            let shown = job.target.show();
            let found = look(client, &job.source).await?;
            if matches!(found.kind, EntryKind::File | EntryKind::Directory) {
                return Err(changed(shown));
            }
            make_local(path, &found).doing(|| format!("make {shown}"))
        }
        (_, Location::Pipe) => Err(Failure::usage("-", "a link or special file cannot go through a pipe")),
    }
}

async fn look(client: &Client, source: &Location) -> Result<Found, Failure> {
    let what = || format!("read {}", source.show());
    match source {
        Location::Local(path) => {
            let metadata = path.itself().doing(what)?;
            let target = match metadata.is_symlink() {
                true => path.read_link().doing(what)?,
                false => Vec::new(),
            };
            let kind = kind_of(&metadata);
            let is_device = matches!(kind, EntryKind::CharDevice | EntryKind::BlockDevice);
            let device = if is_device { metadata.rdev() } else { 0 };
            let device = u32::try_from(device).map_err(std::io::Error::other).doing(what)?;
            Ok(Found { kind, device, target, attributes: keep::of_local(&metadata) })
        }
        Location::Remote { name, .. } => {
            let StatRow { attributes, target, .. } = client.stat_itself(name).await?;
            let kind = attributes.kind;
            let device = attributes.device;
            Ok(Found { kind, device, target, attributes: keep::of_remote(&attributes) })
        }
        Location::Pipe => Err(Failure::usage("-", "a pipe has no attributes to keep")),
    }
}

fn kind_of(metadata: &Metadata) -> EntryKind {
    let kind = metadata.file_type();
    match kind {
        _ if kind.is_symlink() => EntryKind::Symlink,
        _ if kind.is_dir() => EntryKind::Directory,
        _ if kind.is_fifo() => EntryKind::Fifo,
        _ if kind.is_socket() => EntryKind::Socket,
        _ if kind.is_char_device() => EntryKind::CharDevice,
        _ if kind.is_block_device() => EntryKind::BlockDevice,
        _ => EntryKind::File,
    }
}

async fn make_remote(client: &Client, name: &Name, found: Found) -> Result<(), Failure> {
    let node = match found.kind {
        EntryKind::Symlink => Node::Symlink(&found.target),
        EntryKind::Fifo => Node::Fifo,
        EntryKind::Socket => Node::Socket,
        EntryKind::CharDevice => Node::CharDevice(found.device),
        EntryKind::BlockDevice => Node::BlockDevice(found.device),
        EntryKind::File | EntryKind::Directory => {
            return Err(changed(crate::files::names::show_remote(name)));
        }
    };
    let AttributeChanges { mode, uid, gid, .. } = found.attributes;
    let [mode, uid, gid] = [mode, uid, gid].map(Option::unwrap_or_default);
    clear_remote(client, name).await?;
    client.make_node(name, node, NewAttributes { mode, uid, gid }).await?;
    client.set_attributes(name, found.attributes).await?;
    Ok(())
}

fn make_local(path: &LocalPath, found: &Found) -> std::io::Result<()> {
    path.clear()?;
    let held = path.held()?;
    let kind = match found.kind {
        EntryKind::Fifo => FileType::Fifo,
        EntryKind::Socket => FileType::Socket,
        EntryKind::CharDevice => FileType::CharacterDevice,
        EntryKind::BlockDevice => FileType::BlockDevice,
        EntryKind::Symlink | EntryKind::File | EntryKind::Directory => {
            symlinkat(OsStr::from_bytes(&found.target), held.directory(), &held.name)?;
            return keep::give_at(path, found.attributes);
        }
    };
    let mode = Mode::from_raw_mode(found.attributes.mode.unwrap_or_default());
    mknodat(held.directory(), &held.name, kind, mode, u64::from(found.device))?;
    keep::give_at(path, found.attributes)
}

async fn link(client: &Client, first: &Location, target: &Location) -> Result<(), Failure> {
    match (first, target) {
        (Location::Remote { name: first, .. }, Location::Remote { name, .. }) => {
            clear_remote(client, name).await?;
            client.hard_link(first, name).await?;
            Ok(())
        }
        (Location::Local(first), Location::Local(path)) => {
            link_local(first, path).doing(|| format!("link {}", target.show()))
        }
        _ => Err(Failure::usage(target.show(), "a name of what is elsewhere")),
    }
}

async fn give(client: &Client, target: &Location, attributes: AttributeChanges) -> Result<(), Failure> {
    match target {
        Location::Remote { name, .. } => Ok(client.set_attributes(name, attributes).await.map(drop)?),
        Location::Local(path) => {
            keep::give_at(path, attributes).doing(|| format!("set attributes of {}", target.show()))
        }
        Location::Pipe => Ok(()),
    }
}

/// Removes whatever has this name, unless it is a directory.
async fn clear_remote(client: &Client, name: &Name) -> Result<(), Failure> {
    match client.unlink_only(name, UnlinkOnly::NotDirectory).await {
        Err(error) if error.reason() != Some(Reason::NotFound) => Err(error.into()),
        _ => Ok(()),
    }
}

fn link_local(first: &LocalPath, path: &LocalPath) -> std::io::Result<()> {
    path.clear()?;
    let first = first.held()?;
    let held = path.held()?;
    Ok(linkat(first.directory(), &first.name, held.directory(), &held.name, AtFlags::empty())?)
}

/// The error for a source that is of another kind than when it was listed.
fn changed(what: String) -> Failure {
    Failure::new(Exit::Conflict, what, "its source has changed its kind since it was listed")
        .remedy("copy it again")
}
