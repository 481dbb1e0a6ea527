//! Addresses and grants with which a drive sends deltas to its sisters (PROTOCOL R3).
//!
//! A grant is for one partition and one sender. It names no object and no generation: the sister compares
//! both, and the sender's column, with what the manager told it of the object.

use std::sync::Arc;

use braid_layout::{DriveId, VolumeId};
use braid_meta::records::schema::{PartitionRecord, key, table};
use braid_meta::rules::grants::{self, CAPABILITY_MS};
use braid_meta::tree::volumes;
use braid_wire::capability::Protection;
use braid_wire::control::{DriveState, SISTERS_MAX, SisterRow, Sisters, SistersReply};
use braid_wire::{Reason, Refusal};

use crate::core::Core;

/// Answers the drive `asker` with its sisters that are up.
pub(crate) async fn find(
    core: &Arc<Core>,
    asker: DriveId,
    request: Sisters,
) -> Result<SistersReply, Refusal> {
    core.leadership().serving()?;
    if request.drives.len() > SISTERS_MAX {
        let detail = format!("{} drives are asked for: at most {SISTERS_MAX} may be", request.drives.len());
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    if core.drives().state(asker, core.now_ms()) != DriveState::Up {
        let detail = "the drive has no lease now, so it may not send deltas";
        return Err(Refusal::new(Reason::NotServing, detail));
    }
    let Sisters { partition, drives } = request;
    let (epochs, protection): (Vec<(DriveId, Option<u32>)>, Protection) = core
        .read(move |_, tx| {
            let epoch = |drive: DriveId| {
                let record: Option<PartitionRecord> =
                    tx.record(&key::partition(table::PARTITION, drive, VolumeId(partition.0)))?;
                Ok((drive, record.map(|record| record.key_epoch)))
            };
            let epochs = drives.into_iter().map(epoch).collect::<Result<_, Refusal>>()?;
            Ok((epochs, volumes::protection(tx, VolumeId(partition.0))?))
        })
        .await?;
    let expires_ms = core.now_ms() + CAPABILITY_MS;
    let now_ms = core.now_ms();
    let table = core.drives();
    let row = |(drive, epoch): (DriveId, Option<u32>)| {
        let known = table.drive(drive).filter(|_| table.state(drive, now_ms) == DriveState::Up)?;
        let grant = grants::for_deltas(
            &known.record.master,
            (epoch?, protection),
            drive,
            partition,
            asker,
            expires_ms,
        );
        Some(SisterRow { drive, addresses: known.record.addresses.clone(), grant })
    };
    Ok(SistersReply { sisters: epochs.into_iter().filter_map(row).collect() })
}
