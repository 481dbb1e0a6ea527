//! Progress of the drives in bringing their stale columns up to date: their reports, their permitted rate,
//! and the work that is left. Reports are in memory only, as each drive repeats its own. The rate is stored.

use std::sync::Arc;

use braid_layout::DriveId;
use braid_meta::records::columns;
use braid_meta::records::inodes::{self, bytes_of};
use braid_meta::records::schema::{ComponentPlace, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::rules::heal_reports::none;
use braid_wire::Refusal;
use braid_wire::control::{HealOrders, HealReport, HealRow, HealStatus, HealStatusReply};

use crate::columns::balance;
use crate::columns::column_changes::olds_of;
use crate::core::Core;

/// The word under which the rate is stored.
const RATE: &str = "heal-rate";
/// Bytes a second that a drive may write until an operator sets another rate.
const RATE_DEFAULT: u64 = 100 << 20;
/// Maximum number of stale components of a drive whose sizes are added up; for the rest their average counts.
pub(crate) const SIZED_MAX: usize = 4096;

/// Takes a drive's report, and returns its orders: the rate, and the number of stale components.
pub(crate) async fn report(
    core: &Arc<Core>,
    drive: DriveId,
    report: HealReport,
) -> Result<HealOrders, Refusal> {
    core.leadership().serving()?;
    core.healing().handle_report(drive, report.progress, core.now_ms());
    let olds = olds_of(core, drive);
    core.read(move |_, tx| {
        let mut stale = inodes::counts(tx, drive)?.stale;
        for old in olds {
            stale += inodes::counts(tx, old)?.components;
        }
        Ok(HealOrders { rate: rate(tx)?, stale })
    })
    .await
}

/// Sets the rate and switches balancing, if asked to, and returns the drives' progress.
pub(crate) async fn status(core: &Arc<Core>, asked: HealStatus) -> Result<HealStatusReply, Refusal> {
    if asked.rate.is_some() || asked.balance.is_some() {
        core.write(move |_, tx| {
            if let Some(rate) = asked.rate {
                tx.set(key::meta(RATE), &rate);
            }
            if let Some(on) = asked.balance {
                balance::set(tx, on);
            }
            Ok(())
        })
        .await?;
    }
    core.read(|core, tx| {
        let known: Vec<(DriveId, String)> =
            core.drives().iter().map(|drive| (drive.record.drive, drive.record.name.clone())).collect();
        let mut rows = Vec::new();
        for (drive, name) in known {
            let (stale, left_bytes) = left(core, tx, drive)?;
            let now_ms = core.now_ms();
            let healing = core.healing();
            let heard = healing.heard.get(&drive);
            let progress = heard.map_or_else(none, |heard| heard.progress.clone());
            let left_bytes = left_bytes.saturating_sub(progress.under_way_bytes);
            if stale == 0 && (progress.files, progress.repaired, progress.damaged) == (0, 0, 0) {
                continue;
            }
            let (rate, silent_ms) =
                heard.map_or((0, 0), |heard| (heard.rate, now_ms.saturating_sub(heard.at_ms)));
            rows.push(HealRow { drive, name, stale, left_bytes, progress, rate, silent_ms });
        }
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(HealStatusReply { rate: rate(tx)?, balance: balance::state(core, tx)?, drives: rows })
    })
    .await
}

fn rate(tx: &Tx) -> Result<u64, Refusal> {
    Ok(tx.record::<u64>(&key::meta(RATE))?.unwrap_or(RATE_DEFAULT))
}

/// The number of the drive's stale components, with those of drives that it replaced, and their estimated
/// bytes.
fn left(core: &Core, tx: &Tx, drive: DriveId) -> Result<(u64, u64), Refusal> {
    let mut stale = inodes::counts(tx, drive)?.stale;
    let (from, to) = key::of_drive(table::STALE, drive);
    let places: Vec<ComponentPlace> =
        tx.scan(&from, &to, SIZED_MAX)?.iter().map(|(row, _)| key::place_of(row)).collect();
    let mut bytes = bytes_of(tx, &places, stale)?;
    for old in olds_of(core, drive) {
        let components = inodes::counts(tx, old)?.components;
        stale += components;
        let places = columns::on_drive(tx, old, None, SIZED_MAX)?;
        bytes = bytes.saturating_add(bytes_of(tx, &places, components)?);
    }
    Ok((stale, bytes))
}
