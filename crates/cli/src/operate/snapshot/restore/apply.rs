//! Making a live directory again what it was, by what differs.
//!
//! Directories and files are named by their numbers, so that no step concerns another's path. First all that
//! has another name gets its former one, or is parked in a directory of its own if that is taken or gone.
//! Then what is new is removed, what is gone is made or copied, and what was parked comes home. Last come the
//! bytes of changed files and attributes. What fails is told, and the rest goes on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use braid_client::{Client, Name, Node, Parents};
use braid_layout::FileId;
use braid_wire::Reason;
use braid_wire::control::{
    AttributeChanges, ChangeKind, ChangeRow, EntryKind, NameBelow, NewAttributes, RenameHow, StatRow,
    UnlinkOnly,
};

use super::copies::{Copy, give_xattrs};
use super::pairs::{Entry, depth, entry, last, named, pairs};
use super::{Restored, row_in};
use crate::copy::{kept_of, taken};
use crate::output::exit::{Exit, Failure};
use crate::output::rate::Progress;
use crate::output::report::{complain, show_name};

/// A restore of one directory.
pub(super) struct Restore {
    pub(super) client: Client,
    /// Any name in the volume.
    volume: Name,
    /// The directory in the snapshot.
    was: StatRow,
    /// The same directory now, or the one into which a file is restored.
    now: StatRow,
    pub(super) progress: Arc<Progress>,
    /// Directories that stand for former ones, by the numbers of those: made anew, or still to be met.
    made: BTreeMap<FileId, FileId>,
    /// Names that something of the snapshot is to have, and what has them now.
    replaced: BTreeMap<Entry, FileId>,
    /// Former names of what has another name now, and gets them back by a rename.
    pub(super) renamed: BTreeSet<Entry>,
    /// Files that have another name now, and whose bytes are the former ones: they are not copied.
    pub(super) unchanged: BTreeSet<FileId>,
    /// Files that are to be copied.
    pub(super) copies: Vec<Copy>,
    /// True if files are left alone that have the former size and time.
    pub(super) update: bool,
    /// Directories and what they were, which get their attributes last.
    finish: Vec<(FileId, FileId)>,
}

impl Restore {
    pub(super) fn new(
        client: &Client,
        source: &Name,
        was: &StatRow,
        now: &StatRow,
        progress: &Arc<Progress>,
        update: bool,
    ) -> Restore {
        Restore {
            client: client.clone(),
            volume: source.in_no_snapshot(),
            was: was.clone(),
            now: now.clone(),
            progress: Arc::clone(progress),
            made: BTreeMap::new(),
            replaced: BTreeMap::new(),
            renamed: BTreeSet::new(),
            unchanged: BTreeSet::new(),
            copies: Vec::new(),
            update,
            finish: Vec::new(),
        }
    }

    /// The name of something in the snapshot.
    pub(super) fn past(&self, file: FileId) -> Name {
        self.volume.beneath(&row_in(&self.was, file), Vec::new())
    }

    /// A name in a live directory.
    pub(super) fn live(&self, directory: FileId, name: &[u8]) -> Name {
        self.volume.beneath(&row_in(&self.now, directory), name.to_vec())
    }

    /// The live directory that stands for one in the snapshot.
    fn home(&self, directory: FileId) -> FileId {
        self.made.get(&directory).copied().unwrap_or(directory)
    }

    /// The number that the differences told for a name in a live directory, if that is replaced.
    fn replaced(&self, directory: FileId, name: &[u8]) -> Option<FileId> {
        self.replaced.get(&(directory, name.to_vec())).copied()
    }

    /// Restores one file, link or special file under a name that `now` has.
    pub(super) async fn one(
        mut self,
        was: &StatRow,
        directory: FileId,
        name: &[u8],
        now: Option<FileId>,
        done: &mut Restored,
    ) -> Result<(), Failure> {
        let file = was.file;
        self.replaced.extend(now.map(|now| ((directory, name.to_vec()), now)));
        match was.kind() {
            EntryKind::Directory => self.tree(file, directory, name, done).await?,
            _ => self.leaf(was, directory, name, done).await?,
        }
        self.copy_all(done).await?;
        self.finish_all(done).await
    }

    /// Takes all differences back.
    pub(super) async fn run(mut self, changes: Vec<ChangeRow>, done: &mut Restored) -> Result<(), Failure> {
        let of = |kind: ChangeKind| -> Vec<ChangeRow> {
            let mut rows: Vec<ChangeRow> = changes.iter().filter(|row| row.change == kind).cloned().collect();
            rows.sort_by_key(|row| named(row).map_or(0, |name| depth(&name.path)));
            rows
        };
        let renamed = of(ChangeKind::Renamed);
        let removed = of(ChangeKind::Removed);
        let added = of(ChangeKind::Added);
        let modified = of(ChangeKind::Modified);
        self.renamed = renamed.iter().filter_map(|row| row.before.as_ref().map(entry)).collect();
        self.unchanged = renamed.iter().map(|row| row.file).collect();
        modified.iter().for_each(|row| _ = self.unchanged.remove(&row.file));
        (self.made, self.replaced) = pairs(&removed, &added);
        let parked = self.move_back(&renamed, done).await?;
        // The deepest first: directories are empty then.
        for row in added.iter().rev() {
            let is_replaced = |name: &NameBelow| self.replaced.contains_key(&entry(name));
            if row.after.as_ref().is_some_and(is_replaced) {
                continue;
            }
            let removed = self.remove(row).await;
            self.note(row, removed, done, |done| done.removed += 1)?;
        }
        let gone: BTreeSet<FileId> = removed.iter().map(|row| row.file).collect();
        for row in &removed {
            let Some(NameBelow { directory, path }) = &row.before else { continue };
            // What was in a directory that is gone comes with it.
            if gone.contains(directory) {
                continue;
            }
            let name = last(path);
            let made = match row.kind {
                EntryKind::Directory => self.tree(row.file, *directory, name, done).await,
                _ => self.gone(row.file, *directory, name, done).await,
            };
            self.note(row, made, done, |_| ())?;
        }
        self.bring_home(&parked, done).await?;
        for row in &modified {
            let changed = self.changed(row).await;
            self.note(row, changed, done, |_| ())?;
        }
        self.copy_all(done).await?;
        // Directories that were made get theirs last.
        let mut given: BTreeSet<FileId> = self.finish.iter().map(|(was, _)| *was).collect();
        for row in of(ChangeKind::Attributes).iter().chain(&of(ChangeKind::Entries)) {
            if given.insert(row.file) {
                let set = self.give(row.file, row.file).await;
                let counts = row.change == ChangeKind::Attributes;
                self.note(row, set, done, |done| done.attributes += u64::from(counts))?;
            }
        }
        self.finish_all(done).await
    }

    /// Notes that a changed file is to be copied back, under its former name and under that which it has now
    /// if that is a former one too.
    async fn changed(&mut self, row: &ChangeRow) -> Result<(), Failure> {
        let Some(before) = &row.before else { return Ok(()) };
        let file = row.file;
        let links = self.client.stat_itself(&self.past(file)).await?.attributes.links;
        let mut names = vec![entry(before)];
        if let Some(after) = row.after.as_ref().map(entry).filter(|after| *after != names[0] && links > 1) {
            let was = self.volume.beneath(&row_in(&self.was, after.0), after.1.clone());
            match self.client.stat_itself(&was).await {
                Ok(was) if was.file == file => names.push(after),
                Err(error) if error.reason().is_none() => return Err(error.into()),
                _ => {}
            }
        }
        for (directory, name) in names {
            let directory = self.home(directory);
            self.copies.push(Copy { file, directory, name, links, over: Some(file) });
        }
        Ok(())
    }

    /// Counts what was done, or tells that it failed. A manager that is gone ends the whole.
    fn note(
        &self,
        row: &ChangeRow,
        outcome: Result<(), Failure>,
        done: &mut Restored,
        count: impl FnOnce(&mut Restored),
    ) -> Result<(), Failure> {
        let shown = named(row).map(|name| show_name(&name.path)).unwrap_or_default();
        note(&shown, outcome, done, count)
    }

    /// Gives what was renamed its former names, as far as these are free. Returns the others, which are
    /// parked, and their directory.
    async fn move_back(
        &self,
        renamed: &[ChangeRow],
        done: &mut Restored,
    ) -> Result<Option<(FileId, Vec<ChangeRow>)>, Failure> {
        let mut parked: Option<(FileId, Vec<ChangeRow>)> = None;
        for row in renamed {
            let Some(before) = &row.before else { continue };
            let Some(after) = &row.after else { continue };
            let from = self.live(after.directory, last(&after.path));
            if let Err(failure) = self.is_still(&from, row.file).await {
                self.note(row, Err(failure), done, |_| ())?;
                continue;
            }
            let to = self.live(before.directory, last(&before.path));
            if self.client.rename_how(&from, &to, RenameHow::NoReplace).await.is_ok() {
                done.renamed += 1;
                continue;
            }
            let place = match &parked {
                Some((place, _)) => *place,
                None => {
                    let name = format!(".braid-restore-{}", self.client.manager_ms());
                    let new = NewAttributes { mode: 0o700, uid: 0, gid: 0 };
                    let name = self.live(self.now.file, name.as_bytes());
                    self.client.mkdir_with(&name, Parents::MustExist, new).await?.file
                }
            };
            let rows = &mut parked.get_or_insert_with(|| (place, Vec::new())).1;
            let to = self.live(place, row.file.0.to_string().as_bytes());
            match self.client.rename_how(&from, &to, RenameHow::NoReplace).await {
                Ok(()) => rows.push(row.clone()),
                Err(error) => self.note(row, Err(error.into()), done, |_| ())?,
            }
        }
        Ok(parked)
    }

    /// Gives what was parked its former names.
    async fn bring_home(
        &self,
        parked: &Option<(FileId, Vec<ChangeRow>)>,
        done: &mut Restored,
    ) -> Result<(), Failure> {
        let Some((place, rows)) = parked else { return Ok(()) };
        for row in rows {
            let Some(before) = &row.before else { continue };
            let from = self.live(*place, row.file.0.to_string().as_bytes());
            let to = self.live(self.home(before.directory), last(&before.path));
            let moved = self.client.rename_how(&from, &to, RenameHow::NoReplace).await;
            self.note(row, moved.map_err(Failure::from), done, |done| done.renamed += 1)?;
        }
        let row = self.client.stat_itself(&self.live(*place, b"")).await?;
        let above = self.client.list(&self.live(row.parent, b"")).all().await?;
        let name = above.into_iter().find(|entry| entry.file == *place).map(|entry| entry.name);
        if let Some(name) = name {
            // It stays if something could not be brought home.
            let _ = self.client.unlink_only(&self.live(row.parent, &name), UnlinkOnly::Directory).await;
        }
        Ok(())
    }

    /// Removes what was added, if it is still what has the name.
    async fn remove(&self, row: &ChangeRow) -> Result<(), Failure> {
        let Some(NameBelow { directory, path }) = &row.after else { return Ok(()) };
        let name = self.live(*directory, last(path));
        match self.client.stat_itself(&name).await {
            Err(error) if error.reason() == Some(Reason::NotFound) => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(now) if now.file != row.file => return Err(taken()),
            Ok(_) => {}
        }
        let only = match row.kind {
            EntryKind::Directory => UnlinkOnly::Directory,
            _ => UnlinkOnly::NotDirectory,
        };
        Ok(self.client.unlink_only(&name, only).await?)
    }

    /// Fails if a name is not that of this file any more.
    async fn is_still(&self, name: &Name, file: FileId) -> Result<(), Failure> {
        match self.client.stat_itself(name).await?.file == file {
            true => Ok(()),
            false => Err(taken()),
        }
    }

    /// Frees a name that nothing has, or still `over`, which is no directory.
    pub(super) async fn free(&self, name: &Name, over: Option<FileId>) -> Result<(), Failure> {
        match self.client.stat_itself(name).await {
            Err(error) if error.reason() == Some(Reason::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(now) if Some(now.file) != over => Err(taken()),
            Ok(_) => Ok(self.client.unlink_only(name, UnlinkOnly::NotDirectory).await?),
        }
    }

    /// Makes a file, link or special file that is gone.
    async fn gone(
        &mut self,
        file: FileId,
        directory: FileId,
        name: &[u8],
        done: &mut Restored,
    ) -> Result<(), Failure> {
        let was = self.client.stat_itself(&self.past(file)).await?;
        self.leaf(&was, directory, name, done).await
    }

    async fn leaf(
        &mut self,
        was: &StatRow,
        directory: FileId,
        name: &[u8],
        done: &mut Restored,
    ) -> Result<(), Failure> {
        let directory = self.home(directory);
        let to = self.live(directory, name);
        let over = self.replaced(directory, name);
        let of = &was.attributes;
        let node = match of.kind {
            EntryKind::File => {
                let name = name.to_vec();
                self.copies.push(Copy { file: was.file, directory, name, links: of.links, over });
                return Ok(());
            }
            EntryKind::Directory => return Err(changed("it is a directory")),
            EntryKind::Symlink => Node::Symlink(&was.target),
            EntryKind::Fifo => Node::Fifo,
            EntryKind::Socket => Node::Socket,
            EntryKind::CharDevice => Node::CharDevice(of.device),
            EntryKind::BlockDevice => Node::BlockDevice(of.device),
        };
        self.free(&to, over).await?;
        let new = NewAttributes { mode: of.mode, uid: of.uid, gid: of.gid };
        let made = self.client.make_node(&to, node, new).await?;
        done.made += 1;
        self.give(was.file, made.file).await
    }

    /// Makes a directory that is gone, with all that was in it and does not get its name back by a rename.
    /// What fails is told, and the rest goes on.
    async fn tree(
        &mut self,
        top: FileId,
        directory: FileId,
        name: &[u8],
        done: &mut Restored,
    ) -> Result<(), Failure> {
        let mut left = VecDeque::from([(top, directory, name.to_vec())]);
        while let Some((file, directory, name)) = left.pop_front() {
            if let Err(failure) = self.directory(file, directory, &name, done).await {
                note(&show_name(&name), Err(failure), done, |_| ())?;
                continue;
            }
            let mut entries = self.client.list(&self.past(file));
            loop {
                let entry = match entries.next().await {
                    Ok(Some(entry)) => entry,
                    Ok(None) => break,
                    Err(error) => {
                        note(&show_name(&name), Err(error.into()), done, |_| ())?;
                        break;
                    }
                };
                if self.renamed.contains(&(file, entry.name.clone())) {
                    continue;
                }
                if entry.kind() == EntryKind::Directory {
                    left.push_back((entry.file, file, entry.name));
                    continue;
                }
                let made = self.gone(entry.file, file, &entry.name, done).await;
                note(&show_name(&entry.name), made, done, |_| ())?;
            }
        }
        Ok(())
    }

    /// Makes one directory that is gone, or takes the one that has its name.
    async fn directory(
        &mut self,
        file: FileId,
        directory: FileId,
        name: &[u8],
        done: &mut Restored,
    ) -> Result<(), Failure> {
        let was = self.client.stat_itself(&self.past(file)).await?;
        let of = &was.attributes;
        let new = NewAttributes { mode: of.mode | 0o700, uid: of.uid, gid: of.gid };
        let directory = self.home(directory);
        let to = self.live(directory, name);
        let row = match self.client.mkdir_with(&to, Parents::MustExist, new).await {
            Err(error) if error.reason() == Some(Reason::Exists) => {
                let now = self.client.stat_itself(&to).await?;
                if now.kind() != EntryKind::Directory || self.replaced(directory, name) != Some(now.file) {
                    return Err(taken());
                }
                now
            }
            made => {
                done.made += 1;
                made?
            }
        };
        self.made.insert(file, row.file);
        self.finish.push((file, row.file));
        Ok(())
    }

    /// Gives the directories that were made their attributes, the deepest first.
    async fn finish_all(&mut self, done: &mut Restored) -> Result<(), Failure> {
        let mut finish = std::mem::take(&mut self.finish);
        finish.reverse();
        for (was, now) in finish {
            note("a directory", self.give(was, now).await, done, |_| ())?;
        }
        Ok(())
    }

    /// Gives a live file or directory the attributes of one in the snapshot.
    async fn give(&self, was: FileId, now: FileId) -> Result<(), Failure> {
        let from = self.past(was);
        let to = self.live(now, b"");
        let row = self.client.stat_itself(&from).await?;
        give_xattrs(&self.client, &from, &to).await?;
        let changes: AttributeChanges = kept_of(&row.attributes);
        self.client.set_attributes(&to, changes).await?;
        Ok(())
    }
}

pub(super) fn note(
    shown: &str,
    outcome: Result<(), Failure>,
    done: &mut Restored,
    count: impl FnOnce(&mut Restored),
) -> Result<(), Failure> {
    match outcome {
        Ok(()) => count(done),
        Err(failure) if matches!(failure.exit, Exit::Ok | Exit::NoCluster | Exit::Interrupted) => {
            return Err(failure);
        }
        Err(failure) => {
            complain(&format!("{shown}: {failure}"));
            done.failed += 1;
        }
    }
    Ok(())
}

fn changed(why: &str) -> Failure {
    Failure::new(Exit::Conflict, "restore it", why).remedy("restore again")
}
