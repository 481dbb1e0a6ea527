//! Lists objects in the order of the bytes of their paths, like other object stores.
//!
//! The manager returns a directory's entries in the order of their names. In the order of paths, a
//! directory `d` stands as `d/`, which is after the name `d!`. So a directory is held back until all names
//! before it have come.

use std::collections::BTreeSet;

use braid_client::Lister;
use braid_wire::control::{Entry, EntryKind};
use futures_util::stream::{self, Stream, TryStreamExt};

use crate::error::{Error, says_absent};
use crate::object::Object;
use crate::read::object;
use crate::store::BraidStore;

/// An object in a list.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Path of the object, relative to the store's root.
    pub(crate) location: String,
    pub(crate) object: Object,
}

/// The objects and directories in one directory.
#[derive(Debug, Default)]
pub(crate) struct Level {
    pub(crate) objects: Vec<Found>,
    pub(crate) directories: Vec<String>,
}

impl BraidStore {
    /// Lists all objects below a path whose own paths come after `after`. An object that is made or removed
    /// meanwhile may or may not be listed.
    pub(crate) fn walk(
        &self,
        prefix: &str,
        after: Option<String>,
    ) -> impl Stream<Item = Result<Found, Error>> + Send + 'static {
        let store = self.clone();
        let prefix = prefix.to_owned();
        let begin = async move {
            let first = Directory::open(&store, prefix)?;
            Ok::<_, Error>(Walk { store, after, directories: vec![first] })
        };
        let walk = async |mut walk: Walk| Ok(walk.next().await?.map(|found| (found, walk)));
        stream::once(begin).map_ok(move |begun| stream::try_unfold(begun, walk)).try_flatten()
    }

    /// The objects and directories in one directory.
    pub(crate) async fn level(&self, prefix: &str) -> Result<Level, Error> {
        let mut directory = Directory::open(self, prefix.to_owned())?;
        let mut level = Level::default();
        let mut links = Vec::new();
        loop {
            let entry = match directory.lister.next().await {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error) if says_absent(&error) => return Ok(Level::default()),
                Err(error) => return Err(error.into()),
            };
            let Some(location) = directory.location(&entry.name) else { continue };
            match entry.kind() {
                EntryKind::File => level.objects.push(Found { location, object: of_entry(&entry) }),
                EntryKind::Directory => level.directories.push(location),
                EntryKind::Symlink => links.push(location),
                _ => {}
            }
        }
        let names = links.iter().map(|location| self.name(location)).collect::<Result<Vec<_>, _>>()?;
        let rows = self.client.stat_all(&names).await;
        let linked = links.into_iter().zip(rows).filter_map(|(location, row)| match row {
            Ok(row) => object(row).map(|object| Ok(Found { location, object })),
            Err(error) if says_absent(&error) => None,
            Err(error) => Some(Err(Error::from(error))),
        });
        let linked = linked.collect::<Result<Vec<_>, _>>()?;
        level.objects.extend(linked);
        level.objects.sort_by(|a, b| a.location.cmp(&b.location));
        Ok(level)
    }
}

struct Walk {
    store: BraidStore,
    after: Option<String>,
    /// The open directories, from the first one down to the one being listed.
    directories: Vec<Directory>,
}

struct Directory {
    /// Path of the directory, relative to the store's root; empty for the root.
    location: String,
    lister: Lister,
    /// The next entry, if it was read already.
    next: Option<Entry>,
    /// True if no entry follows `next`.
    ended: bool,
    /// Subdirectories whose turn has not come, each name with a slash at its end.
    held: BTreeSet<Vec<u8>>,
}

enum Step {
    Into(Vec<u8>),
    Entry(Entry),
    Up,
}

impl Walk {
    async fn next(&mut self) -> Result<Option<Found>, Error> {
        loop {
            let Some(directory) = self.directories.last_mut() else { return Ok(None) };
            let step = match directory.step().await {
                Ok(step) => step,
                // The path is not a directory, or the directory was removed meanwhile.
                Err(error) if says_absent(&error) => Step::Up,
                Err(error) => return Err(error.into()),
            };
            match step {
                Step::Up => drop(self.directories.pop()),
                Step::Into(name) => {
                    if let Some(location) = directory.location(&name)
                        && self.after.as_deref().is_none_or(|after| may_follow(&location, after))
                    {
                        self.directories.push(Directory::open(&self.store, location)?);
                    }
                }
                Step::Entry(entry) => {
                    let Some(location) = directory.location(&entry.name) else { continue };
                    if self.after.as_deref().is_some_and(|after| *location <= *after) {
                        continue;
                    }
                    if let Some(object) = self.object(&location, &entry).await? {
                        return Ok(Some(Found { location, object }));
                    }
                }
            }
        }
    }

    /// The object that an entry stands for: a file, or the file that a symbolic link leads to.
    async fn object(&self, location: &str, entry: &Entry) -> Result<Option<Object>, Error> {
        match entry.kind() {
            EntryKind::File => Ok(Some(of_entry(entry))),
            EntryKind::Symlink => match self.store.client.stat(&self.store.name(location)?).await {
                Ok(row) => Ok(object(row)),
                Err(error) if says_absent(&error) => Ok(None),
                Err(error) => Err(error.into()),
            },
            _ => Ok(None),
        }
    }
}

impl Directory {
    fn open(store: &BraidStore, location: String) -> Result<Directory, Error> {
        let lister = store.client.list(&store.name(&location)?);
        Ok(Directory { location, lister, next: None, ended: false, held: BTreeSet::new() })
    }

    /// The path of an entry; `None` if object_store allows no path for its name, because the name is not
    /// UTF-8 or has control characters.
    fn location(&self, name: &[u8]) -> Option<String> {
        let name =
            std::str::from_utf8(name).ok().filter(|name| !name.contains(|c: char| c.is_ascii_control()));
        let Some(name) = name else {
            tracing::debug!(directory = self.location, ?name, "a name that no path of object_store can have");
            return None;
        };
        Some(if self.location.is_empty() { name.to_owned() } else { format!("{}/{name}", self.location) })
    }

    async fn step(&mut self) -> Result<Step, braid_client::Error> {
        loop {
            if self.next.is_none() && !self.ended {
                self.next = self.lister.next().await?;
                self.ended = self.next.is_none();
            }
            let is_turn = |held: &Vec<u8>| self.next.as_ref().is_none_or(|next| *held < next.name);
            if self.held.first().is_some_and(is_turn) {
                let mut name = self.held.pop_first().expect("there is a first");
                name.pop();
                return Ok(Step::Into(name));
            }
            match self.next.take() {
                None => return Ok(Step::Up),
                Some(entry) if entry.kind() == EntryKind::Directory => {
                    self.held.insert([&entry.name[..], b"/"].concat());
                }
                Some(entry) => return Ok(Step::Entry(entry)),
            }
        }
    }
}

fn of_entry(entry: &Entry) -> Object {
    Object { number: entry.file, attributes: entry.attributes, snapshot: 0 }
}

/// Returns true if a path below this directory may come after another path.
fn may_follow(directory: &str, after: &str) -> bool {
    match after.strip_prefix(directory) {
        // `after` is the directory's own name, or lies below the directory, or beside it.
        Some(rest) => rest.as_bytes().first().is_none_or(|&byte| byte <= b'/'),
        None => directory > after,
    }
}

#[cfg(test)]
mod tests {
    use super::may_follow;

    #[test]
    fn directories_that_lie_before_a_path_are_not_entered() {
        for (directory, after, expected) in [
            ("a", "", true),
            ("a", "a", true),
            ("a", "a/b", true),
            ("a", "a b", true),
            ("a", "a0", false),
            ("a", "b", false),
            ("b", "a/z", true),
            ("a/b", "a/b.x", true),
            ("a/b", "a/bb", false),
        ] {
            assert_eq!(may_follow(directory, after), expected, "{directory} after {after}");
            // The last path that can be below the directory decides.
            let last = format!("{directory}/\u{10ffff}");
            assert_eq!(*last > *after, expected, "{directory} after {after}");
        }
    }
}
