//! The cluster's managers, and the members of their etcd, for people and for `--json`.

use braid_wire::control::{ManagerRow, MemberRow, StatusReply};
use serde::Serialize;

use crate::operate::health::Risk;
use crate::output::report::{count, table};
use crate::output::{duration, size};

/// Lag after which a manager that stands by is a risk: it would take over late.
const SILENT_MS_MAX: u64 = 10_000;

/// The managers and the members of etcd.
#[derive(Debug, Serialize)]
pub(crate) struct Facts {
    /// The managers, the one that leads first.
    pub(crate) managers: Vec<ManagerFacts>,
    /// The members of the etcd that holds the managers' state; none: it is in the manager's own directory.
    pub(crate) members: Vec<MemberFacts>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ManagerFacts {
    address: String,
    leads: bool,
    /// Time since the manager was last heard.
    silent_ms: u64,
    /// Changes that it has not taken over yet.
    lag: u64,
    /// Its release; empty if not known.
    version: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct MemberFacts {
    name: String,
    peer: String,
    healthy: bool,
    leads: bool,
    database_bytes: u64,
    alarms: Vec<String>,
}

impl From<&ManagerRow> for ManagerFacts {
    fn from(row: &ManagerRow) -> ManagerFacts {
        let ManagerRow { address, leads, silent_ms, lag, version } = row.clone();
        ManagerFacts { address, leads, silent_ms, lag, version }
    }
}

impl From<&MemberRow> for MemberFacts {
    fn from(row: &MemberRow) -> MemberFacts {
        let MemberRow { name, peer, healthy, leads, database_bytes, alarms } = row.clone();
        MemberFacts { name, peer, healthy, leads, database_bytes, alarms }
    }
}

/// The part of a status that is about the managers.
pub(crate) fn facts(status: &StatusReply) -> Facts {
    Facts {
        managers: status.managers.iter().map(ManagerFacts::from).collect(),
        members: status.members.iter().map(MemberFacts::from).collect(),
    }
}

/// Dangers to the managers' state, or to the next manager's taking over.
pub(crate) fn risks(status: &StatusReply) -> Vec<Risk> {
    let is_silent = |row: &ManagerRow| !row.leads && row.silent_ms > SILENT_MS_MAX;
    let of_manager = |row: &ManagerRow| {
        let name = &row.address;
        let member = status.members.iter().find(|member| member.name == *name);
        let silent = duration::show(row.silent_ms);
        let lag =
            if row.lag > 0 { format!(", and is {} behind", count(row.lag, "change")) } else { String::new() };
        let risk = match member {
            Some(member) if !member.healthy => (
                format!("the manager {name} was not heard for {silent}, and its etcd does not answer"),
                format!("start it on its host; if the host is lost: braid manager replace {name}"),
            ),
            _ => (
                format!("the manager {name} was not heard for {silent}{lag}"),
                "see that it runs, and reaches the others".to_owned(),
            ),
        };
        is_silent(row).then(|| Risk::of_manager(name, "manager-behind", risk.0, risk.1))
    };
    let is_told = |name: &str| status.managers.iter().any(|row| row.address == name && is_silent(row));
    let of_member = |row: &MemberRow| {
        let name = if row.name.is_empty() { &row.peer } else { &row.name };
        let away = (!row.healthy && !is_told(name)).then(|| {
            Risk::of_manager(
                name,
                "etcd-away",
                format!("the etcd member {name} does not answer, or knows no leader"),
                "start it on its host; if the host is lost, put another in its place (docs/operations.md)"
                    .to_owned(),
            )
        });
        let alarm = (!row.alarms.is_empty()).then(|| {
            let alarms = row.alarms.join(", ");
            Risk::of_manager(
                name,
                "etcd-alarm",
                format!("the etcd member {name} raises {alarms}, and may take no more changes"),
                "etcdctl alarm list; of NOSPACE: compact, defragment and disarm, or raise its quota"
                    .to_owned(),
            )
        });
        away.into_iter().chain(alarm)
    };
    let managers = status.managers.iter().filter_map(of_manager);
    managers.chain(status.members.iter().flat_map(of_member)).collect()
}

/// The tables for people; empty for one manager with its state in its own directory.
pub(crate) fn show(facts: &Facts) -> String {
    let is_alone = facts.managers.len() < 2 && facts.members.is_empty();
    if is_alone { String::new() } else { tables(facts) }
}

/// The tables for people, also of one manager.
pub(crate) fn tables(facts: &Facts) -> String {
    let managers = facts.managers.iter().map(|manager| {
        let role = match manager.leads {
            true => "leads",
            false if manager.silent_ms > SILENT_MS_MAX => "silent",
            false => "stands by",
        };
        let behind = if manager.leads { String::new() } else { manager.lag.to_string() };
        let heard =
            if manager.leads { String::new() } else { format!("{} ago", duration::show(manager.silent_ms)) };
        vec![manager.address.clone(), role.to_owned(), behind, heard, manager.version.clone()]
    });
    let managers = table(&["manager", "role", "behind", "heard", "version"], &[2, 3], managers);
    if facts.members.is_empty() {
        return managers;
    }
    let members = facts.members.iter().map(|member| {
        let role = match (member.healthy, member.leads) {
            (false, _) => "does not answer",
            (true, true) => "leads",
            (true, false) => "follows",
        };
        let database = size::show(member.database_bytes);
        vec![member.name.clone(), member.peer.clone(), role.to_owned(), database, member.alarms.join(", ")]
    });
    managers + &table(&["etcd", "address", "role", "database", "alarms"], &[3], members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(address: &str, leads: bool, lag: u64, silent_ms: u64) -> ManagerRow {
        ManagerRow { address: address.into(), leads, silent_ms, lag, version: "0.1.0".into() }
    }

    fn member(name: &str, healthy: bool, alarms: &[&str]) -> MemberRow {
        let alarms = alarms.iter().map(|alarm| (*alarm).to_owned()).collect();
        MemberRow {
            name: name.into(),
            peer: format!("{name}:2380"),
            healthy,
            leads: name == "a",
            database_bytes: 3 << 20,
            alarms,
        }
    }

    fn status(managers: Vec<ManagerRow>, members: Vec<MemberRow>) -> StatusReply {
        crate::operate::health::tests::status(managers, members)
    }

    #[test]
    fn several_managers_are_shown_with_who_leads_and_one_alone_is_not() {
        let alone = status(vec![manager("a:1", true, 0, 0)], Vec::new());
        assert_eq!(show(&facts(&alone)), "");
        assert!(risks(&alone).is_empty());
        let three = status(
            vec![manager("b:1", true, 0, 0), manager("a:1", false, 7, 2500), manager("c:1", false, 0, 0)],
            vec![member("a", true, &[]), member("b", true, &[])],
        );
        let text = show(&facts(&three));
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["b:1", "leads", "0.1.0"], "{text}");
        assert_eq!(lines[2], ["a:1", "stands", "by", "7", "3", "s", "ago", "0.1.0"], "{text}");
        assert_eq!(
            (&lines[5][..3], &lines[6][1..3]),
            (&["a", "a:2380", "leads"][..], &["b:2380", "follows"][..])
        );
        assert!(risks(&three).is_empty());
    }

    #[test]
    fn a_late_manager_and_a_sick_member_are_risks() {
        let sick = status(
            vec![manager("a:1", true, 0, 0), manager("b:1", false, 9, 11_000)],
            vec![member("a", true, &["NOSPACE"]), member("b", false, &[])],
        );
        let found = risks(&sick);
        let text = crate::operate::health::show(&found, "");
        for words in [
            "b:1 was not heard for 11 s, and is 9 changes behind",
            "member a raises NOSPACE",
            "member b does not",
        ] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
        assert_eq!((found.len(), text.lines().count()), (3, 3), "{text}");
        let (why, _) = crate::operate::health::verdict(&found, "", 4).expect("not well");
        assert_eq!(why, "the managers are at risk");
    }

    #[test]
    fn a_host_that_is_lost_is_one_risk_which_names_the_command() {
        let lost = status(
            vec![manager("a", true, 0, 0), manager("b", false, 2, 75_000)],
            vec![member("a", true, &[]), member("b", false, &[])],
        );
        let found = risks(&lost);
        let text = crate::operate::health::show(&found, "");
        assert_eq!(found.len(), 1, "{text}");
        for words in ["b was not heard for 75 s, and its etcd does not answer", "braid manager replace b"] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
        let shown = tables(&facts(&lost));
        assert!(shown.lines().any(|line| line.starts_with("b ") && line.contains("silent")), "{shown}");
    }
}
