//! Keys that turn under load: requests that fail.

use std::time::Duration;

use braid_bench::stripes::Goal;
use braid_cli::connect::connect;
use braid_cli::output::exit::Failure;
use braid_wire::control::KeyTurning;
use tokio::time::sleep;

use super::Run;
use super::load::Writers;
use crate::bench::cluster::{Cluster, VOLUME, name};

pub(in crate::bench) const GROUP: &str = "keys";
const ROW: &str = "requests that fail while keys turn under load";

const DRIVES: u16 = 5;
const WRITERS: u64 = 8;
/// Turns of the volume's keys; each drive's own turn once.
const TURNS: u32 = 5;
const BETWEEN: Duration = Duration::from_secs(3);
const BETWEEN_QUICK: Duration = Duration::from_millis(500);

pub(in crate::bench) async fn measure(run: &mut Run) -> Result<(), Failure> {
    if !run.wants(ROW) {
        return Ok(());
    }
    run.tell(format!("{GROUP}: start"));
    let cluster = Cluster::up(run.path(), GROUP, DRIVES, ("raid5", 5)).await?;
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let client = connect(&cluster.running.dir, &cluster.running.cluster).await?;
        writers.push((client, name(&format!("written-{writer}"))?));
    }
    let writers = Writers::start(writers).await?;
    let between = run.size(BETWEEN, BETWEEN_QUICK);
    let mut turns = 0;
    for turn in 0..TURNS {
        run.tell(format!("{GROUP}: turn {} of {TURNS}", turn + 1));
        // A second turn so soon ends the capabilities under the keys before it at once.
        cluster.client.rotate_keys(KeyTurning::Volume, VOLUME, turn > 0).await?;
        turns += 1;
        sleep(between).await;
    }
    for drive in cluster.running.cluster.drives.clone() {
        run.tell(format!("{GROUP}: {drive}"));
        cluster.client.rotate_keys(KeyTurning::Drive, &drive, false).await?;
        turns += 1;
        sleep(between).await;
    }
    let written = writers.end().await?;
    let error = written.error.map(|error| format!(": {error}")).unwrap_or_default();
    let found = format!("{} of {} writes in {turns} turns{error}", written.failed, written.writes);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let failed = written.failed as f64;
    run.add(ROW, found, failed, Some(Goal::AtMost(0.0)));
    cluster.down().await
}
