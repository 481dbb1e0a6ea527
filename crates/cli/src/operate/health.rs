//! Risks in a cluster: the drives whose data files cannot count on, how much is on them, and the command that
//! repairs it.

use braid_wire::control::{DriveRow, DriveState};
use serde::Serialize;

use crate::output::report::count;
use crate::output::shell::quoted;

/// Remedy for files of a store that are missing or altered. Their data stays readable until the drive
/// restarts, so by then nothing may depend on it.
pub(crate) const REMEDY_FILES: &str = "files of a running drive were deleted, replaced or cut short: replace the drive by an empty one \
     (braid drive replace OLD NEW, braid rebuild NEW) before it is started again";

/// One thing that is at risk, in `--json`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Risk {
    /// Name of the drive; empty for a manager or a member of etcd.
    drive: String,
    /// Address of the manager, or name of the member of etcd; empty for a drive.
    manager: String,
    /// Of a drive `away`, `hangs`, `behind`, `lost`, `replaced`, `full`, `damaged` or `derated`; else
    /// `manager-behind`, `etcd-away` or `etcd-alarm`.
    kind: &'static str,
    /// Number of components on the drive that cannot be counted on. For a damaged drive: damaged units, lost
    /// objects and ranges, and files that are missing or not its own.
    count: u64,
    /// The risk in words.
    what: String,
    /// The command that repairs it. Empty if the manager's doubt about its own state must be resolved first.
    remedy: String,
}

impl Risk {
    fn of_drive(name: &str, kind: &'static str, count: u64, what: String, remedy: String) -> Risk {
        Risk { drive: name.to_owned(), manager: String::new(), kind, count, what, remedy }
    }

    pub(crate) fn of_manager(name: &str, kind: &'static str, what: String, remedy: String) -> Risk {
        Risk { drive: String::new(), manager: name.to_owned(), kind, count: 1, what, remedy }
    }
}

/// Lists all risks, from what the manager knows of the drives. `notice` is what the manager says about its
/// own state.
pub(crate) fn risks(drives: &[DriveRow], notice: &str) -> Vec<Risk> {
    drives
        .iter()
        .flat_map(|row| [of_columns(row, notice), of_lost(row), of_room(row), of_damage(row), of_derate(row)])
        .flatten()
        .collect()
}

/// Time for which a drive was silent, in words.
pub(crate) fn silence(row: &DriveRow) -> String {
    match row.silent_ms {
        u64::MAX => "not heard of since the manager's start".to_owned(),
        ms => format!("silent for {} s", ms / 1000),
    }
}

/// The risk of columns that cannot be read now.
fn of_columns(row: &DriveRow, notice: &str) -> Option<Risk> {
    let name = &row.name;
    let risk = |kind, count, what, remedy| Some(Risk::of_drive(name, kind, count, what, remedy));
    match row.state {
        DriveState::Away if row.stalled_ms > 0 => {
            let components = count(row.components, "component");
            let seconds = row.stalled_ms / 1000;
            let what = format!(
                "{name}'s disk hangs: a commit has been under way for {seconds} s: the files of its {components} are degraded"
            );
            let remedy = format!(
                "look at the kernel's log on {} ({}); it serves again by itself when the disk answers; if it does not, `braid \
                 drive replace {} NEW`, then `braid rebuild NEW`",
                row.host,
                row.directory,
                quoted(name.as_ref())
            );
            risk("hangs", row.components, what, remedy)
        }
        DriveState::Away if row.components == 0 => risk(
            "away",
            0,
            format!("{name} is away, {}, and holds no component", silence(row)),
            of_away(row, notice),
        ),
        DriveState::Away => {
            let components = count(row.components, "component");
            let behind =
                if row.stale > 0 { format!(", {} of them stale as well", row.stale) } else { String::new() };
            risk(
                "away",
                row.components,
                format!(
                    "{name} is away, {}: the files of its {components} are degraded{behind}",
                    silence(row)
                ),
                of_away(row, notice),
            )
        }
        DriveState::Replaced if row.components > 0 => risk(
            "replaced",
            row.components,
            format!("{name} was replaced: {} not rebuilt elsewhere yet", are(row.components)),
            "they are made anew: `braid heal --watch`".to_owned(),
        ),
        _ if row.state != DriveState::Replaced && row.stale > row.lost => {
            let stale = row.stale - row.lost;
            risk(
                "behind",
                stale,
                format!("{name} is behind: {} stale, and their files are degraded", are(stale)),
                "it catches up: `braid heal --watch`".to_owned(),
            )
        }
        _ => None,
    }
}

/// The risk of columns that nothing brings up to date.
fn of_lost(row: &DriveRow) -> Option<Risk> {
    if row.lost == 0 || row.state == DriveState::Replaced {
        return None;
    }
    let what = format!(
        "{} has {} that cannot be brought up to date: too few columns of their files are left",
        row.name,
        count(row.lost, "component")
    );
    let remedy = "`braid check --all braid://VOLUME` names the files, and after a restore comparison.txt in the manager's directory; \
                  remove them, or copy them there anew"
        .to_owned();
    Some(Risk::of_drive(&row.name, "lost", row.lost, what, remedy))
}

/// The risk of a drive without room for writes.
fn of_room(row: &DriveRow) -> Option<Risk> {
    if row.room || row.state != DriveState::Up {
        return None;
    }
    let what = format!(
        "{} is full: it takes no new files, and writes to the files of its {} may be refused",
        row.name,
        count(row.components, "component")
    );
    let remedy =
        "remove files, make room on its disk, or add drives (`braid rebalance`); see `braid df`".to_owned();
    Some(Risk::of_drive(&row.name, "full", row.components, what, remedy))
}

/// The risk of a drive whose disk does less than what was promised on.
fn of_derate(row: &DriveRow) -> Option<Risk> {
    let parts = row.parts.as_ref().filter(|parts| parts.derate < 1000 && row.state == DriveState::Up)?;
    let name = &row.name;
    let what = format!(
        "{name} is derated to {} % of its calibrated capacity: {}",
        parts.derate / 10,
        parts.derate_cause
    );
    let remedy = format!(
        "look for what else uses its disk on {}, and at the kernel's log; if it is so to stay: `braid drive calibrate {}`",
        row.host,
        quoted(name.as_ref())
    );
    Some(Risk::of_drive(name, "derated", row.components, what, remedy))
}

/// Remedy for a drive that is away.
fn of_away(row: &DriveRow, notice: &str) -> String {
    let typed = quoted(row.name.as_ref());
    if !notice.is_empty() {
        // The drive may be running, and a manager that cannot do its work replaces no drive: its notice comes
        // first.
        return String::new();
    }
    if row.scrub.wrong_files > 0 {
        // After a restart, the drive would lack what was in those files.
        return format!("`braid drive replace {typed} NEW`, then `braid rebuild NEW`");
    }
    if row.components == 0 {
        return format!(
            "start it on {} ({}), or take it out: `braid drive rm {typed}`",
            row.host, row.directory
        );
    }
    format!(
        "start it on {} ({}), then `braid rebuild {typed}`; if it is lost, `braid drive replace {typed} NEW`, then `braid rebuild \
         NEW`",
        row.host, row.directory
    )
}

/// The risk of the damage that the drive's scrub found.
fn of_damage(row: &DriveRow) -> Option<Risk> {
    let scrub = &row.scrub;
    let kinds = [
        (scrub.damaged, "damaged unit"),
        (scrub.objects, "lost object"),
        (scrub.lost, "lost range"),
        (scrub.wrong_files, "missing file"),
    ];
    let found = kinds.iter().fold(0, |all: u64, (number, _)| all.saturating_add(*number));
    if found == 0 || row.state == DriveState::Replaced {
        return None;
    }
    let (name, typed) = (&row.name, quoted(row.name.as_ref()));
    let has = kinds.iter().filter(|(number, _)| *number > 0).map(|&(number, what)| count(number, what));
    let mends = if scrub.wrong_files > 0 {
        REMEDY_FILES.to_owned()
    } else {
        format!(
            "the drive has them made anew from the files' other columns, and `braid heal` says what that waits for; if it stays \
             so, `braid drive replace {typed} NEW`, then `braid rebuild NEW`"
        )
    };
    let what = format!("{name} has {}", has.collect::<Vec<_>>().join(" and "));
    let remedy = format!("`braid scrub --status {typed}` lists them; {mends}");
    Some(Risk::of_drive(name, "damaged", found, what, remedy))
}

fn are(components: u64) -> String {
    format!("{} {}", count(components, "component"), if components == 1 { "is" } else { "are" })
}

/// Text for users: the manager's notice about its own state, then a line per risk. Without either it says
/// that all is well.
pub(crate) fn show(risks: &[Risk], notice: &str) -> String {
    if risks.is_empty() && notice.is_empty() {
        return "all is well: no drive is away, behind, full or damaged\n".to_owned();
    }
    let mut text = if notice.is_empty() { String::new() } else { format!("! {notice}\n") };
    text.extend(risks.iter().map(|risk| match risk.remedy.as_str() {
        "" => format!("at risk: {}\n", risk.what),
        remedy => format!("at risk: {}; {remedy}\n", risk.what),
    }));
    if drives(risks) > 1 {
        text.push_str(
            "at risk: files with columns on several of these drives may not be readable; `braid check --all braid://VOLUME` names \
             them\n",
        );
    }
    text
}

/// Reason why the cluster is not well, in one line, and what to do; `None` if it is well.
pub(crate) fn verdict(risks: &[Risk], notice: &str, all: u64) -> Option<(String, &'static str)> {
    let at_risk = || match drives(risks) {
        0 => "the managers are at risk".to_owned(),
        some => format!("{some} of {} at risk", count(all, "drive")),
    };
    let of_risks = "the lines \"at risk\" say what, and the command that mends it";
    match (risks.is_empty(), notice.is_empty()) {
        (true, true) => None,
        (false, true) => Some((at_risk(), of_risks)),
        (no_risk, false) => {
            let also = if no_risk { String::new() } else { format!("; {}", at_risk()) };
            let why = format!("the manager does not do all of its work{also}");
            Some((why, "the line that begins with ! says why"))
        }
    }
}

/// Number of drives at risk.
fn drives(risks: &[Risk]) -> usize {
    let names = risks.iter().map(|risk| risk.drive.as_str()).filter(|name| !name.is_empty());
    names.collect::<std::collections::BTreeSet<&str>>().len()
}

#[cfg(test)]
pub(crate) mod tests {
    use braid_layout::{ClusterId, DriveId};
    use braid_wire::control::{Latency, ManagerRow, MemberRow, NamesState, StatusReply};
    use braid_wire::data::{DriveParts, ScrubState};

    use super::*;

    pub(crate) fn row(name: &str, state: DriveState, components: u64, stale: u64) -> DriveRow {
        DriveRow {
            drive: DriveId(1),
            name: name.into(),
            state,
            addresses: "127.0.0.1:1".into(),
            host: "h".into(),
            rack: String::new(),
            directory: "/d".into(),
            pid: 1,
            capacity_bytes: 0,
            used_bytes: 0,
            live_bytes: 0,
            free_bytes: 0,
            spare_bytes: 0,
            file_system: Default::default(),
            room: true,
            silent_ms: 12_345,
            components,
            stale,
            lost: 0,
            scrub: ScrubState::default(),
            io: String::new(),
            stalled_ms: 0,
            reads: Latency::default(),
            commits: Latency::default(),
            counts: Default::default(),
            parts: None,
            slow: String::new(),
            draining: false,
            paused_ms: 0,
        }
    }

    /// The status of a cluster without drives.
    pub(crate) fn status(managers: Vec<ManagerRow>, members: Vec<MemberRow>) -> StatusReply {
        StatusReply {
            cluster: ClusterId(1),
            volumes: 0,
            files: 0,
            removing: 0,
            drives: Vec::new(),
            pid: 1,
            uptime_ms: 0,
            directory: String::new(),
            notice: String::new(),
            names: NamesState { drives: Vec::new(), wanted: 0, behind_ms: 0, bytes: 0 },
            managers,
            members,
        }
    }

    #[test]
    fn a_derated_drive_is_a_risk_with_its_remedy() {
        let parts = |derate| DriveParts {
            cost: None,
            derate,
            derate_cause: "others use 40 % of its disk's time".to_owned(),
            model: None,
            rail_bytes_per_second: 0,
            refused: String::new(),
        };
        let with = |derate| DriveRow { parts: Some(parts(derate)), ..row("d", DriveState::Up, 9, 0) };
        assert_eq!(risks(&[with(1000)], ""), []);
        let [risk] = &risks(&[with(600)], "")[..] else { panic!("one risk") };
        assert!(risk.what.contains("60 %") && risk.what.contains("others use"), "{}", risk.what);
        assert!(risk.remedy.contains("braid drive calibrate d"), "{}", risk.remedy);
    }

    #[test]
    fn each_kind_has_its_amount_and_its_command() {
        let scrubbed = |name, scrub| DriveRow { scrub, ..row(name, DriveState::Up, 9, 0) };
        let rows = [
            row("well", DriveState::Up, 9, 0),
            row("a", DriveState::Away, 3, 1),
            row("b c", DriveState::Up, 9, 1),
            row("d", DriveState::Replaced, 5, 5),
            row("gone", DriveState::Replaced, 0, 0),
            DriveRow { lost: 1, ..row("l", DriveState::Up, 9, 3) },
            DriveRow { lost: 2, silent_ms: u64::MAX, ..row("m", DriveState::Away, 9, 2) },
            DriveRow { room: false, ..row("n", DriveState::Up, 9, 0) },
            scrubbed("e", ScrubState { damaged: 2, lost: 1, ..ScrubState::default() }),
            scrubbed("f", ScrubState { wrong_files: 3, ..ScrubState::default() }),
        ];
        let found = risks(&rows, "");
        let kinds: Vec<_> = found.iter().map(|risk| (risk.drive.as_str(), risk.kind, risk.count)).collect();
        assert_eq!(
            kinds,
            [
                ("a", "away", 3),
                ("b c", "behind", 1),
                ("d", "replaced", 5),
                ("l", "behind", 2),
                ("l", "lost", 1),
                ("m", "away", 9),
                ("m", "lost", 2),
                ("n", "full", 9),
                ("e", "damaged", 3),
                ("f", "damaged", 3)
            ]
        );
        let text = show(&found, "");
        for words in [
            "a is away, silent for 12 s: the files of its 3 components are degraded, 1 of them stale as well; start it on h (/d)",
            "b c is behind: 1 component is stale, and their files are degraded; it catches up: `braid heal --watch`",
            "d was replaced: 5 components are not rebuilt elsewhere yet; they are made anew: `braid heal --watch`",
            "l is behind: 2 components are stale",
            "l has 1 component that cannot be brought up to date: too few columns",
            "m is away, not heard of since the manager's start: the files of its 9 components",
            "n is full: it takes no new files, and writes to the files of its 9 components may be refused; remove files",
            "e has 2 damaged units and 1 lost range; `braid scrub --status e`",
            "f has 3 missing files; `braid scrub --status f` lists them; files of a running drive were deleted",
        ] {
            assert!(text.contains(words), "{words:?} is not in {text}");
        }
        assert_eq!(text.lines().count(), 11, "{text}");
        assert!(risks(&rows[..1], "").is_empty() && show(&[], "").starts_with("all is well"));
        let (why, _) = verdict(&found, "", 10).expect("not well");
        assert_eq!(why, "8 of 10 drives at risk");
        assert_eq!(verdict(&[], "", 7), None);
    }

    #[test]
    fn a_drive_that_is_away_and_empty_may_leave() {
        let text = show(&risks(&[row("a", DriveState::Away, 0, 0)], ""), "");
        assert!(
            text.contains("and holds no component; start it on h (/d), or take it out: `braid drive rm a`"),
            "{text}"
        );
    }

    #[test]
    fn a_manager_in_doubt_is_not_well_and_sends_nobody_to_replace_drives() {
        let away = [row("a", DriveState::Away, 3, 0)];
        let found = risks(&away, "its state is older");
        assert_eq!(found[0].remedy, "");
        let text = show(&found, "its state is older");
        assert!(
            text.starts_with("! its state is older\nat risk: a is away") && text.ends_with("are degraded\n"),
            "{text}"
        );
        let (why, _) = verdict(&found, "its state is older", 4).expect("not well");
        assert!(why.ends_with("1 of 4 drives at risk"), "{why}");
        assert_eq!(show(&[], "its state is older"), "! its state is older\n");
        let (why, remedy) = verdict(&[], "its state is older", 4).expect("not well");
        assert!(!why.contains("at risk") && remedy.contains('!'), "{why}; {remedy}");
    }

    #[test]
    fn a_drive_that_lost_files_under_it_is_not_to_be_started_again() {
        let scrub = ScrubState { wrong_files: 1, ..ScrubState::default() };
        let found = risks(&[DriveRow { scrub, ..row("a", DriveState::Away, 3, 0) }], "");
        assert_eq!(found[0].remedy, "`braid drive replace a NEW`, then `braid rebuild NEW`");
        assert!(found[1].remedy.contains("before it is started again"), "{}", found[1].remedy);
    }
}
