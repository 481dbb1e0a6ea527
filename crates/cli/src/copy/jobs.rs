//! What a `cp` command line asks for, file by file: checked as a whole before the first byte moves.
//!
//! Like cp(1): several sources, or a target that is a directory, mean "into it, under the same name". With `-r` directories
//! come before what is in them. Symbolic links are followed to files. What a copy cannot hold is refused where it is named
//! itself; below a source it is skipped and told, and the command ends with an error, so that a copy is never silently less
//! than its source: links to directories, which could lead round in circles, links to nothing, and what is neither file nor
//! directory. None of these is ever opened: opening a pipe without a writer would wait for ever.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use braid_client::{Client, Name, Parents};
use braid_wire::control::EntryKind;

use crate::exit::{Doing, Exit, Failure};
use crate::names::Place;
use crate::namespace;
use crate::report::complain;

/// One file or directory to make.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) source: Place,
    pub(crate) target: Place,
    /// Bytes, where they are known beforehand.
    pub(crate) size: Option<u64>,
    pub(crate) directory: bool,
}

/// What a command line asks for.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(crate) list: Vec<Job>,
    /// How many things below the sources were left out, each told on standard error.
    pub(crate) skipped: u64,
}

/// What is at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Nothing,
    /// Neither file nor directory: what it is.
    Special(&'static str),
    /// Anything that is read and written as bytes, with its size if it has one.
    File(Option<u64>),
    Directory,
}

/// The jobs of a command line.
pub(crate) async fn list(
    client: &Client,
    sources: Vec<Place>,
    target: Place,
    recursive: bool,
) -> Result<Jobs, Failure> {
    let at_target = look(client, &target).await?;
    let slash = match &target {
        Place::Remote { directory, .. } => *directory,
        Place::Local(path) => path.as_os_str().as_bytes().ends_with(b"/"),
        Place::Pipe => false,
    };
    let into = at_target == What::Directory;
    if slash && !into && !(recursive && sources.len() == 1) {
        return Err(namespace::no_directory(target.show(), at_target != What::Nothing));
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
        add(client, source, target, recursive, &mut jobs).await?;
    }
    check_targets_differ(&jobs.list)?;
    check_parents(client, &jobs.list).await?;
    Ok(jobs)
}

/// Makes a directory that may be there.
pub(crate) async fn make_directory(client: &Client, place: &Place) -> Result<(), Failure> {
    match place {
        Place::Remote { name, .. } if name.is_root() => Ok(()),
        Place::Remote { name, .. } => Ok(client.mkdir(name, Parents::Make).await?),
        Place::Local(path) => fs::create_dir_all(path).doing(|| format!("make {}", path.display())),
        Place::Pipe => Err(Failure::usage("-", "a directory cannot go through a pipe")),
    }
}

/// Adds a source and, with `recursive`, what is below it.
async fn add(
    client: &Client,
    source: Place,
    target: Place,
    recursive: bool,
    jobs: &mut Jobs,
) -> Result<(), Failure> {
    let mut waiting = vec![(source, target, None)];
    let mut below_source = false;
    while let Some((source, target, known)) = waiting.pop() {
        if below_source && let Some(why) = not_copied(&source) {
            complain(&format!("skipped {}: {why}", source.show()));
            jobs.skipped += 1;
            continue;
        }
        let what = match known {
            Some(what) => what,
            None => look(client, &source).await?,
        };
        match what {
            What::Nothing => return Err(nothing_there(&source)),
            What::Special(kind) => return Err(special(&source, kind)),
            What::File(size) => jobs.list.push(Job { source, target, size, directory: false }),
            What::Directory if !recursive => {
                return Err(Failure::new(
                    Exit::Conflict,
                    format!("copy {}", source.show()),
                    "it is a directory",
                )
                .remedy("use -r"));
            }
            What::Directory if target == Place::Pipe => {
                return Err(Failure::usage(
                    format!("copy {}", source.show()),
                    "a directory cannot go through a pipe",
                ));
            }
            What::Directory => {
                let mut below = Vec::new();
                for (entry, what) in entries(client, &source).await? {
                    let target = child(&target, &entry)?;
                    below.push((entry, target, what));
                }
                // Taken from the end: so they come in order.
                waiting.extend(below.into_iter().rev());
                jobs.list.push(Job { source, target, size: Some(0), directory: true });
            }
        }
        below_source = true;
    }
    Ok(())
}

/// What is below a directory, in order of names, and what it is where the listing tells.
async fn entries(client: &Client, place: &Place) -> Result<Vec<(Place, Option<What>)>, Failure> {
    match place {
        Place::Remote { name, .. } => {
            let mut found = Vec::new();
            for entry in namespace::entries(client, name).await? {
                let name = name.join(&entry.name).doing(|| format!("read {}", place.show()))?;
                let what = match entry.kind {
                    EntryKind::Directory => What::Directory,
                    EntryKind::File => What::File(Some(entry.size)),
                };
                found.push((Place::Remote { name, directory: false }, Some(what)));
            }
            Ok(found)
        }
        Place::Local(path) => {
            let what = || format!("read {}", path.display());
            let mut found = Vec::new();
            for entry in fs::read_dir(path).doing(what)? {
                found.push((Place::Local(entry.doing(what)?.path()), None));
            }
            found.sort_by_key(|(place, _)| place.file_name());
            Ok(found)
        }
        Place::Pipe => Ok(Vec::new()),
    }
}

/// Why something below a source is left out; `None` if it is copied.
fn not_copied(place: &Place) -> Option<String> {
    let Place::Local(path) = place else { return None };
    let kind = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() && path.is_symlink() => "directory",
        Ok(metadata) => special_kind(&metadata)?,
        Err(_) if path.is_symlink() => return Some("it is a symbolic link that leads to nothing".into()),
        // It went away, or may not be looked at: an error like any other.
        Err(_) => return None,
    };
    let link = if path.is_symlink() { "symbolic link to a " } else { "" };
    Some(format!("it is a {link}{kind}"))
}

/// What is neither file nor directory.
pub(crate) fn special_kind(metadata: &fs::Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    match kind {
        _ if kind.is_fifo() => Some("named pipe"),
        _ if kind.is_socket() => Some("socket"),
        _ if kind.is_char_device() || kind.is_block_device() => Some("device"),
        _ => None,
    }
}

fn nothing_there(place: &Place) -> Failure {
    let why = match place {
        Place::Local(path) if path.is_symlink() => "it is a symbolic link that leads to nothing",
        _ => "no such file or directory",
    };
    Failure::new(Exit::NotFound, format!("copy {}", place.show()), why)
}

/// A source of that kind cannot be opened without the risk to wait for ever.
pub(crate) fn special(place: &Place, kind: &str) -> Failure {
    let name = place.show();
    let failure =
        Failure::new(Exit::Conflict, format!("copy {name}"), format!("it is a {kind}, not a regular file"));
    match kind {
        "socket" => failure,
        _ => failure.remedy(format!("to copy what comes out of it: braid cp - TARGET < {name}")),
    }
}

/// `source`'s own name in the directory `target`; of a volume or `.` the directory itself, so that their contents come into it.
fn child(target: &Place, source: &Place) -> Result<Place, Failure> {
    if source.is_contents() {
        return Ok(target.clone());
    }
    let what = || format!("copy {} into {}", source.show(), target.show());
    let name = source.file_name().ok_or_else(|| {
        Failure::usage(what(), "it has no name to use there").remedy("give the target a name")
    })?;
    match target {
        Place::Remote { name: directory, .. } => {
            Ok(Place::Remote { name: directory.join(name.as_bytes()).doing(what)?, directory: false })
        }
        Place::Local(directory) => Ok(Place::Local(directory.join(name))),
        Place::Pipe => Ok(Place::Pipe),
    }
}

async fn look(client: &Client, place: &Place) -> Result<What, Failure> {
    match place {
        Place::Pipe => Ok(What::File(None)),
        Place::Local(path) => look_local(path),
        Place::Remote { name, .. } => Ok(match namespace::stat_if_there(client, name).await? {
            None => What::Nothing,
            Some(row) if row.kind == EntryKind::Directory => What::Directory,
            Some(row) => What::File(Some(row.size)),
        }),
    }
}

fn look_local(path: &Path) -> Result<What, Failure> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(What::Directory),
        Ok(metadata) => Ok(match special_kind(&metadata) {
            Some(kind) => What::Special(kind),
            // What the kernel makes up (/proc) says 0 and has more.
            None => What::File(Some(metadata.len())),
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(What::Nothing),
        Err(error) => Err(error).doing(|| format!("look at {}", path.display())),
    }
}

/// Files are copied at once: two to one name would leave either of them there.
fn check_targets_differ(jobs: &[Job]) -> Result<(), Failure> {
    let mut seen = BTreeMap::new();
    for job in jobs.iter().filter(|job| !job.directory && job.target != Place::Pipe) {
        if let Some(other) = seen.insert(job.target.show(), &job.source) {
            let why = format!("{} and {} would have the same name there", other.show(), job.source.show());
            return Err(Failure::usage(format!("copy to {}", job.target.show()), why)
                .remedy("copy one of them under another name"));
        }
    }
    Ok(())
}

/// Each target's directory must be there, or be made by an earlier job: so that a long copy does not fail at its end.
async fn check_parents(client: &Client, jobs: &[Job]) -> Result<(), Failure> {
    let Some(first) = jobs.first() else { return Ok(()) };
    let missing = |what: String| {
        Err(Failure::new(Exit::NotFound, what, "no such directory").remedy("make it with mkdir -p"))
    };
    match &first.target {
        Place::Remote { name, .. } => {
            let parent = name.parent().unwrap_or_else(|| name.clone());
            check_target_kind(client, first).await?;
            match namespace::stat_if_there(client, &parent).await? {
                Some(row) if row.kind == EntryKind::Directory => Ok(()),
                Some(_) => Err(Failure::new(Exit::Conflict, show(&parent), "it is not a directory")),
                None => missing(show(&parent)),
            }
        }
        Place::Local(path) => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
                let (parent, there) = (parent.display().to_string(), parent.exists());
                if there {
                    return Err(Failure::new(Exit::Conflict, parent, "it is not a directory"));
                }
                missing(parent)
            }
            _ => Ok(()),
        },
        Place::Pipe => Ok(()),
    }
}

/// A file cannot replace a directory.
async fn check_target_kind(client: &Client, job: &Job) -> Result<(), Failure> {
    if !job.directory && look(client, &job.target).await? == What::Directory {
        return Err(Failure::new(Exit::Conflict, job.target.show(), "it is a directory"));
    }
    Ok(())
}

fn show(name: &Name) -> String {
    crate::names::show_remote(name)
}
