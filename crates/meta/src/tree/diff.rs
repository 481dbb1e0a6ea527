//! The differences between a directory in a snapshot and the same one in a newer snapshot, or now.
//!
//! A row that has changed since a snapshot was kept as a past row first, and is listed in `W` under the
//! newest snapshot that sees it. So all that has changed after snapshot *a* and before *b* is listed under
//! the numbers from *a* up to *b*; the first step walks these. Rows tell what was removed, renamed, opened
//! for writing, or given other attributes. Of a directory whose names have changed, the second step compares
//! the entries: which are new. What is below a new directory is new as well, if it was not below the compared
//! one before. The cost is that of the changes and of the directories in which they are, not of the tree.

use braid_layout::{FileId, VolumeId};
use braid_wire::control::{ChangeKind, ChangeRow, EntryKind, NameBelow, NamePlace, SnapshotDiff};
use braid_wire::{Reason, Refusal};

use crate::records::past;
use crate::records::schema::{
    EntryRecord, InodeRecord, PastBytes, PastEntry, PastInode, SnapshotRecord, key, table,
};
use crate::records::tx::Tx;
use crate::tree::directories::resolve_to_end;
use crate::tree::names::show;
use crate::tree::seen::{self, Within};

/// Number of rows that are looked at for one page.
const ROWS: usize = 512;
/// Maximum number of bytes of the paths of a page, but for its last row.
const PATHS_BYTES: usize = 128 << 10;
/// Maximum number of directories above a file: a path of 64 KiB has no more.
const DEPTH_MAX: usize = 32 << 10;

/// A page of differences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub changes: Vec<ChangeRow>,
    /// The end of the page; `None`: there are no more.
    pub after: Option<Vec<u8>>,
}

/// Two times at which a directory is looked at.
struct Between {
    volume: VolumeId,
    /// The directory that is compared.
    top: FileId,
    older: Within,
    /// `None`: as it is now.
    newer: Option<Within>,
}

/// A file at one of the times, below the directory.
struct Place {
    inode: InodeRecord,
    below: NameBelow,
}

/// The snapshots that were there at the first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    /// Number of the volume's newest one.
    newest: u32,
    /// Number of those up to that which are between the two times.
    count: u32,
}

impl Mark {
    const BYTES: usize = 8;

    fn encode(self) -> [u8; Mark::BYTES] {
        (u64::from(self.newest) << 32 | u64::from(self.count)).to_be_bytes()
    }

    fn decode(bytes: &[u8; Mark::BYTES]) -> Mark {
        let all = u64::from_be_bytes(*bytes);
        let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or_default();
        Mark { newest: half(all >> 32), count: half(all) }
    }
}

/// A page of the differences that were asked for.
pub fn page(tx: &Tx, asked: &SnapshotDiff) -> Result<Page, Refusal> {
    let between = Between::new(tx, &asked.from, &asked.to)?;
    match asked.directory {
        FileId(0) => between.changed(tx, &asked.after),
        directory => between.added(tx, directory, asked.whole, &asked.after),
    }
}

impl Between {
    fn new(tx: &Tx, from: &NamePlace, to: &NamePlace) -> Result<Between, Refusal> {
        let older = resolve_to_end(tx, from)?;
        let newer = resolve_to_end(tx, to)?;
        if tx.access().is_some_and(|access| !access.sees_all()) {
            let detail =
                "a comparison names all that is below, whoever owns it: it needs a token without --uid";
            return Err(Refusal::new(Reason::NotAllowed, detail));
        }
        for (at, found) in [(from, &older), (to, &newer)] {
            if found.inode.kind != EntryKind::Directory || found.within.is_some_and(|it| it.number == 0) {
                let detail = format!("{:?} is not a directory in a volume or snapshot", show(&at.path));
                return Err(Refusal::new(Reason::NotDirectory, detail));
            }
        }
        if older.file != newer.file {
            let detail = format!(
                "{:?} is another directory than {:?} was: compare one that is above both",
                show(&to.path),
                show(&from.path)
            );
            return Err(Refusal::new(Reason::BadName, detail));
        }
        let order = "name the older snapshot first, and then a newer one or the directory itself";
        let Some(first) = older.within else { return Err(Refusal::new(Reason::BadName, order)) };
        if newer.within.is_some_and(|within| within.number < first.number) {
            return Err(Refusal::new(Reason::BadName, order));
        }
        Ok(Between { volume: older.volume.volume, top: older.file, older: first, newer: newer.within })
    }

    /// The first step: what past rows tell.
    fn changed(&self, tx: &Tx, after: &[u8]) -> Result<Page, Refusal> {
        let mut changes = Vec::new();
        let (mut from, _) = key::all_kept_for(self.volume, self.older.number);
        let to = match self.newer {
            Some(newer) => key::all_kept_for(self.volume, newer.number).0,
            None => key::all_kept_for(self.volume, u32::MAX).1,
        };
        let (mark, after) = match after.split_first_chunk::<{ Mark::BYTES }>() {
            Some((mark, after)) => (self.mark(tx, Some(Mark::decode(mark)))?, after),
            None => (self.mark(tx, None)?, after),
        };
        if !after.is_empty() {
            if !(from.as_slice()..to.as_slice()).contains(&after) {
                return Err(Refusal::new(Reason::Malformed, "the page before did not end there"));
            }
            from = [after, &[0]].concat();
        }
        let end = |listed: &[u8]| [mark.encode().as_slice(), listed].concat();
        let rows = tx.scan(&from, &to, ROWS)?;
        for (listed, _) in &rows {
            let row = key::kept_in(listed);
            match row.first() {
                Some(&table::PAST_INODE) => self.of_inode(tx, row, &mut changes)?,
                Some(&table::PAST_BYTES) => self.of_bytes(tx, row, &mut changes)?,
                _ => self.of_entry(tx, row, &mut changes)?,
            }
            if changes.iter().map(bytes_of).sum::<usize>() > PATHS_BYTES {
                return Ok(Page { changes, after: Some(end(listed)) });
            }
        }
        let last = rows.last().filter(|_| rows.len() == ROWS).map(|(listed, _)| end(listed));
        Ok(Page { changes, after: last })
    }

    /// The snapshots between the two, as at the page before. While what one of them kept is passed on to
    /// those before it, pages would miss what moves past their end: so that is refused, and so is a next page
    /// when one of them has gone since.
    fn mark(&self, tx: &Tx, before: Option<Mark>) -> Result<Mark, Refusal> {
        let (from, to) = key::snapshots_above(self.volume, self.older.number);
        let to = self.newer.map_or(to, |newer| key::snapshot(self.volume, newer.number));
        let between = tx.records::<SnapshotRecord>(&(from, to), usize::MAX)?;
        if between.iter().any(|(_, record)| record.going) {
            let detail = "a snapshot between the two is being removed: ask again when that is done";
            return Err(Refusal::new(Reason::Busy, detail));
        }
        let newest = match before {
            Some(before) => before.newest,
            None => past::newest(tx, self.volume)?,
        };
        let count = between.iter().filter(|(row, _)| key::until_in(row) <= newest).count();
        let mark = Mark { newest, count: u32::try_from(count).unwrap_or(u32::MAX) };
        if before.is_some_and(|before| before != mark) {
            let detail = "a snapshot between the two was removed meanwhile: compare them again";
            return Err(Refusal::new(Reason::Unsettled, detail));
        }
        Ok(mark)
    }

    fn of_inode(&self, tx: &Tx, row: &[u8], changes: &mut Vec<ChangeRow>) -> Result<(), Refusal> {
        let file = FileId(key::number(row, 1));
        let Some(past) = tx.record::<PastInode>(row)?.filter(|past| past.epoch < self.older.number) else {
            return Ok(());
        };
        let Some(before) = self.place(tx, file, Some(self.older))? else { return Ok(()) };
        let Some(after) = self.place(tx, file, self.newer)? else { return Ok(()) };
        let kind = before.inode.kind;
        if kind == EntryKind::File && self.was_opened(tx, file)? {
            return Ok(());
        }
        let is_other = match kind {
            EntryKind::Directory => before.inode.layout != after.inode.layout,
            _ => before.inode.times.modified_ns != after.inode.times.modified_ns,
        };
        let owner = |inode: &InodeRecord| (inode.mode, inode.uid, inode.gid);
        let change = if before.inode.size != after.inode.size {
            Some(ChangeKind::Modified)
        } else if is_other
            || owner(&before.inode) != owner(&after.inode)
            || past.xattrs != seen::xattrs(tx, file, self.newer)?
        {
            Some(ChangeKind::Attributes)
        } else {
            None
        };
        let entries = Some(ChangeKind::Entries).filter(|_| kind == EntryKind::Directory);
        for change in change.into_iter().chain(entries) {
            let before = Some(before.below.clone());
            changes.push(ChangeRow { change, kind, file, before, after: Some(after.below.clone()) });
        }
        Ok(())
    }

    fn of_bytes(&self, tx: &Tx, row: &[u8], changes: &mut Vec<ChangeRow>) -> Result<(), Refusal> {
        let file = FileId(key::number(row, 1));
        if tx.record::<PastBytes>(row)?.is_none_or(|past| past.epoch >= self.older.number) {
            return Ok(());
        }
        let Some(before) = self.place(tx, file, Some(self.older))? else { return Ok(()) };
        let Some(after) = self.place(tx, file, self.newer)? else { return Ok(()) };
        let kind = before.inode.kind;
        let change = ChangeKind::Modified;
        changes.push(ChangeRow { change, kind, file, before: Some(before.below), after: Some(after.below) });
        Ok(())
    }

    /// Returns true if the file was opened for writing between the two times.
    fn was_opened(&self, tx: &Tx, file: FileId) -> Result<bool, Refusal> {
        let range = key::under(key::past_bytes(file, 0)[..9].to_vec());
        let range = (key::past_bytes(file, self.older.number), range.1);
        let first = tx.records::<PastBytes>(&range, 1)?.into_iter().next();
        let until_max = self.newer.map_or(u32::MAX, |newer| newer.number - 1);
        Ok(first
            .is_some_and(|(row, past)| past.epoch < self.older.number && key::until_in(&row) <= until_max))
    }

    fn of_entry(&self, tx: &Tx, row: &[u8], changes: &mut Vec<ChangeRow>) -> Result<(), Refusal> {
        let directory = FileId(key::number(row, 1));
        let name = key::name_in(row);
        let Some(past) = tx.record::<PastEntry>(row)?.filter(|past| past.since < self.older.number) else {
            return Ok(());
        };
        let PastEntry { file, kind, .. } = past;
        let Some(mut above) = self.place(tx, directory, Some(self.older))? else { return Ok(()) };
        if self.entry(tx, directory, name, self.newer)?.is_some_and(|entry| entry.file == file) {
            return Ok(());
        }
        add(&mut above.below.path, name);
        let before = NameBelow { directory, path: above.below.path };
        let renamed = self.renamed(tx, file)?.filter(|(was, _)| *was == before);
        let (change, after) = match renamed {
            Some((_, now)) => (ChangeKind::Renamed, Some(now)),
            None => (ChangeKind::Removed, None),
        };
        changes.push(ChangeRow { change, kind, file, before: Some(before), after });
        Ok(())
    }

    /// The two names of a file that has another one now than before, and was not called so before.
    fn renamed(&self, tx: &Tx, file: FileId) -> Result<Option<(NameBelow, NameBelow)>, Refusal> {
        let Some(before) = self.place(tx, file, Some(self.older))? else { return Ok(None) };
        let Some(after) = self.place(tx, file, self.newer)? else { return Ok(None) };
        let is_it = |entry: Option<EntryRecord>| entry.is_some_and(|entry| entry.file == file);
        let Place { inode: was, below: before } = before;
        let Place { inode: now, below: after } = after;
        let stayed = is_it(self.entry(tx, was.parent, &was.name, self.newer)?);
        let was_there = is_it(self.entry(tx, now.parent, &now.name, Some(self.older))?);
        Ok((!stayed && !was_there).then_some((before, after)))
    }

    /// The second step: the entries of a directory that are new.
    fn added(&self, tx: &Tx, directory: FileId, whole: bool, after: &[u8]) -> Result<Page, Refusal> {
        let mut changes: Vec<ChangeRow> = Vec::new();
        let Some(above) = self.place(tx, directory, self.newer)? else {
            return Ok(Page { changes, after: None });
        };
        let entries = seen::entries(tx, directory, self.newer, after, ROWS)?;
        let mut bytes = 0;
        for (name, EntryRecord { kind, file, since }) in &entries {
            if !whole && *since < self.older.number {
                continue;
            }
            let before = self.entry(tx, directory, name, Some(self.older))?;
            if before.is_some_and(|before| before.file == *file) && !whole {
                continue;
            }
            let mut below = NameBelow { directory, path: above.below.path.clone() };
            add(&mut below.path, name);
            if self.renamed(tx, *file)?.is_some_and(|(_, now)| now == below) {
                continue;
            }
            let row = ChangeRow {
                change: ChangeKind::Added,
                kind: *kind,
                file: *file,
                before: None,
                after: Some(below),
            };
            bytes += bytes_of(&row);
            changes.push(row);
            if bytes > PATHS_BYTES {
                return Ok(Page { changes, after: Some(name.clone()) });
            }
        }
        let last = entries.last().filter(|_| entries.len() == ROWS).map(|(name, _)| name.clone());
        Ok(Page { changes, after: last })
    }

    fn entry(
        &self,
        tx: &Tx,
        directory: FileId,
        name: &[u8],
        within: Option<Within>,
    ) -> Result<Option<EntryRecord>, Refusal> {
        seen::entry(tx, directory, name, within)
    }

    /// The place of a file at one of the times: by its first name, or by another if that is not below the
    /// directory. `None`: no name is. Names other than the first are looked for among those that it has now.
    fn place(&self, tx: &Tx, file: FileId, within: Option<Within>) -> Result<Option<Place>, Refusal> {
        let Some(inode) = self.found(tx, file, within)? else { return Ok(None) };
        if file == self.top {
            let below = NameBelow { directory: inode.parent, path: Vec::new() };
            return Ok(Some(Place { inode, below }));
        }
        if let Some(path) = self.path_to(tx, inode.parent, &inode.name, within)? {
            let below = NameBelow { directory: inode.parent, path };
            return Ok(Some(Place { inode, below }));
        }
        if inode.more_links == 0 {
            return Ok(None);
        }
        let (from, to) = key::more_names_of(file);
        let more = tx.scan(&from, &to, usize::MAX)?;
        let mut names: Vec<(FileId, Vec<u8>)> = more.iter().map(|(row, _)| key::more_name_in(row)).collect();
        names.extend(tx.inode(file)?.map(|now| (now.parent, now.name)));
        for (directory, name) in names {
            let is_there = seen::entry(tx, directory, &name, within)?.is_some_and(|it| it.file == file);
            if is_there && let Some(path) = self.path_to(tx, directory, &name, within)? {
                let below = NameBelow { directory, path };
                return Ok(Some(Place { inode: InodeRecord { parent: directory, name, ..inode }, below }));
            }
        }
        Ok(None)
    }

    fn found(&self, tx: &Tx, file: FileId, within: Option<Within>) -> Result<Option<InodeRecord>, Refusal> {
        let inode = seen::find(tx, file, within)?;
        Ok(inode.filter(|inode| inode.volume == self.volume && !inode.is_past()))
    }

    /// The names that lead from the directory that is compared to a name in another; `None` if that is not
    /// below it.
    fn path_to(
        &self,
        tx: &Tx,
        directory: FileId,
        name: &[u8],
        within: Option<Within>,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let mut names: Vec<Vec<u8>> = vec![name.to_vec()];
        let mut at = directory;
        while at != self.top {
            if at == FileId(0) || names.len() == DEPTH_MAX {
                return Ok(None);
            }
            let Some(here) = self.found(tx, at, within)? else { return Ok(None) };
            names.push(here.name);
            at = here.parent;
        }
        names.reverse();
        Ok(Some(names.join(&b'/')))
    }
}

fn add(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

fn bytes_of(row: &ChangeRow) -> usize {
    [&row.before, &row.after].into_iter().flatten().map(|name| name.path.len()).sum()
}
