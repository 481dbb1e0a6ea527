//! What a copy preserves of its source besides the bytes (`-p`), and when a copy is not needed (`--update`).
//!
//! Preserved are the modification time, to the millisecond, and the permission bits. Owner and set-user-ID
//! are not: they mean something only where the same users exist. "The same" means what it does in rsync's
//! quick check: equal size and time. The bytes are not compared.
//!
//! With `--update` a copy gets its source's time even without `-p`, as it was before the first byte was read.
//! A source that changes during the copy then differs in time. The time of the copy, by another clock, could
//! not show that.

use std::fs::{self, File as LocalFile, FileTimes, Metadata, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braid_client::{Client, Kept};
use braid_wire::control::EntryKind;

use crate::exit::{Doing, Failure};
use crate::names::Location;
use crate::namespace;

/// The permission bits that a copy can have: read, write and execute for user, group and others.
const MODE: u32 = 0o777;

/// Whether a copy gets its source's permission bits and, even if all files are copied, its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preserve {
    /// `-p`.
    Yes,
    /// Default permissions. The modification time is that of the copy, except with `--update`.
    No,
}

/// Which files are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// All.
    All,
    /// `--update`: only files whose copy is missing or differs.
    Changed,
}

/// The facts that the quick check compares: files with equal facts count as the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    size: u64,
    modified_ms: u64,
}

impl Facts {
    /// The facts of a file; `None` if there is none, or it has no size.
    pub(crate) async fn of(client: &Client, location: &Location) -> Result<Option<Facts>, Failure> {
        match location {
            Location::Pipe => Ok(None),
            Location::Local(path) => {
                let metadata = match fs::metadata(path) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                    other => other.doing(|| format!("look at {}", location.show()))?,
                };
                let facts = || Facts { size: metadata.len(), modified_ms: modified_ms(&metadata) };
                Ok(metadata.is_file().then(facts))
            }
            Location::Remote { name, .. } => {
                let row = namespace::stat_if_there(client, name).await?;
                let file = row.filter(|row| row.kind == EntryKind::File);
                Ok(file.map(|row| Facts { size: row.size, modified_ms: row.modified_ms }))
            }
        }
    }
}

/// The attributes that a copy gets.
pub(crate) fn kept(of_source: Kept, preserve: Preserve, which: Which) -> Kept {
    match (preserve, which) {
        (Preserve::Yes, _) => of_source,
        (Preserve::No, Which::Changed) => Kept { mode: None, ..of_source },
        (Preserve::No, Which::All) => Kept::default(),
    }
}

/// The attributes of a local file that can be preserved.
pub(crate) fn of_local(metadata: &Metadata) -> Kept {
    Kept { modified_ms: Some(modified_ms(metadata)), mode: Some(metadata.permissions().mode() & MODE) }
}

/// Sets a local file's time and permission bits. Absent attributes are left alone.
pub(crate) fn give(file: &LocalFile, kept: Kept) -> std::io::Result<()> {
    if let Some(mode) = kept.mode {
        file.set_permissions(Permissions::from_mode(mode & MODE))?;
    }
    match kept.modified_ms.and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms))) {
        Some(time) => file.set_times(FileTimes::new().set_modified(time)),
        None => Ok(()),
    }
}

/// Milliseconds since 1970; 0 for an earlier or unknown time.
fn modified_ms(metadata: &Metadata) -> u64 {
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let ms = metadata.modified().map(since).unwrap_or_default().as_millis();
    u64::try_from(ms).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_for_updates_has_its_source_s_time() {
        let source = Kept { modified_ms: Some(1000), mode: Some(0o640) };
        let given = |preserve, which| kept(source, preserve, which);
        assert_eq!(given(Preserve::Yes, Which::All), source);
        assert_eq!(given(Preserve::Yes, Which::Changed), source);
        assert_eq!(given(Preserve::No, Which::Changed), Kept { modified_ms: Some(1000), mode: None });
        assert_eq!(given(Preserve::No, Which::All), Kept::default());
    }

    #[test]
    fn a_local_file_is_given_what_another_has() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = LocalFile::create(dir.path().join("f")).expect("made");
        let kept = Kept { modified_ms: Some(1_234_567_890_123), mode: Some(0o4751) };
        give(&file, kept).expect("given");
        let found = of_local(&file.metadata().expect("there"));
        assert_eq!(found, Kept { modified_ms: kept.modified_ms, mode: Some(0o751) });
        give(&file, Kept::default()).expect("nothing to give");
        assert_eq!(of_local(&file.metadata().expect("there")), found);
    }
}
