//! Snapshots of directories that are to be removed: removal names them before it touches anything, or removes
//! them first.

use std::time::Duration;

use braid_client::{Client, Name};
use braid_wire::Reason;
use braid_wire::control::SnapshotRow;

use crate::files::names::show_remote;
use crate::output::exit::{Exit, Failure};

/// Maximum number of snapshots that a refusal names.
const NAMED: usize = 5;
/// Number of tries, a second apart, until what removed snapshots kept is freed.
const TRIES: u32 = 60;

/// Treatment of snapshots that are in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InTheWay {
    Refuse,
    Remove,
}

/// Refuses to remove a directory if it, or one below it, has snapshots; or removes these first. A volume's
/// root stays, so its own are not in the way.
pub(crate) async fn of_tree(client: &Client, tree: &Name, then: InTheWay) -> Result<(), Failure> {
    let rows = all(client, tree.volume()).await?;
    let is_below = |row: &&SnapshotRow| is_in_the_way(&row.place, tree);
    let below: Vec<&SnapshotRow> = rows.iter().filter(is_below).collect();
    clear(client, &below, then, || format!("remove {}", show_remote(tree)), "rm -r --snapshots").await
}

/// Refuses to remove a volume if it has snapshots; or, if it is empty, removes these first.
pub(crate) async fn of_volume(client: &Client, volume: &str, then: InTheWay) -> Result<(), Failure> {
    let what = || format!("remove volume {volume}");
    let root = Name::root(volume).map_err(|error| Failure::usage(what(), error.to_string()))?;
    if then == InTheWay::Remove && client.list(&root).next().await?.is_some() {
        return Err(Failure::new(Exit::Conflict, what(), "it is not empty; its snapshots are kept")
            .remedy("remove what is in it first, with rm -r --snapshots"));
    }
    let rows = all(client, volume).await?;
    clear(client, &rows.iter().collect::<Vec<_>>(), then, what, "volume rm --snapshots").await
}

/// Removes a volume whose snapshots may just have been removed: what they kept is freed first.
pub(crate) async fn remove_volume(client: &Client, volume: &str) -> Result<(), Failure> {
    let mut left = TRIES;
    loop {
        left -= 1;
        match client.volume_remove(volume).await {
            Err(error) if left > 0 && error.reason() == Some(Reason::Busy) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            done => return Ok(done?),
        }
    }
}

/// All snapshots of a volume and its directories.
async fn all(client: &Client, volume: &str) -> Result<Vec<SnapshotRow>, Failure> {
    let root = Name::root(volume).map_err(|error| Failure::usage(volume, error.to_string()))?;
    Ok(client.snapshots(&root).await?)
}

async fn clear(
    client: &Client,
    rows: &[&SnapshotRow],
    then: InTheWay,
    what: impl Fn() -> String,
    command: &str,
) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    if then == InTheWay::Refuse {
        let named: Vec<String> =
            rows.iter().take(NAMED).map(|row| format!("{} of {}", row.name, row.place)).collect();
        let more = rows.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let why = format!("there are snapshots ({}{more}), and nothing was removed", named.join(", "));
        let remedy =
            format!("remove them with `braid snapshot rm`, or with what they are of: `braid {command}`");
        return Err(Failure::new(Exit::Conflict, what(), why).remedy(remedy));
    }
    for row in rows {
        let place: Name = row.place.parse().map_err(|error| {
            Failure::new(Exit::Failed, what(), format!("{} is no name: {error}", row.place))
        })?;
        match client.remove_snapshot(&place, &row.name).await {
            // Someone else has removed it, or what it is of has another name by now.
            Err(error) if matches!(error.reason(), Some(Reason::NoSnapshot | Reason::NotFound)) => {
                let left = all(client, place.volume()).await?;
                if let Some(left) = left.iter().find(|left| left.number == row.number) {
                    let why = format!("snapshot {} is of {} by now", left.name, left.place);
                    return Err(Failure::new(Exit::Conflict, what(), why).remedy("run the command again"));
                }
            }
            done => done?,
        }
    }
    Ok(())
}

/// Returns true if a snapshot of this place is gone when the tree is.
fn is_in_the_way(place: &str, tree: &Name) -> bool {
    let tree = Name::to_string(tree);
    let tree = tree.trim_end_matches('/');
    let below = place.strip_prefix(tree);
    let is_root = tree.trim_start_matches("braid://").find('/').is_none();
    below.is_some_and(|rest| rest.starts_with('/') || (rest.is_empty() && !is_root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_a_directory_and_below_it_are_in_the_way_and_not_those_of_a_root() {
        let is = |place: &str, tree: &str| is_in_the_way(place, &tree.parse().unwrap());
        assert!(is("braid://v/a", "braid://v/a") && is("braid://v/a/b", "braid://v/a"));
        assert!(is("braid://v/a", "braid://v") && !is("braid://v", "braid://v"));
        assert!(!is("braid://v/ab", "braid://v/a") && !is("braid://v", "braid://v/a"));
        assert!(!is("braid://w/a", "braid://v"));
    }
}
