//! The transport in `braid status`: what is asked for, by what, and what it comes to with each drive.

use braid_client::{Client, Datagrams, Transport};
use braid_wire::control::{DriveRow, DriveState};
use serde::Serialize;

use crate::output::report::count;

/// The transport in `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Facts {
    /// "tcp", "udp" or "auto", with a policy if it is not the default.
    asked: String,
    /// That which asks for it: --transport, BRAID_TRANSPORT, cluster.toml or default.
    by: &'static str,
    /// The way that data goes, by drive that is up, as far as it was looked at.
    drives: Vec<DriveFacts>,
}

#[derive(Debug, Serialize)]
struct DriveFacts {
    name: String,
    /// "tcp" or "udp"; null if no session comes about.
    way: Option<&'static str>,
    /// Time in which datagrams were answered, about two round trips; null if they were not.
    answered_us: Option<u64>,
    /// Reason for which datagrams were not answered; null if they were.
    why: Option<String>,
}

/// Looks at the way to each drive that is up, at its first address, if datagrams may be used.
pub(crate) async fn facts(client: &Client, by: &'static str, drives: &[DriveRow]) -> Facts {
    let asked = client.config().transport;
    let facts = |drives| Facts { asked: asked.to_string(), by, drives };
    if asked == Transport::Tcp {
        return facts(Vec::new());
    }
    let up: Vec<&DriveRow> = drives.iter().filter(|row| row.state == DriveState::Up).collect();
    let addresses = up.iter().filter_map(|row| row.addresses.iter().next()).map(str::to_owned).collect();
    let seen = client.see_datagrams(addresses).await;
    facts(up.iter().zip(seen).map(|(row, seen)| drive_facts(asked, row.name.clone(), seen)).collect())
}

fn drive_facts(asked: Transport, name: String, seen: Datagrams) -> DriveFacts {
    let way = way(asked, &seen);
    match seen {
        Datagrams::In(took) => {
            let answered_us = u64::try_from(took.as_micros()).ok();
            DriveFacts { name, way, answered_us, why: None }
        }
        Datagrams::Not(why) => DriveFacts { name, way, answered_us: None, why: Some(why) },
        Datagrams::NotAsked => DriveFacts { name, way, answered_us: None, why: None },
    }
}

/// The way that data goes, if datagrams do so; `None`: no session comes about.
pub(crate) fn way(asked: Transport, seen: &Datagrams) -> Option<&'static str> {
    match (asked, seen) {
        (Transport::Tcp, _) | (Transport::Auto(_), Datagrams::Not(_) | Datagrams::NotAsked) => Some("tcp"),
        (_, Datagrams::In(_)) => Some("udp"),
        (Transport::Udp(_), Datagrams::Not(_) | Datagrams::NotAsked) => None,
    }
}

/// The line of `braid status`.
pub(crate) fn line(facts: &Facts) -> String {
    let head = format!("transport: {} ({})", facts.asked, facts.by);
    if facts.drives.is_empty() {
        return head + "\n";
    }
    let by_udp = facts.drives.iter().filter(|drive| drive.why.is_none()).count();
    let others = facts.drives.iter().filter_map(|drive| {
        let how = drive.way.map_or_else(|| "none".to_owned(), str::to_owned);
        Some(format!("; {how} with {}: {}", drive.name, drive.why.as_ref()?))
    });
    let by_udp = count(u64::try_from(by_udp).unwrap_or(u64::MAX), "drive");
    format!("{head}: udp with {by_udp}{}\n", others.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_line_says_what_is_used_with_whom_and_why() {
        let said = |asked: Transport, seen: Vec<Datagrams>| {
            let seen = seen.into_iter().zip(["a", "b"]);
            let drives = seen.map(|(seen, name)| drive_facts(asked, name.to_owned(), seen)).collect();
            line(&Facts { asked: asked.to_string(), by: "cluster.toml", drives })
        };
        let passed = || Datagrams::In(Duration::from_micros(1));
        let filtered = || Datagrams::Not("no answer".to_owned());
        assert_eq!(said(Transport::Tcp, Vec::new()), "transport: tcp (cluster.toml)\n");
        assert_eq!(
            said(Transport::AUTO, vec![passed(), filtered()]),
            "transport: auto (cluster.toml): udp with 1 drive; tcp with b: no answer\n"
        );
        assert_eq!(
            said(Transport::UDP, vec![passed(), filtered()]),
            "transport: udp (cluster.toml): udp with 1 drive; none with b: no answer\n"
        );
    }
}
