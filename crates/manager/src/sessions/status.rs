//! The cluster as `braid status` shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_layout::DriveId;
use braid_meta::records::inodes;
use braid_meta::records::schema::{DriveCount, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::rules::drives::Drive;
use braid_meta::tree::view::drive_row;
use braid_meta::tree::volumes;
use braid_transport::host;
use braid_wire::Refusal;
use braid_wire::control::{DriveRow, StatusReply};

use crate::catalogue::keep;
use crate::core::Core;

/// Maximum number of stale columns of a drive that are looked at one by one.
const LOOKED_AT_MAX: usize = 4096;

/// The cluster's status.
pub(crate) async fn status(core: &Arc<Core>) -> Result<StatusReply, Refusal> {
    core.read(|core, tx| {
        let volumes = volumes::all(tx)?;
        // Read the disk before locking the table of drives, so that heartbeats need not wait for it.
        let known: Vec<DriveId> = core.drives().iter().map(|drive| drive.record.drive).collect();
        let count = |drive| {
            let mut count = inodes::counts(tx, drive)?;
            let looked = look_at_stale(tx, drive, count.stale)?;
            count.stale = count.stale.saturating_sub(looked.of_no_file);
            Ok((drive, (count, looked.lost)))
        };
        let counts: BTreeMap<DriveId, (DriveCount, u64)> =
            known.into_iter().map(count).collect::<Result<_, Refusal>>()?;
        let names = keep::state(core);
        let removing = tx.number("removing")?;
        let notice = notice(core);
        let now_ms = core.now_ms();
        let known = core.managers();
        let managers = known.rows().to_vec();
        let members = known.members().to_vec();
        drop(known);
        let table = core.drives();
        let row = |drive: &Drive| {
            let (count, lost) = counts.get(&drive.record.drive)?;
            Some(DriveRow { lost: *lost, ..drive_row(count, &table, drive, now_ms) })
        };
        let mut drives: Vec<DriveRow> = table.iter().filter_map(row).collect();
        drives.sort_by_key(|row: &DriveRow| natural(&row.name));
        Ok(StatusReply {
            cluster: core.cluster.cluster,
            volumes: u64::try_from(volumes.len()).unwrap_or(u64::MAX),
            files: volumes.iter().map(|volume| volume.files).sum(),
            removing,
            drives,
            pid: host::process_id(),
            uptime_ms: core.uptime_ms(),
            directory: core.directory.clone(),
            notice,
            names,
            managers,
            members,
        })
    })
    .await
}

/// Notice, for people, about the manager's own state; empty if there is none.
fn notice(core: &Core) -> String {
    let leads = core.leadership().notice();
    match core.db.trouble() {
        Some(why) if leads.is_empty() => format!("the last change could not be stored: {why}"),
        _ => leads,
    }
}

/// Findings of a look at a drive's stale columns.
#[derive(Default)]
struct Stale {
    /// Number of columns that put nothing at risk, as no file reads them yet: successors of other columns,
    /// and columns of layouts that are being filled. Their number is bounded.
    of_no_file: u64,
    /// Number of columns that cannot be made anew, as too few others are ready, and not because drives are
    /// away: the files have lost bytes, or were removed after the backup that was restored.
    lost: u64,
}

fn look_at_stale(tx: &Tx, drive: DriveId, stale: u64) -> Result<Stale, Refusal> {
    let (from, to) = key::of_drive(table::STALE, drive);
    let mut found = Stale::default();
    for (row, _) in if stale == 0 { Vec::new() } else { tx.scan(&from, &to, LOOKED_AT_MAX)? } {
        let place = key::place_of(&row);
        let Some(inode) = inodes::find(tx, place.file)? else { continue };
        let segment = inode
            .segment(place.segment)
            .filter(|segment| segment.filling.is_none() && segment.drive(place.column) == drive);
        match segment {
            None => found.of_no_file += 1,
            Some(segment) if segment.ready().count() < u32::from(segment.shape.k) => found.lost += 1,
            Some(_) => {}
        }
    }
    Ok(found)
}

/// A sort key in natural order: `drive-2` before `drive-10`.
fn natural(name: &str) -> (String, u64, String) {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (head, tail) = name.split_at(name.len() - digits);
    (head.to_owned(), tail.parse().unwrap_or(0), name.to_owned())
}
