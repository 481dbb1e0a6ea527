//! The jobs of a `cp` command line, one for each file or directory. All are checked before the first byte
//! moves.
//!
//! As with cp(1), several sources, or a target that is a directory, mean "into it, under the same name". With
//! `-r` a directory comes before its contents. Links named on the command line are followed. Special files
//! and dangling links are an error there; below a source they are skipped with a message, as are links to
//! directories (possible cycles), and the command fails at the end: no copy is silently incomplete. Special
//! files are never opened: opening a pipe without a writer would block for ever.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use braid_client::{Client, Name, Parents};
use braid_wire::control::EntryKind;

use crate::files::beneath::LocalPath;
use crate::files::names::Location;
use crate::files::namespace;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::report::complain;

/// One file or directory to make.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) source: Location,
    pub(crate) target: Location,
    /// Size of the source in bytes, if known beforehand.
    pub(crate) size: Option<u64>,
    pub(crate) kind: Kind,
}

/// Kind of thing that a job makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    /// A link or special file like the source.
    Node,
    /// Another name of a target that an earlier job makes.
    Link(Location),
    /// Nothing new: the job sets the attributes of a directory once its contents are there.
    Finish,
}

/// Kinds of sources that are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    Files,
    /// `-r`: directories too; of links to files, the files that they lead to.
    Trees,
    /// `-a`: directories, links and special files as what they are.
    Archive,
}

/// All jobs of a command line.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(crate) list: Vec<Job>,
    /// Number of things below the sources that were skipped, each reported on standard error.
    pub(crate) skipped: u64,
    /// With `-a`: the first target of each source file that has several names.
    linked: BTreeMap<Identity, Location>,
}

/// Reason for skipping something that was listed but no longer exists.
const VANISHED: &str = "it was removed meanwhile";

/// Identity of a source that has several names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    /// Device and inode number.
    Local(u64, u64),
    Remote(u64),
}

/// Kind of thing found at a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Nothing,
    /// With `-a`: a link or special file, which is copied as such.
    Node,
    /// Neither file nor directory; holds the kind in words.
    Special(&'static str),
    /// Anything read and written as bytes; holds the size in bytes if known.
    File(Option<u64>),
    Directory,
}

/// Builds the jobs of a command line.
pub(crate) async fn list(
    client: &Client,
    sources: Vec<Location>,
    target: Location,
    depth: Depth,
) -> Result<Jobs, Failure> {
    let at_target = look(client, &target, Depth::Trees).await?;
    let slash = match &target {
        Location::Remote { directory, .. } => *directory,
        Location::Local(path) => path.whole().as_os_str().as_bytes().ends_with(b"/"),
        Location::Pipe => false,
    };
    let into = at_target == What::Directory;
    if slash && !into && !(depth != Depth::Files && sources.len() == 1) {
        let error = match at_target {
            What::Nothing => namespace::no_directory,
            _ => namespace::not_a_directory,
        };
        return Err(error(target.show()));
    }
    if sources.len() > 1 && !into {
        let why = "several sources need a directory to go to";
        return Err(match at_target {
            What::Nothing => Failure::usage(target.show(), why).remedy("make it with mkdir"),
            _ => Failure::new(Exit::Conflict, target.show(), format!("it is not a directory: {why}")),
        });
    }
    let mut jobs = Jobs::default();
    for source in sources {
        let target = if into { child(&target, &source)? } else { target.clone() };
        add(client, source, target, depth, &mut jobs).await?;
    }
    check_targets_differ(&jobs.list)?;
    check_parents(client, &jobs.list).await?;
    if depth == Depth::Archive {
        // A directory's time changes whenever something is made in it, so its attributes are set at the end,
        // deepest first.
        let directories: Vec<Job> =
            jobs.list.iter().filter(|job| job.kind == Kind::Directory).rev().map(finish).collect();
        jobs.list.extend(directories);
    }
    Ok(jobs)
}

fn finish(directory: &Job) -> Job {
    let source = directory.source.clone();
    let target = directory.target.clone();
    Job { source, target, size: Some(0), kind: Kind::Finish }
}

/// Makes a directory; it may exist already.
pub(crate) async fn make_directory(client: &Client, location: &Location) -> Result<(), Failure> {
    match location {
        Location::Remote { name, .. } if name.is_root() => Ok(()),
        Location::Remote { name, .. } => Ok(client.mkdir(name, Parents::Make).await?),
        Location::Local(path) => path.make_directory().doing(|| format!("make {}", location.show())),
        Location::Pipe => Err(Failure::usage("-", "a directory cannot go through a pipe")),
    }
}

/// Adds a source and, with recursion, everything below it.
async fn add(
    client: &Client,
    source: Location,
    target: Location,
    depth: Depth,
    jobs: &mut Jobs,
) -> Result<(), Failure> {
    let mut waiting = vec![(source, target, None)];
    let mut below_source = false;
    while let Some((source, target, known)) = waiting.pop() {
        let skips = below_source && depth != Depth::Archive;
        if skips && let Some(why) = not_copied(&source) {
            jobs.skip(&source, &why);
            continue;
        }
        let what = match known {
            Some(what) => what,
            None => look(client, &source, depth).await?,
        };
        match what {
            What::Nothing if below_source => jobs.skip(&source, VANISHED),
            What::Nothing => return Err(nothing_there(&source)),
            What::Special(kind) if below_source => jobs.skip(&source, &format!("it is a {kind}")),
            What::Special(kind) => return Err(special(&source, kind)),
            What::File(_) | What::Node if depth == Depth::Archive => match identity(client, &source).await {
                Err(failure) if below_source && failure.exit == Exit::NotFound => {
                    jobs.skip(&source, VANISHED);
                }
                identity => jobs.archive(source, target, what, identity?),
            },
            What::Node => return Err(nothing_there(&source)),
            What::File(size) => jobs.list.push(Job { source, target, size, kind: Kind::File }),
            What::Directory if depth == Depth::Files => {
                return Err(Failure::new(
                    Exit::Conflict,
                    format!("copy {}", source.show()),
                    "it is a directory",
                )
                .remedy("use -r"));
            }
            What::Directory if target == Location::Pipe => {
                return Err(Failure::usage(
                    format!("copy {}", source.show()),
                    "a directory cannot go through a pipe",
                ));
            }
            What::Directory => {
                let entries = match entries(client, &source, depth).await {
                    Err(failure) if below_source && failure.exit == Exit::NotFound => {
                        jobs.skip(&source, VANISHED);
                        continue;
                    }
                    entries => entries?,
                };
                let mut below = Vec::new();
                for (entry, what) in entries {
                    let target = child(&target, &entry)?;
                    below.push((entry, target, what));
                }
                // Reversed, because the stack is popped from its end: the entries come in order.
                waiting.extend(below.into_iter().rev());
                jobs.list.push(Job { source, target, size: Some(0), kind: Kind::Directory });
            }
        }
        below_source = true;
    }
    Ok(())
}

impl Jobs {
    /// Skips something below a source, with a message.
    fn skip(&mut self, source: &Location, why: &str) {
        complain(&format!("skipped {}: {why}", source.show()));
        self.skipped += 1;
    }

    /// Adds a file or node that is copied as what it is. If a source has several names, the job of the first
    /// name makes it, and the jobs of the others link to it.
    fn archive(&mut self, source: Location, target: Location, what: What, identity: Option<Identity>) {
        let mut job = match what {
            What::File(size) => Job { source, target, size, kind: Kind::File },
            _ => Job { source, target, size: Some(0), kind: Kind::Node },
        };
        if let Some(identity) = identity {
            match self.linked.get(&identity) {
                Some(first) if can_link(first, &job.target) => {
                    job.size = Some(0);
                    job.kind = Kind::Link(first.clone());
                }
                _ => drop(self.linked.insert(identity, job.target.clone())),
            }
        }
        self.list.push(job);
    }
}

/// Returns the identity of a source that has several names, else `None`.
async fn identity(client: &Client, source: &Location) -> Result<Option<Identity>, Failure> {
    match source {
        Location::Pipe => Ok(None),
        Location::Local(path) => {
            let metadata = path.itself().doing(|| format!("look at {}", source.show()))?;
            Ok((metadata.nlink() > 1).then(|| Identity::Local(metadata.dev(), metadata.ino())))
        }
        Location::Remote { name, .. } => {
            let row = client.stat_itself(name).await?;
            Ok((row.attributes.links > 1).then_some(Identity::Remote(row.file.0)))
        }
    }
}

/// Returns true if one target can be another name of the other: both local, or both in one volume.
fn can_link(first: &Location, other: &Location) -> bool {
    match (first, other) {
        (Location::Local(_), Location::Local(_)) => true,
        (Location::Remote { name, .. }, Location::Remote { name: other, .. }) => {
            name.label() == other.label()
        }
        _ => false,
    }
}

/// The entries of a directory in order of names, each with its type where the listing gives it.
async fn entries(
    client: &Client,
    location: &Location,
    depth: Depth,
) -> Result<Vec<(Location, Option<What>)>, Failure> {
    match location {
        Location::Remote { name, .. } => {
            let mut found = Vec::new();
            for entry in namespace::entries(client, name).await? {
                let name = name.join(&entry.name).doing(|| format!("read {}", location.show()))?;
                let what = remote_what(entry.kind(), entry.size(), depth);
                found.push((Location::Remote { name, directory: false }, Some(what)));
            }
            Ok(found)
        }
        Location::Local(path) => {
            let names = path.names().doing(|| format!("read {}", location.show()))?;
            Ok(names.iter().map(|name| (Location::Local(path.join(name)), None)).collect())
        }
        Location::Pipe => Ok(Vec::new()),
    }
}

/// Returns the reason why something below a source is skipped; `None` if it is copied.
fn not_copied(location: &Location) -> Option<String> {
    let Location::Local(path) = location else { return None };
    let kind = match path.metadata() {
        Ok(metadata) if metadata.is_dir() && path.is_symlink() => "directory",
        Ok(metadata) => special_kind(&metadata)?,
        Err(_) if path.is_symlink() => return Some("it is a symbolic link that leads to nothing".into()),
        // The file has vanished, or may not be examined: reported later like any other error.
        Err(_) => return None,
    };
    let link = if path.is_symlink() { "symbolic link to a " } else { "" };
    Some(format!("it is a {link}{kind}"))
}

/// The kind of a special file; `None` for files and directories.
pub(crate) fn special_kind(metadata: &fs::Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    match kind {
        _ if kind.is_fifo() => Some("named pipe"),
        _ if kind.is_socket() => Some("socket"),
        _ if kind.is_char_device() || kind.is_block_device() => Some("device"),
        _ => None,
    }
}

fn nothing_there(location: &Location) -> Failure {
    let why = match location {
        Location::Local(path) if path.is_symlink() => "it is a symbolic link that leads to nothing",
        _ => "no such file or directory",
    };
    Failure::new(Exit::NotFound, format!("copy {}", location.show()), why)
}

/// The error for a special file as a source: opening it could block for ever.
pub(crate) fn special(location: &Location, kind: &str) -> Failure {
    let name = location.show();
    let failure =
        Failure::new(Exit::Conflict, format!("copy {name}"), format!("it is a {kind}, not a regular file"));
    match kind {
        "socket" => failure,
        _ => failure.remedy(format!("to copy what comes out of it: braid cp - TARGET < {name}")),
    }
}

/// The target for `source` inside the directory `target`. A volume's root or `.` has no name of its own: its
/// contents go into the directory itself.
fn child(target: &Location, source: &Location) -> Result<Location, Failure> {
    if source.is_contents() {
        return Ok(target.clone());
    }
    let what = || format!("copy {} into {}", source.show(), target.show());
    let name = source.file_name().ok_or_else(|| {
        Failure::usage(what(), "it has no name to use there").remedy("give the target a name")
    })?;
    match target {
        Location::Remote { name: directory, .. } => {
            Ok(Location::Remote { name: directory.join(name.as_bytes()).doing(what)?, directory: false })
        }
        Location::Local(directory) => Ok(Location::Local(directory.join(&name))),
        Location::Pipe => Ok(Location::Pipe),
    }
}

async fn look(client: &Client, location: &Location, depth: Depth) -> Result<What, Failure> {
    match location {
        Location::Pipe => Ok(What::File(None)),
        Location::Local(path) => look_local(path, depth).doing(|| format!("look at {}", location.show())),
        Location::Remote { name, .. } => {
            let found = match depth {
                Depth::Archive => client.stat_itself(name).await,
                _ => client.stat(name).await,
            };
            let row = namespace::if_there(found)?;
            Ok(row.map_or(What::Nothing, |row| remote_what(row.kind(), row.size(), depth)))
        }
    }
}

/// The kind of a remote entry. Unlike local links, remote links below a source are not followed: the listing
/// does not say where they lead.
fn remote_what(kind: EntryKind, size: u64, depth: Depth) -> What {
    let special = match kind {
        EntryKind::Directory => return What::Directory,
        EntryKind::File => return What::File(Some(size)),
        _ if depth == Depth::Archive => return What::Node,
        EntryKind::Symlink => "symbolic link; use -a",
        EntryKind::Fifo => "named pipe",
        EntryKind::Socket => "socket",
        EntryKind::CharDevice | EntryKind::BlockDevice => "device",
    };
    What::Special(special)
}

fn look_local(path: &LocalPath, depth: Depth) -> std::io::Result<What> {
    let found = match depth {
        Depth::Archive => path.itself(),
        _ => path.metadata(),
    };
    match found {
        Ok(metadata) if metadata.is_dir() => Ok(What::Directory),
        Ok(metadata) if depth == Depth::Archive && !metadata.is_file() => Ok(What::Node),
        Ok(metadata) => Ok(match special_kind(&metadata) {
            Some(kind) => What::Special(kind),
            // Files generated by the kernel (/proc) report a size of 0 but hold more.
            None => What::File(Some(metadata.len())),
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(What::Nothing),
        Err(error) => Err(error),
    }
}

/// Fails if two files have the same target: files are copied in parallel, so the winner would be arbitrary.
fn check_targets_differ(jobs: &[Job]) -> Result<(), Failure> {
    let mut seen = BTreeMap::new();
    for job in jobs
        .iter()
        .filter(|job| !matches!(job.kind, Kind::Directory | Kind::Finish) && job.target != Location::Pipe)
    {
        if let Some(other) = seen.insert(job.target.show(), &job.source) {
            let why = format!("{} and {} would have the same name there", other.show(), job.source.show());
            return Err(Failure::usage(format!("copy to {}", job.target.show()), why)
                .remedy("copy one of them under another name"));
        }
    }
    Ok(())
}

/// Fails if the first target's directory does not exist; later ones are made by earlier jobs. Checked before
/// anything is copied.
async fn check_parents(client: &Client, jobs: &[Job]) -> Result<(), Failure> {
    let Some(first) = jobs.first() else { return Ok(()) };
    let missing = |what: String| {
        Err(Failure::new(Exit::NotFound, what, "no such directory").remedy("make it with mkdir -p"))
    };
    match &first.target {
        Location::Remote { name, .. } => {
            let parent = name.parent().unwrap_or_else(|| name.clone());
            check_target_kind(client, first).await?;
            match namespace::stat_if_there(client, &parent).await? {
                Some(row) if row.kind() == EntryKind::Directory => Ok(()),
                Some(_) => Err(Failure::new(Exit::Conflict, show(&parent), "it is not a directory")),
                None => missing(show(&parent)),
            }
        }
        // A directory below a typed path exists, or an earlier job makes it.
        Location::Local(path) => match path.as_typed().and_then(Path::parent) {
            Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
                let (parent, there) = (parent.display().to_string(), parent.exists());
                if there {
                    return Err(Failure::new(Exit::Conflict, parent, "it is not a directory"));
                }
                missing(parent)
            }
            _ => Ok(()),
        },
        Location::Pipe => Ok(()),
    }
}

/// Fails if the target of a file is a directory: a file cannot replace one.
async fn check_target_kind(client: &Client, job: &Job) -> Result<(), Failure> {
    if job.kind != Kind::Directory && look(client, &job.target, Depth::Trees).await? == What::Directory {
        return Err(Failure::new(Exit::Conflict, job.target.show(), "it is a directory"));
    }
    Ok(())
}

fn show(name: &Name) -> String {
    crate::files::names::show_remote(name)
}
