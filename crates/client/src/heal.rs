//! The heal of one file: it brings a drive's stale columns up to date (PROTOCOL section 7), in the drive's
//! process, beside the file's readers and writers.
//!
//! The columns join first (the manager's procedure). Then, page by page, all columns of the set are asked
//! which versions they hold; units whose version (data) or cover (parity) is not the one that the settled cut
//! names are made from exactly that cut, and installed below what writers have sent meanwhile. At the end the
//! manager lists the columns as ready, unless the generation has risen since: then they are compared again,
//! which moves only what differs. An interrupted heal goes on in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braid_layout::{Column, ColumnMask, DriveId, FileId, HolderId, Stripe, Version};
use braid_plan::Target;
use braid_wire::Reason;
use braid_wire::control::{
    BeginHeal, ControlReply, EndHeal, HealOrders, HealProgress, HealReport, HealStatus, HealStatusReply,
    StaleFiles,
};
use braid_wire::data::{DriveReply, DriveRequest, Listing, Versions, VersionsReply};

use crate::client::{Client, random, unexpected};
use crate::concurrent;
use crate::data::buffers::User;
use crate::data::held::runs;
use crate::data::planning::Patience;
use crate::data::retire::ask_all;
use crate::error::{Error, Result};
use crate::executor::{Executor, Writer};
use crate::handle::{Handle, Purpose};
use crate::peers::drive_requests::Failure;
use crate::peers::faults::{Learnt, Remedy, write_remedy};
use crate::view::FileView;
pub use repair::DamagedAt;
use settled_cut::{Standing, StripePlace, Survey, lacks_owed, settled_cut, standing};
use tally::ComparisonTally;
pub use tally::HealTally;

mod caught_up;
mod fill;
mod repair;
mod settled_cut;
mod tally;

/// Units asked for from each column at a time.
const PAGE: u32 = 2048;
/// Timeout of [`Client::heal_status_for_now`].
const NOW: Duration = Duration::from_secs(3);
/// Units asked for by name at a time.
const NAMED: usize = 2048;
/// Maximum number of comparisons of a file whose generation keeps rising; after them it is left for later.
const ROUNDS_MAX: u8 = 32;
/// Maximum number of tries to compile and read a plan set, each without the columns that did not deliver.
const TRIES_MAX: u32 = 4;

impl Client {
    /// The next files after `after` with stale columns on the drive, in order; empty at the end.
    pub async fn stale_files(&self, drive: &str, after: FileId, limit: u32) -> Result<Vec<FileId>> {
        let subject = format!("drive {drive}");
        let request = StaleFiles { drive: drive.to_owned(), after, limit };
        let files = match self.ask_manager(&subject, request).await? {
            ControlReply::StaleFiles(page) => page.files,
            other => return Err(unexpected(&subject, &other)),
        };
        match files.last() {
            Some(&last) if last <= after => Err(Error::Answer {
                subject,
                why: format!("file {last} is listed after file {after}, out of order"),
            }),
            _ => Ok(files),
        }
    }

    /// Progress of the drives in bringing their stale columns up to date. Also sets the rate in bytes per
    /// second at which each drive may write, if `rate` is given; 0: no limit.
    pub async fn heal_status(&self, rate: Option<u64>) -> Result<HealStatusReply> {
        self.heal_status_with(HealStatus { rate, balance: None }).await
    }

    /// Sets whether columns move to emptier drives.
    pub async fn set_balance(&self, on: bool) -> Result<HealStatusReply> {
        self.heal_status_with(HealStatus { rate: None, balance: Some(on) }).await
    }

    async fn heal_status_with(&self, asked: HealStatus) -> Result<HealStatusReply> {
        match self.ask_manager("the cluster", asked).await? {
            ControlReply::HealStatus(reply) => Ok(reply),
            other => Err(unexpected("the cluster", &other)),
        }
    }

    /// Like [`Client::heal_status`] without a rate, but the manager is asked only once, with a short timeout.
    pub async fn heal_status_for_now(&self) -> Result<HealStatusReply> {
        let request = HealStatus { rate: None, balance: None }.into();
        match self.shared.control.call_once("the cluster", &request, NOW).await? {
            ControlReply::HealStatus(reply) => Ok(reply),
            other => Err(unexpected("the cluster", &other)),
        }
    }

    /// For a client with a drive's credentials: reports the drive's progress to the manager, and returns its
    /// orders.
    pub async fn report_heal(&self, progress: HealProgress) -> Result<HealOrders> {
        match self.ask_manager("the drive", HealReport { progress }).await? {
            ControlReply::HealOrders(orders) => Ok(orders),
            other => Err(unexpected("the drive", &other)),
        }
    }

    /// For a client with a drive's credentials: brings that drive's stale columns of the file up to date, and
    /// then those of the file's new layout, if it is to have one.
    pub async fn heal_file(&self, file: FileId, tally: &HealTally) -> Result<()> {
        let subject = format!("file number {file}");
        let drive = self.config().credentials.drive;
        let mut after = Duration::ZERO;
        for in_vain in 0..ROUNDS_MAX {
            // A random number for each round, so that no message of another process of the drive is taken for
            // one of this process.
            let comparison = random()?;
            let begin = BeginHeal { file, comparison, filling: false, in_vain };
            let opened = match self.ask_manager(&subject, begin).await {
                Ok(ControlReply::Opened(opened)) => opened,
                Ok(other) => return Err(unexpected(&subject, &other)),
                Err(error) if error.reason() == Some(Reason::NotFound) => {
                    return fill::fill_file(self, file, tally).await;
                }
                Err(error) => return Err(error),
            };
            let handle = Handle::new(self.clone(), subject.clone(), Purpose::Heal, HolderId::NONE, opened)?;
            after = Patience::new(&handle).whole();
            let view = handle.view();
            let tally = tally.comparison();
            let heal = Heal { handle: &handle, drive, tally, left: AtomicU64::new(0) };
            for segment in 0..view.layout.segments().len() {
                heal.segment(segment).await?;
            }
            if handle.view().g != view.g {
                continue;
            }
            let left = heal.left.into_inner();
            let end = EndHeal { file, g: view.g, left, comparison, filling: false };
            match self.ask_done(&subject, end).await {
                Err(error) if error.reason() == Some(Reason::StaleGeneration) => {}
                other => return other,
            }
        }
        Err(Error::TimedOut { file: subject, after, why: "its generation kept rising".to_owned() })
    }
}

/// The heal of one file.
struct Heal<'a> {
    handle: &'a Handle,
    /// The drive whose columns are healed.
    drive: DriveId,
    tally: ComparisonTally<'a>,
    /// Number of stripes whose settled content could not be determined.
    left: AtomicU64,
}

/// Answers of the set's columns to a survey, in one view.
struct Surveyed {
    view: Arc<FileView>,
    stripes: BTreeMap<u64, Survey>,
    /// Stripes of which only joining columns have units.
    passed_over: BTreeSet<u64>,
    /// True if a ready column's object did not exist. The column may have moved meanwhile; only the
    /// generation tells.
    saw_absent: bool,
    /// First stripe of which nothing is known yet; `None` if all stripes are known.
    next: Option<u64>,
}

impl Heal<'_> {
    async fn segment(&self, segment: usize) -> Result<()> {
        let mut from = Some(0);
        while let Some(at) = from {
            if self.own(&self.handle.view(), segment).is_empty() {
                return Ok(());
            }
            let page = self.survey(segment, &Wanted::From(at)).await?;
            from = page.next;
            self.page(segment, page, at).await?;
        }
        Ok(())
    }

    /// The columns to heal: joining, and on this drive.
    fn own(&self, view: &FileView, segment: usize) -> ColumnMask {
        let columns = &view.segments[segment];
        let here = |column: &Column| columns.columns[column.index()].drive == self.drive;
        columns.joining.iter().filter(here).collect()
    }

    /// Brings the own columns up to date in these stripes, which are all the written ones of a page from
    /// `first` on.
    async fn page(&self, segment: usize, mut page: Surveyed, first: u64) -> Result<()> {
        let mut patience = Patience::new(self.handle);
        self.note_unwritten(segment, &page, first).await;
        let mut left: BTreeSet<u64> = page.stripes.keys().copied().collect();
        loop {
            let before = left.len();
            let again = self.pass(segment, &page).await?;
            left.retain(|stripe| again.contains(stripe) || !page.stripes.contains_key(stripe));
            let Some(first) = left.first() else { return Ok(()) };
            if left.len() < before {
                patience = Patience::new(self.handle);
            } else if self.left.load(Ordering::Relaxed) > 0 || !patience.again_for_a_while().await {
                // The stripes are being written. The manager decides whether the columns are ready all the
                // same.
                let survey = page.stripes.get(first);
                let columns = &page.view.segments[segment];
                tracing::debug!(
                    segment,
                    first,
                    joining = %columns.joining,
                    ?survey,
                    "it is still unclear which writes to some stripes are settled"
                );
                let count = u64::try_from(left.len()).unwrap_or(u64::MAX);
                self.left.fetch_add(count, Ordering::Relaxed);
                return Ok(());
            }
            page = self.survey(segment, &Wanted::Named(left.iter().copied().take(NAMED).collect())).await?;
        }
    }

    /// Compares these stripes once, and transfers what differs. Returns the stripes to compare again.
    async fn pass(&self, segment: usize, page: &Surveyed) -> Result<BTreeSet<u64>> {
        let (view, shape) = (&page.view, page.view.layout.segments()[segment].shape);
        let columns = &view.segments[segment];
        let step = self.handle.stripes_per_set(view, segment);
        let mut again = BTreeSet::new();
        for own in self.own(view, segment).iter() {
            let mut behind: BTreeMap<u64, Vec<Version>> = BTreeMap::new();
            let mut current = Vec::new();
            let mut owed = BTreeSet::new();
            for (&stripe, survey) in &page.stripes {
                let set = columns.set;
                let joining = columns.joining;
                let place = StripePlace { shape, stripe: Stripe(stripe), set, joining };
                if lacks_owed(&place, own, survey) {
                    owed.insert(stripe);
                }
                match settled_cut(&place, own, survey).map(|cut| (standing(&place, own, survey, &cut), cut)) {
                    Some((Standing::Current, _)) if owed.contains(&stripe) => {}
                    Some((Standing::Current, _)) => {
                        self.tally.compared(u64::from(shape.unit_bytes()));
                        current.push(stripe);
                    }
                    Some((Standing::Behind, cut)) => drop(behind.insert(stripe, cut)),
                    Some((Standing::Ahead, _)) | None => drop(again.insert(stripe)),
                }
            }
            self.note_caught_up(page, segment, own, &runs(current.into_iter(), u64::MAX)).await;
            let behind = &behind;
            let owed = &owed;
            let failed = std::sync::Mutex::new(BTreeSet::new());
            let sets = runs(behind.keys().copied(), step).into_iter().map(|run| {
                let failed = &failed;
                async move {
                    let bytes = (run.end - run.start) * u64::from(shape.unit_bytes());
                    self.tally.take(bytes).await;
                    let left = self.set(page, segment, own, run.clone(), behind).await?;
                    let done = run.filter(|stripe| !left.contains(stripe) && !owed.contains(stripe));
                    let done = runs(done, u64::MAX);
                    self.note_caught_up(page, segment, own, &done).await;
                    failed.lock().expect("no holder panics").extend(left);
                    Ok::<(), Error>(())
                }
            });
            concurrent::windowed(self.handle.client.config().sets_per_request, sets).await?;
            again.extend(failed.into_inner().expect("no holder panics"));
            again.extend(owed);
        }
        Ok(again)
    }

    /// Makes the units of a few stripes from their cuts, and installs them. Returns the stripes to compare
    /// again.
    async fn set(
        &self,
        page: &Surveyed,
        segment: usize,
        own: Column,
        run: Range<u64>,
        cuts: &BTreeMap<u64, Vec<Version>>,
    ) -> Result<BTreeSet<u64>> {
        let _permit = self.handle.client.set_permit().await;
        let view = &page.view;
        let all: BTreeSet<u64> = run.clone().collect();
        let mut learnt = Learnt::default();
        for _ in 0..TRIES_MAX {
            let compile =
                |target: &Target<'_>| braid_plan::rebuild(target, run.clone(), ColumnMask::EMPTY.with(own));
            let Some(set) = self.handle.compile(view, segment, &learnt, compile)? else { break };
            let mut executor = Executor::new(self.handle, view, set, User::Nothing)?;
            let failed = executor.read_cuts(cuts).await?;
            // Stripes with a version that is gone are surveyed again; any other failure is one of its column.
            let (gone, failed): (Vec<_>, Vec<_>) =
                failed.into_iter().partition(|one| one.failure.is(Reason::Gone));
            if !failed.is_empty() {
                for one in &failed {
                    if learnt.note(one) == Remedy::Refresh {
                        self.handle.refresh(view).await?;
                        return Ok(all);
                    }
                }
                continue;
            }
            let gone: BTreeSet<Stripe> = gone.iter().map(|one| one.stripe).collect();
            executor.compute(&gone)?;
            executor.leave_out(&gone);
            return self.install(view, executor, gone).await;
        }
        self.handle.refresh(view).await?;
        Ok(all)
    }

    async fn install(
        &self,
        view: &Arc<FileView>,
        mut executor: Executor<'_>,
        gone: BTreeSet<Stripe>,
    ) -> Result<BTreeSet<u64>> {
        let segment = executor.set.segment;
        let writer = Writer { client: self.handle.client.shared.number, settled_below: Version::ZERO };
        let failed = executor.write(writer).await?;
        let mut again: BTreeSet<u64> = gone.into_iter().map(|stripe| stripe.0).collect();
        let mut refresh = false;
        for one in &failed {
            again.insert(one.stripe.0);
            match &one.failure {
                // The column has newer content already.
                failure if failure.is(Reason::Exists) => {}
                Failure::Refused { refusal, .. } if write_remedy(&one.failure) == Remedy::NotStored => {
                    let drive = view.segments[segment].columns[one.column.index()].name.clone();
                    let file = self.handle.subject.clone();
                    let refusal = refusal.clone();
                    return Err(Error::NotStored { file, drive, refusal });
                }
                _ => refresh = true,
            }
        }
        if refresh {
            self.handle.refresh(view).await?;
        }
        let writes = executor.set.instructions().filter(|(_, i)| i.op.is_write()).map(|(_, i)| &i.op);
        let done = writes.filter(|op| !again.contains(&op.stripe().0));
        let bytes = done.map(|op| u64::from(op.range().end - op.range().start)).sum();
        self.tally.written(bytes);
        self.tally.compared(bytes);
        Ok(again)
    }

    /// Asks every column of the set. A column that does not answer is asked again until it does, or until the
    /// manager has taken it out: without it, versions that only this column knows would be missing from the
    /// cut.
    async fn survey(&self, segment: usize, wanted: &Wanted) -> Result<Surveyed> {
        let mut patience = Patience::new(self.handle);
        loop {
            let view = self.handle.view();
            let Trouble { why, stale } = match self.survey_once(&view, segment, wanted).await? {
                Ok(found) => return Ok(found),
                Err(trouble) => trouble,
            };
            if !patience.again().await {
                return Err(self.handle.timed_out(&patience, &why));
            }
            if stale {
                self.handle.refresh(&view).await?;
            }
        }
    }

    async fn survey_once(
        &self,
        view: &Arc<FileView>,
        segment: usize,
        wanted: &Wanted,
    ) -> Result<std::result::Result<Surveyed, Trouble>> {
        let columns = &view.segments[segment];
        let questions: Vec<_> = columns.set.iter().map(|column| (segment, column)).collect();
        let ready = columns.set.minus(columns.joining);
        let request = |segment, column| wanted.request(view, segment, column);
        let mut found = Surveyed {
            view: Arc::clone(view),
            stripes: BTreeMap::new(),
            passed_over: BTreeSet::new(),
            saw_absent: false,
            next: None,
        };
        let mut listed = BTreeSet::new();
        let mut trouble = None;
        let mut stale = false;
        for (_, column, outcome) in ask_all(self.handle, view, &questions, &request).await {
            let name = &columns.columns[column.index()].name;
            match outcome {
                Ok(DriveReply::Versions(reply)) => {
                    if let Some(why) = wanted.objection(&reply) {
                        return Err(Error::Answer { subject: name.clone(), why: why.to_owned() });
                    }
                    let known = wanted.known(&reply);
                    found.next = found.next.into_iter().chain(known).min();
                    for state in reply.units {
                        if ready.contains(column) {
                            listed.insert(state.unit);
                        }
                        found.stripes.entry(state.unit).or_default().insert(column, state);
                    }
                }
                Err(failure) if failure.is(Reason::NoObject) => {
                    found.saw_absent |= ready.contains(column);
                }
                Err(Failure::Idle) => trouble = trouble.or(Some(format!("{name}: its session ended"))),
                Err(failure) => (trouble, stale) = (Some(format!("{name}: {failure}")), true),
                Ok(other) => {
                    let why = format!("{} does not answer this request", other.name());
                    return Err(Error::Answer { subject: name.clone(), why });
                }
            }
        }
        if let Some(why) = trouble {
            return Ok(Err(Trouble { why, stale }));
        }
        let known = found.next.unwrap_or(u64::MAX);
        found.stripes.retain(|stripe, _| *stripe < known);
        found.passed_over = found.stripes.keys().copied().filter(|stripe| !listed.contains(stripe)).collect();
        found.stripes.retain(|stripe, _| listed.contains(stripe));
        Ok(Ok(found))
    }
}

/// Reason for which a survey is not complete. `stale`: the view may be stale.
struct Trouble {
    why: String,
    stale: bool,
}

/// The stripes of a survey.
enum Wanted {
    /// All stripes with units, from this one up.
    From(u64),
    /// Exactly the stripes with these numbers.
    Named(Vec<u64>),
}

impl Wanted {
    fn request(&self, view: &FileView, segment: usize, column: Column) -> DriveRequest {
        let at = view.address(segment, column);
        match self {
            &Wanted::From(from) => {
                Versions { at, list: Listing::Written, units: Vec::new(), from, limit: PAGE }.into()
            }
            Wanted::Named(units) => {
                Versions { at, list: Listing::Named, units: units.clone(), from: 0, limit: 0 }.into()
            }
        }
    }

    /// The contradiction in an answer, if there is one.
    fn objection(&self, reply: &VersionsReply) -> Option<&'static str> {
        match self {
            &Wanted::From(from) if reply.next.is_some_and(|next| next <= from) => {
                Some("its list of units goes back to an earlier one")
            }
            Wanted::From(_) => None,
            Wanted::Named(units) => {
                let answered = reply.units.iter().map(|state| state.unit);
                let named = units.iter().copied().take(reply.units.len());
                (reply.units.is_empty() || !answered.eq(named))
                    .then_some("it listed units other than those asked for")
            }
        }
    }

    /// First stripe of which the answer says nothing; `None` if it covers all.
    fn known(&self, reply: &VersionsReply) -> Option<u64> {
        match self {
            Wanted::From(_) => reply.next,
            Wanted::Named(units) => units.get(reply.units.len()).copied(),
        }
    }
}
