//! `chmod`, `chown`, `ln` and `touch`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use braid_client::{AttributeChanges, Client, Name, OpenOptions};
use braid_wire::Reason;
use braid_wire::control::{EntryKind, StatRow};

use crate::files::names::{remote, show_remote};
use crate::files::{mode, namespace};
use crate::output::exit::{Doing, Exit, Failure};
use crate::{args, connect};

/// Runs `braid chmod`.
pub(crate) async fn chmod(chmod: args::Chmod, cluster: Option<&Path>) -> Result<(), Failure> {
    let change = mode::parse(&chmod.mode).map_err(|why| Failure::usage("chmod", why))?;
    let names = names(&chmod.names)?;
    let client = connect::cluster(cluster).await?;
    for name in names {
        each(&client, name, chmod.recursive, |row| {
            // The permission bits of a symbolic link itself are never looked at.
            let mode =
                (row.kind() != EntryKind::Symlink).then(|| change.apply(row.attributes.mode, row.kind()));
            AttributeChanges { mode, ..AttributeChanges::NONE }
        })
        .await?;
    }
    Ok(())
}

/// Runs `braid chown`.
pub(crate) async fn chown(chown: args::Chown, cluster: Option<&Path>) -> Result<(), Failure> {
    let (user, group) = match chown.owner.split_once(':') {
        Some((user, group)) => (user, group),
        None => (chown.owner.as_str(), ""),
    };
    let number = |name: &str, database| if name.is_empty() { Ok(None) } else { id(name, database).map(Some) };
    let uid = number(user, "passwd")?;
    let gid = number(group, "group")?;
    if (uid, gid) == (None, None) {
        return Err(Failure::usage("chown", "no user and no group: write USER, USER:GROUP or :GROUP"));
    }
    let names = names(&chown.names)?;
    let client = connect::cluster(cluster).await?;
    for name in names {
        let changes = AttributeChanges { uid, gid, ..AttributeChanges::NONE };
        each(&client, name, chown.recursive, |_| changes).await?;
    }
    Ok(())
}

/// Runs `braid ln`.
pub(crate) async fn ln(ln: args::Ln, cluster: Option<&Path>) -> Result<(), Failure> {
    let name = remote(&ln.name)?;
    let client = connect::cluster(cluster).await?;
    if ln.symbolic {
        client.symlink(ln.target.as_bytes(), &name).await?;
    } else {
        client.hard_link(&remote(&ln.target)?, &name).await?;
    }
    Ok(())
}

/// Runs `braid touch`.
pub(crate) async fn touch(touch: args::Touch, cluster: Option<&Path>) -> Result<(), Failure> {
    let at_ns = match &touch.date {
        Some(date) => parse_date(date).ok_or_else(|| {
            Failure::usage(format!("touch --date {date}"), "write it as @SECONDS, with a fraction if need be")
        })?,
        None => now_ns(),
    };
    let names = names(&touch.names)?;
    let client = connect::cluster(cluster).await?;
    for name in names {
        let accessed = touch.access || !touch.modification;
        let modified = touch.modification || !touch.access;
        let changes = AttributeChanges {
            accessed_ns: accessed.then_some(at_ns),
            modified_ns: modified.then_some(at_ns),
            ..AttributeChanges::NONE
        };
        match client.set_attributes(&name, changes).await {
            Err(error) if error.reason() == Some(Reason::NotFound) => {
                if !touch.no_create {
                    client.open(&name, &OpenOptions::new().write(true).create(true)).await?.close().await?;
                    client.set_attributes(&name, changes).await?;
                }
            }
            set => drop(set?),
        }
    }
    Ok(())
}

/// Runs `braid truncate`.
pub(crate) async fn truncate(truncate: args::Truncate, cluster: Option<&Path>) -> Result<(), Failure> {
    let names = names(&truncate.names)?;
    let client = connect::cluster(cluster).await?;
    for name in names {
        let options = OpenOptions::new().write(true).create(!truncate.no_create);
        let file = match client.open(&name, &options).await {
            Err(error) if error.reason() == Some(Reason::NotFound) && truncate.no_create => continue,
            opened => opened?,
        };
        let set = async {
            if truncate.allocate {
                // First, as it may fail.
                file.reserve_space(0..truncate.size).await?;
            }
            file.set_len(truncate.size).await
        };
        let set = set.await;
        file.close().await?;
        set?;
    }
    Ok(())
}

/// Changes the attributes of the named entry and, with `recursive`, of everything below it.
async fn each(
    client: &Client,
    root: Name,
    recursive: bool,
    changes: impl Fn(&StatRow) -> AttributeChanges,
) -> Result<(), Failure> {
    let mut waiting = vec![root.clone()];
    while let Some(name) = waiting.pop() {
        let row = match client.stat_itself(&name).await {
            // The entry was removed since it was found.
            Err(error) if error.reason() == Some(Reason::NotFound) && name != root => continue,
            row => row?,
        };
        if recursive && row.kind() == EntryKind::Directory {
            for entry in namespace::entries_if_there(client, &name).await? {
                waiting.push(name.join(&entry.name).doing(|| format!("read {}", show_remote(&name)))?);
            }
        }
        let changes = changes(&row);
        if changes != AttributeChanges::NONE {
            match client.set_attributes(&name, changes).await {
                Err(error) if error.reason() == Some(Reason::NotFound) && name != root => {}
                set => drop(set?),
            }
        }
    }
    Ok(())
}

fn names(names: &[OsString]) -> Result<Vec<Name>, Failure> {
    names.iter().map(|name| remote(name)).collect()
}

/// Finds the number of a user or group: as given, or as this machine knows the name.
/// The number of a user that is named by its name or number.
pub(crate) fn user_id(name: &str) -> Result<u32, Failure> {
    id(name, "passwd")
}

fn id(name: &str, database: &str) -> Result<u32, Failure> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let what = || format!("look {name} up in {database}");
    let found = Command::new("getent").args([database, "--", name]).output().doing(what)?;
    let line = String::from_utf8_lossy(&found.stdout).into_owned();
    // NAME:password:NUMBER:...
    line.split(':').nth(2).and_then(|number| number.trim().parse().ok()).ok_or_else(|| {
        Failure::new(Exit::NotFound, what(), "this machine knows no such name").remedy("give its number")
    })
}

/// Parses `@SECONDS` since 1970, with up to nine decimal places, to nanoseconds.
fn parse_date(text: &str) -> Option<i64> {
    let text = text.strip_prefix('@')?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    let ns: i64 = format!("{fraction:0<9}").parse().ok()?;
    let ns = if whole.starts_with('-') { -ns } else { ns };
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_seconds_with_a_fraction() {
        assert_eq!(parse_date("@1"), Some(1_000_000_000));
        assert_eq!(parse_date("@1.5"), Some(1_500_000_000));
        assert_eq!(parse_date("@-1.000000001"), Some(-1_000_000_001));
        for bad in ["1", "@", "@1.", "@1.0000000001", "@x", "@99999999999999999999"] {
            assert_eq!(parse_date(bad), (bad == "@1.").then_some(1_000_000_000), "{bad}");
        }
    }

    #[test]
    fn users_are_numbers_or_names() {
        assert_eq!(id("1000", "passwd").expect("a number"), 1000);
        assert_eq!(id("root", "passwd").expect("there on every machine"), 0);
        assert!(id("no-such-user-here", "passwd").is_err());
    }
}
