//! The files that a restore copies back.
//!
//! Each file is copied once. Its further names become names of that copy; those of a file that is unchanged
//! and only has another name now become names of that file. A name is taken only if it is free, or stands for
//! what the differences told: what was made since is in no snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_client::{Client, Name};
use braid_layout::FileId;
use braid_wire::Reason;
use braid_wire::control::{StatRow, XattrHow};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Restored;
use super::apply::{Restore, note};
use crate::copy::{CopiedBack, kept_of, restored, taken};
use crate::output::exit::{Exit, Failure};
use crate::output::report::show_name;

/// Number of files that are copied at a time.
const COPIES: usize = 16;

/// A file that is to be copied back.
#[derive(Debug, Clone)]
pub(super) struct Copy {
    pub(super) file: FileId,
    pub(super) directory: FileId,
    pub(super) name: Vec<u8>,
    /// Number of names that it had.
    pub(super) links: u32,
    /// The file that may have the name now, and is replaced.
    pub(super) over: Option<FileId>,
}

/// One file's part of the copies.
#[derive(Debug)]
struct Group {
    /// `None`: the file itself is there still.
    first: Option<Copy>,
    /// Names that the copy, or the file, gets as well.
    further: Vec<Copy>,
}

/// The file that has the name after a copy.
enum Outcome {
    Copied(CopiedBack),
    /// It was left alone.
    Same(FileId),
}

impl Restore {
    /// Copies all files that are to be copied. Further names of one file are made names of its copy.
    pub(super) async fn copy_all(&mut self, done: &mut Restored) -> Result<(), Failure> {
        let mut groups = groups(std::mem::take(&mut self.copies), &self.unchanged);
        let mut tasks = JoinSet::new();
        let places = Arc::new(Semaphore::new(COPIES));
        // Numbers of the files that get the further names.
        let mut whole: BTreeMap<FileId, FileId> = BTreeMap::new();
        for (&file, group) in &groups {
            let Some(copy) = group.first.clone() else {
                whole.insert(file, file);
                continue;
            };
            let from = self.past(file);
            let to = self.live(copy.directory, &copy.name);
            let client = self.client.clone();
            let progress = Arc::clone(&self.progress);
            let place = Arc::clone(&places).acquire_owned().await;
            let update = self.update;
            tasks.spawn(async move {
                let _place = place;
                let same = match update {
                    true => left_alone(&client, &from, &to, copy.over).await,
                    false => Ok(None),
                };
                let outcome = match same {
                    Ok(Some(now)) => Ok(Outcome::Same(now)),
                    Ok(None) => {
                        restored(&client, &from, &to, copy.over, &progress).await.map(Outcome::Copied)
                    }
                    Err(failure) => Err(failure),
                };
                progress.file_done();
                (file, outcome)
            });
        }
        while let Some(ended) = tasks.join_next().await {
            let (file, outcome) = match ended {
                Ok(ended) => ended,
                Err(error) => {
                    let failure = Failure::new(Exit::Failed, "copy a file", error.to_string());
                    note("a file", Err(failure), done, |_| ())?;
                    continue;
                }
            };
            let Some(Group { first: Some(copy), further }) = groups.get(&file) else { continue };
            let names = u32::try_from(further.len() + 1).unwrap_or(u32::MAX);
            let outcome = match outcome {
                Ok(Outcome::Same(now)) => {
                    done.same += 1;
                    whole.insert(file, now);
                    Ok(())
                }
                Ok(Outcome::Copied(CopiedBack { file: now, bytes })) => {
                    done.files += 1;
                    done.bytes += bytes;
                    whole.insert(file, now);
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
            note(&show_name(&copy.name), outcome, done, |_| ())?;
        }
        for (file, now) in whole {
            for copy in groups.remove(&file).map(|group| group.further).unwrap_or_default() {
                let linked = self.link(now, &copy).await;
                note(&show_name(&copy.name), linked, done, |done| done.made += 1)?;
            }
        }
        for copy in groups.into_values().flat_map(|group| group.further) {
            let why = "the file under its other name was not restored";
            note(&show_name(&copy.name), Err(Failure::new(Exit::Failed, "link it", why)), done, |_| ())?;
        }
        Ok(())
    }

    /// Gives a file one more name.
    async fn link(&self, file: FileId, copy: &Copy) -> Result<(), Failure> {
        let to = self.live(copy.directory, &copy.name);
        if self.client.stat_itself(&to).await.is_ok_and(|now| now.file == file) {
            return Ok(());
        }
        self.free(&to, copy.over).await?;
        self.client.hard_link(&self.live(file, b""), &to).await?;
        Ok(())
    }
}

/// The copies by file, each name once.
fn groups(copies: Vec<Copy>, unchanged: &BTreeSet<FileId>) -> BTreeMap<FileId, Group> {
    let mut groups: BTreeMap<FileId, Group> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for copy in copies {
        if !names.insert((copy.file, copy.directory, copy.name.clone())) {
            continue;
        }
        match groups.get_mut(&copy.file) {
            Some(group) => group.further.push(copy),
            None if unchanged.contains(&copy.file) => {
                groups.insert(copy.file, Group { first: None, further: vec![copy] });
            }
            None => {
                groups.insert(copy.file, Group { first: Some(copy), further: Vec::new() });
            }
        }
    }
    groups
}

/// If a file has the size and time of the former one, gives it the former attributes, and returns its number.
async fn left_alone(
    client: &Client,
    from: &Name,
    to: &Name,
    over: Option<FileId>,
) -> Result<Option<FileId>, Failure> {
    let was = client.stat_itself(from).await?;
    let now = match client.stat_itself(to).await {
        Err(error) if error.reason() == Some(Reason::NotFound) => return Ok(None),
        now => now?,
    };
    if Some(now.file) != over {
        return Err(taken());
    }
    let facts = |row: &StatRow| (row.kind(), row.size(), row.attributes.modified_ns);
    if facts(&was) != facts(&now) {
        return Ok(None);
    }
    let file = now.file;
    let live = to.beneath(&now, Vec::new());
    if was.attributes.has_xattrs || now.attributes.has_xattrs {
        give_xattrs(client, from, &live).await?;
    }
    let kept = kept_of(&was.attributes);
    if kept != kept_of(&now.attributes) {
        client.set_attributes(&live, kept).await?;
    }
    Ok(Some(file))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_a_file_counts_once_and_an_unchanged_file_is_not_copied() {
        let copy = |file, name: &str, over: Option<u64>| Copy {
            file: FileId(file),
            directory: FileId(1),
            name: name.into(),
            links: 2,
            over: over.map(FileId),
        };
        let copies =
            vec![copy(7, "x", None), copy(7, "x", Some(7)), copy(7, "y", Some(7)), copy(8, "z", None)];
        let groups = groups(copies, &BTreeSet::from([FileId(8)]));
        let seven = &groups[&FileId(7)];
        assert_eq!(
            seven.first.as_ref().map(|copy| (copy.name.as_slice(), copy.over)),
            Some((&b"x"[..], None))
        );
        assert_eq!(seven.further.iter().map(|copy| copy.name.as_slice()).collect::<Vec<_>>(), [b"y"]);
        assert!(groups[&FileId(8)].first.is_none() && groups[&FileId(8)].further.len() == 1);
    }
}
