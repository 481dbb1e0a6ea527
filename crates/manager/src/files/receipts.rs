//! Receipts: the positions up to which drives have said that their logs are durable, as writers bring them.
//!
//! A heartbeat tells the position too, but later: a drive that loses the end of its log together with the
//! power of the whole cluster may come back no shorter than its last heartbeat said. The receipts cover all
//! that a writer relies on, and are durable with the size. `admission` compares them.

use braid_layout::{DriveId, FileId};
use braid_meta::records::inodes;
use braid_meta::records::schema::{key, table};
use braid_meta::records::tx::Tx;
use braid_wire::Refusal;
use braid_wire::data::Receipt;

use crate::core::Core;

/// Keeps the highest receipt of each drive, in the transaction that relies on them. Receipts of drives that
/// the file is not on are ignored.
pub(crate) fn keep(core: &Core, tx: &mut Tx, file: FileId, receipts: &[Receipt]) -> Result<(), Refusal> {
    if receipts.is_empty() {
        return Ok(());
    }
    let Some(inode) = inodes::find(tx, file)? else { return Ok(()) };
    let is_on = |drive: DriveId| inode.segments.iter().any(|segment| segment.drives.contains(&drive));
    for &Receipt { drive, log } in receipts.iter().filter(|receipt| is_on(receipt.drive)) {
        let row = key::receipt(drive);
        if tx.record::<u64>(&row)?.is_none_or(|known| known < log) {
            tx.set(row, &log);
        }
        // Taken before it is durable: the drive has said so, whatever becomes of the transaction.
        core.admissions().handle_receipt(drive, log);
    }
    Ok(())
}

/// All receipts on record.
pub(crate) fn all(tx: &Tx) -> Result<Vec<(DriveId, u64)>, Refusal> {
    let rows = tx.records::<u64>(&key::all(table::RECEIPT), usize::MAX)?;
    Ok(rows.into_iter().map(|(row, log)| (key::drive_of(&row), log)).collect())
}

/// Deletes a drive's receipt if the log position on record is as high, or if it turned out to be false:
/// `kept` is the highest receipt that was not disproved.
pub(crate) fn tidy(tx: &mut Tx, drive: DriveId, log: u64, kept: u64) -> Result<(), Refusal> {
    let row = key::receipt(drive);
    if tx.record::<u64>(&row)?.is_some_and(|known| known <= log || known > kept) {
        tx.delete(row);
    }
    Ok(())
}
