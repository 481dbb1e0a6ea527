//! The background job of reservations: they end when their time is over or nobody came for them, and the
//! books follow drives and layouts.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::FileId;
use braid_meta::records::inodes;
use braid_meta::records::schema::ReservationRecord;
use braid_meta::records::tx::Tx;
use braid_wire::Refusal;

use crate::core::Core;
use crate::jobs::{Again, Job};
use crate::rates::follow::{end_over, follow, is_over, look};

/// Interval between two rounds.
const ROUND: Duration = Duration::from_secs(1);
/// Rounds between two looks at what lies below directories that a rate for reading is for.
const WALK_EVERY: u64 = 10;

/// The job that tends reservations.
#[derive(Default)]
pub(crate) struct TendRates {
    rounds: u64,
}

impl Job for TendRates {
    const NAME: &'static str = "rates";
    const ABOUT: &'static str =
        "Ends reservations that are over or were not claimed, and says which are at risk.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        if core.reservations().is_empty() {
            return Ok(Again::In(ROUND));
        }
        // Directories may be large: what lies below them is looked at less often.
        let walks = self.rounds.is_multiple_of(WALK_EVERY);
        self.rounds += 1;
        let mut books = core.books.lock().await;
        books.refresh(&core.drives(), &mut core.ended_rates(), core.now_ms());
        let now_ms = core.now_ms();
        let records: Vec<ReservationRecord> =
            core.reservations().iter().map(|known| known.record.clone()).collect();
        for record in records {
            if is_over(&record, now_ms) {
                end_over(core, &mut books, record.reservation).await?;
            } else if record.drives.is_empty() && !walks && books.booking(record.reservation).is_some() {
                look(core, &books, &record);
            } else {
                follow(core, &mut books, record).await?;
            }
        }
        let unnamed = core.reservations().unnamed();
        if !unnamed.is_empty() {
            let left = core.read(move |_, tx| still_unnamed(tx, unnamed)).await?;
            core.reservations().forget_unnamed(|file| left.contains(&file));
        }
        Ok(Again::In(ROUND))
    }
}

/// Those of these files that are there and have no name.
fn still_unnamed(tx: &Tx, files: Vec<FileId>) -> Result<Vec<FileId>, Refusal> {
    let mut left = Vec::new();
    for file in files {
        if inodes::find(tx, file)?.is_some_and(|inode| !inode.is_named()) {
            left.push(file);
        }
    }
    Ok(left)
}
