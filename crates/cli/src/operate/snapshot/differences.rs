//! `braid snapshot diff`.

use std::collections::{BTreeMap, BTreeSet};

use braid_client::{Client, Name};
use braid_wire::control::{ChangeKind, ChangeRow, EntryKind, NameBelow};
use serde::Serialize;

use crate::files::list::kind_shown;
use crate::files::names::Text;
use crate::output::exit::Failure;
use crate::output::report::{Report, show_name};

/// A difference in `--json`. Paths are relative to the directory that is compared.
#[derive(Debug, Serialize)]
struct Difference {
    /// `added`, `removed`, `renamed`, `modified` or `attributes`.
    change: &'static str,
    /// `file`, `directory`, `symbolic link`, or another kind.
    kind: &'static str,
    /// The name; of what was renamed, the former one.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    /// The new name of what was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_bytes: Option<String>,
    #[serde(skip)]
    line: String,
}

/// Prints what differs between a directory in a snapshot and the same directory later, in the order of names.
pub(crate) async fn show(client: &Client, from: &Name, to: &Name, report: Report) -> Result<(), Failure> {
    let mut changes = client.differences(from, to).all().await?;
    changes.retain(|row| row.change != ChangeKind::Entries);
    merge_replaced(&mut changes);
    changes.sort_by(|one, other| path_of(one).cmp(path_of(other)));
    let differences: Vec<Difference> = changes.iter().map(Difference::of).collect();
    report.facts(&differences, |all| all.iter().map(|one| format!("{}\n", one.line)).collect())
}

/// Tells a file that another has replaced as one that was changed, which it is by its name.
fn merge_replaced(changes: &mut Vec<ChangeRow>) {
    let files =
        |change: ChangeKind| move |row: &&ChangeRow| row.change == change && row.kind == EntryKind::File;
    let removed: BTreeSet<Vec<u8>> =
        changes.iter().filter(files(ChangeKind::Removed)).map(|row| path_of(row).to_vec()).collect();
    let added: BTreeMap<Vec<u8>, ChangeRow> = changes
        .iter()
        .filter(files(ChangeKind::Added))
        .filter(|row| removed.contains(path_of(row)))
        .map(|row| (path_of(row).to_vec(), row.clone()))
        .collect();
    changes.retain(|row| !(files(ChangeKind::Added)(&row) && added.contains_key(path_of(row))));
    for row in changes.iter_mut() {
        if files(ChangeKind::Removed)(&&*row)
            && let Some(now) = added.get(path_of(row))
        {
            (row.change, row.after) = (ChangeKind::Modified, now.after.clone());
        }
    }
}

/// The path under which a difference is listed.
fn path_of(row: &ChangeRow) -> &[u8] {
    row.before.as_ref().or(row.after.as_ref()).map_or(b"", |name| &name.path)
}

impl Difference {
    fn of(row: &ChangeRow) -> Difference {
        let change = match row.change {
            ChangeKind::Modified => "modified",
            ChangeKind::Added => "added",
            ChangeKind::Removed => "removed",
            ChangeKind::Renamed => "renamed",
            ChangeKind::Attributes => "attributes",
            ChangeKind::Entries => "entries",
        };
        let letter = match row.change {
            ChangeKind::Modified => 'M',
            ChangeKind::Added => 'A',
            ChangeKind::Removed => 'D',
            ChangeKind::Renamed => 'R',
            ChangeKind::Attributes | ChangeKind::Entries => 'P',
        };
        // What was only changed is told by its present name.
        let is_told_by_both = row.change == ChangeKind::Renamed;
        let first = match row.change {
            ChangeKind::Modified | ChangeKind::Attributes => row.after.as_ref().or(row.before.as_ref()),
            _ => row.before.as_ref().or(row.after.as_ref()),
        };
        let to = row.after.as_ref().filter(|_| is_told_by_both);
        let text = |name: &NameBelow| Text::new(if name.path.is_empty() { b"." } else { &name.path });
        let shown = |name: &NameBelow| if name.path.is_empty() { ".".into() } else { show_name(&name.path) };
        let arrow = to.map(|to| format!(" -> {}", shown(to))).unwrap_or_default();
        let line = format!("{letter} {}{arrow}", first.map(shown).unwrap_or_default());
        let first = first.map(text).unwrap_or_else(|| Text::new(b""));
        let to = to.map(text);
        Difference {
            change,
            kind: kind_shown(row.kind),
            path: first.text,
            path_bytes: first.bytes,
            to: to.as_ref().map(|to| to.text.clone()),
            to_bytes: to.and_then(|to| to.bytes),
            line,
        }
    }
}
