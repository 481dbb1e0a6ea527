//! The qualified rate of the whole: what all drives do together, as a realistic run found it. Admission books
//! no drive for more than its share of it, nor for more than its own parts can do.
//!
//! A result that is nonsense, or far from the last one, is refused, as a calibration's is: the last one
//! stays, with its date.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_admission::Qualified as Share;
use braid_layout::DriveId;
use braid_meta::records::schema::key;
use braid_meta::records::tx::Tx;
use braid_meta::rules::drives::DriveTable;
use braid_wire::capability::DataDirection;
use braid_wire::control::{MEASURED_BY_BYTES_MAX, Qualified, Qualify, QualifyAct, WholeRate};
use braid_wire::{Reason, Refusal};

use crate::core::Core;
use crate::rates::books::told_whole;

/// The key's word.
const WORD: &str = "qualified";
/// A rate is no whole's if it is above that of its parts by more than this part of it: they were measured
/// roughly.
const ABOVE_PARTS: u64 = 4;
/// A drive's share is far from the last one if it is so many times larger or smaller.
const FAR: u64 = 10;

/// The rates on record.
pub(crate) fn on_record(tx: &Tx) -> Result<Option<WholeRate>, Refusal> {
    Ok(tx.record(&key::meta(WORD))?)
}

/// Answers a request about the rates of the whole.
pub(crate) async fn answer(core: &Arc<Core>, asked: Qualify) -> Result<Qualified, Refusal> {
    match (asked.act, asked.whole) {
        (QualifyAct::Look, None) => {}
        (QualifyAct::Forget, None) => store(core, None).await?,
        (act @ (QualifyAct::Keep | QualifyAct::KeepAnyway), Some(whole)) => {
            check(&core.drives(), &whole)?;
            let refused = judge(&core.drives(), &whole).filter(|_| act == QualifyAct::Keep);
            if let Some(refused) = refused {
                let whole = core.drives().whole().cloned();
                return Ok(Qualified { whole, refused });
            }
            store(core, Some(WholeRate { measured_ms: core.now_ms(), ..whole })).await?;
        }
        _ => return Err(Refusal::new(Reason::Malformed, "rates of the whole go with their being kept")),
    }
    let whole = core.drives().whole().cloned();
    Ok(Qualified { whole, refused: String::new() })
}

async fn store(core: &Arc<Core>, whole: Option<WholeRate>) -> Result<(), Refusal> {
    let store = move |_: &Core, tx: &mut Tx| {
        match &whole {
            Some(whole) => tx.set(key::meta(WORD), whole),
            None => tx.delete(key::meta(WORD)),
        }
        Ok(whole)
    };
    core.write_then(store, |core: &Core, whole| core.drives().set_whole(whole.clone())).await.map(drop)
}

/// Refuses what cannot be the rates of drives.
fn check(table: &DriveTable, whole: &WholeRate) -> Result<(), Refusal> {
    let wrong = |detail: &str| Err(Refusal::new(Reason::Malformed, detail));
    if whole.read_bytes_per_second == 0 || whole.write_bytes_per_second == 0 {
        return wrong("drives that together read or write 0 bytes a second were not measured");
    }
    let drives: BTreeSet<DriveId> = whole.drives.iter().copied().collect();
    if drives.is_empty() || drives.len() != whole.drives.len() {
        return wrong("the rates are of no drive, or of one drive twice");
    }
    if let Some(drive) = drives.iter().find(|drive| table.drive(**drive).is_none()) {
        let detail = format!("drive {} is not one of this cluster", drive.short());
        return Err(Refusal::new(Reason::NoDrive, detail));
    }
    if whole.by.len() > MEASURED_BY_BYTES_MAX {
        return wrong("the text that says who measured is too long");
    }
    Ok(())
}

/// The reason why rates are not believed.
fn judge(table: &DriveTable, whole: &WholeRate) -> Option<String> {
    [DataDirection::Read, DataDirection::Write].iter().find_map(|way| judge_way(table, whole, *way))
}

fn judge_way(table: &DriveTable, whole: &WholeRate, way: DataDirection) -> Option<String> {
    let share = |whole: &WholeRate| rate_of(&told_whole(whole).share(), way);
    let name = if way == DataDirection::Read { "reads" } else { "writes" };
    let rate =
        if way == DataDirection::Read { whole.read_bytes_per_second } else { whole.write_bytes_per_second };
    if let Some(parts) = of_parts(table, &whole.drives, way)
        && rate > parts.saturating_add(parts / ABOVE_PARTS)
    {
        return Some(format!(
            "{name} of {} are more than the {} drives can do by their own parts, {}: they did not come to the disks, \
             or `braid drive calibrate` is due",
            mb(rate),
            whole.drives.len(),
            mb(parts)
        ));
    }
    let last = table.whole().and_then(share)?;
    let now = share(whole).unwrap_or(0);
    let is_far = last > now.saturating_mul(FAR) || now > last.saturating_mul(FAR);
    is_far.then(|| {
        format!(
            "{name} of {} for each drive are more than {FAR} times apart from the last result, {}",
            mb(now),
            mb(last)
        )
    })
}

fn rate_of(share: &Share, way: DataDirection) -> Option<u64> {
    match way {
        DataDirection::Read => share.read_bytes_per_second,
        DataDirection::Write => share.write_bytes_per_second,
    }
}

/// Bytes a second of these drives by their own disks and rails; `None`: one of them is not calibrated.
fn of_parts(table: &DriveTable, drives: &[DriveId], way: DataDirection) -> Option<u64> {
    let of = |drive: &DriveId| table.drive(*drive)?.parts.as_ref()?.bytes_per_second(way);
    drives.iter().map(of).try_fold(0_u64, |sum, rate| Some(sum.saturating_add(rate?)))
}

/// A rate for people.
fn mb(bytes_per_second: u64) -> String {
    let tenths = bytes_per_second / 100_000;
    format!("{}.{} MB/s", tenths / 10, tenths % 10)
}
