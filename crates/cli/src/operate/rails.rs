//! `braid status --rails`: the addresses of each drive, and which of them this client reaches.

use std::path::Path;

use braid_client::{RailSeen, Reached};
use serde::Serialize;

use crate::connect::{self, status_soon};
use crate::files::stat::show_state;
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
}

impl From<RailSeen> for RailFacts {
    fn from(seen: RailSeen) -> RailFacts {
        let RailSeen { address, reached } = seen;
        match reached {
            Reached::In(took) => {
                let hello_us = u64::try_from(took.as_micros()).ok();
                RailFacts { address, reachable: true, hello_us, why: None }
            }
            Reached::Not(why) => RailFacts { address, reachable: false, hello_us: None, why: Some(why) },
        }
    }
}

/// Runs `braid status --rails`.
pub(crate) async fn run(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let rows = status_soon(&client).await?.drives;
    let seen = client.see_rails(&rows).await;
    let facts: Vec<DriveFacts> = rows
        .iter()
        .zip(seen)
        .map(|(row, seen)| DriveFacts {
            name: row.name.clone(),
            id: row.drive.to_string(),
            state: show_state(row.state),
            rails: seen.into_iter().map(RailFacts::from).collect(),
        })
        .collect();
    report.facts(&facts, |facts| {
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
                ]
            })
        });
        table(&["drive", "state", "rail", "from here", "hello in"], &[4], lines)
    })
}
