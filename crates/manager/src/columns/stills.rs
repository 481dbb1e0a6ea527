//! Room for what only snapshots show: a column of it that is made anew shares nothing with its file. Where
//! that would leave too little room for files, it is left out, and its file is degraded.

use std::sync::Arc;

use braid_layout::{Column, DriveId, FileId};
use braid_meta::records::inodes::component_bytes;
use braid_meta::records::schema::InodeRecord;
use braid_wire::{Reason, Refusal};

use crate::columns::fence::Target;
use crate::core::Core;

/// Share of all drives' room, in percent, that may be filled by columns of frozen files that are made anew.
const FILLED_PERCENT: u64 = 85;

/// Refuses to make columns of a frozen file anew that are not on the drive, if the drives would be too full
/// by them.
pub(crate) async fn refuse_if_too_full(
    core: &Arc<Core>,
    inode: &InodeRecord,
    file: FileId,
    drive: DriveId,
    columns: &[(u32, Column)],
) -> Result<(), Refusal> {
    let asked = columns.to_vec();
    let needed = core.read(move |_, tx| {
        let of = |&(segment, _): &(u32, Column)| component_bytes(tx, file, segment);
        asked.iter().map(of).sum::<Result<u64, Refusal>>()
    });
    let needed = needed.await?;
    let Filled { live_bytes, all_bytes } = filled(core);
    if !passes(live_bytes, needed, all_bytes) {
        return Ok(());
    }
    for &(segment, column) in columns {
        let is_here = inode.segment(segment).is_some_and(|segment| segment.drive(column) == drive);
        let target = Target::new(core, file, inode, segment, column).filter(|_| is_here);
        let is_there = match target {
            Some(target) => target.is_there(core).await.unwrap_or(true),
            None => false,
        };
        if !is_there {
            let detail = format!(
                "what a snapshot shows of file {} stays degraded: made anew on {} it would fill the drives above \
                 {FILLED_PERCENT} %: add drives, or remove snapshots or files",
                inode.frozen,
                core.drives().name(drive)
            );
            return Err(Refusal::new(Reason::Full, detail));
        }
    }
    Ok(())
}

/// Bytes on all drives that are up.
struct Filled {
    live_bytes: u64,
    all_bytes: u64,
}

fn filled(core: &Core) -> Filled {
    let now_ms = core.now_ms();
    let table = core.drives();
    let up = table.up(now_ms).into_iter().filter_map(|drive| table.drive(drive));
    up.fold(Filled { live_bytes: 0, all_bytes: 0 }, |sum, drive| Filled {
        live_bytes: sum.live_bytes.saturating_add(drive.live_bytes),
        all_bytes: sum.all_bytes.saturating_add(drive.used_bytes.saturating_add(drive.free_bytes)),
    })
}

fn passes(live_bytes: u64, needed: u64, all_bytes: u64) -> bool {
    let filled = u128::from(live_bytes) + u128::from(needed);
    filled * 100 > u128::from(all_bytes) * u128::from(FILLED_PERCENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_of_all_drives_together() {
        assert!(!passes(800, 50, 1000) && passes(800, 51, 1000));
        assert!(passes(900, 0, 1000) && !passes(0, 0, 0));
    }
}
