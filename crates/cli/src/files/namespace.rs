//! `mkdir`, `mv`, `rm`, and the name-space queries that other commands share.

use std::path::Path;

use braid_client::{Client, Name, Parents};
use braid_wire::Reason;
use braid_wire::control::{Entry, EntryKind, StatRow};
use serde::Serialize;

use crate::files::names::{Location, NameFacts, Text, remote, show_remote};
use crate::files::snapshots_below::{self, InTheWay};
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::rate::{Bar, Progress};
use crate::output::report::{Report, complain};
use crate::{args, connect};

/// Looks up a name, following a symbolic link; `None` if nothing is there.
pub async fn stat_if_there(client: &Client, name: &Name) -> Result<Option<StatRow>, Failure> {
    if_there(client.stat(name).await)
}

/// Looks up a name itself, which may be a symbolic link; `None` if nothing is there.
async fn itself_if_there(client: &Client, name: &Name) -> Result<Option<StatRow>, Failure> {
    if_there(client.stat_itself(name).await)
}

/// Turns the error that nothing is there into `None`.
pub(crate) fn if_there<T>(found: braid_client::Result<T>) -> Result<Option<T>, Failure> {
    match found {
        Ok(row) => Ok(Some(row)),
        Err(error) if error.reason() == Some(Reason::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Lists all entries of a directory, in byte order of their names.
pub async fn entries(client: &Client, name: &Name) -> Result<Vec<Entry>, Failure> {
    Ok(client.list(name).all().await?)
}

/// Lists all entries of a directory; none if it was removed since it was found.
pub(crate) async fn entries_if_there(client: &Client, name: &Name) -> Result<Vec<Entry>, Failure> {
    match client.list(name).all().await {
        Err(error) if error.reason() == Some(Reason::NotFound) => Ok(Vec::new()),
        listed => Ok(listed?),
    }
}

/// A name that was removed; a line of `--json`.
#[derive(Debug, Serialize)]
struct Removed {
    #[serde(flatten)]
    name: NameFacts,
    /// Number of files removed. For a directory, this and the next counts cover everything below it.
    files: u64,
    /// Number of directories removed, the named one included.
    directories: u64,
    /// Bytes of the removed files.
    bytes: u64,
}

/// A directory that was made; a line of `--json`.
#[derive(Debug, Serialize)]
struct Made {
    #[serde(flatten)]
    name: NameFacts,
}

/// A name that was renamed, in `--json`.
#[derive(Debug, Serialize)]
struct Moved {
    from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_bytes: Option<String>,
    to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_bytes: Option<String>,
}

/// Runs `braid mkdir`.
pub(crate) async fn mkdir(mkdir: args::Mkdir, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let names = mkdir.names.iter().map(|name| remote(name)).collect::<Result<Vec<Name>, _>>()?;
    let client = connect::cluster(cluster).await?;
    let parents = if mkdir.parents { Parents::Make } else { Parents::MustExist };
    for name in &names {
        client.mkdir(name, parents).await?;
        if report.json {
            report.note(&Made { name: NameFacts::new(name) }, |_| String::new())?;
        }
    }
    Ok(())
}

/// Runs `braid mv`.
pub(crate) async fn mv(mv: args::Mv, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let from = remote(&mv.from)?;
    let Location::Remote { name: to, directory } = Location::parse(&mv.to)? else {
        return Err(Failure::usage(mv.to.to_string_lossy(), "both names must be braid://VOLUME/PATH")
            .remedy("to fetch a file use cp"));
    };
    if from.volume() != to.volume() {
        return Err(Failure::usage(
            format!("move {} to {}", show_remote(&from), show_remote(&to)),
            "they are in different volumes",
        )
        .remedy("copy it with cp and remove the original"));
    }
    let client = connect::cluster(cluster).await?;
    let at_target = stat_if_there(&client, &to).await?;
    let into = at_target.as_ref().is_some_and(|row| row.kind() == EntryKind::Directory);
    if directory && !into {
        let error = if at_target.is_some() { not_a_directory } else { no_directory };
        return Err(error(show_remote(&to)));
    }
    let to = match from.file_name() {
        Some(name) if into => to.join(name).doing(|| format!("move {}", show_remote(&from)))?,
        _ => to,
    };
    client.rename(&from, &to).await?;
    let from = Text::of(&from);
    let to = Text::of(&to);
    let facts = Moved { from: from.text, from_bytes: from.bytes, to: to.text, to_bytes: to.bytes };
    if report.json { report.facts(&facts, |_| String::new()) } else { Ok(()) }
}

/// The error for a target that must be a directory and is a file.
pub(crate) fn not_a_directory(what: String) -> Failure {
    Failure::new(Exit::Conflict, what, "it is not a directory")
}

/// The error for a target that must be a directory and does not exist.
pub(crate) fn no_directory(what: String) -> Failure {
    Failure::new(Exit::NotFound, what, "no such directory").remedy("make it with mkdir")
}

/// Scope of a command on a directory: without or with what is below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recursion {
    No,
    Yes,
}

/// Runs `braid rm`.
pub(crate) async fn rm(rm: args::Rm, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let names = rm.names.iter().map(|name| remote(name)).collect::<Result<Vec<Name>, _>>()?;
    let client = connect::cluster(cluster).await?;
    let bar = if rm.recursive { Bar::Shown } else { Bar::Hidden };
    let progress = Progress::begin(None, bar).count_files(None);
    for name in &names {
        let mut removed = Removed { name: NameFacts::new(name), files: 0, directories: 0, bytes: 0 };
        match itself_if_there(&client, name).await? {
            None if rm.force => {}
            None => {
                return Err(Failure::new(
                    Exit::NotFound,
                    format!("remove {}", show_remote(name)),
                    "no such file or directory",
                ));
            }
            Some(row) if row.kind() == EntryKind::Directory && !rm.recursive => {
                let why = "it is a directory";
                return Err(Failure::new(Exit::Conflict, format!("remove {}", show_remote(name)), why)
                    .remedy("use -r"));
            }
            Some(row) if row.kind() == EntryKind::Directory => {
                let then = if rm.snapshots { InTheWay::Remove } else { InTheWay::Refuse };
                snapshots_below::of_tree(&client, name, then).await?;
                remove_tree(&client, name, &mut removed, &progress).await?
            }
            Some(row) => {
                client.unlink(name).await?;
                removed.file(row.size(), &progress);
            }
        }
        if report.json {
            report.note(&removed, |_| String::new())?;
        }
    }
    progress.end();
    Ok(())
}

impl Removed {
    /// Counts one more file.
    fn file(&mut self, bytes: u64, progress: &Progress) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        progress.file_done();
        progress.add(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
}

/// Maximum number of names removed at a time.
const TOGETHER: usize = 512;

/// Removes a directory and everything below it. A volume's root is emptied but stays.
async fn remove_tree(
    client: &Client,
    root: &Name,
    removed: &mut Removed,
    progress: &Progress,
) -> Result<(), Failure> {
    // A parent comes before the directories in it.
    let mut directories = Vec::new();
    let mut waiting = vec![root.clone()];
    let mut files = Vec::new();
    let mut first = None;
    while let Some(directory) = waiting.pop() {
        progress.name(show_remote(&directory));
        let mut below = client.list(&directory);
        while let Some(entry) = if_there(below.next().await)?.flatten() {
            let name = directory.join(&entry.name).doing(|| format!("remove {}", show_remote(&directory)))?;
            match entry.kind() {
                EntryKind::Directory => waiting.push(name),
                _ => files.push((name, entry.size())),
            }
            if files.len() == TOGETHER {
                remove_files(client, std::mem::take(&mut files), removed, progress, &mut first).await;
            }
        }
        directories.push(directory);
    }
    remove_files(client, files, removed, progress, &mut first).await;
    if let Some(failure) = first {
        return Err(failure);
    }
    directories.sort_by_key(|name| std::cmp::Reverse(depth(name)));
    for alike in directories.chunk_by(|a, b| depth(a) == depth(b)) {
        let names: Vec<Name> = alike.iter().filter(|name| !name.is_root()).cloned().collect();
        for some in names.chunks(TOGETHER) {
            for result in client.unlink_all(some).await {
                removed.directories += u64::from(if_there(result)?.is_some());
            }
        }
    }
    Ok(())
}

/// Removes these files, each given with its size. A file that cannot be removed does not stop the others. The
/// first error goes to `first`, to become the command's own; the others are printed.
async fn remove_files(
    client: &Client,
    files: Vec<(Name, u64)>,
    removed: &mut Removed,
    progress: &Progress,
    first: &mut Option<Failure>,
) {
    let (names, sizes): (Vec<Name>, Vec<u64>) = files.into_iter().unzip();
    for (result, bytes) in client.unlink_all(&names).await.into_iter().zip(sizes) {
        match result {
            Ok(()) => removed.file(bytes, progress),
            // Another client has removed it meanwhile.
            Err(error) if error.reason() == Some(Reason::NotFound) => {}
            Err(error) if first.is_none() => *first = Some(error.into()),
            Err(error) => complain(&Failure::from(error).to_string()),
        }
    }
}

/// Number of directories that a name is in.
fn depth(name: &Name) -> usize {
    name.path().iter().filter(|byte| **byte == b'/').count() + usize::from(!name.is_root())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_called_something_else() {
        let missing = no_directory("x/".into());
        assert_eq!(
            (missing.exit, missing.to_string().as_str()),
            (Exit::NotFound, "x/: no such directory; make it with mkdir")
        );
        let other = not_a_directory("x/".into());
        assert_eq!((other.exit, other.to_string().as_str()), (Exit::Conflict, "x/: it is not a directory"));
    }
}
