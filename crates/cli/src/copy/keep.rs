//! What a copy keeps of its source besides the bytes (`-p`), and when it need not be made (`--update`).
//!
//! Kept are the time of the last change, to the millisecond, and the permission bits. Owner, set-user-ID and the like are not:
//! they mean something only where the same users are known. "The same" is what rsync's quick check calls so: size and time;
//! the bytes are not looked at.
//!
//! A copy made with `--update` has its source's time, also without `-p`, as it was before the first byte was read: a source
//! that changes while it is copied then has another. The time at which a copy was made, by another clock, would tell nothing of that.

use std::fs::{self, File as LocalFile, FileTimes, Metadata, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braid_client::{Client, Kept};
use braid_wire::control::EntryKind;

use crate::exit::{Doing, Failure};
use crate::names::Place;
use crate::namespace;

/// Permission bits that a copy has: read, write, execute, of all three kinds.
const MODE: u32 = 0o777;

/// Whether a copy has its source's permission bits, and its time whichever files are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preserve {
    /// `-p`.
    Yes,
    /// It may be read by whom the system's own settings say, and was changed now, unless only changed files are copied.
    No,
}

/// Which files are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// All.
    All,
    /// `--update`: those whose copy is not there or not the same.
    Changed,
}

/// A file, by the facts that the quick check compares: two that are equal are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    size: u64,
    modified_ms: u64,
}

impl Facts {
    /// Of a file; `None` if there is none, or nothing that has a size.
    pub(crate) async fn of(client: &Client, place: &Place) -> Result<Option<Facts>, Failure> {
        match place {
            Place::Pipe => Ok(None),
            Place::Local(path) => {
                let metadata = match fs::metadata(path) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                    other => other.doing(|| format!("look at {}", place.show()))?,
                };
                let facts = || Facts { size: metadata.len(), modified_ms: modified_ms(&metadata) };
                Ok(metadata.is_file().then(facts))
            }
            Place::Remote { name, .. } => {
                let row = namespace::stat_if_there(client, name).await?;
                let file = row.filter(|row| row.kind == EntryKind::File);
                Ok(file.map(|row| Facts { size: row.size, modified_ms: row.modified_ms }))
            }
        }
    }
}

/// What a copy is given of what can be kept of its source.
pub(crate) fn kept(of_source: Kept, preserve: Preserve, which: Which) -> Kept {
    match (preserve, which) {
        (Preserve::Yes, _) => of_source,
        (Preserve::No, Which::Changed) => Kept { mode: None, ..of_source },
        (Preserve::No, Which::All) => Kept::default(),
    }
}

/// What a copy of a local file keeps.
pub(crate) fn of_local(metadata: &Metadata) -> Kept {
    Kept { modified_ms: Some(modified_ms(metadata)), mode: Some(metadata.permissions().mode() & MODE) }
}

/// Gives a local file the time and permission bits; those that its source did not tell stay as they are.
pub(crate) fn give(file: &LocalFile, kept: Kept) -> std::io::Result<()> {
    if let Some(mode) = kept.mode {
        file.set_permissions(Permissions::from_mode(mode & MODE))?;
    }
    match kept.modified_ms.and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms))) {
        Some(time) => file.set_times(FileTimes::new().set_modified(time)),
        None => Ok(()),
    }
}

/// Milliseconds since 1970; 0 for what is older or has no time.
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
