//! A stream of the catalogue as it is written: frames that follow each other, on several drives.
//!
//! Each holder is given every frame, in order. One that does not answer keeps its place for a while: the
//! frames that it lacks wait in memory, and it is caught up when it is back.

use std::collections::VecDeque;
use std::sync::Arc;

use braid_layout::{ClusterId, DriveId, ObjectId};
use braid_meta::catalogue::frame::{Age, Digest, Head, Row, encode, pack};
use braid_wire::Reason;
use tokio::task::JoinSet;

use crate::catalogue::calls;
use crate::core::Core;
use crate::drive_calls::CallError;

/// Maximum bytes of frames that wait for holders: beyond them, those that lack the oldest are dropped.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// Maximum time that a holder may lack frames, in milliseconds.
const LACKS_MS_MAX: u64 = 60_000;

/// A stream that is being written.
pub(crate) struct Stream {
    pub(crate) object: ObjectId,
    cluster: ClusterId,
    /// Number of the next frame.
    next: u64,
    tip: Digest,
    /// Age and time of the frame before: neither falls within a stream, or a rebuild ends it there.
    age: Age,
    time_ms: u64,
    holders: Vec<Holder>,
    /// Drives that will not take it later either.
    pub(crate) refused: Vec<DriveId>,
    /// Frames that some holder lacks, the oldest first, each with its number.
    waiting: VecDeque<(u64, Arc<Vec<u8>>)>,
    /// True once the picture is whole.
    pub(crate) whole: bool,
    /// Bytes of the picture, and of the changes after it.
    pub(crate) picture_bytes: u64,
    pub(crate) log_bytes: u64,
    /// Rows that fit in no frame.
    pub(crate) left_out: u64,
}

struct Holder {
    drive: DriveId,
    /// The next frame that it is to get.
    next: u64,
    /// Time from which on it lacked frames.
    lacks_since_ms: Option<u64>,
}

/// Meaning of a frame's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Rows of the picture: they are no state by themselves.
    Picture,
    /// The changes up to a moment.
    Changes,
    /// The changes up to a moment, after the last of the picture.
    Last,
}

impl Stream {
    /// Begins a stream on the drives that take it.
    pub(crate) async fn begin(
        core: &Arc<Core>,
        object: ObjectId,
        drives: &[DriveId],
    ) -> Result<Stream, CallError> {
        let mut holders = Vec::new();
        let mut refused = Vec::new();
        let mut why = CallError::Unreachable("no drive is up".to_owned());
        for &drive in drives {
            match calls::create(core, drive, object).await {
                Ok(()) => holders.push(Holder { drive, next: 0, lacks_since_ms: None }),
                Err(error) => {
                    if matches!(&error, CallError::Refused(refusal) if ends(refusal.reason)) {
                        refused.push(drive);
                    }
                    why = error;
                }
            }
        }
        if holders.is_empty() {
            return Err(why);
        }
        Ok(Stream {
            object,
            cluster: core.cluster.cluster,
            next: 0,
            tip: Digest::default(),
            age: Age { term: core.term(), changes: 0 },
            time_ms: 0,
            holders,
            refused,
            waiting: VecDeque::new(),
            whole: false,
            picture_bytes: 0,
            log_bytes: 0,
            left_out: 0,
        })
    }

    /// Adds rows. They wait until [`Stream::push`].
    pub(crate) fn add(&mut self, rows: Vec<Row>, changes: u64, time_ms: u64, part: Part) {
        if rows.is_empty() && part == Part::Picture {
            return;
        }
        let (groups, left_out) = pack(rows);
        self.left_out += left_out;
        let last = groups.len() - 1;
        self.age.changes = self.age.changes.max(changes);
        self.time_ms = self.time_ms.max(time_ms);
        for (n, group) in groups.into_iter().enumerate() {
            let ends = n == last;
            let head = Head {
                cluster: self.cluster,
                stream: self.object,
                number: self.next,
                age: self.age,
                time_ms: self.time_ms,
                cut: ends && part != Part::Picture,
                whole: ends && part == Part::Last,
                before: self.tip,
            };
            let (bytes, digest) = encode(&head, &group);
            let counted = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            match self.whole {
                true => self.log_bytes += counted,
                false => self.picture_bytes += counted,
            }
            self.waiting.push_back((self.next, Arc::new(bytes)));
            self.tip = digest;
            self.next += 1;
        }
        self.whole |= part == Part::Last;
    }

    /// Gives all holders what they lack, each as far as it takes it. Returns the last reason for which one
    /// does not.
    pub(crate) async fn push(&mut self, core: &Arc<Core>) -> Option<String> {
        let now_ms = core.running_ms();
        let mut giving = JoinSet::new();
        for holder in &self.holders {
            let lacks: Vec<(u64, Arc<Vec<u8>>)> =
                self.waiting.iter().filter(|(number, _)| *number >= holder.next).cloned().collect();
            let stream = self.object;
            let drive = holder.drive;
            let core = Arc::clone(core);
            giving.spawn(async move {
                let mut given = 0u64;
                for (number, frame) in lacks {
                    if let Err(error) = calls::write(&core, drive, stream, number, &frame).await {
                        return (drive, given, Some(error));
                    }
                    given += 1;
                }
                (drive, given, None)
            });
        }
        let mut why = None;
        while let Some(ended) = giving.join_next().await {
            let Ok((drive, given, error)) = ended else { continue };
            let name = core.drives().name(drive);
            if let Some(error) = &error {
                why = Some(format!("{name}: {error}"));
            }
            let Some(holder) = self.holders.iter_mut().find(|holder| holder.drive == drive) else { continue };
            holder.next += given;
            match &error {
                None => holder.lacks_since_ms = None,
                // The object is gone, or the drive can hold no more: it cannot go on.
                Some(CallError::Refused(refusal)) if ends(refusal.reason) => {
                    self.drop_holder(drive);
                    self.refused.push(drive);
                }
                Some(_) => drop(holder.lacks_since_ms.get_or_insert(now_ms)),
            }
        }
        self.trim(now_ms);
        why
    }

    /// Forgets frames that all holders have, and drops holders that lack too much or for too long.
    fn trim(&mut self, now_ms: u64) {
        let is_late =
            |holder: &Holder| holder.lacks_since_ms.is_some_and(|since| now_ms > since + LACKS_MS_MAX);
        self.holders.retain(|holder| !is_late(holder));
        loop {
            let least = self.holders.iter().map(|holder| holder.next).min().unwrap_or(self.next);
            self.waiting.retain(|(number, _)| *number >= least);
            let bytes: usize = self.waiting.iter().map(|(_, frame)| frame.len()).sum();
            if bytes <= WAITING_BYTES_MAX || self.holders.is_empty() {
                return;
            }
            self.holders.retain(|holder| holder.next > least);
        }
    }

    /// The drive holds the stream no more.
    pub(crate) fn drop_holder(&mut self, drive: DriveId) {
        self.holders.retain(|holder| holder.drive != drive);
    }

    /// The drives that hold the stream, also those that lack frames.
    pub(crate) fn holders(&self) -> Vec<DriveId> {
        self.holders.iter().map(|holder| holder.drive).collect()
    }

    /// The drives that have all frames.
    pub(crate) fn complete(&self) -> Vec<DriveId> {
        self.holders.iter().filter(|holder| holder.next == self.next).map(|holder| holder.drive).collect()
    }
}

/// Returns true if a drive that refuses a frame so will not take it later either.
fn ends(reason: Reason) -> bool {
    matches!(reason, Reason::NoObject | Reason::NoPartition | Reason::Full | Reason::Quota | Reason::Damaged)
        || matches!(reason, Reason::Unsupported | Reason::Scope | Reason::Rights | Reason::Malformed)
}
