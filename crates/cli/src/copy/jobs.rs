//! What a `cp` command line asks for, file by file: checked as a whole before the first byte moves.
//!
//! Like cp(1): several sources, or a target that is a directory, mean "into it, under the same name". With `-r` directories
//! come before what is in them. Symbolic links are followed to files; links to directories below a source and files that
//! are neither file nor directory are refused, so that a copy is never silently less than its source.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use braid_client::{Client, Name, Parents};
use braid_wire::control::EntryKind;

use crate::exit::{Doing, Exit, Failure};
use crate::names::Place;
use crate::namespace;

/// One file or directory to make.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) source: Place,
    pub(crate) target: Place,
    /// Bytes, where they are known beforehand.
    pub(crate) size: Option<u64>,
    pub(crate) directory: bool,
}

/// What is at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Nothing,
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
) -> Result<Vec<Job>, Failure> {
    let at_target = look(client, &target).await?;
    let slash = match &target {
        Place::Remote { directory, .. } => *directory,
        Place::Local(path) => path.as_os_str().as_bytes().ends_with(b"/"),
        Place::Pipe => false,
    };
    let into = at_target == What::Directory;
    if slash && !into && !(recursive && sources.len() == 1) {
        return Err(
            Failure::new(Exit::NotFound, target.show(), "it is not a directory").remedy("make it with mkdir")
        );
    }
    if sources.len() > 1 && !into {
        return Err(Failure::usage(target.show(), "several sources need a directory to go to"));
    }
    let mut jobs = Vec::new();
    for source in sources {
        let target = if into { child(&target, &source)? } else { target.clone() };
        add(client, source, target, recursive, &mut jobs).await?;
    }
    check_parents(client, &jobs).await?;
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
    jobs: &mut Vec<Job>,
) -> Result<(), Failure> {
    let mut waiting = vec![(source, target)];
    let mut first = true;
    while let Some((source, target)) = waiting.pop() {
        match look(client, &source).await? {
            What::Nothing => {
                return Err(Failure::new(
                    Exit::NotFound,
                    format!("copy {}", source.show()),
                    "no such file or directory",
                ));
            }
            What::File(size) => jobs.push(Job { source, target, size, directory: false }),
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
                if !first {
                    refuse_link(&source)?;
                }
                let mut below = Vec::new();
                for entry in entries(client, &source).await? {
                    below.push((entry.clone(), child(&target, &entry)?));
                }
                // Taken from the end: so they come in order.
                waiting.extend(below.into_iter().rev());
                jobs.push(Job { source, target, size: Some(0), directory: true });
            }
        }
        first = false;
    }
    Ok(())
}

/// What is below a directory, in order of names.
async fn entries(client: &Client, place: &Place) -> Result<Vec<Place>, Failure> {
    match place {
        Place::Remote { name, .. } => {
            let mut found = Vec::new();
            for entry in namespace::entries(client, name).await? {
                let name = name.join(&entry.name).doing(|| format!("read {}", place.show()))?;
                found.push(Place::Remote { name, directory: false });
            }
            Ok(found)
        }
        Place::Local(path) => {
            let what = || format!("read {}", path.display());
            let mut found = Vec::new();
            for entry in fs::read_dir(path).doing(what)? {
                found.push(Place::Local(entry.doing(what)?.path()));
            }
            found.sort_by_key(Place::file_name);
            Ok(found)
        }
        Place::Pipe => Ok(Vec::new()),
    }
}

/// A link to a directory could lead round in circles.
fn refuse_link(place: &Place) -> Result<(), Failure> {
    match place {
        Place::Local(path) if path.is_symlink() => Err(Failure::new(
            Exit::Conflict,
            format!("copy {}", place.show()),
            "it is a symbolic link to a directory",
        )
        .remedy("copy what it points to by itself")),
        _ => Ok(()),
    }
}

/// `source`'s own name in the directory `target`.
fn child(target: &Place, source: &Place) -> Result<Place, Failure> {
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
        Ok(metadata) => Ok(What::File(metadata.is_file().then_some(metadata.len()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(What::Nothing),
        Err(error) => Err(error).doing(|| format!("look at {}", path.display())),
    }
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
                missing(parent.display().to_string())
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
