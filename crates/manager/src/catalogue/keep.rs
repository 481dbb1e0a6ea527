//! Keeps the catalogue at drives: a picture of all carried rows, then the changes every two seconds.
//!
//! A new picture is made at each start, when changes were missed, when a drive takes another's place or has
//! damage, and when the changes have become longer than the picture. Until it is whole the stream before it
//! goes on, and gets the changes too; only then is that removed. So at any moment some stream is whole and up
//! to date. No request waits for any of this.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use braid_layout::{DriveId, ObjectId};
use braid_meta::catalogue::frame::{PARTITION, Row};
use braid_meta::catalogue::holders::{COPIES, Candidate, choose};
use braid_meta::catalogue::rows::{carried, skip};
use braid_meta::records::kv::Pair;
use braid_meta::rules::drives::Drive;
use braid_meta::rules::jobs::Progress;
use braid_meta::rules::space::has_room;
use braid_transport::host;
use braid_wire::control::NamesState;
use braid_wire::{Reason, Refusal};
use tokio::time::sleep;

use crate::catalogue::calls;
use crate::catalogue::followed::Taken;
use crate::catalogue::kept::Standing;
use crate::catalogue::refused::Refused;
use crate::catalogue::stream::{Part, Stream};
use crate::columns::listing;
use crate::core::Core;
use crate::drive_calls::CallError;
use crate::jobs::{Again, Job};

/// Interval between two looks at what has changed.
const EVERY: Duration = Duration::from_secs(2);
/// Time for which the drives may be too few before a first stream is begun on those that there are, and the
/// least time before another is begun because better drives are up, in milliseconds.
const SETTLE_MS: u64 = 6_000;
/// The time before another stream is begun for better drives, as a multiple of what the last picture took.
const SETTLE_PICTURES: u64 = 20;
/// Least time between two pictures that are made because a drive has damage, in milliseconds.
const RENEW_MS: u64 = 600_000;
/// Least bytes of changes before a new picture replaces them.
const LOG_BYTES_MIN: u64 = 8 << 20;
/// Number of drives at which changes are safe, if there are as many.
const SAFE: usize = 2;
/// Number of rows of the picture read at a time.
const PAGE: usize = 2048;

/// State of the catalogue, for status. It waits for nothing: a disk that hangs must not hang status.
pub(crate) fn state(core: &Core) -> NamesState {
    let is_due = core.followed.may_be_due();
    let now_ms = core.running_ms();
    let names = core.names().clone();
    let wanted = core.drives_counted().1.min(COPIES);
    let since_ms = match (names.behind_since_ms, is_due) {
        (None, false) => None,
        (None, true) => Some(now_ms),
        (since_ms, _) => since_ms,
    };
    let table = core.drives();
    NamesState {
        drives: names.drives.iter().map(|drive| table.name(*drive)).collect(),
        wanted: u32::try_from(wanted).unwrap_or(u32::MAX),
        behind_ms: since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms).max(1)),
        bytes: names.bytes,
    }
}

/// Keeps the catalogue.
#[derive(Default)]
pub(crate) struct KeepNames {
    stream: Option<Stream>,
    /// True if the stream lacks changes: it says nothing more, and another is to be made.
    is_missed: bool,
    /// Time from which on other drives would be better.
    unlike_since_ms: Option<u64>,
    /// For drives with damage, when a picture was made for that.
    renewed_ms: BTreeMap<DriveId, u64>,
    /// Duration of the last picture.
    picture_ms: u64,
    /// Bytes of the last picture, or of one that failed, as far as it came.
    picture_bytes: u64,
    /// Drives that did not take a picture.
    refused: Refused,
    /// Objects of pictures that failed, which are still to be removed. Until then their drives get no other.
    left: BTreeSet<(DriveId, ObjectId)>,
    /// For each drive the stream beside which all were removed there, how often it had started, and whether
    /// it held that stream.
    tidied: BTreeMap<DriveId, (ObjectId, u64, bool)>,
}

impl Job for KeepNames {
    const NAME: &'static str = "names";
    const ABOUT: &'static str = "Keeps names and layouts at drives, so that they outlive a lost manager.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        let followed = Arc::clone(&core.followed);
        let is_due = host::spawn_blocking(move || followed.is_due()).await.unwrap_or(true);
        let now_ms = core.running_ms();
        if is_due || self.is_missed {
            core.names().behind_since_ms.get_or_insert(now_ms);
        }
        self.drop_leavers(core);
        self.remove_left(core).await;
        if let Some(drives) = self.wants_picture(core, now_ms) {
            self.picture(core, &drives).await?;
        } else if is_due && self.stream.is_some() {
            match take(core).await {
                Some(taken) => self.add(core, taken, Part::Changes),
                None => self.is_missed = true,
            }
        }
        let Some(stream) = &mut self.stream else { return Ok(Again::In(EVERY)) };
        let failed = stream.push(core).await;
        if let Some(why) = failed {
            KeepNames::failed_in_part(core, &why);
        }
        self.tell(core);
        self.tidy(core).await;
        Ok(Again::In(EVERY))
    }
}

impl KeepNames {
    /// Drops holders that leave, or that came back in an older state.
    fn drop_leavers(&mut self, core: &Core) {
        let Some(stream) = &mut self.stream else { return };
        for drive in stream.holders() {
            let leaves = core.drives().drive(drive).is_none_or(|known| {
                known.draining || known.record.behind || known.record.replaced_by != DriveId(0)
            });
            if leaves {
                stream.drop_holder(drive);
            }
        }
    }

    /// The drives for a new picture, if one is due.
    fn wants_picture(&mut self, core: &Core, now_ms: u64) -> Option<Vec<DriveId>> {
        let candidates = self.candidates(core, now_ms);
        let known = core.drives_counted().1;
        let Some(stream) = &self.stream else {
            let since_ms = *self.unlike_since_ms.get_or_insert(now_ms);
            let drives = choose(&candidates, &[], self.picture_bytes);
            let wanted = known.min(COPIES);
            let is_time = drives.len() >= wanted || now_ms >= since_ms + SETTLE_MS;
            return (!drives.is_empty() && is_time).then_some(drives);
        };
        let holders = stream.holders();
        let drives = choose(&candidates, &holders, self.picture_bytes);
        let is_long = stream.log_bytes > LOG_BYTES_MIN.max(stream.picture_bytes);
        if drives.is_empty() {
            return None;
        }
        // A log that is long is still better than a copy at fewer drives than are safe.
        let is_long = is_long && drives.len() >= holders.len().min(SAFE);
        if self.is_missed || is_long || holders.is_empty() {
            return Some(drives);
        }
        let damaged = self.damaged(core, &holders, now_ms);
        if damaged.is_empty() && drives.iter().all(|drive| holders.contains(drive)) {
            self.unlike_since_ms = None;
            return None;
        }
        let since_ms = *self.unlike_since_ms.get_or_insert(now_ms);
        let settle_ms = SETTLE_MS.max(self.picture_ms.saturating_mul(SETTLE_PICTURES));
        if now_ms < since_ms + settle_ms {
            return None;
        }
        self.renewed_ms.extend(damaged.into_iter().map(|drive| (drive, now_ms)));
        Some(drives)
    }

    /// The drives that may hold the catalogue: without those that did not take it, if there are others.
    fn candidates(&self, core: &Core, now_ms: u64) -> Vec<Candidate> {
        let table = core.drives();
        let up = table.up(core.now_ms()).into_iter().filter_map(|drive| table.drive(drive));
        let is_fit = |drive: &&Drive| {
            let keeps_dead_bytes = self.left.iter().any(|(left, _)| *left == drive.record.drive);
            !drive.draining
                && !drive.record.behind
                && drive.scrub.lost == 0
                && has_room(drive)
                && !keeps_dead_bytes
        };
        let form = |drive: &Drive| Candidate {
            drive: drive.record.drive,
            host: drive.record.host.clone(),
            free_bytes: drive.free_bytes,
        };
        let fit: Vec<Candidate> = up.filter(is_fit).map(form).collect();
        let (out, willing): (Vec<Candidate>, Vec<Candidate>) =
            fit.into_iter().partition(|candidate| self.refused.is_out(candidate.drive, now_ms));
        if willing.is_empty() { out } else { willing }
    }

    /// Holders with damage, which may be in the stream: no other drive makes that anew, but a new picture
    /// does.
    fn damaged(&self, core: &Core, holders: &[DriveId], now_ms: u64) -> Vec<DriveId> {
        let table = core.drives();
        let is_damaged = |drive: &DriveId| {
            let renewed_ms = self.renewed_ms.get(drive);
            table.drive(*drive).is_some_and(|known| known.scrub.damaged > 0)
                && renewed_ms.is_none_or(|renewed_ms| now_ms >= renewed_ms + RENEW_MS)
        };
        holders.iter().copied().filter(is_damaged).collect()
    }

    /// Makes a new stream with a picture of all rows, and lets the one before go. If that fails, what was
    /// written of it is removed.
    async fn picture(&mut self, core: &Arc<Core>, drives: &[DriveId]) -> Result<(), Refusal> {
        let began_ms = core.running_ms();
        self.unlike_since_ms = None;
        let object = core.write(|_, tx| Ok(ObjectId(tx.next_number()?))).await?;
        let followed = Arc::clone(&core.followed);
        let none_missed = host::spawn_blocking(move || followed.follow()).await.unwrap_or(false);
        // Without what was missed, the stream before says what it said so far.
        self.is_missed |= !none_missed;
        let mut new = None;
        let made = match Stream::begin(core, object, drives).await {
            Ok(begun) => self.fill(core, new.insert(begun)).await,
            Err(error) => Err(not_kept(error)),
        };
        let now_ms = core.running_ms();
        for &drive in drives {
            let holds = new.as_ref().is_some_and(|new| new.holders().contains(&drive));
            if !holds {
                let for_good = new.as_ref().is_some_and(|new| new.refused.contains(&drive));
                self.refused.note(drive, for_good, now_ms);
            }
        }
        match (made, new) {
            (Ok(()), Some(new)) => {
                self.picture_bytes = new.picture_bytes;
                self.picture_ms = now_ms.saturating_sub(began_ms);
                self.stream = Some(new);
                self.is_missed = false;
                Ok(())
            }
            (made, new) => {
                let came = new.map_or(0, |new| new.picture_bytes);
                self.picture_bytes = self.picture_bytes.max(came);
                self.left.extend(drives.iter().map(|drive| (*drive, object)));
                self.remove_left(core).await;
                made
            }
        }
    }

    /// Removes what is left of pictures that failed, from drives that are up.
    async fn remove_left(&mut self, core: &Arc<Core>) {
        let up: BTreeSet<DriveId> = core.drives().up(core.now_ms()).into_iter().collect();
        for (drive, object) in self.left.clone() {
            let is_known = core.drives().drive(drive).is_some();
            let is_gone =
                !is_known || up.contains(&drive) && calls::remove(core, drive, object).await.is_ok();
            if is_gone {
                self.left.remove(&(drive, object));
            }
        }
    }

    /// Fills a new stream with the picture.
    async fn fill(&mut self, core: &Arc<Core>, new: &mut Stream) -> Result<(), Refusal> {
        let mut from = Vec::new();
        let mut rows = 0;
        loop {
            let began = tokio::time::Instant::now();
            let (page, next) = page(core, from).await?;
            rows += u64::try_from(page.len()).unwrap_or(u64::MAX);
            KeepNames::progress(core, Progress { done: rows, total: 0, unit: "rows" });
            new.add(page, core.changes.load(Ordering::Acquire), core.now_ms(), Part::Picture);
            let Some(taken) = take(core).await else {
                self.is_missed = true;
                return Err(missed());
            };
            // What is taken goes into both, so that the one before stays up to date.
            self.add(core, Taken { rows: taken.rows.clone(), changes: taken.changes }, Part::Changes);
            let part = if next.is_none() { Part::Last } else { Part::Picture };
            new.add(taken.rows, taken.changes, core.now_ms(), part);
            let why = new.push(core).await;
            if new.holders().is_empty() {
                let why = why.unwrap_or_else(|| "no drive takes it".to_owned());
                return Err(not_kept(CallError::Unreachable(why)));
            }
            if let Some(before) = &mut self.stream {
                before.push(core).await;
            }
            match next {
                Some(next) => from = next,
                None => break,
            }
            sleep(began.elapsed()).await;
        }
        if new.left_out > 0 {
            tracing::warn!(
                rows = new.left_out,
                "rows that are too long are not in the catalogue at the drives"
            );
        }
        tracing::info!(
            stream = %new.object, rows, bytes = new.picture_bytes, drives = new.complete().len(),
            "a picture of all names is at the drives"
        );
        Ok(())
    }

    /// Adds changes to the stream, if there are any.
    fn add(&mut self, core: &Core, taken: Taken, part: Part) {
        if let Some(stream) = self.stream.as_mut().filter(|_| !self.is_missed)
            && !taken.rows.is_empty()
        {
            stream.add(taken.rows, taken.changes, core.now_ms(), part);
        }
    }

    /// Tells for status how the catalogue is kept.
    fn tell(&self, core: &Core) {
        let Some(stream) = &self.stream else { return };
        let drives = stream.complete();
        let enough = core.drives_counted().1.min(SAFE);
        let mut names = core.names();
        let complete = drives.len();
        let standing = Standing { whole: stream.whole, missed: self.is_missed, complete, enough };
        names.note(standing, core.running_ms());
        names.bytes = stream.picture_bytes + stream.log_bytes;
        names.drives = drives;
    }

    /// Removes earlier streams from drives that are up, once the present one is whole at two drives, or at as
    /// many as there are.
    async fn tidy(&mut self, core: &Arc<Core>) {
        let Some(stream) = &self.stream else { return };
        let enough = core.drives_counted().1.min(SAFE);
        if !stream.whole || stream.complete().len() < enough {
            return;
        }
        let up: Vec<(DriveId, u64)> = {
            let table = core.drives();
            table.up(core.now_ms()).into_iter().map(|drive| (drive, table.starts(drive))).collect()
        };
        for (drive, starts) in up {
            let holds = stream.holders().contains(&drive);
            let tidy = (stream.object, starts, holds);
            if self.tidied.get(&drive) == Some(&tidy) {
                continue;
            }
            match remove_others(core, drive, stream.object, holds).await {
                Ok(()) => drop(self.tidied.insert(drive, tidy)),
                Err(error) => {
                    let name = core.drives().name(drive);
                    KeepNames::failed_in_part(core, &format!("{name}: {error}"));
                }
            }
        }
    }
}

async fn remove_others(
    core: &Arc<Core>,
    drive: DriveId,
    stream: ObjectId,
    holds: bool,
) -> Result<(), CallError> {
    let there = listing::objects(core, drive, PARTITION, 0).await?;
    for object in there.into_iter().map(|there| there.object) {
        if !(holds && object == stream) {
            calls::remove(core, drive, object).await?;
        }
    }
    Ok(())
}

/// Takes what was noted, off the async threads: it may wait for a commit. `None`: changes were missed.
async fn take(core: &Core) -> Option<Taken> {
    let followed = Arc::clone(&core.followed);
    host::spawn_blocking(move || followed.take()).await.ok().flatten()
}

/// The next rows of the picture, and where to go on; `None` at the end.
async fn page(core: &Arc<Core>, from: Vec<u8>) -> Result<(Vec<Row>, Option<Vec<u8>>), Refusal> {
    core.read(move |_, tx| {
        let from = skip(from);
        let found = tx.scan(&from, &[u8::MAX; 64], PAGE)?;
        let next =
            found.last().filter(|_| found.len() == PAGE).map(|(last, _)| [last.as_slice(), &[0]].concat());
        let form = |(row, value): Pair| carried(&row, Some(&value)).map(|form| (row, form));
        Ok((found.into_iter().filter_map(form).collect(), next))
    })
    .await
}

fn not_kept(error: CallError) -> Refusal {
    Refusal::new(Reason::NotServing, format!("no drive takes the catalogue of names: {error}"))
}

fn missed() -> Refusal {
    Refusal::new(Reason::Busy, "changes were missed while the picture of all names was made: it is made anew")
}
