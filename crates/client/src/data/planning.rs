//! Planning of transfers, for readers, writers and the healer: ranges cut into chunks for one plan set each,
//! plan sets compiled around the columns that cannot be used, and waits until they can.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{Column, ColumnMask, Stripe};
use braid_plan::{PlanError, PlanSet, Target, stripes_max};

use crate::error::{Error, Result};
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

    /// The bytes of the whole stripes that a chunk is cut from.
    pub(crate) fn set_around(&self, view: &FileView, chunk: &SegmentChunk) -> Range<u64> {
        let layout = &view.layout.segments()[chunk.segment];
        let stripes = self.stripes_per_set(view, chunk.segment);
        let first = layout.stripe_at(chunk.range.start).0 / stripes * stripes;
        let last = first.saturating_add(stripes - 1);
        layout.stripe_range(Stripe(first)).start..layout.stripe_range(Stripe(last)).end
    }

    /// The number of stripes in a plan set: about `set_bytes`, at least one.
    pub(crate) fn stripes_per_set(&self, view: &FileView, segment: usize) -> u64 {
        let shape = view.layout.segments()[segment].shape;
        let wanted = self.client.shared.config.set_bytes / shape.stripe_bytes();
        wanted.clamp(1, stripes_max(&shape))
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
                self.client.paths.drives.noted(target.drive)
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
