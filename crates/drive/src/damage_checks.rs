//! Verification of units whose stored bytes are doubted, and what follows from it.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::{FileId, ObjectId, PartitionId};
use braid_store::{Error, Store};
use braid_transport::host;
use braid_wire::Wire;
use braid_wire::data::{ColumnMap, DamagedUnit};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::core::Core;
use crate::damage::UnitPlace;
use crate::device::own_work::turn_to_verify;

/// The longest sleep of the verifier: it checks the lease and the clock at least this often.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// Bytes that a unit is taken to have, for its turn at the disk.
const UNIT_BYTES: u64 = 1 << 20;

/// Result of verifying a doubted unit.
#[derive(Debug)]
enum Verdict {
    /// All bytes of the unit are right, or the unit is gone.
    Whole,
    Damaged(DamagedUnit),
    /// The object as a whole is lost.
    Lost,
    /// The store no longer serves.
    Ends,
}

/// Verifies doubted units, one at a time, until `closing` is set.
pub(crate) async fn run(core: Arc<Core>, mut closing: watch::Receiver<bool>) {
    while !*closing.borrow() {
        let now = core.clock().now();
        let damage = &core.damage;
        let due = if core.manager_ms().is_some() { damage.units().due(now) } else { None };
        let Some(place) = due else {
            tokio::select! {
                () = tokio::time::sleep(SLEEP_MAX) => {}
                () = damage.doubted.notified() => {}
                _ = closing.wait_for(|&closing| closing) => {}
            }
            continue;
        };
        let store = core.store.clone();
        let Some(turn_at_disk) = turn_to_verify(&core.gate, UNIT_BYTES).await else { return };
        let verifying = host::spawn_blocking(move || {
            let verdict = verify(&store, place);
            drop(turn_at_disk);
            verdict
        });
        match verifying.await {
            Ok(Verdict::Ends) => return,
            Ok(verdict) => handle(&core, place, verdict),
            Err(error) => return warn!(%error, "the verifier of doubted units ended in a panic"),
        }
    }
}

fn verify(store: &Store, place: UnitPlace) -> Verdict {
    let (partition, object, unit) = place;
    let file = match store.object(partition, object) {
        Ok(stored) => ColumnMap::from_bytes(&stored.map).map_or(FileId(0), |map| map.file),
        Err(Error::Closed) => return Verdict::Ends,
        Err(Error::NoObject(..) | Error::NoPartition(_)) => return Verdict::Whole,
        Err(_) => return Verdict::Lost,
    };
    match store.verify_unit(partition, object, unit) {
        Ok(_) | Err(Error::NoObject(..) | Error::NoPartition(_)) => Verdict::Whole,
        Err(Error::Closed) => Verdict::Ends,
        Err(error) => {
            let what = error.to_string();
            Verdict::Damaged(DamagedUnit { partition, object, unit: Some(unit), file, what })
        }
    }
}

fn handle(core: &Core, place: UnitPlace, verdict: Verdict) {
    let damage = &core.damage;
    match verdict {
        Verdict::Damaged(unit) => {
            let partition = unit.partition;
            let object = unit.object;
            let file = unit.file;
            if damage.units().handle_damaged(place, file) {
                warn!(%partition, %object, unit = place.2, %file, what = %unit.what, "a unit is damaged");
            }
            core.scrub().handle_damaged(unit);
            damage.found.notify_one();
        }
        Verdict::Whole | Verdict::Ends => {
            damage.units().forget(place);
            core.scrub().handle_whole(place);
        }
        Verdict::Lost => {
            damage.units().forget(place);
            damage.doubt_object((place.0, place.1));
        }
    }
}

/// Number of objects known to be lost as a whole. Objects that were made anew are forgotten.
pub(crate) fn lost_objects(core: &Core) -> u64 {
    let is_lost = |(partition, object): (PartitionId, ObjectId)| {
        matches!(core.store.object(partition, object), Err(Error::Damaged { .. }))
    };
    core.scrub().retain_objects(is_lost);
    let mut objects = core.damage.objects();
    objects.retain(|&place| is_lost(place));
    u64::try_from(objects.len()).unwrap_or(u64::MAX)
}

/// A damaged unit was made anew at this place.
pub(crate) fn handle_repaired(core: &Core, place: UnitPlace) {
    core.damage.handle_repaired(place);
    core.scrub().handle_repaired(place);
    info!(partition = %place.0, object = %place.1, unit = place.2, "a damaged unit was made anew");
}
