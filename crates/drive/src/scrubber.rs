//! Runs the scrub: asks [`Scrub`](crate::scrub::Scrub) for the next action, verifies units in a thread, and
//! stores the progress.

use std::sync::Arc;
use std::time::Duration;

use braid_transport::host;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::core::Core;
use crate::device::own_work::turn_to_verify;
use crate::life::identity::Directory;
use crate::scrub::{Clients, Next, STEP_BYTES, Step, save_progress, step};

/// The longest sleep: the lease and the clock are checked at least this often.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// Interval at which a running pass stores its progress, in milliseconds.
const SAVE_MS: u64 = 60_000;

/// Scrubs until `closing` is set.
pub(crate) async fn run(core: Arc<Core>, directory: Arc<Directory>, mut closing: watch::Receiver<bool>) {
    let mut saved = core.clock().now();
    let mut seen = core.traffic();
    while !*closing.borrow() {
        let now = core.clock().now();
        let next = core.scrub().poll(now, core.manager_ms());
        let Next::Verify { turn, from } = next else {
            let Next::Wait(wait_ms) = next else { continue };
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(wait_ms).min(SLEEP_MAX)) => {}
                () = core.scrub_wake.notified() => {}
                _ = closing.wait_for(|&closing| closing) => {}
            }
            continue;
        };
        let store = core.store.clone();
        let Some(turn_at_disk) = turn_to_verify(&core.gate, STEP_BYTES).await else { break };
        // One thread: one unit at a time.
        let stepping = host::spawn_blocking(move || {
            let step = step(&store, from);
            drop(turn_at_disk);
            step
        });
        let step = match stepping.await {
            Ok(Ok(step)) => step,
            Ok(Err(error)) => return info!(%error, "the scrub ends, as the store was closed or failed"),
            Err(error) => return warn!(%error, "the scrub ended in a panic"),
        };
        tell(&step);
        doubt(&core, &step);
        let moved = core.traffic();
        let now = core.clock().now();
        let clients = if moved == seen { Clients::Idle } else { Clients::Busy };
        seen = moved;
        let manager_ms = core.lease().manager_ms(now).unwrap_or_default();
        let worth_saving = core.scrub().handle_step(turn, step, clients, now, manager_ms);
        if worth_saving || now.since(saved) >= SAVE_MS {
            saved = now;
            save(&core, &directory).await;
        }
    }
    save(&core, &directory).await;
}

/// Has the damage that a step found verified once more and repaired.
fn doubt(core: &Core, step: &Step) {
    for found in &step.damaged {
        match found.unit {
            Some(unit) => core.damage.doubt((found.partition, found.object, unit)),
            None => core.damage.doubt_object((found.partition, found.object)),
        }
    }
}

fn tell(step: &Step) {
    for unit in &step.damaged {
        let partition = unit.partition;
        let object = unit.object;
        let file = unit.file;
        warn!(%partition, %object, unit = unit.unit, %file, what = %unit.what, "the scrub found damage");
    }
    for file in step.files.iter().flat_map(|(files, _)| files) {
        warn!(name = %file.name, what = %file.what, "the scrub found a file of the store that was deleted, replaced or cut short");
    }
}

async fn save(core: &Core, directory: &Arc<Directory>) {
    let progress = core.scrub().progress().clone();
    let directory = Arc::clone(directory);
    let saved = host::spawn_blocking(move || save_progress(&directory, &progress)).await;
    if let Ok(Err(error)) = saved {
        warn!(%error, "the scrub's position cannot be stored: after a restart it begins anew");
    }
}
