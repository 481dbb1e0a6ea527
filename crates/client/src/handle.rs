//! The state shared by all requests on one open file: the current view, and how to get a new one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use braid_layout::{Column, ColumnMask, DriveId, HolderId, Lease, ReservationId};
use braid_schedule::Delivered;
use braid_wire::Reason;
use braid_wire::capability::DataDirection;
use braid_wire::control::{
    Access, BeginHeal, ControlReply, ControlRequest, HandlePromise, Opened, Refresh, ReportLost, Room, Turn,
};
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::client::{Client, random, unexpected};
use crate::error::{Error, Result};
use crate::peers::receipts::Receipts;
use crate::promised::Promised;
use crate::view::{ColumnView, FileView};

/// Interval between two reports of a handle's lateness, and the longest wait for the answer to one.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// Purpose for which a file is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To read it.
    Read,
    /// To write it, under a lease.
    Write,
    /// To bring a drive's joining columns up to date.
    Heal,
    /// To fill a drive's columns of a new layout.
    Fill,
}

impl From<Access> for Purpose {
    fn from(access: Access) -> Purpose {
        match access {
            Access::Read => Purpose::Read,
            Access::Write => Purpose::Write,
        }
    }
}

/// The request about room under a quota with which a new view is asked for, each up to this byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// The bytes that the handle has, as far as there is room.
    Keep,
    /// To have more.
    Need(u64),
    /// To have less.
    GiveBack(u64),
}

/// An open file's view, shared by its requests.
pub(crate) struct Handle {
    pub(crate) client: Client,
    /// The file's name in errors.
    pub(crate) subject: String,
    pub(crate) purpose: Purpose,
    /// Number of this open file at the manager; 0 for one that only reads or heals.
    pub(crate) holder: HolderId,
    view: RwLock<Arc<FileView>>,
    /// Allows one request for a new view at a time; the others use its answer.
    gate: Semaphore,
    /// Objects known to exist, by segment and column.
    created: Mutex<BTreeSet<(usize, Column)>>,
    /// Columns to which a change was sent.
    touched: Mutex<BTreeSet<(usize, Column)>>,
    size: Mutex<Size>,
    /// The drives' receipts for this handle's writes.
    pub(crate) receipts: Receipts,
    /// One past the last byte that the handle has had room to write.
    needs: AtomicU64,
    /// Notified when others wait for what this handle was given of a quota.
    pub(crate) wanted_back: Notify,
    /// The account of a handle that was opened under a reservation.
    promised: Option<Reported>,
}

/// The account of a reserved handle, and the task that reports it to the manager.
struct Reported {
    account: Arc<Promised>,
    reporting: AbortHandle,
    /// End of the promise, in the manager's milliseconds, of which was asked whether it is still the end.
    asked_end_ms: AtomicU64,
}

impl Reported {
    fn begin(client: &Client, promise: HandlePromise) -> Result<Reported> {
        let account = Arc::new(Promised::begin(promise, random()?));
        let reporting = tokio::spawn(report_on(client.clone(), Arc::clone(&account))).abort_handle();
        Ok(Reported { account, reporting, asked_end_ms: AtomicU64::new(0) })
    }
}

impl Drop for Reported {
    fn drop(&mut self) {
        self.reporting.abort();
    }
}

/// Reports until the task is aborted.
async fn report_on(client: Client, account: Arc<Promised>) {
    loop {
        sleep(REPORT_EVERY).await;
        report(&client, &account).await;
    }
}

/// Tells the manager what is new. A report that gets no answer is repeated with the next one.
async fn report(client: &Client, account: &Promised) {
    let Some(report) = account.news() else { return };
    let subject = format!("reservation {}", report.reservation);
    match timeout(REPORT_EVERY, client.ask_done(&subject, report.clone())).await {
        Ok(Ok(())) => account.told(&report),
        Ok(Err(Error::Refused { refusal, .. })) if refusal.reason == Reason::NotFound => {
            tracing::debug!(%subject, "it has ended, so nobody is told how late a handle was");
            account.told(&report);
        }
        Ok(Err(error)) => tracing::debug!(%error, "the manager was not told how late a handle was"),
        Err(_) => tracing::debug!(%subject, "the manager did not answer a report of how late a handle was"),
    }
}

/// The file's size as the handle sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// The lease under which the file has this size.
    pub(crate) lease: Lease,
    /// The lease under which the file was cut last.
    cut_at: Lease,
    pub(crate) bytes: u64,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("subject", &self.subject)
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

impl Handle {
    /// Makes a handle from the manager's answer to an open.
    pub(crate) fn new(
        client: Client,
        subject: String,
        purpose: impl Into<Purpose>,
        holder: HolderId,
        opened: Opened,
    ) -> Result<Handle> {
        let view = FileView::new(&subject, opened)?;
        let promised = view.promise.map(|promise| Reported::begin(&client, promise)).transpose()?;
        let size = Mutex::new(Size { lease: view.lease, cut_at: view.cut_at, bytes: view.stat.size() });
        let handle = Handle {
            client,
            subject,
            purpose: purpose.into(),
            holder,
            view: RwLock::new(Arc::new(view)),
            gate: Semaphore::new(1),
            created: Mutex::new(BTreeSet::new()),
            touched: Mutex::new(BTreeSet::new()),
            size,
            receipts: Receipts::default(),
            needs: AtomicU64::new(0),
            wanted_back: Notify::new(),
            promised,
        };
        handle.heed(&handle.view());
        Ok(handle)
    }

    /// The promise under which data in this direction goes now. Under another reservation than that of the
    /// open the handle goes on as best effort.
    pub(crate) fn promised(&self, direction: DataDirection) -> Option<&Promised> {
        let account = &self.promised.as_ref()?.account;
        let now_ms = self.client.manager_ms();
        let reservation = account.promise().reservation;
        let holds = |now: HandlePromise| {
            now.reservation == reservation && now.direction == direction && now_ms < now.until_ms
        };
        self.view().promise.is_some_and(holds).then_some(account)
    }

    /// Asks the manager once, if the promise's time is over, whether it was extended meanwhile. Without an
    /// answer the handle goes on as best effort.
    pub(crate) async fn heed_end(&self) {
        let Some(promised) = &self.promised else { return };
        let view = self.view();
        let Some(promise) = view.promise else { return };
        let is_over = promise.until_ms <= self.client.manager_ms();
        if !is_over || promised.asked_end_ms.load(Ordering::Relaxed) >= promise.until_ms {
            return;
        }
        match timeout(REPORT_EVERY, self.refresh(&view)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, file = %self.subject, "a promise was not renewed"),
            Err(_) => tracing::debug!(file = %self.subject, "the manager did not renew a promise in time"),
        }
        promised.asked_end_ms.fetch_max(promise.until_ms, Ordering::Relaxed);
    }

    /// The handle's account, if it was opened under a reservation.
    pub(crate) fn lateness(&self) -> Option<Delivered> {
        self.promised.as_ref().map(|promised| promised.account.delivered())
    }

    /// Tells the manager how late data was, if the handle was opened under a reservation.
    pub(crate) async fn tell_lateness(&self) {
        if let Some(promised) = &self.promised {
            report(&self.client, &promised.account).await;
        }
    }

    /// The current view.
    pub(crate) fn view(&self) -> Arc<FileView> {
        Arc::clone(&self.view.read().expect("no holder panics"))
    }

    /// A view newer than `seen`: requested, unless another request has brought one already.
    pub(crate) async fn refresh(&self, seen: &Arc<FileView>) -> Result<Arc<FileView>> {
        self.ask(seen, Turn::Any, 0, Asked::Keep).await
    }

    /// Has the file for this handle alone, for a while: longer, the more turns ended before they were of use.
    pub(crate) async fn take_turn(&self, seen: &Arc<FileView>, in_vain: u8) -> Result<Arc<FileView>> {
        self.ask(seen, Turn::Take, in_vain, Asked::Keep).await
    }

    /// Ends the turn of [`Handle::take_turn`]: other handles have the file again too.
    pub(crate) async fn give_turn(&self) -> Result<Arc<FileView>> {
        self.ask(&self.view(), Turn::Give, 0, Asked::Keep).await
    }

    /// Makes sure that the handle may write up to byte `end`: under a quota it asks for more, if it must.
    pub(crate) async fn reach(&self, end: u64) -> Result<()> {
        let view = self.view();
        if !view.may_reach(end) {
            self.ask(&view, Turn::Any, 0, Asked::Need(end)).await?;
        }
        self.needs.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// Gives back what the handle was given of a quota and does not need beyond byte `needed`. The caller has
    /// made sure that nothing is being written.
    pub(crate) async fn give_back(&self, needed: u64) -> Result<()> {
        self.needs.store(needed, Ordering::Release);
        self.ask(&self.view(), Turn::Any, 0, Asked::GiveBack(needed)).await.map(drop)
    }

    async fn ask(
        &self,
        seen: &Arc<FileView>,
        turn: Turn,
        in_vain: u8,
        asked: Asked,
    ) -> Result<Arc<FileView>> {
        let _turn = self.gate.acquire().await.expect("it is never closed");
        let now = self.view();
        let is_enough = match asked {
            Asked::Keep => true,
            Asked::Need(end) => now.may_reach(end),
            Asked::GiveBack(end) => now.reach.is_none_or(|reach| reach <= end),
        };
        let (reach, room) = match asked {
            Asked::Keep => (self.needs.load(Ordering::Acquire), Room::Keep),
            Asked::Need(end) => (end, Room::Need),
            Asked::GiveBack(end) => (end, Room::GiveBack),
        };
        let is_newer = !Arc::ptr_eq(&now, seen) && is_enough;
        if is_newer && (turn == Turn::Any || turn == Turn::Take && !now.shared) {
            return Ok(now);
        }
        let file = now.file;
        let lease = now.lease;
        let holder = self.holder;
        let reservation = now.promise.map_or(ReservationId::NONE, |promise| promise.reservation);
        let snapshot = now.stat.snapshot;
        let refresh = |access| {
            Refresh { file, access, lease, holder, turn, in_vain, reservation, reach, room, snapshot }.into()
        };
        let request: ControlRequest = match self.purpose {
            Purpose::Read => refresh(Access::Read),
            Purpose::Write => refresh(Access::Write),
            Purpose::Heal => BeginHeal { file, comparison: 0, filling: false, in_vain: 0 }.into(),
            Purpose::Fill => BeginHeal { file, comparison: 0, filling: true, in_vain: 0 }.into(),
        };
        let answer = self.client.ask_manager(&self.subject, request).await;
        match answer.map_err(|error| self.lease_error(error))? {
            ControlReply::Opened(opened) => self.install(opened),
            other => Err(unexpected(&self.subject, &other)),
        }
    }

    /// Tells the manager that `columns` cannot be written; with `insist`, that this has lasted long. The
    /// returned view has them out, or has another generation than `seen` for another reason.
    pub(crate) async fn report_lost(
        &self,
        seen: &FileView,
        segment: usize,
        columns: ColumnMask,
        insist: bool,
    ) -> Result<Arc<FileView>> {
        let _turn = self.gate.acquire().await.expect("it is never closed");
        let now = self.view();
        if now.g != seen.g {
            return Ok(now);
        }
        tracing::info!(file = %self.subject, segment, %columns, "telling the manager that columns cannot be written");
        let request = ReportLost {
            file: seen.file,
            lease: seen.lease,
            holder: self.holder,
            segment: seen.segments[segment].number,
            columns,
            insist,
        };
        let answer = self.client.shared.control.call_for_now(&self.subject, &request.into()).await;
        match answer.map_err(|error| self.lease_error(error))? {
            ControlReply::Opened(opened) => self.install(opened),
            other => Err(unexpected(&self.subject, &other)),
        }
    }

    /// The file's size as this handle sees it, with its lease.
    pub(crate) fn size(&self) -> Size {
        *self.lock_size()
    }

    /// Sets the size in bytes, under the same lease as before.
    pub(crate) fn set_size(&self, bytes: u64) {
        self.lock_size().bytes = bytes;
    }

    /// Records that a write that ends at byte `end` was acknowledged under this lease.
    pub(crate) fn grown(&self, lease: Lease, end: u64) {
        let mut size = self.lock_size();
        if lease >= size.cut_at {
            size.bytes = size.bytes.max(end);
        }
    }

    fn lock_size(&self) -> MutexGuard<'_, Size> {
        self.size.lock().expect("no holder panics")
    }

    /// Takes the size over from a new view, where the view is more recent.
    fn heed_size(&self, view: &FileView) {
        let mut size = self.lock_size();
        if view.lease != size.lease || self.purpose == Purpose::Read && view.shared {
            // What this handle wrote under a lease before the last cut's may have been cut off.
            let own = if size.lease >= view.cut_at { size.bytes } else { 0 };
            let bytes = view.stat.size().max(own);
            *size = Size { lease: view.lease, cut_at: view.cut_at, bytes };
        } else if view.has_others() {
            size.bytes = size.bytes.max(view.stat.size());
        }
    }

    /// Columns of the segment that should not be read now, because of notes on their drives.
    pub(crate) fn avoided(&self, view: &FileView, segment: usize) -> ColumnMask {
        let columns = view.segments[segment].columns.iter();
        let noted = |column: &ColumnView| {
            self.client.paths.drives.avoid(column.drive, &column.addresses, column.grant.as_ref())
        };
        (0..).map(Column).zip(columns).filter(|(_, c)| noted(c)).map(|(column, _)| column).collect()
    }

    /// Returns true if the column's object is known to exist.
    pub(crate) fn is_created(&self, segment: usize, column: Column) -> bool {
        self.created.lock().expect("no holder panics").contains(&(segment, column))
    }

    /// Records that the column's object exists.
    pub(crate) fn set_created(&self, segment: usize, column: Column) {
        self.created.lock().expect("no holder panics").insert((segment, column));
    }

    /// Records that the column's object does not exist.
    pub(crate) fn set_absent(&self, segment: usize, column: Column) {
        self.created.lock().expect("no holder panics").remove(&(segment, column));
    }

    /// Records that a change is sent to the column.
    pub(crate) fn touches(&self, segment: usize, column: Column) {
        self.touched.lock().expect("no holder panics").insert((segment, column));
    }

    /// Columns to which a change was sent. For a unit write these include the parity columns, as the handle
    /// makes their objects.
    pub(crate) fn touched(&self) -> BTreeSet<(usize, Column)> {
        self.touched.lock().expect("no holder panics").clone()
    }

    /// Turns a refusal for a lost lease into its own error.
    pub(crate) fn lease_error(&self, error: Error) -> Error {
        match error {
            Error::Refused { refusal, .. } if refusal.reason == Reason::LeaseLost => {
                Error::LeaseLost { file: self.subject.clone(), why: refusal.detail }
            }
            other => other,
        }
    }

    fn install(&self, opened: Opened) -> Result<Arc<FileView>> {
        let view = Arc::new(FileView::new(&self.subject, opened)?);
        self.heed(&view);
        self.forget_moved(&view);
        self.note_lost(&view);
        self.heed_size(&view);
        *self.view.write().expect("no holder panics") = Arc::clone(&view);
        Ok(view)
    }

    /// Forgets objects of columns that moved to another drive, where they do not exist yet.
    fn forget_moved(&self, new: &FileView) {
        let old = self.view();
        let drive = |view: &FileView, segment: usize, column: Column| {
            view.segments.get(segment).and_then(|s| s.columns.get(column.index())).map(|c| c.drive)
        };
        let mut created = self.created.lock().expect("no holder panics");
        created.retain(|&(segment, column)| drive(&old, segment, column) == drive(new, segment, column));
    }

    /// Notes drives whose columns are out now, and were in the set.
    fn note_lost(&self, new: &FileView) {
        let Some(promised) = &self.promised else { return };
        for (old, new) in self.view().segments.iter().zip(&new.segments) {
            let lost = old.set.minus(new.set);
            let drives = lost.iter().filter_map(|column| old.columns.get(column.index()));
            drives.for_each(|column| promised.account.lost(column.drive));
        }
    }

    /// Notes that a drive does not answer while data is due that is read from it.
    pub(crate) fn note_silent(&self, drive: DriveId, why: &str) {
        self.client.paths.drives.note_away(drive, why);
        if let Some(promised) = &self.promised {
            promised.account.lost(drive);
        }
    }

    /// Notes drives that the manager has not heard from lately: they are avoided for a while.
    fn heed(&self, view: &FileView) {
        let drives = &self.client.paths.drives;
        for column in view.segments.iter().flat_map(|segment| &segment.columns) {
            if column.listed_away && column.grant.is_some() && drives.noted(column.drive).is_none() {
                drives.note_away(column.drive, "the manager has not heard of it lately");
            }
        }
    }
}
