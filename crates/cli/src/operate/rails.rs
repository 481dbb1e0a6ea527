//! `braid status --rails`: the addresses of each drive, and which of them this client reaches.

use std::path::Path;

use braid_client::{Datagrams, RailSeen, Reached, Transport};
use serde::Serialize;

use crate::connect::{self, status_soon};
use crate::files::stat::show_state;
use crate::operate::status::transport;
use crate::output::exit::Failure;
use crate::output::report::{Report, table};

/// A drive in `--json`.
#[derive(Debug, Serialize)]
struct DriveFacts {
    name: String,
    id: String,
    state: &'static str,
    rails: Vec<RailFacts>,
}

/// One address of a drive.
#[derive(Debug, Serialize)]
struct RailFacts {
    address: String,
    /// True if the drive itself answers there.
    reachable: bool,
    /// Time in which it took a connection and said which drive it is; null if it did not.
    hello_us: Option<u64>,
    /// Reason for which it is not reached; null if it is.
    why: Option<String>,
    /// The way that data goes there: "tcp", "udp", or null if no session comes about.
    transport: Option<&'static str>,
    /// Reason for which datagrams do not come through; null if they do, or were not tried.
    no_datagrams: Option<String>,
}

fn facts(asked: Transport, seen: RailSeen) -> RailFacts {
    let RailSeen { address, reached, datagrams } = seen;
    let transport = transport::way(asked, &datagrams);
    let no_datagrams = if let Datagrams::Not(why) = datagrams { Some(why) } else { None };
    match reached {
        Reached::In(took) => {
            let hello_us = u64::try_from(took.as_micros()).ok();
            RailFacts { address, reachable: true, hello_us, why: None, transport, no_datagrams }
        }
        Reached::Not(why) => {
            let why = Some(why);
            RailFacts { address, reachable: false, hello_us: None, why, transport, no_datagrams }
        }
    }
}

/// The words on the transport of a rail.
fn words(rail: &RailFacts) -> String {
    let way = if rail.reachable || rail.transport == Some("udp") { rail.transport } else { None };
    match &rail.no_datagrams {
        Some(why) => format!("{} ({why})", way.unwrap_or("none")),
        None => way.unwrap_or_default().to_owned(),
    }
}

/// Runs `braid status --rails`.
pub(crate) async fn run(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let rows = status_soon(&client).await?.drives;
    let seen = client.see_rails(&rows).await;
    let asked = client.config().transport;
    let drives: Vec<DriveFacts> = rows
        .iter()
        .zip(seen)
        .map(|(row, seen)| DriveFacts {
            name: row.name.clone(),
            id: row.drive.to_string(),
            state: show_state(row.state),
            rails: seen.into_iter().map(|seen| facts(asked, seen)).collect(),
        })
        .collect();
    report.facts(&drives, |facts| {
        let lines = facts.iter().flat_map(|drive| {
            drive.rails.iter().map(|rail| {
                let hello =
                    rail.hello_us.map_or_else(String::new, |us| format!("{}.{:03} ms", us / 1000, us % 1000));
                vec![
                    drive.name.clone(),
                    drive.state.to_owned(),
                    rail.address.clone(),
                    rail.why.clone().unwrap_or_else(|| "reached".to_owned()),
                    hello,
                    words(rail),
                ]
            })
        });
        table(&["drive", "state", "rail", "from here", "hello in", "transport"], &[4], lines)
    })
}
