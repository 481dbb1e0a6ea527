//! What is at risk in a cluster: which drives their files cannot count on, how much is on them, and the command that mends it.

use braid_wire::control::{DriveRow, DriveState};
use serde::Serialize;

use crate::report::count;
use crate::shell::quoted;

/// One thing that is at risk, in `--json`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Risk {
    drive: String,
    /// `away`, `behind`, `replaced` or `damaged`.
    kind: &'static str,
    /// Components on the drive that cannot be counted on; of a damaged drive damaged units and lost ranges.
    count: u64,
    /// What is at risk, in words.
    what: String,
    /// What mends it.
    remedy: String,
}

/// All that is at risk, by what the manager knows of the drives.
pub(crate) fn risks(drives: &[DriveRow]) -> Vec<Risk> {
    drives.iter().flat_map(|row| [of_columns(row), of_damage(row)]).flatten().collect()
}

/// Columns that cannot be read, or not yet.
fn of_columns(row: &DriveRow) -> Option<Risk> {
    let name = &row.name;
    let typed = quoted(name.as_ref());
    let risk = |kind, count, what, remedy| Some(Risk { drive: name.clone(), kind, count, what, remedy });
    match row.state {
        DriveState::Away => {
            let components = count(row.components, "component");
            let behind =
                if row.stale > 0 { format!(", {} of them stale as well", row.stale) } else { String::new() };
            risk(
                "away",
                row.components,
                format!(
                    "{name} is away, silent for {} s: the files of its {components} go without{behind}",
                    row.silent_ms / 1000
                ),
                format!(
                    "start it on {} ({}), then `braid rebuild {typed}`; if it is lost, `braid drive replace {typed} NEW`, then \
                     `braid rebuild NEW`",
                    row.host, row.directory
                ),
            )
        }
        DriveState::Replaced if row.components > 0 => risk(
            "replaced",
            row.components,
            format!("{name} was replaced: {} not rebuilt elsewhere yet", are(row.components)),
            format!("`braid rebuild {typed}`, which rebuilds the drive that took its place"),
        ),
        _ if row.state != DriveState::Replaced && row.stale > 0 => risk(
            "behind",
            row.stale,
            format!("{name} is behind: {} stale, and their files go without", are(row.stale)),
            format!("`braid rebuild {typed}`"),
        ),
        _ => None,
    }
}

/// What the drive's scrub found.
fn of_damage(row: &DriveRow) -> Option<Risk> {
    let found = row.scrub.damaged.saturating_add(row.scrub.lost);
    if found == 0 || row.state == DriveState::Replaced {
        return None;
    }
    let (name, typed) = (&row.name, quoted(row.name.as_ref()));
    let ranges = match row.scrub.lost {
        0 => String::new(),
        lost => format!(" and {}", count(lost, "lost range")),
    };
    Some(Risk {
        drive: name.clone(),
        kind: "damaged",
        count: found,
        what: format!("{name} has {}{ranges}", count(row.scrub.damaged, "damaged unit")),
        remedy: format!(
            "`braid scrub --status {typed}` lists them; `braid drive replace {typed} NEW`, then `braid rebuild NEW`, writes them anew"
        ),
    })
}

fn are(components: u64) -> String {
    format!("{} {}", count(components, "component"), if components == 1 { "is" } else { "are" })
}

/// A line for each, for people; all is well if there is none.
pub(crate) fn show(risks: &[Risk]) -> String {
    if risks.is_empty() {
        return "all is well: no drive is away, behind or damaged\n".to_owned();
    }
    let mut text: String =
        risks.iter().map(|risk| format!("at risk: {}; {}\n", risk.what, risk.remedy)).collect();
    if drives(risks) > 1 {
        text.push_str(
            "at risk: files with columns on several of these drives may not be readable; `braid check --all braid://VOLUME` names \
             them\n",
        );
    }
    text
}

/// How many drives are concerned.
pub(crate) fn drives(risks: &[Risk]) -> usize {
    let names: std::collections::BTreeSet<&str> = risks.iter().map(|risk| risk.drive.as_str()).collect();
    names.len()
}

#[cfg(test)]
mod tests {
    use braid_layout::DriveId;
    use braid_wire::data::ScrubState;

    use super::*;

    fn row(name: &str, state: DriveState, components: u64, stale: u64) -> DriveRow {
        DriveRow {
            drive: DriveId(1),
            name: name.into(),
            state,
            address: "127.0.0.1:1".into(),
            host: "h".into(),
            rack: String::new(),
            directory: "/d".into(),
            pid: 1,
            capacity_bytes: 0,
            used_bytes: 0,
            live_bytes: 0,
            free_bytes: 0,
            spare_bytes: 0,
            silent_ms: 12_345,
            components,
            stale,
            scrub: ScrubState::default(),
            io: String::new(),
        }
    }

    #[test]
    fn each_kind_has_its_amount_and_its_command() {
        let damaged = DriveRow {
            scrub: ScrubState { damaged: 2, lost: 1, ..ScrubState::default() },
            ..row("e", DriveState::Up, 9, 0)
        };
        let rows = [
            row("well", DriveState::Up, 9, 0),
            row("a", DriveState::Away, 3, 1),
            row("b c", DriveState::Up, 9, 1),
            row("d", DriveState::Replaced, 5, 5),
            row("gone", DriveState::Replaced, 0, 0),
            damaged,
        ];
        let found = risks(&rows);
        let kinds: Vec<_> = found.iter().map(|risk| (risk.drive.as_str(), risk.kind, risk.count)).collect();
        assert_eq!(
            kinds,
            [("a", "away", 3), ("b c", "behind", 1), ("d", "replaced", 5), ("e", "damaged", 3)]
        );
        let text = show(&found);
        for words in [
            "a is away, silent for 12 s: the files of its 3 components go without, 1 of them stale as well; start it on h (/d)",
            "b c is behind: 1 component is stale, and their files go without; `braid rebuild 'b c'`",
            "d was replaced: 5 components are not rebuilt elsewhere yet; `braid rebuild d`",
            "e has 2 damaged units and 1 lost range; `braid scrub --status e`",
        ] {
            assert!(text.contains(words), "{words:?} is not in {text}");
        }
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(risks(&rows[..1]).is_empty() && show(&[]).starts_with("all is well"));
    }
}
