//! Reads: bytes of the file into the caller's buffer, in plan sets of bounded size, a few at a time.
//!
//! Pieces that a drive fails to deliver are planned again without its column; pieces already read are kept.
//! The caller notices nothing until more columns are away than the parity can replace.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{Column, ColumnMask, Stripe};
use braid_plan::{MemoryRange, PlanError, PlanSet, Strategy, Target, Want, stripes_max};

use crate::concurrent;
use crate::data::buffers::User;
use crate::error::{Error, Result};
use crate::executor::{Executor, Failed};
use crate::handle::Handle;
use crate::peers::faults::{Learnt, Remedy};
use crate::peers::retry::Tries;
use crate::view::FileView;

/// A byte range of one segment, for one plan set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentChunk {
    pub(crate) segment: usize,
    pub(crate) range: Range<u64>,
}

/// A range still to be read, and what is known about its columns.
struct Todo {
    range: Range<u64>,
    learnt: Learnt,
}

/// Time limits for the tries of a request.
pub(crate) struct Patience {
    /// Used while the obstacle may be temporary.
    tries: Tries,
    /// Used while too many columns are away for no temporary reason: a drive may be restarting.
    grace: Tries,
}

/// Time for which a writer tries to reach a drive before it has the manager take the drive's column out, even
/// if the manager itself reaches the drive.
const INSIST_AFTER: Duration = Duration::from_secs(5);

impl Patience {
    pub(crate) fn new(handle: &Handle) -> Patience {
        let config = &handle.client.shared.config;
        Patience { tries: Tries::new(config.patience), grace: Tries::new(config.grace) }
    }

    /// Waits for the next try; false if there is none.
    pub(crate) async fn again(&mut self) -> bool {
        self.tries.again().await
    }

    /// Like `again`, for something that looks hopeless: gives up sooner.
    pub(crate) async fn again_for_a_while(&mut self) -> bool {
        self.grace.again().await
    }

    /// Returns true if the tries have lasted so long that even a drive which the manager reaches counts as
    /// lost.
    pub(crate) fn insists(&self) -> bool {
        self.tries.elapsed() > INSIST_AFTER
    }

    /// The total time allowed for tries.
    pub(crate) fn whole(&self) -> Duration {
        self.tries.patience
    }
}

impl Handle {
    /// Cuts a range of the file into chunks of whole stripes (except at its ends) of about `set_bytes`.
    /// Lazily, as a sparse file may have more chunks than fit in memory.
    pub(crate) fn chunks(
        &self,
        view: Arc<FileView>,
        range: Range<u64>,
    ) -> impl Iterator<Item = SegmentChunk> + use<'_> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let (segment, layout) = view.layout.segment_at(at);
            let stripes = self.stripes_per_set(&view, segment);
            let first = layout.stripe_at(at).0;
            let last = (first / stripes * stripes).saturating_add(stripes - 1);
            let end = layout.stripe_range(Stripe(last)).end.min(range.end);
            let chunk = SegmentChunk { segment, range: at..end };
            at = end;
            Some(chunk)
        })
    }

    /// The number of stripes in a plan set: about `set_bytes`, at least one.
    pub(crate) fn stripes_per_set(&self, view: &FileView, segment: usize) -> u64 {
        let shape = view.layout.segments()[segment].shape;
        let wanted = self.client.shared.config.set_bytes / shape.stripe_bytes();
        wanted.clamp(1, stripes_max(&shape))
    }

    /// Fills `buffer` with the file's bytes from `offset` on. The caller has limited it to the file's size.
    pub(crate) async fn read_range(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let length = u64::try_from(buffer.len()).expect("a buffer is below 2^64 bytes");
        let view = self.view();
        if self.read_quickly(&view, offset, buffer).await {
            return Ok(());
        }
        let chunks = self.chunks(view, offset..offset + length);
        let mut rest = buffer;
        let reads = chunks.map(move |chunk| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(length_of(&chunk.range));
            rest = tail;
            async move {
                let _permit = self.client.set_permit_for(chunk.range.end - chunk.range.start).await;
                self.read_chunk(chunk, head).await
            }
        });
        concurrent::windowed(self.client.shared.config.sets_per_request, reads).await
    }

    async fn read_chunk(&self, chunk: SegmentChunk, buffer: &mut [u8]) -> Result<()> {
        let mut patience = Patience::new(self);
        let mut absent: Option<Arc<FileView>> = None;
        let mut todo = vec![Todo { range: chunk.range.clone(), learnt: Learnt::default() }];
        while let Some(mut part) = todo.pop() {
            let view = self.view();
            // The file may have another layout by now, in which this range is too long for one plan set.
            if let Some(first) = self.chunks(Arc::clone(&view), part.range.clone()).next()
                && first.range.end < part.range.end
            {
                let rest = first.range.end..part.range.end;
                todo.push(Todo { range: rest, learnt: part.learnt.clone() });
                todo.push(Todo { range: first.range, ..part });
                continue;
            }
            let compile = |target: &Target<'_>| braid_plan::read(target, part.range.clone(), 0, Want::Newest);
            let Some(set) = self.compile(&view, chunk.segment, &part.learnt, or_with_joining(compile))?
            else {
                let stripes = stripes_of(&view, chunk.segment, &part.range);
                self.wait_for_columns(&view, chunk.segment, stripes, "read", &mut part.learnt, &mut patience)
                    .await?;
                todo.push(part);
                continue;
            };
            let skip = length_of(&(chunk.range.start..part.range.start));
            let own = &mut buffer[skip..skip + length_of(&part.range)];
            let mut executor = Executor::new(self, &view, set, User::Into(own))?;
            let read = executor.read().await;
            if read.is_err() && executor.saw_absent && !self.is_hole(&view).await? {
                drop(executor);
                todo.push(part);
                self.pause(&mut patience).await?;
                continue;
            }
            let failed = read?;
            executor.compute(&failed.iter().map(|one| one.stripe).collect())?;
            if executor.saw_absent {
                absent = Some(Arc::clone(&view));
            }
            if !failed.is_empty() {
                let (missing, refresh) = missing(&executor, &part, &failed);
                drop(executor);
                self.mend(&view, refresh, &mut patience).await?;
                todo.extend(missing);
            }
            if todo.is_empty()
                && let Some(view) = absent.take()
                && !self.is_hole(&view).await?
            {
                todo.push(Todo { range: chunk.range.clone(), learnt: Learnt::default() });
                self.pause(&mut patience).await?;
            }
        }
        Ok(())
    }

    /// Decides what an object that was not found with the capabilities of this view means. Returns true if it
    /// is a hole; false if its column may have moved to another drive meanwhile, as the generation has risen.
    /// Fails if the file was removed.
    pub(crate) async fn is_hole(&self, view: &Arc<FileView>) -> Result<bool> {
        // The manager must be asked after the object was missed.
        let now = self.refresh(&self.view()).await?;
        Ok(now.g == view.g)
    }

    /// Compiles with what is known of the columns, avoiding drives that did not answer lately if possible.
    /// `None` if too few columns are left.
    pub(crate) fn compile(
        &self,
        view: &FileView,
        segment: usize,
        learnt: &Learnt,
        compile: impl Fn(&Target<'_>) -> std::result::Result<PlanSet, PlanError>,
    ) -> Result<Option<PlanSet>> {
        let known = learnt.clone().with(self.avoided(view, segment));
        match self.compile_with(view, segment, &known, &compile)? {
            Some(set) => Ok(Some(set)),
            None => self.compile_with(view, segment, learnt, &compile),
        }
    }

    /// Like [`Handle::compile`], but also uses drives that did not answer lately.
    pub(crate) fn compile_with(
        &self,
        view: &FileView,
        segment: usize,
        learnt: &Learnt,
        compile: impl Fn(&Target<'_>) -> std::result::Result<PlanSet, PlanError>,
    ) -> Result<Option<PlanSet>> {
        let away = learnt.away().or(view.without_grant(segment));
        match compile(&view.target(segment, away)) {
            Ok(set) => Ok(Some(set)),
            Err(PlanError::TooFewReady { .. }) => Ok(None),
            Err(error) => Err(self.plan_error(&error)),
        }
    }

    /// Called when too few columns are left. While a retry may help, waits and refreshes the view; then
    /// returns the error that names the columns.
    pub(crate) async fn wait_for_columns(
        &self,
        view: &Arc<FileView>,
        segment: usize,
        stripes: Range<u64>,
        action: &'static str,
        learnt: &mut Learnt,
        patience: &mut Patience,
    ) -> Result<()> {
        let hope =
            if learnt.may_pass() { patience.again().await } else { patience.again_for_a_while().await };
        if hope {
            self.refresh(view).await?;
            learnt.forget();
            return Ok(());
        }
        Err(self.too_many_away(view, segment, stripes, action, learnt))
    }

    /// The error that names the unusable columns.
    pub(crate) fn too_many_away(
        &self,
        view: &FileView,
        segment: usize,
        stripes: Range<u64>,
        action: &'static str,
        learnt: &Learnt,
    ) -> Error {
        let columns = &view.segments[segment];
        let why = |column: Column| {
            let target = &columns.columns[column.index()];
            if !columns.set.contains(column) {
                Some("it was away during writes and is stale until it is rebuilt".to_owned())
            } else if columns.joining.contains(column) {
                Some("it is being rebuilt, and has not caught up".to_owned())
            } else if let Some(why) = learnt.why(column) {
                Some(why.to_owned())
            } else if target.grant.is_none() {
                Some("the manager gave no capability for it".to_owned())
            } else {
                self.client.shared.drives.noted(target.drive)
            }
        };
        let layout = &view.layout.segments()[segment];
        let shape = layout.shape;
        let last = layout.stripe_range(Stripe(stripes.end.saturating_sub(1)));
        let bytes = layout.stripe_range(Stripe(stripes.start)).start..last.end.min(layout.end);
        let drives = ColumnMask::all(shape.width())
            .iter()
            .filter_map(|column| Some(format!("{}: {}", columns.columns[column.index()].name, why(column)?)));
        Error::TooManyAway {
            file: self.subject.clone(),
            segment,
            bytes,
            stripes,
            action,
            spare: shape.m(),
            drives: drives.collect(),
        }
    }

    /// Applies the remedy of the failures before the next try.
    pub(crate) async fn mend(
        &self,
        view: &Arc<FileView>,
        remedy: Remedy,
        patience: &mut Patience,
    ) -> Result<()> {
        match remedy {
            Remedy::Refresh => {
                self.refresh(view).await?;
                self.pause(patience).await
            }
            Remedy::Again => self.pause(patience).await,
            Remedy::Wait | Remedy::Without | Remedy::NotStored => Ok(()),
        }
    }

    pub(crate) async fn pause(&self, patience: &mut Patience) -> Result<()> {
        if patience.again().await {
            Ok(())
        } else {
            Err(self.timed_out(patience, "its drives' answers kept changing"))
        }
    }

    /// The error for used-up patience.
    pub(crate) fn timed_out(&self, patience: &Patience, why: &str) -> Error {
        Error::TimedOut { file: self.subject.clone(), after: patience.whole(), why: why.to_owned() }
    }
}

/// The ranges that must be read again, and the remedy to apply first.
fn missing(executor: &Executor<'_>, part: &Todo, failed: &[Failed]) -> (Vec<Todo>, Remedy) {
    let mut stripes: BTreeMap<Stripe, (Learnt, Vec<Range<u64>>)> = BTreeMap::new();
    let mut remedy = Remedy::Without;
    for one in failed {
        let entry = stripes.entry(one.stripe).or_insert_with(|| (part.learnt.clone(), Vec::new()));
        match entry.0.note(one) {
            Remedy::Refresh => remedy = Remedy::Refresh,
            Remedy::Again if remedy != Remedy::Refresh => remedy = Remedy::Again,
            _ => {}
        }
        if let Some(MemoryRange::User { offset, len }) = one.into {
            let from = part.range.start + offset;
            entry.1.push(from..from + u64::from(len));
        }
    }
    let mut todo: Vec<Todo> = Vec::new();
    let segment = &executor.view.layout.segments()[executor.set.segment];
    for note in &executor.set.stripes {
        let Some((learnt, pieces)) = stripes.remove(&note.stripe) else { continue };
        let ranges = if note.strategy == Strategy::Direct {
            pieces
        } else {
            // A computed piece fails with any of its inputs, so the whole stripe is read again.
            let stripe = segment.stripe_range(note.stripe);
            let whole = stripe.start.max(part.range.start)..stripe.end.min(part.range.end);
            Vec::from([whole])
        };
        todo.extend(ranges.into_iter().map(|range| Todo { range, learnt: learnt.clone() }));
    }
    (todo, remedy)
}

/// Compiles a read. If too few ready columns are left, joining ones are read as well: their drives serve the
/// units that have caught up (PROTOCOL section 7), and units that they refuse are planned again without them.
pub(crate) fn or_with_joining(
    compile: impl Fn(&Target<'_>) -> std::result::Result<PlanSet, PlanError>,
) -> impl Fn(&Target<'_>) -> std::result::Result<PlanSet, PlanError> {
    move |target| match compile(target) {
        Err(PlanError::TooFewReady { .. }) => {
            let mut target = *target;
            target.health.joining = ColumnMask::EMPTY;
            compile(&target)
        }
        compiled => compiled,
    }
}

pub(crate) fn stripes_of(view: &FileView, segment: usize, range: &Range<u64>) -> Range<u64> {
    let layout = &view.layout.segments()[segment];
    layout.stripe_at(range.start).0..layout.stripe_at(range.end - 1).0 + 1
}

fn length_of(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).expect("a range of a buffer is not longer than memory")
}
