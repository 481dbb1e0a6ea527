//! Chooses where replay begins: at the newest checkpoint without lost pages, or else at the first record.

use super::Damage;
use super::prefetch::Prefetch;
use crate::checkpoint::load::{Checkpoint, PageContents, PageRange};
use crate::checkpoint::{self, KeptCheckpoint};
use crate::error::Error;
use crate::files::Files;
use crate::format::checkpoint::{ReplayPoint, SegmentRow};
use crate::format::superblock::Superblock;
use crate::index::Index;

/// The state with which replay begins.
#[derive(Debug, Default)]
pub(crate) struct Begin {
    pub(crate) index: Index,
    /// The ranges of keys, and the last record that each range's page counts in.
    pub(crate) ranges: Vec<PageRange>,
    pub(crate) replay: ReplayPoint,
    /// All records up to this number are known to be durable.
    pub(crate) durable_to: u64,
    /// The segments that existed when the checkpoint was begun.
    pub(crate) segments: Vec<SegmentRow>,
    /// The usable checkpoints, oldest first. The last one was loaded.
    pub(crate) kept: Vec<KeptCheckpoint>,
    /// Checkpoints that are damaged, or newer than the one that was loaded.
    pub(crate) doubtful: Vec<u32>,
    pub(crate) damaged: Vec<Damage>,
}

impl Begin {
    /// Chooses among the checkpoints of `files`. `numbers` are the segments of the log.
    pub(crate) fn find(files: &Files, superblock: &Superblock, numbers: &[u32]) -> Result<Begin, Error> {
        let (all, unfinished) = checkpoint::list(files.disk())?;
        let mut begin = Begin::default();
        let mut usable = Vec::new();
        for &number in all.iter().rev() {
            match Checkpoint::open(files.disk(), superblock, number)? {
                Ok(found) => usable.push(found),
                Err(why) => {
                    begin.damaged.push(damage(number, 0, &why));
                    begin.doubtful.push(number);
                }
            }
        }
        begin.choose(files, usable, numbers)?;
        for name in unfinished {
            // The file was left by a crash: it never became a checkpoint.
            files
                .disk()
                .remove(&name)
                .map_err(|error| Error::io("remove an unfinished checkpoint", error))?;
        }
        Ok(begin)
    }

    /// Loads the newest of `usable` (sorted newest first) that has lost no page. If each has lost some, loads
    /// the newest; the keys of its lost pages are then marked as lost. Records that any checkpoint names as
    /// durable count as durable, whichever is chosen.
    fn choose(&mut self, files: &Files, usable: Vec<Checkpoint>, numbers: &[u32]) -> Result<(), Error> {
        let mut chosen: Option<(usize, PageContents)> = None;
        for (i, found) in usable.iter().enumerate() {
            let totals = found.totals.map_or(0, |totals| totals.durable_to);
            self.durable_to = self.durable_to.max(totals).max(found.end.replay.sequence.saturating_sub(1));
            if i > 0 && !is_whole(&found.end.replay, numbers) {
                continue;
            }
            let prefetch = numbers.last().and_then(|&last| Prefetch::begin(files, last, &found.end.replay));
            let content = found.load()?;
            drop(prefetch);
            let wrong = content.wrong.iter();
            self.damaged.extend(wrong.map(|(offset, what)| damage(found.end.number, *offset, what)));
            let as_of = content.ranges.iter().filter_map(|range| range.as_of);
            self.durable_to = as_of.fold(self.durable_to, u64::max);
            let whole = content.ranges.iter().all(|range| range.as_of.is_some());
            if whole || chosen.is_none() {
                chosen = Some((i, content));
            }
            if whole {
                break;
            }
        }
        let Some((i, content)) = chosen else { return from_the_first_record(numbers) };
        let found = &usable[i];
        self.doubtful.extend(usable[..i].iter().map(|newer| newer.end.number));
        self.kept = usable[i..].iter().rev().map(Checkpoint::kept).collect();
        self.replay = found.end.replay;
        self.segments.clone_from(&found.end.segments);
        (self.index, self.ranges) = (content.index, content.ranges);
        self.index.appended = found.end.appended;
        Ok(())
    }
}

/// Returns true if the log is complete, without a gap, from `replay` on.
fn is_whole(replay: &ReplayPoint, numbers: &[u32]) -> bool {
    let tail = &numbers[numbers.partition_point(|&number| number < replay.segment.max(1))..];
    let begins = replay.sequence == 1 || tail.first() == Some(&replay.segment);
    begins && tail.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]))
}

/// Without a checkpoint, the log must be present from its first segment on.
fn from_the_first_record(numbers: &[u32]) -> Result<(), Error> {
    if numbers.first().is_none_or(|&first| first == 1) {
        return Ok(());
    }
    Err(Error::Damaged {
        segment: 1,
        offset: 0,
        what: "no checkpoint can be read, and the log's first segment is not there",
    })
}

fn damage(number: u32, offset: u64, what: &str) -> Damage {
    Damage { segment: 0, offset, what: format!("checkpoint {number}: {what}") }
}
