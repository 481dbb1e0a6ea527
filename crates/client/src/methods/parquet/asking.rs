//! Pages that are judged: by the drives that hold them, and else here.
//!
//! A page that lies in units of one drive goes to that drive, together with others of the same row group.
//! Its column's dictionary is taken from the same drive if it lies there too; else a short one goes with the
//! request. A page across the units of several drives, or one that a drive leaves out, is read.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use braid_parquet::{
    AT_CLIENT, Asked, Condition, Dictionary, Page, PageError, PagePlace, Rows, STORED_BYTES_MAX,
    TOLD_BYTES_MAX, TableError, Values, entries, rows_of, values_of,
};
use braid_wire::data::{RUN_PIECE_BYTES_MAX, RUN_PIECES_MAX, RunArgument, RunReply};

use crate::concurrent::{self, Boxed};
use crate::error::Result;
use crate::methods::RunFailure;
use crate::methods::drives::{At, Piece, pieces_of};
use crate::methods::parquet::{Paged, Reading, cost};
use crate::view::FileView;

/// Pages that are read at a time.
const READS: usize = 8;
/// Rows that one request is about, at most: their selection goes with it.
const REQUEST_ROWS: usize = 600_000;
/// Bytes of the pages of one request at most, where there are several pages.
const REQUEST_BYTES: u64 = 16 << 20;
/// Bytes of dictionaries in one request at most.
const TOLD_BYTES: usize = 120 << 10;

/// The findings of a page.
pub(super) enum Judged {
    Rows(Rows),
    Values(Values),
}

/// A page that is to be judged.
#[derive(Debug, Clone)]
struct Task {
    /// Which of the columns it belongs to.
    number: usize,
    page: PagePlace,
    /// Its bytes at the drive.
    pieces: Vec<Piece>,
}

/// The question to the pages of a row group.
struct Question<'a> {
    group: usize,
    columns: &'a [Arc<Paged>],
    rows: &'a Rows,
    condition: Option<&'a Condition>,
    view: Arc<FileView>,
    /// The findings of each column's pages, by their first rows.
    judged: Mutex<Vec<BTreeMap<usize, Judged>>>,
}

/// Pages that go to a drive in one request.
#[derive(Default)]
struct Batch {
    tasks: Vec<Task>,
    dictionaries: BTreeMap<usize, Dictionary>,
    /// Bytes of the dictionaries that come in pieces.
    dictionary_pieces: BTreeMap<usize, Vec<Piece>>,
}

impl Judged {
    pub(super) fn rows(self) -> Option<Rows> {
        if let Judged::Rows(rows) = self { Some(rows) } else { None }
    }

    pub(super) fn values(self) -> Option<Values> {
        if let Judged::Values(values) = self { Some(values) } else { None }
    }
}

impl Question<'_> {
    fn note(&self, task: &Task, judged: Judged) {
        self.judged.lock().expect("no holder panics")[task.number].insert(task.page.first, judged);
    }

    /// The findings of a drive about a page, if they are such.
    fn answered(&self, task: &Task, answer: &[u8]) -> Option<Judged> {
        let among = self.rows.slice(task.page.first, task.page.rows);
        let form = &self.columns[task.number].form;
        match self.condition {
            Some(_) => rows_of(answer, &among).map(Judged::Rows),
            None => values_of(form, among.count_set_bits(), answer).map(Judged::Values),
        }
    }
}

impl Reading<'_> {
    /// Of each column's pages that have rows among `rows`: those that fulfil the condition, or their values.
    pub(super) async fn judged(
        &self,
        group: usize,
        columns: &[Arc<Paged>],
        rows: &Rows,
        condition: Option<&Condition>,
    ) -> Result<Vec<BTreeMap<usize, Judged>>> {
        let judged = Mutex::new(columns.iter().map(|_| BTreeMap::new()).collect());
        let view = self.file.handle().view();
        let question = Question { group, columns, rows, condition, view, judged };
        let mut by_place: BTreeMap<At, Vec<Task>> = BTreeMap::new();
        let mut left = Vec::new();
        for (number, column) in columns.iter().enumerate() {
            for page in column.chunk.touched(rows) {
                match self.placed(&question.view, &page.range()) {
                    Some(Placed { at, pieces }) => {
                        by_place.entry(at).or_default().push(Task { number, page, pieces });
                    }
                    None => left.push(Task { number, page, pieces: Vec::new() }),
                }
            }
        }
        let question = &question;
        let mut all: Vec<Boxed<'_, Result<()>>> = vec![Box::pin(self.here(question, left))];
        for (at, tasks) in by_place {
            all.push(Box::pin(async move {
                let left = self.ask(question, at, tasks).await?;
                self.here(question, left).await
            }));
        }
        for done in concurrent::all(all).await {
            done?;
        }
        Ok(std::mem::take(&mut *question.judged.lock().expect("no holder panics")))
    }

    /// The drive that holds all of a range, if one does and may be asked.
    fn placed(&self, view: &Arc<FileView>, range: &Range<u64>) -> Option<Placed> {
        if range.end - range.start > u64::from(STORED_BYTES_MAX) {
            return None;
        }
        let handle = self.file.handle();
        let mut chunks = handle.chunks(Arc::clone(view), range.clone());
        let chunk = chunks.next().filter(|chunk| chunk.range == *range)?;
        let set = self.file.planned(view, range, chunk.segment, cost()).ok()??;
        let runs = set.plans.iter().map(|plan| (plan, pieces_of(view, chunk.segment, plan, u32::MAX)));
        let mut runs = runs.filter(|(_, pieces)| !pieces.is_empty());
        let (plan, mut pieces) = runs.next()?;
        if runs.next().is_some() || !self.drives.hears(plan.drive) {
            return None;
        }
        pieces.sort_by_key(|piece| piece.offset);
        let end =
            pieces.iter().try_fold(range.start, |at, piece| (piece.offset == at).then(|| piece.range().end));
        let at = At { segment: chunk.segment, column: plan.column };
        (end == Some(range.end)).then_some(Placed { at, pieces })
    }

    /// Has a drive judge pages. Returns those that it leaves to the client.
    async fn ask(&self, question: &Question<'_>, at: At, tasks: Vec<Task>) -> Result<Vec<Task>> {
        let mut tasks = tasks;
        let window = |task: &Task| task.page.first / REQUEST_ROWS;
        tasks.sort_by_key(|task| (window(task), task.number, task.page.first));
        let mut rest = VecDeque::from(tasks);
        let mut left = Vec::new();
        while !rest.is_empty() {
            let batch = self.batch(question, at, &mut rest).await?;
            let pieces = batch.pieces();
            let arguments = batch.arguments(question);
            let reply = self.drives.request(self.file, &question.view, at, &pieces, Vec::new(), arguments);
            let Some(reply) = reply.await? else {
                left.extend(batch.tasks);
                left.extend(rest);
                break;
            };
            let again = self.take(question, batch.tasks, &pieces, &reply, &mut left);
            for task in again.into_iter().rev() {
                rest.push_front(task);
            }
        }
        Ok(left)
    }

    /// Takes a drive's answer. Returns the pages that are to be asked for again.
    fn take(
        &self,
        question: &Question<'_>,
        tasks: Vec<Task>,
        pieces: &[Piece],
        reply: &RunReply,
        left: &mut Vec<Task>,
    ) -> Vec<Task> {
        let known = entries(&reply.partial).unwrap_or_default();
        let reached: Vec<Range<u64>> = pieces.iter().take(reply.pieces.len()).map(Piece::range).collect();
        let mut is_any = false;
        let mut again = Vec::new();
        for task in tasks {
            let answer = known.get(&task.page.offset).and_then(|own| question.answered(&task, own));
            let last = task.page.range().end - 1;
            if let Some(judged) = answer {
                is_any = true;
                self.answered.fetch_add(u64::from(task.page.bytes), Ordering::Relaxed);
                question.note(&task, judged);
            } else if reached.iter().any(|range| range.contains(&last)) {
                left.push(task);
            } else {
                again.push(task);
            }
        }
        if !is_any {
            // Nothing came of it: it would not the next time.
            left.append(&mut again);
        }
        again
    }

    /// The next pages that go in one request.
    async fn batch(&self, question: &Question<'_>, at: At, rest: &mut VecDeque<Task>) -> Result<Batch> {
        let mut batch = Batch::default();
        let mut bytes = 0;
        let mut told = 0;
        let mut pieces = 0;
        while let Some(task) = rest.front() {
            let window = |task: &Task| task.page.first / REQUEST_ROWS;
            let own = u64::from(task.page.bytes);
            // Each piece is cut once more at most for each 512 KiB of it.
            let count =
                task.pieces.len() + usize::try_from(own / u64::from(RUN_PIECE_BYTES_MAX)).unwrap_or(0) + 1;
            let is_first = batch.tasks.is_empty();
            let is_full = bytes + own > REQUEST_BYTES
                || pieces + count + 16 > RUN_PIECES_MAX
                || batch.tasks.first().is_some_and(|first| window(first) != window(task));
            if is_full && !is_first {
                break;
            }
            let number = task.number;
            if let Entry::Vacant(place) = batch.dictionaries.entry(number) {
                let (own, here) = self.dictionary(question, at, number).await?;
                if let Dictionary::Told(bytes) = &own {
                    told += bytes.len();
                }
                if told > TOLD_BYTES && !is_first {
                    break;
                }
                pieces += here.len() + 8;
                place.insert(own);
                batch.dictionary_pieces.insert(number, here);
            }
            bytes += own;
            pieces += count;
            batch.tasks.extend(rest.pop_front());
        }
        Ok(batch)
    }

    /// The way in which a drive comes by a column's dictionary.
    async fn dictionary(
        &self,
        question: &Question<'_>,
        at: At,
        number: usize,
    ) -> Result<(Dictionary, Vec<Piece>)> {
        let column = &question.columns[number];
        let Some(range) = &column.chunk.dictionary else { return Ok((Dictionary::None, Vec::new())) };
        if let Some(placed) = self.placed(&question.view, range).filter(|placed| placed.at == at) {
            return Ok((Dictionary::Here(range.clone()), placed.pieces));
        }
        if range.end - range.start > u64::try_from(TOLD_BYTES_MAX).unwrap_or(0) {
            return Ok((Dictionary::None, Vec::new()));
        }
        let bytes = self.dictionary_of(column).await?;
        Ok((Dictionary::Told(bytes.to_vec()), Vec::new()))
    }

    async fn dictionary_of(&self, column: &Paged) -> Result<Arc<Vec<u8>>> {
        let range = column.chunk.dictionary.clone().unwrap_or(0..0);
        let read = || async { self.read(&range).await.map(Arc::new) };
        column.dictionary.get_or_try_init(read).await.map(Arc::clone)
    }

    /// Reads pages and judges them here.
    async fn here(&self, question: &Question<'_>, tasks: Vec<Task>) -> Result<()> {
        let reads = tasks.into_iter().map(|task| self.one_here(question, task));
        concurrent::windowed(READS, reads).await
    }

    async fn one_here(&self, question: &Question<'_>, task: Task) -> Result<()> {
        let Task { number, page, .. } = task;
        let column = &question.columns[number];
        let failed = |why: PageError| {
            let column = self.table.name(question.columns[number].leaf);
            self.failed(TableError::Page { group: question.group, column, offset: page.offset, why })
        };
        let dictionary_bytes = column.chunk.dictionary.as_ref().map_or(0, |range| range.end - range.start);
        let stored = u64::from(page.bytes).max(dictionary_bytes);
        if stored > u64::from(AT_CLIENT.page_bytes) {
            return Err(failed(PageError::TooLarge { bytes: stored, rows: page.rows, limits: AT_CLIENT }));
        }
        // Until it is judged: so many pages are in memory here at a time.
        let _permit = self.file.handle().client.judging_permit().await;
        let bytes = Arc::new(self.read(&page.range()).await?);
        let mut dictionary = None;
        loop {
            let work = self.work(question, &task, Arc::clone(&bytes), dictionary.clone());
            let done = tokio::task::spawn_blocking(work).await;
            match done.map_err(|_| self.file.failed(RunFailure::Ended))? {
                Ok(judged) => {
                    question.note(&task, judged);
                    return Ok(());
                }
                Err(PageError::NoDictionary) if dictionary.is_none() && dictionary_bytes > 0 => {
                    dictionary = Some(self.dictionary_of(column).await?);
                }
                Err(why) => return Err(failed(why)),
            }
        }
    }

    fn work(
        &self,
        question: &Question<'_>,
        task: &Task,
        bytes: Arc<Vec<u8>>,
        dictionary: Option<Arc<Vec<u8>>>,
    ) -> impl FnOnce() -> std::result::Result<Judged, PageError> + Send + use<> {
        let form = question.columns[task.number].form.clone();
        let wanted = question.rows.slice(task.page.first, task.page.rows);
        let predicate = question.condition.map(|own| own.predicate.clone());
        let rows = task.page.rows;
        move || {
            let dictionary = dictionary.as_ref().map(|bytes| bytes.as_slice());
            let page = Page { form: &form, dictionary, bytes: &bytes, rows };
            match predicate {
                Some(predicate) => page.filtered(&predicate, &wanted, AT_CLIENT).map(Judged::Rows),
                None => page.projected(&wanted, AT_CLIENT).map(Judged::Values),
            }
        }
    }
}

/// A range that one drive holds.
struct Placed {
    at: At,
    pieces: Vec<Piece>,
}

impl Batch {
    /// The pieces of the request: for each column its dictionary, then its pages. Those that follow each
    /// other in a unit are one, up to the bound.
    fn pieces(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (number, dictionary) in &self.dictionary_pieces {
            let pages = self.tasks.iter().filter(|task| task.number == *number);
            for piece in dictionary.iter().chain(pages.flat_map(|task| &task.pieces)) {
                match pieces.last_mut() {
                    Some(last) if last.stripe == piece.stripe && last.to == piece.from => last.to = piece.to,
                    _ => pieces.push(piece.clone()),
                }
            }
        }
        pieces.iter().flat_map(cut).collect()
    }

    fn arguments(&self, question: &Question<'_>) -> Vec<RunArgument> {
        let asked = self.dictionaries.iter().map(|(&number, dictionary)| Asked {
            form: &question.columns[number].form,
            dictionary: dictionary.clone(),
            pages: self.tasks.iter().filter(|task| task.number == number).map(|task| task.page).collect(),
        });
        let asked: Vec<Asked<'_>> = asked.collect();
        let condition = question.condition.map(|own| own.text.as_str());
        let arguments = braid_parquet::request(&asked, question.rows, condition);
        arguments.0.into_iter().map(|own| RunArgument { name: own.name, value: own.value }).collect()
    }
}

/// A piece as several that are no longer than one may be.
fn cut(piece: &Piece) -> Vec<Piece> {
    let mut parts = Vec::new();
    let mut from = piece.from;
    while from < piece.to {
        let to = piece.to.min(from.saturating_add(RUN_PIECE_BYTES_MAX));
        parts.push(Piece { from, to, offset: piece.offset + u64::from(from - piece.from), ..piece.clone() });
        from = to;
    }
    parts
}
