//! `parquet`: columns of the rows of a Parquet file for which conditions hold, as Arrow IPC.
//!
//! How: the footer says which row groups there are, and the page index, or the headers of the pages, where
//! pages lie. What statistics exclude is not touched. In each row group the pages of the columns with
//! conditions are judged first, a column after another; then the values of the selected rows are taken from
//! the pages of the columns that are asked for. Drives do that for the pages that they hold
//! (`parquet/asking.rs`), by the same code as the client for all others. Nested columns are read as a whole.

mod asking;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use braid_methods::{Answer as Whole, Arguments, MethodError};
use braid_parquet::{
    AT_CLIENT, Answer, Chunk, Condition, Footer, Form, Next, PAGES, PageError, PagePlace, Parts, Rows, Step,
    Table, TableError, Values, Walk, Wanted, joined,
};
use braid_plan::MethodCost;
use tokio::sync::OnceCell;

use crate::concurrent;
use crate::error::Result;
use crate::file::File;
use crate::methods::drives::Drives;
use crate::methods::parquet::asking::Judged;
use crate::methods::{Ran, RunAsk, RunFailure};

/// Name of the method.
pub(super) const METHOD: &str = "parquet";
const TAKES: &str = "columns=NAME,... where='NAME<VALUE and ...'";
/// Row groups at a time.
const FLIGHTS: usize = 4;
/// Bytes of an answer at most.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// A Parquet file as it is read.
struct Reading<'a> {
    file: &'a File,
    table: Arc<Table>,
    drives: Drives,
    read: AtomicU64,
    answered: AtomicU64,
}

/// The answer as it comes about.
struct State {
    answer: Answer,
    /// Row groups that are known, and wait for those before them.
    waiting: BTreeMap<usize, Option<Group>>,
    next: usize,
}

/// The answer of a row group.
struct Group {
    columns: Vec<Values>,
    rows: usize,
}

/// A column of a row group whose pages are known.
struct Paged {
    leaf: usize,
    form: Form,
    chunk: Chunk,
    /// The page index's part about it.
    places: Option<Vec<u8>>,
    dictionary: OnceCell<Arc<Vec<u8>>>,
}

/// The cost of the method.
pub(super) fn cost() -> MethodCost {
    MethodCost { answer_permille: PAGES.answer_permille, byte_ps: PAGES.byte_ps, is_sequential: false }
}

/// Runs the method on a file.
pub(super) async fn run(file: &File, ask: &RunAsk) -> Result<Ran> {
    let reading = Reading::open(file, ask).await?;
    let table = Arc::clone(&reading.table);
    let answer = Answer::new(&table).map_err(|why| reading.failed(why))?;
    let state = Mutex::new(State { answer, waiting: BTreeMap::new(), next: 0 });
    let groups = (0..table.groups()).map(|group| reading.add_group(&state, group, &ask.progress));
    concurrent::windowed(FLIGHTS, groups).await?;
    let state = state.into_inner().expect("no holder panics");
    let answer = state.answer.finish().map_err(|why| reading.failed(why))?;
    Ok(Ran {
        answer: Whole::Arrow(answer),
        bytes: file.size(),
        bytes_at_drives: reading.answered.load(Ordering::Relaxed),
        answer_bytes: reading.drives.answer_bytes(),
        read_bytes: reading.read.load(Ordering::Relaxed),
        asked_bytes: reading.drives.asked_bytes(),
        changed: false,
    })
}

/// The bytes of the pages that are judged first, in row groups that statistics do not exclude.
pub(super) async fn first_ranges(file: &File, ask: &RunAsk) -> Result<Vec<Range<u64>>> {
    let reading = Reading::open(file, ask).await?;
    let table = &reading.table;
    let wanted = table.wanted.iter().filter_map(|column| column.leaf);
    let leaf = table.conditions.first().map(|own| own.leaf).or_else(|| wanted.into_iter().next());
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for group in (0..table.groups()).filter(|&group| table.may_hold(group)) {
        let Some(leaf) = leaf else { break };
        let Some(paged) = reading.paged(group, leaf).await? else { continue };
        for range in paged.chunk.pages.iter().map(PagePlace::range) {
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
    }
    Ok(ranges)
}

impl<'a> Reading<'a> {
    /// Reads the footer.
    async fn open(file: &'a File, ask: &RunAsk) -> Result<Reading<'a>> {
        let checked = ask.arguments.check_among(METHOD, &["columns", "where"], TAKES);
        checked.map_err(|why| file.failed(why))?;
        let is_at_drives =
            file.is_at_drives(file.hindrance(&file.handle().view(), METHOD), ask.at, cost())?;
        let pages = RunAsk::new(PAGES.name, Arguments::default());
        let drives = Drives::new(&pages, file.size(), is_at_drives);
        let failed = |why: TableError| file.failed(failure(why));
        let mut footer = Footer::new(file.size()).map_err(failed)?;
        let mut read = 0;
        let metadata = loop {
            match footer.step().map_err(failed)? {
                Next::Known(metadata) => break metadata,
                Next::Read(range) => {
                    read += range.end - range.start;
                    let bytes = read_range(file, &range).await?;
                    footer.push(range, bytes).map_err(failed)?;
                }
            }
        };
        let arguments = &ask.arguments;
        let table = Table::new(*metadata, file.size(), arguments.get("columns"), arguments.get("where"));
        let table = Arc::new(table.map_err(failed)?);
        Ok(Reading { file, table, drives, read: AtomicU64::new(read), answered: AtomicU64::new(0) })
    }

    fn failed(&self, why: TableError) -> crate::error::Error {
        self.file.failed(failure(why))
    }

    /// Reads bytes of the file, and counts them.
    async fn read(&self, range: &Range<u64>) -> Result<Vec<u8>> {
        self.read.fetch_add(range.end - range.start, Ordering::Relaxed);
        read_range(self.file, range).await
    }

    fn group_bytes(&self, group: usize) -> u64 {
        let all: Vec<usize> = self.table.wanted.iter().map(|column| column.root).collect();
        let leaves = all.into_iter().flat_map(|root| self.table.leaves(root));
        let ranges = leaves.map(|leaf| self.table.chunk_range(group, leaf));
        ranges.map(|range| range.end - range.start).sum()
    }

    /// Adds the answer of a row group.
    async fn add_group(&self, state: &Mutex<State>, group: usize, progress: &AtomicU64) -> Result<()> {
        let found = if self.table.may_hold(group) { self.group(group).await? } else { None };
        progress.fetch_add(self.group_bytes(group), Ordering::Relaxed);
        self.add(state, group, found)
    }

    /// Puts the answer of a row group behind those before it.
    fn add(&self, state: &Mutex<State>, group: usize, found: Option<Group>) -> Result<()> {
        let mut state = state.lock().expect("no holder panics");
        let state = &mut *state;
        state.waiting.insert(group, found);
        while let Some(found) = state.waiting.remove(&state.next) {
            state.next += 1;
            let Some(Group { columns, rows }) = found else { continue };
            state.answer.add(&self.table, columns, rows).map_err(|why| self.failed(why))?;
            if u64::try_from(state.answer.bytes()).unwrap_or(u64::MAX) > ANSWER_BYTES_MAX {
                let too_large = MethodError::TooLarge { max: ANSWER_BYTES_MAX, of: "bytes" };
                return Err(self.file.failed(too_large));
            }
        }
        Ok(())
    }

    /// The answer of a row group; `None` if no row is selected.
    async fn group(&self, group: usize) -> Result<Option<Group>> {
        let mut rows = Rows::new_set(self.table.rows(group));
        let mut known: BTreeMap<usize, Option<Arc<Paged>>> = BTreeMap::new();
        for condition in &self.table.conditions {
            let paged = self.paged(group, condition.leaf).await?.map(Arc::new);
            rows = match &paged {
                Some(paged) => self.filtered(group, condition, paged, rows).await?,
                None => self.filtered_whole(group, condition, rows).await?,
            };
            known.insert(condition.leaf, paged);
            if rows.count_set_bits() == 0 {
                return Ok(None);
            }
        }
        let unknown = self.table.wanted.iter().filter_map(|column| column.leaf);
        let unknown: Vec<usize> = unknown.filter(|leaf| !known.contains_key(leaf)).collect();
        let found = concurrent::all(unknown.iter().map(|&leaf| self.paged(group, leaf))).await;
        for (leaf, paged) in unknown.into_iter().zip(found) {
            known.insert(leaf, paged?.map(Arc::new));
        }
        // Each column once, however often it is asked for.
        let mut paged: Vec<Arc<Paged>> = Vec::new();
        for leaf in self.table.wanted.iter().filter_map(|column| column.leaf) {
            if let Some(Some(own)) = known.get(&leaf)
                && !paged.iter().any(|other| other.leaf == leaf)
            {
                paged.push(Arc::clone(own));
            }
        }
        let judged = self.judged(group, &paged, &rows, None).await?;
        let mut by_leaf: BTreeMap<usize, Values> = BTreeMap::new();
        for (own, judged) in paged.iter().zip(judged) {
            let values = judged.into_values().filter_map(Judged::values);
            let values = joined(&values.collect::<Vec<_>>()).map_err(|why| self.failed(why))?;
            by_leaf.insert(own.leaf, values);
        }
        let mut columns = Vec::new();
        for column in &self.table.wanted {
            let known = column.leaf.and_then(|leaf| by_leaf.get(&leaf).cloned());
            columns.push(match known {
                Some(values) => values,
                None => self.projected_whole(group, column, &rows).await?,
            });
        }
        Ok(Some(Group { columns, rows: rows.count_set_bits() }))
    }

    /// Where the pages of a flat column lie; `None` if it is to be read as a whole.
    async fn paged(&self, group: usize, leaf: usize) -> Result<Option<Paged>> {
        let Some(form) = self.table.form(group, leaf) else { return Ok(None) };
        let of = |chunk, places| Paged { leaf, form, chunk, places, dictionary: OnceCell::new() };
        if let Some(range) = self.table.places_range(group, leaf) {
            let places = self.read(&range).await?;
            if let Some(chunk) = self.table.placed(group, leaf, &places) {
                return Ok(Some(of(chunk, Some(places))));
            }
        }
        let mut walk = Walk::new(self.table.chunk_range(group, leaf), self.table.rows(group));
        loop {
            match walk.step() {
                Step::Known(chunk) => return Ok(Some(of(chunk, None))),
                Step::Read(range) if walk.push(&self.read(&range).await?) => {}
                // A read of the whole says what is wrong.
                _ => return Ok(None),
            }
        }
    }

    /// The rows among `rows` for which a condition holds.
    async fn filtered(
        &self,
        group: usize,
        condition: &Condition,
        paged: &Arc<Paged>,
        rows: Rows,
    ) -> Result<Rows> {
        let mut rows = rows;
        if let Some(places) = &paged.places
            && let Some(range) = self.table.bounds_range(group, condition.leaf)
        {
            let bounds = self.read(&range).await?;
            if let Some(kept) = self.table.kept(condition, group, places, &bounds) {
                rows = &rows & &kept;
            }
        }
        let columns = [Arc::clone(paged)];
        let judged = self.judged(group, &columns, &rows, Some(condition)).await?;
        let own = judged.into_iter().flatten().filter_map(|(first, own)| Some((first, own.rows()?)));
        Ok(paged.chunk.rows_of(rows.len(), &own.collect()))
    }

    /// All bytes of a column.
    async fn whole(&self, group: usize, root: usize) -> Result<Parts> {
        let mut parts = Vec::new();
        for leaf in self.table.leaves(root) {
            let range = self.table.chunk_range(group, leaf);
            if range.end - range.start > ANSWER_BYTES_MAX {
                let why = PageError::Values(AT_CLIENT.value_bytes);
                let column = self.table.name(leaf);
                return Err(self.failed(TableError::Column { group, column, why }));
            }
            parts.push((range.start, self.read(&range).await?));
        }
        Ok(Parts::new(parts, self.file.size()))
    }

    async fn filtered_whole(&self, group: usize, condition: &Condition, rows: Rows) -> Result<Rows> {
        let parts = self.whole(group, condition.root).await?;
        let table = Arc::clone(&self.table);
        let condition = condition.clone();
        let column = self.table.name(condition.leaf);
        self.decoded(group, column, move || table.filtered(&condition, group, parts, &rows)).await
    }

    async fn projected_whole(&self, group: usize, wanted: &Wanted, rows: &Rows) -> Result<Values> {
        let parts = self.whole(group, wanted.root).await?;
        let table = Arc::clone(&self.table);
        let column = wanted.field.name().clone();
        let own = wanted.clone();
        let rows = rows.clone();
        self.decoded(group, column, move || table.projected(&own, group, parts, &rows)).await
    }

    /// Decodes in a thread of its own.
    async fn decoded<T: Send + 'static>(
        &self,
        group: usize,
        column: String,
        work: impl FnOnce() -> std::result::Result<T, PageError> + Send + 'static,
    ) -> Result<T> {
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.map_err(|_| self.file.failed(RunFailure::Ended))?;
        done.map_err(|why| self.failed(TableError::Column { group, column, why }))
    }
}

fn failure(why: TableError) -> RunFailure {
    match why {
        TableError::Arguments(why) => RunFailure::from(why),
        other => RunFailure::Table(other.to_string()),
    }
}

/// Reads bytes of a file; what was cut off meanwhile is zeros.
async fn read_range(file: &File, range: &Range<u64>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).expect("what is read is bounded")];
    let mut filled = 0;
    while filled < bytes.len() {
        let at = range.start + u64::try_from(filled).expect("it fits memory");
        match file.read_at(&mut bytes[filled..], at).await? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(bytes)
}
