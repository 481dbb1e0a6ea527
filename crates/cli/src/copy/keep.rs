//! The attributes that a copy keeps of its source besides the bytes (`-p`, `-a`), and the check that says
//! when a copy is not needed (`--update`).
//!
//! `-p` keeps the modification time and the permission bits. Owner and set-user-ID mean something only where
//! the same users exist: `-a` keeps them too, and the time of the last access. "The same" means what it does
//! in rsync's quick check: equal size and time, to the millisecond. The bytes are not compared.
//!
//! With `--update` a copy gets its source's time even without `-p`, as it was before the first byte was read.
//! A source that changes during the copy then differs in time. The time at which the copy was made comes from
//! another clock, and could not show that.

use std::fs::{File as LocalFile, FileTimes, Metadata, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braid_client::{AttributeChanges, Client};
use braid_wire::control::{EntryKind, FileAttributes};
use rustix::fs::{AtFlags, Gid, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use crate::files::beneath::LocalPath;
use crate::files::names::Location;
use crate::files::namespace;
use crate::output::exit::{Doing, Failure};

/// The permission bits that a copy has with `-p`: read, write and execute for user, group and others.
const MODE: u32 = 0o777;
/// The permission bits that a copy has with `-a`: also set-user-ID, set-group-ID and sticky.
const ALL_MODE: u32 = 0o7777;
/// Nanoseconds in a second.
const SECOND_NS: i64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
const MS_NS: i64 = 1_000_000;

/// Attributes of the source that a copy gets, even if all files are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preserve {
    /// `-a`: all attributes.
    All,
    /// `-p`: time and permission bits.
    Yes,
    /// Default permissions. The modification time is that of the copy, except with `--update`.
    No,
}

/// Selection of the files to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    /// `--update`: only files whose copy is missing or differs.
    Changed,
}

/// The facts that the quick check compares: files with equal facts count as the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuickCheckFacts {
    size: u64,
    modified_ms: i64,
}

impl QuickCheckFacts {
    /// The facts of a file; `None` if there is no file, or it has no size.
    pub(crate) async fn of(client: &Client, location: &Location) -> Result<Option<QuickCheckFacts>, Failure> {
        match location {
            Location::Pipe => Ok(None),
            Location::Local(path) => {
                let metadata = match path.metadata() {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                    other => other.doing(|| format!("look at {}", location.show()))?,
                };
                let facts =
                    || QuickCheckFacts { size: metadata.len(), modified_ms: ns(metadata.modified()) / MS_NS };
                Ok(metadata.is_file().then(facts))
            }
            Location::Remote { name, .. } => {
                let row = namespace::stat_if_there(client, name).await?;
                let file = row.filter(|row| row.kind() == EntryKind::File);
                let modified_ms = |of: &FileAttributes| of.modified_ns / MS_NS;
                Ok(file.map(|row| QuickCheckFacts {
                    size: row.size(),
                    modified_ms: modified_ms(&row.attributes),
                }))
            }
        }
    }
}

/// Selects the attributes that a copy gets.
pub(crate) fn kept(of_source: AttributeChanges, preserve: Preserve, which: Which) -> AttributeChanges {
    let AttributeChanges { mode, modified_ns, .. } = of_source;
    let mode = mode.map(|mode| mode & MODE);
    let none = AttributeChanges::NONE;
    match (preserve, which) {
        (Preserve::All, _) => of_source,
        (Preserve::Yes, _) => AttributeChanges { mode, modified_ns, ..none },
        (Preserve::No, Which::Changed) => AttributeChanges { modified_ns, ..none },
        (Preserve::No, Which::All) => none,
    }
}

/// All attributes of something local.
pub(crate) fn of_local(metadata: &Metadata) -> AttributeChanges {
    AttributeChanges {
        mode: Some(metadata.permissions().mode() & ALL_MODE),
        uid: Some(metadata.uid()),
        gid: Some(metadata.gid()),
        accessed_ns: Some(ns(metadata.accessed())),
        modified_ns: Some(ns(metadata.modified())),
    }
}

/// All attributes of something remote.
pub(crate) fn of_remote(of: &FileAttributes) -> AttributeChanges {
    AttributeChanges {
        mode: Some(of.mode),
        uid: Some(of.uid),
        gid: Some(of.gid),
        accessed_ns: Some(of.accessed_ns),
        modified_ns: Some(of.modified_ns),
    }
}

/// Sets a local file's attributes. Absent ones are left alone. A user who may not give files away keeps them,
/// as with cp; the files then have no set-user-ID and set-group-ID.
pub(crate) fn give(file: &LocalFile, kept: AttributeChanges) -> std::io::Result<()> {
    let mut mode = kept.mode;
    if kept.uid.is_some() || kept.gid.is_some() {
        let owner = (kept.uid.map(Uid::from_raw), kept.gid.map(Gid::from_raw));
        match rustix::fs::fchown(file, owner.0, owner.1) {
            Err(Errno::PERM) => mode = mode.map(|mode| mode & MODE),
            given => given?,
        }
    }
    if let Some(mode) = mode {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    let mut times = FileTimes::new();
    times = kept.accessed_ns.and_then(system_time).map_or(times, |time| times.set_accessed(time));
    times = kept.modified_ns.and_then(system_time).map_or(times, |time| times.set_modified(time));
    match (kept.accessed_ns, kept.modified_ns) {
        (None, None) => Ok(()),
        _ => file.set_times(times),
    }
}

/// Sets attributes as [`give`] does, for what is not opened: a directory, a link itself, a device.
pub(crate) fn give_at(path: &LocalPath, kept: AttributeChanges) -> std::io::Result<()> {
    let held = path.held()?;
    let uid = kept.uid.map(Uid::from_raw);
    let gid = kept.gid.map(Gid::from_raw);
    let mut mode = kept.mode;
    match rustix::fs::chownat(held.directory(), &held.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::PERM) => mode = mode.map(|mode| mode & MODE),
        given => given?,
    }
    if let Some(mode) = mode {
        path.set_mode(mode)?;
    }
    let last_access = timespec(kept.accessed_ns);
    let last_modification = timespec(kept.modified_ns);
    let times = Timestamps { last_access, last_modification };
    Ok(rustix::fs::utimensat(held.directory(), &held.name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn timespec(ns: Option<i64>) -> Timespec {
    match ns {
        Some(ns) => Timespec { tv_sec: ns.div_euclid(SECOND_NS), tv_nsec: ns.rem_euclid(SECOND_NS) },
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
    }
}

fn system_time(ns: i64) -> Option<SystemTime> {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
}

/// Nanoseconds since 1970; 0 for an unknown time.
fn ns(time: std::io::Result<SystemTime>) -> i64 {
    let whole = |distance: Duration| i64::try_from(distance.as_nanos()).unwrap_or(i64::MAX);
    match time.map(|time| time.duration_since(UNIX_EPOCH)) {
        Ok(Ok(since)) => whole(since),
        Ok(Err(before)) => -whole(before.duration()),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_for_updates_has_its_source_s_time() {
        let source = AttributeChanges {
            mode: Some(0o4640),
            uid: Some(7),
            gid: Some(8),
            accessed_ns: Some(9),
            modified_ns: Some(1000),
        };
        let given = |preserve, which| kept(source, preserve, which);
        let timed = AttributeChanges { modified_ns: Some(1000), ..AttributeChanges::NONE };
        let as_before = AttributeChanges { mode: Some(0o640), ..timed };
        assert_eq!(given(Preserve::All, Which::All), source);
        assert_eq!(given(Preserve::Yes, Which::All), as_before);
        assert_eq!(given(Preserve::Yes, Which::Changed), as_before);
        assert_eq!(given(Preserve::No, Which::Changed), timed);
        assert_eq!(given(Preserve::No, Which::All), AttributeChanges::NONE);
    }

    #[test]
    fn a_local_file_is_given_what_another_has() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("f");
        let file = LocalFile::create(&path).expect("made");
        let metadata = file.metadata().expect("there");
        let kept = AttributeChanges {
            mode: Some(0o2751),
            uid: Some(metadata.uid()),
            gid: Some(metadata.gid()),
            accessed_ns: Some(-5_000_000_001),
            modified_ns: Some(1_234_567_890_123_456_789),
        };
        give(&file, kept).expect("given");
        assert_eq!(of_local(&file.metadata().expect("there")), kept);
        give(&file, AttributeChanges::NONE).expect("nothing to give");
        assert_eq!(of_local(&file.metadata().expect("there")), kept);
        let other = AttributeChanges { mode: Some(0o700), accessed_ns: None, ..kept };
        give_at(&LocalPath::typed(&path), other).expect("given by name");
        let found = of_local(&path.metadata().expect("there"));
        assert_eq!(found, AttributeChanges { mode: Some(0o700), ..kept });
    }
}
