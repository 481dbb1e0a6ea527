//! Catch-up: a drive is away while 1 % of the bytes are overwritten. The ratio is the bytes written to bring
//! it up to date over the bytes that it holds.

use braid_bench::stripes::{Goal, Question, Unit, Work};
use braid_cli::operate::heal::{HealTotals, REPORTED, until_healed};
use braid_cli::output::exit::{Exit, Failure};
use tokio::time::sleep;

use super::files::{filled, job};
use super::{Run, Which};
use crate::bench::client::alone;
use crate::bench::cluster::{Cluster, UNIT_BYTES};

const DRIVES: u16 = 5;
const SHAPE: (&str, u8) = ("raid5", 5);
const K: u64 = 4;
/// One of this many pieces is overwritten. Prime to the width, so that pieces lie on all columns in turn.
const EVERY: u64 = 101;
/// Pieces overwritten in a round.
const PIECES: u64 = 4;

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    let unit = u64::from(UNIT_BYTES);
    let question = |name: &str, goal| Question {
        experiment: "catch-up",
        name: name.into(),
        unit: Unit::Bytes,
        first: "written to heal it",
        second: "the drive's bytes",
        goal,
    };
    // A single unit changes its stripe's parity too, so two of five columns miss something.
    let stripes = (question("1 % missed, in whole stripes", Some(Goal::AtMost(0.012))), K * unit);
    let units = (question("1 % missed, in single units", None), unit);
    if !run.wants(&stripes.0) && !run.wants(&units.0) {
        return Ok(());
    }
    run.tell("catch-up: start");
    let mut cluster = Cluster::up(run.path(), "catch-up", DRIVES, SHAPE).await?;
    let mut client = cluster.client_process().await?;
    let within = K * unit * PIECES * EVERY;
    let within = run.size(within, within / PIECES);
    let file = filled(&mut cluster, &mut client, within).await?;
    let mut turn = 0;
    for (question, piece_bytes) in [stripes, units] {
        let work = Work::Spread { within, piece_bytes, every_bytes: piece_bytes * EVERY };
        run.pairs(&question, async |which| {
            if which == Which::Second {
                return Ok(bytes(within / K));
            }
            turn += 1;
            // The drives go away in turn.
            let drive = format!("drive-{}", turn % DRIVES + 1);
            cluster.kill(&drive).await?;
            alone(&mut client, &job(&file, work.clone())).await?;
            let directory = cluster.running.dir.drive(&drive);
            let before = HealTotals::now(&cluster.client).await?;
            cluster.start(&drive, &directory).await?;
            until_healed(&cluster.client, &drive, before, |_| {}).await?;
            healed_bytes(&cluster, &drive).await
        })
        .await?;
    }
    drop(client);
    cluster.down().await
}

/// Bytes that the drive's process has written to heal its columns.
async fn healed_bytes(cluster: &Cluster, drive: &str) -> Result<f64, Failure> {
    // The drive's last report may be as old as this.
    sleep(REPORTED).await;
    let status = cluster.client.heal_status(None).await?;
    let row = status.drives.iter().find(|row| row.name == drive);
    let row = row.ok_or_else(|| Failure::new(Exit::Failed, format!("see what healed {drive}"), "nothing"))?;
    Ok(bytes(row.progress.written_bytes))
}

#[expect(clippy::cast_precision_loss, reason = "a ratio needs no sixteen digits")]
pub(super) fn bytes(bytes: u64) -> f64 {
    bytes as f64
}
