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
    UnlinkOnly, XattrHow,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{Restored, restored, row_in};
use crate::copy::kept_of;
use crate::output::exit::{Exit, Failure};
use crate::output::rate::Progress;
use crate::output::report::{complain, show_name};

/// Number of files that are copied at a time.
const COPIES: usize = 16;

/// A restore of one directory.
pub(super) struct Restore {
    client: Client,
    /// Any name in the volume.
    volume: Name,
    /// The directory in the snapshot.
    was: StatRow,
    /// The same directory now, or the one into which a file is restored.
    now: StatRow,
    progress: Arc<Progress>,
    /// Directories that were made anew, by their former numbers.
    made: BTreeMap<FileId, FileId>,
    /// Files and directories that have another name now, and so are not copied.
    renamed: BTreeSet<FileId>,
    /// Files that are to be copied.
    copies: Vec<Copy>,
    /// True if files are left alone that have the former size and time.
    update: bool,
    /// Directories and what they were, which get their attributes last.
    finish: Vec<(FileId, FileId)>,
}

/// A file that is to be copied back.
struct Copy {
    file: FileId,
    directory: FileId,
    name: Vec<u8>,
    /// Number of names that it had.
    links: u32,
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
            renamed: BTreeSet::new(),
            copies: Vec::new(),
            update,
            finish: Vec::new(),
        }
    }

    /// The name of something in the snapshot.
    fn past(&self, file: FileId) -> Name {
        self.volume.beneath(&row_in(&self.was, file), Vec::new())
    }

    /// A name in a live directory.
    fn live(&self, directory: FileId, name: &[u8]) -> Name {
        self.volume.beneath(&row_in(&self.now, directory), name.to_vec())
    }

    /// The live directory that stands for one in the snapshot.
    fn home(&self, directory: FileId) -> FileId {
        self.made.get(&directory).copied().unwrap_or(directory)
    }

    /// Restores one file, link or special file under a name.
    pub(super) async fn one(
        mut self,
        was: &StatRow,
        directory: FileId,
        name: &[u8],
        done: &mut Restored,
    ) -> Result<(), Failure> {
        let file = was.file;
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
        self.renamed = renamed.iter().map(|row| row.file).collect();
        let parked = self.move_back(&renamed, done).await?;
        let removed = of(ChangeKind::Removed);
        // A file that was replaced has its name until its copy takes that over; a directory is used again.
        let is_directory = |row: &ChangeRow| row.kind == EntryKind::Directory;
        let replaced: BTreeSet<(&[u8], bool)> =
            removed.iter().filter_map(|row| Some((path_of(row)?, is_directory(row)))).collect();
        // The deepest first: directories are empty then.
        for row in of(ChangeKind::Added).iter().rev() {
            if path_of(row).is_some_and(|path| replaced.contains(&(path, is_directory(row)))) {
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
        for row in of(ChangeKind::Modified) {
            if let Some(NameBelow { directory, path }) = &row.before {
                let links = match self.client.stat_itself(&self.past(row.file)).await {
                    Ok(was) => was.attributes.links,
                    Err(error) => {
                        self.note(&row, Err(error.into()), done, |_| ())?;
                        continue;
                    }
                };
                let name = last(path).to_vec();
                self.copies.push(Copy { file: row.file, directory: self.home(*directory), name, links });
            }
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
            Ok(now) if now.file == row.file => {}
            Ok(_) => return Err(changed("something else has its name by now")),
            Err(error) if error.reason() == Some(Reason::NotFound) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let only = match row.kind {
            EntryKind::Directory => UnlinkOnly::Directory,
            _ => UnlinkOnly::NotDirectory,
        };
        Ok(self.client.unlink_only(&name, only).await?)
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
        let to = self.live(self.home(directory), name);
        let of = &was.attributes;
        let node = match of.kind {
            EntryKind::File => {
                let directory = self.home(directory);
                self.copies.push(Copy { file: was.file, directory, name: name.to_vec(), links: of.links });
                return Ok(());
            }
            EntryKind::Directory => return Err(changed("it is a directory")),
            EntryKind::Symlink => Node::Symlink(&was.target),
            EntryKind::Fifo => Node::Fifo,
            EntryKind::Socket => Node::Socket,
            EntryKind::CharDevice => Node::CharDevice(of.device),
            EntryKind::BlockDevice => Node::BlockDevice(of.device),
        };
        match self.client.unlink_only(&to, UnlinkOnly::NotDirectory).await {
            Err(error) if error.reason() != Some(Reason::NotFound) => return Err(error.into()),
            _ => {}
        }
        let new = NewAttributes { mode: of.mode, uid: of.uid, gid: of.gid };
        let made = self.client.make_node(&to, node, new).await?;
        done.made += 1;
        self.give(was.file, made.file).await
    }

    /// Makes a directory that is gone, with all that was in it and has no other name now.
    async fn tree(
        &mut self,
        top: FileId,
        directory: FileId,
        name: &[u8],
        done: &mut Restored,
    ) -> Result<(), Failure> {
        let mut left = VecDeque::from([(top, directory, name.to_vec())]);
        while let Some((file, directory, name)) = left.pop_front() {
            let was = self.client.stat_itself(&self.past(file)).await?;
            let of = &was.attributes;
            let new = NewAttributes { mode: of.mode | 0o700, uid: of.uid, gid: of.gid };
            let to = self.live(self.home(directory), &name);
            let row = match self.client.mkdir_with(&to, Parents::MustExist, new).await {
                Err(error) if error.reason() == Some(Reason::Exists) => self.client.stat_itself(&to).await?,
                made => {
                    done.made += 1;
                    made?
                }
            };
            if row.kind() != EntryKind::Directory {
                return Err(changed("something that is no directory has its name by now"));
            }
            self.made.insert(file, row.file);
            self.finish.push((file, row.file));
            let mut entries = self.client.list(&self.past(file));
            while let Some(entry) = entries.next().await? {
                if self.renamed.contains(&entry.file) {
                    continue;
                }
                match entry.kind() {
                    EntryKind::Directory => left.push_back((entry.file, file, entry.name)),
                    EntryKind::File => {
                        let links = entry.attributes.links;
                        let directory = row.file;
                        self.copies.push(Copy { file: entry.file, directory, name: entry.name, links });
                    }
                    _ => self.gone(entry.file, file, &entry.name, done).await?,
                }
            }
        }
        Ok(())
    }

    /// Copies all files that are to be copied. Further names of one file are made names of its copy.
    async fn copy_all(&mut self, done: &mut Restored) -> Result<(), Failure> {
        let mut first: BTreeMap<FileId, usize> = BTreeMap::new();
        let mut names: BTreeMap<FileId, u32> = BTreeMap::new();
        let copies = std::mem::take(&mut self.copies);
        let mut further = Vec::new();
        let mut tasks = JoinSet::new();
        let places = Arc::new(Semaphore::new(COPIES));
        for (index, copy) in copies.iter().enumerate() {
            *names.entry(copy.file).or_default() += 1;
            if let Some(first) = first.get(&copy.file) {
                further.push((*first, index));
                continue;
            }
            first.insert(copy.file, index);
            let from = self.past(copy.file);
            let to = self.live(copy.directory, &copy.name);
            let client = self.client.clone();
            let progress = Arc::clone(&self.progress);
            let place = Arc::clone(&places).acquire_owned().await;
            let update = self.update;
            tasks.spawn(async move {
                let _place = place;
                let copied = match update && is_same(&client, &from, &to).await {
                    true => Ok(None),
                    false => restored(&client, &from, &to, &progress).await.map(Some),
                };
                progress.file_done();
                (index, copied)
            });
        }
        while let Some(ended) = tasks.join_next().await {
            let Ok((index, copied)) = ended else { continue };
            let copy = &copies[index];
            let shown = show_name(&copy.name);
            let names = names.get(&copy.file).copied().unwrap_or_default();
            let copied = match copied {
                Ok(None) => {
                    done.same += 1;
                    Ok(())
                }
                Ok(Some(bytes)) => {
                    done.files += 1;
                    done.bytes += bytes;
                    match copy.links {
                        links if links > names => {
                            let why =
                                format!("it had {links} names, and gets {names} back: restore the others");
                            Err(Failure::new(Exit::Failed, "find its names", why))
                        }
                        _ => Ok(()),
                    }
                }
                Err(failure) => Err(failure),
            };
            note(&shown, copied, done, |_| ())?;
        }
        for (of, index) in further {
            let from = self.live(copies[of].directory, &copies[of].name);
            let to = self.live(copies[index].directory, &copies[index].name);
            let linked = match self.client.unlink_only(&to, UnlinkOnly::NotDirectory).await {
                Err(error) if error.reason() != Some(Reason::NotFound) => Err(error),
                _ => self.client.hard_link(&from, &to).await.map(drop),
            };
            note(&show_name(&copies[index].name), linked.map_err(Failure::from), done, |done| {
                done.made += 1
            })?;
        }
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

/// Returns true if a file has the size and time of another.
async fn is_same(client: &Client, from: &Name, to: &Name) -> bool {
    let was = client.stat_itself(from).await;
    let now = client.stat_itself(to).await;
    let facts = |row: &StatRow| (row.kind(), row.size(), row.attributes.modified_ns);
    matches!((was, now), (Ok(was), Ok(now)) if facts(&was) == facts(&now))
}

/// Gives a live file or directory the extended attributes of one in a snapshot, and no others.
pub(crate) async fn give_xattrs(client: &Client, from: &Name, to: &Name) -> Result<(), Failure> {
    let was = client.xattrs(from).await?;
    let now = client.xattrs(to).await?;
    for xattr in now.iter().filter(|now| was.iter().all(|was| was.name != now.name)) {
        client.remove_xattr(to, &xattr.name).await?;
    }
    for xattr in was.iter().filter(|was| !now.contains(was)) {
        client.set_xattr(to, &xattr.name, &xattr.value, XattrHow::Any).await?;
    }
    Ok(())
}

fn note(
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

/// The name under which a difference is told.
fn named(row: &ChangeRow) -> Option<&NameBelow> {
    row.before.as_ref().or(row.after.as_ref())
}

fn path_of(row: &ChangeRow) -> Option<&[u8]> {
    named(row).map(|name| name.path.as_slice())
}

fn depth(path: &[u8]) -> usize {
    path.iter().filter(|&&byte| byte == b'/').count()
}

/// The last name of a path.
fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}
