//! `mkdir`, `mv`, `rm`, and what other commands ask of the name space.

use std::path::Path;

use braid_client::{Client, Name, Parents};
use braid_wire::Reason;
use braid_wire::control::{Entry, EntryKind, StatRow};

use crate::args;
use crate::connect;
use crate::exit::{Doing, Exit, Failure};
use crate::names::{Place, remote, show_remote};

/// What a name stands for; `None` if nothing is there.
pub(crate) async fn stat_if_there(client: &Client, name: &Name) -> Result<Option<StatRow>, Failure> {
    match client.stat(name).await {
        Ok(row) => Ok(Some(row)),
        Err(error) if error.reason() == Some(Reason::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// All entries of a directory, in byte order of their names.
pub(crate) async fn entries(client: &Client, name: &Name) -> Result<Vec<Entry>, Failure> {
    Ok(client.list(name).all().await?)
}

/// Runs `braid mkdir`.
pub(crate) async fn mkdir(mkdir: args::Mkdir, cluster: Option<&Path>) -> Result<(), Failure> {
    let names = mkdir.names.iter().map(|name| remote(name)).collect::<Result<Vec<Name>, _>>()?;
    let client = connect::cluster(cluster).await?;
    let parents = if mkdir.parents { Parents::Make } else { Parents::MustExist };
    for name in &names {
        client.mkdir(name, parents).await?;
    }
    Ok(())
}

/// Runs `braid mv`.
pub(crate) async fn mv(mv: args::Mv, cluster: Option<&Path>) -> Result<(), Failure> {
    let from = remote(&mv.from)?;
    let Place::Remote { name: to, directory } = Place::parse(&mv.to)? else {
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
    let into = at_target.is_some_and(|row| row.kind == EntryKind::Directory);
    if directory && !into {
        return Err(Failure::new(Exit::NotFound, show_remote(&to), "it is not a directory"));
    }
    let to = match from.file_name() {
        Some(name) if into => to.join(name).doing(|| format!("move {}", show_remote(&from)))?,
        _ => to,
    };
    Ok(client.rename(&from, &to).await?)
}

/// Runs `braid rm`.
pub(crate) async fn rm(rm: args::Rm, cluster: Option<&Path>) -> Result<(), Failure> {
    let names = rm.names.iter().map(|name| remote(name)).collect::<Result<Vec<Name>, _>>()?;
    let client = connect::cluster(cluster).await?;
    for name in &names {
        match stat_if_there(&client, name).await? {
            None if rm.force => {}
            None => {
                return Err(Failure::new(
                    Exit::NotFound,
                    format!("remove {}", show_remote(name)),
                    "no such file or directory",
                ));
            }
            Some(row) if row.kind == EntryKind::Directory && !rm.recursive => {
                let why = "it is a directory";
                return Err(Failure::new(Exit::Conflict, format!("remove {}", show_remote(name)), why)
                    .remedy("use -r"));
            }
            Some(row) if row.kind == EntryKind::Directory => remove_tree(&client, name).await?,
            Some(_) => client.unlink(name).await?,
        }
    }
    Ok(())
}

/// Removes a directory and what is in it; of a volume's root, what is in it.
async fn remove_tree(client: &Client, root: &Name) -> Result<(), Failure> {
    // Each directory is met twice: first what is in it goes onto the stack above it, then it is empty.
    let mut stack = vec![(root.clone(), false)];
    while let Some((name, emptied)) = stack.pop() {
        if emptied {
            if !name.is_root() {
                client.unlink(&name).await?;
            }
            continue;
        }
        stack.push((name.clone(), true));
        for entry in entries(client, &name).await? {
            let below = name.join(&entry.name).doing(|| format!("remove {}", show_remote(&name)))?;
            match entry.kind {
                EntryKind::Directory => stack.push((below, false)),
                EntryKind::File => client.unlink(&below).await?,
            }
        }
    }
    Ok(())
}
