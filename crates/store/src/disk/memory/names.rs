//! Names: as readers see them, as they are on the medium, and the changes between the two.

use std::collections::BTreeMap;
use std::io;

use super::random::Random;

/// Target of a name: a file's id, or `None` for a directory.
type Node = Option<u64>;

/// The names of a disk. The root directory has none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    seen: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
    /// The changes since the last syncs, in order.
    unsynced: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Made(String, Node),
    Renamed { from: String, to: String, node: Node },
    Removed(String),
}

impl Names {
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.seen.iter().filter_map(|(name, node)| Some((name.as_str(), (*node)?)))
    }

    pub(crate) fn file(&self, name: &str) -> Option<u64> {
        self.seen.get(name).copied().flatten()
    }

    /// Returns true if a name stands for this file now, or may after a power cut.
    pub(crate) fn has(&self, file: u64) -> bool {
        self.seen.values().chain(self.durable.values()).any(|&node| node == Some(file))
    }

    pub(crate) fn create(&mut self, name: &str, file: u64) -> io::Result<()> {
        self.make(name, Some(file))
    }

    pub(crate) fn make_dir(&mut self, name: &str) -> io::Result<()> {
        self.make(name, None)
    }

    fn make(&mut self, name: &str, node: Node) -> io::Result<()> {
        self.has_dir(parent(name))?;
        if self.seen.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.seen.insert(name.to_owned(), node);
        self.unsynced.push(Change::Made(name.to_owned(), node));
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.has_dir(parent(to))?;
        let node = self.seen.remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.seen.insert(to.to_owned(), node);
        self.unsynced.push(Change::Renamed { from: from.to_owned(), to: to.to_owned(), node });
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &str) -> io::Result<()> {
        self.file(name).ok_or(io::ErrorKind::NotFound)?;
        self.seen.remove(name);
        self.unsynced.push(Change::Removed(name.to_owned()));
        Ok(())
    }

    pub(crate) fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.has_dir(dir)?;
        let inside = |name: &&String| parent(name) == dir;
        let short = |name: &String| name[name.rfind('/').map_or(0, |slash| slash + 1)..].to_owned();
        Ok(self.seen.keys().filter(inside).map(short).collect())
    }

    pub(crate) fn sync(&mut self, dir: &str) -> io::Result<()> {
        self.has_dir(dir)?;
        let (synced, left) =
            std::mem::take(&mut self.unsynced).into_iter().partition(|change| change.dir() == dir);
        self.unsynced = left;
        for change in synced {
            change.apply(&mut self.durable);
        }
        Ok(())
    }

    pub(crate) fn sync_all(&mut self) {
        for change in std::mem::take(&mut self.unsynced) {
            change.apply(&mut self.durable);
        }
    }

    /// The names as they were at the last syncs.
    pub(crate) fn as_synced(&self) -> Names {
        Names { seen: self.durable.clone(), durable: self.durable.clone(), unsynced: Vec::new() }
    }

    /// The names after a power cut.
    pub(crate) fn survivors(&self, random: &mut Random) -> Names {
        let mut names = self.durable.clone();
        let mut survival = random.survival();
        for change in &self.unsynced {
            if survival.next(random) {
                change.clone().apply(&mut names);
            }
        }
        let dirs: Vec<String> =
            names.iter().filter(|(_, node)| node.is_none()).map(|(name, _)| name.clone()).collect();
        names.retain(|name, _| parent(name).is_empty() || dirs.iter().any(|dir| dir == parent(name)));
        Names { seen: names.clone(), durable: names, unsynced: Vec::new() }
    }

    /// Add a file, durably.
    pub(crate) fn plant(&mut self, name: &str, file: u64) {
        self.seen.insert(name.to_owned(), Some(file));
        self.durable.insert(name.to_owned(), Some(file));
    }

    fn has_dir(&self, dir: &str) -> io::Result<()> {
        match self.seen.get(dir) {
            _ if dir.is_empty() => Ok(()),
            Some(None) => Ok(()),
            Some(_) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Change {
    /// The directory whose sync makes the change durable.
    fn dir(&self) -> &str {
        match self {
            Change::Made(name, _) | Change::Removed(name) | Change::Renamed { to: name, .. } => parent(name),
        }
    }

    fn apply(self, names: &mut BTreeMap<String, Node>) {
        match self {
            Change::Made(name, node) => {
                names.insert(name, node);
            }
            Change::Renamed { from, to, node } => {
                names.remove(&from);
                names.insert(to, node);
            }
            Change::Removed(name) => {
                names.remove(&name);
            }
        }
    }
}

/// The directory of a name.
fn parent(name: &str) -> &str {
    name.rfind('/').map_or("", |slash| &name[..slash])
}
