//! `parquet-pages`: the method that drives run on pages of Parquet files. It selects rows, or takes values.
//!
//! How: the request says where the pages lie, what they are made of, and which rows are of interest. Its
//! pieces are the bytes of dictionaries and pages, in the order of the request. A page may come in several
//! pieces, and a piece may hold several pages: the bytes are cut and joined here, and a page is judged when
//! it is whole. The partial answer has an entry for each page that was judged; one that could not be is left
//! out, and the client, who reads it, finds out why.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use arrow_buffer::BooleanBuffer;
use braid_methods::{
    Answer, Arguments, ArgumentsError, Comparison, Method, MethodError, Program, Records, Running,
};

use crate::page::{AT_DRIVE, Form, Page};
use crate::predicate::Predicate;
use crate::rows::{self, wide};
use crate::values;

/// The method, as drives know it.
pub const PAGES: Method = Method {
    name: NAME,
    about: "rows or values of pages of a Parquet file, for the method parquet",
    arguments: TAKES,
    answer_permille: 50,
    byte_ps: 4_000,
    needs_header: false,
    memory_bytes: MEMORY_BYTES,
    parse: Pages::parse,
};

const NAME: &str = "parquet-pages";
const TAKES: &str = "columns=... pages=... rows=... where=...";
/// Bytes of a page or a dictionary, as it is stored, that a drive takes.
pub const STORED_BYTES_MAX: u32 = 2 << 20;
/// Bytes of a dictionary that goes with a request.
pub const TOLD_BYTES_MAX: usize = 64 << 10;
/// Memory of one request at a drive: a page and a dictionary, as they are stored and decoded.
const MEMORY_BYTES: u32 = 16 << 20;

/// Where a page lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagePlace {
    /// First byte, in the file.
    pub offset: u64,
    /// Bytes with the header.
    pub bytes: u32,
    /// First row, in the row group.
    pub first: usize,
    /// Number of rows.
    pub rows: usize,
}

impl PagePlace {
    /// Its bytes in the file.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.bytes)
    }
}

/// Where the dictionary of a column is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dictionary {
    /// There is none, or none that can be told.
    None,
    /// Its bytes come in pieces, before those of the pages.
    Here(Range<u64>),
    /// Its bytes go with the request.
    Told(Vec<u8>),
}

/// Pages of a column in a request.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    /// The make of the pages.
    pub form: &'a Form,
    /// The dictionary of these pages.
    pub dictionary: Dictionary,
    /// The pages in order.
    pub pages: Vec<PagePlace>,
}

/// The arguments of a request: of these pages the values of `rows`, or, if there are conditions, which of
/// `rows` fulfil them. `rows` are those of the row group.
pub fn request(columns: &[Asked<'_>], rows: &BooleanBuffer, conditions: Option<&str>) -> Arguments {
    let pages = || columns.iter().flat_map(|column| &column.pages);
    let base = pages().map(|page| page.first).min().unwrap_or(0);
    let end = pages().map(|page| page.first + page.rows).max().unwrap_or(base);
    let mut told = Vec::new();
    for column in columns {
        match &column.dictionary {
            Dictionary::None => rows::put(&mut told, 0),
            Dictionary::Here(range) => {
                rows::put(&mut told, 1);
                rows::put(&mut told, range.start);
                rows::put(&mut told, range.end - range.start);
            }
            Dictionary::Told(bytes) => {
                rows::put(&mut told, 2);
                pack(&mut told, bytes);
            }
        }
        let runs = || column.pages.chunk_by(follows);
        rows::put(&mut told, wide(runs().count()));
        for run in runs() {
            rows::put(&mut told, run[0].offset);
            rows::put(&mut told, wide(run[0].first - base));
            rows::put(&mut told, wide(run.len()));
            for page in run {
                rows::put(&mut told, u64::from(page.bytes));
                rows::put(&mut told, wide(page.rows));
            }
        }
    }
    let mut wanted = Vec::new();
    rows::put(&mut wanted, wide(end - base));
    wanted.extend(rows::encode(&rows.slice(base, end - base)));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("these forms are ASCII");
    let forms: Vec<String> = columns.iter().map(|column| column.form.text()).collect();
    let arguments = Arguments::default()
        .with("columns", forms.join("\n"))
        .with("pages", text(told))
        .with("rows", text(wanted));
    match conditions {
        None => arguments,
        Some(conditions) => arguments.with("where", conditions),
    }
}

fn follows(a: &PagePlace, b: &PagePlace) -> bool {
    a.range().end == b.offset && a.first + a.rows == b.first
}

/// Bytes as ASCII: their number, and six bits of them a byte.
fn pack(out: &mut Vec<u8>, bytes: &[u8]) {
    rows::put(out, wide(bytes.len()));
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) | byte(1) << 8 | byte(2) << 16;
        for shift in (0..24).step_by(6).take(three.len() + 1) {
            out.push(u8::try_from(bits >> shift & 63).expect("six bits"));
        }
    }
}

fn unpack(input: &mut &[u8]) -> Option<Vec<u8>> {
    let length = usize::try_from(rows::take(input)?).ok()?;
    let packed = input.split_off(..length / 3 * 4 + if length % 3 > 0 { length % 3 + 1 } else { 0 })?;
    let mut bytes = Vec::with_capacity(length);
    for four in packed.chunks(4) {
        let bits = four.iter().rev().fold(0_u32, |bits, &own| bits << 6 | u32::from(own & 63));
        bytes.extend_from_slice(&bits.to_le_bytes()[..four.len() - 1]);
    }
    Some(bytes)
}

/// The entries of a partial answer, by the first byte of the page; `None` if it is none.
pub fn entries(partial: &[u8]) -> Option<BTreeMap<u64, &[u8]>> {
    let mut input = partial;
    let mut entries = BTreeMap::new();
    while !input.is_empty() {
        let offset = rows::take(&mut input)?;
        let length = usize::try_from(rows::take(&mut input)?).ok()?;
        entries.insert(offset, input.split_off(..length)?);
    }
    Some(entries)
}

/// A use of bytes of the file.
#[derive(Debug, Clone, Copy)]
struct Item {
    offset: u64,
    bytes: usize,
    column: usize,
    /// Its rows, counted from the first that the request is about; `None` for a dictionary.
    rows: Option<(usize, usize)>,
}

#[derive(Debug)]
struct Column {
    form: Form,
    told: Option<Vec<u8>>,
}

/// The method with its arguments.
#[derive(Debug)]
struct Pages {
    columns: Vec<Column>,
    items: BTreeMap<u64, Item>,
    rows: BooleanBuffer,
    predicate: Option<Predicate>,
    held: Mutex<Held>,
}

/// The state that goes on from piece to piece.
#[derive(Debug, Default)]
struct Held {
    /// An item of which the first bytes have come.
    begun: Option<(Item, Vec<u8>)>,
    /// The dictionary of the column that was seen last.
    dictionary: Option<(usize, Vec<u8>)>,
}

struct Judging<'a> {
    pages: &'a Pages,
    out: Vec<u8>,
}

impl Pages {
    fn parse(arguments: &Arguments, _size: u64) -> Result<Box<dyn Program>, ArgumentsError> {
        arguments.check_among(NAME, &["columns", "pages", "rows", "where"], TAKES)?;
        let get = |name| arguments.get(name).ok_or(ArgumentsError::Missing { method: NAME, name });
        let bad = |name, why: &str| ArgumentsError::Value { name, value: "...".into(), why: why.to_owned() };
        let columns =
            get("columns")?.lines().map(|text| Some(Column { form: Form::parse(text)?, told: None }));
        let columns = columns.collect::<Option<Vec<_>>>();
        let mut columns =
            columns.ok_or_else(|| bad("columns", "this release cannot decode such a column"))?;
        let mut told = get("rows")?.as_bytes();
        let length = rows::take(&mut told).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|&length| length <= 1 << 28);
        let rows = length.and_then(|length| rows::decode(told, length));
        let rows = rows.ok_or_else(|| bad("rows", "it is no selection of rows"))?;
        let items = items(get("pages")?.as_bytes(), &mut columns, rows.len());
        let items = items.ok_or_else(|| bad("pages", "it is no list of pages"))?;
        let predicate = match (arguments.get("where"), columns.first()) {
            (Some(text), Some(column)) => {
                let all = Comparison::parse_all(text)?;
                let all: Vec<&Comparison> = all.iter().collect();
                let predicate = Predicate::new(&all, column.form.data_type());
                Some(predicate.map_err(|why| bad("where", &why))?)
            }
            _ => None,
        };
        Ok(Box::new(Pages { columns, items, rows, predicate, held: Mutex::default() }))
    }

    /// The answer for a page; `None` if it cannot be judged here.
    fn judge(&self, item: &Item, bytes: &[u8], dictionary: Option<&[u8]>) -> Option<Vec<u8>> {
        let (first, rows) = item.rows?;
        let form = &self.columns[item.column].form;
        let page = Page { form, dictionary, bytes, rows };
        let wanted = self.rows.slice(first, rows);
        match &self.predicate {
            Some(predicate) => Some(rows::encode(&page.filtered(predicate, &wanted, AT_DRIVE).ok()?)),
            None => values::encode(&*page.projected(&wanted, AT_DRIVE).ok()?),
        }
    }
}

/// The items of a list of pages, by their first bytes; dictionaries that were told go to their columns.
fn items(told: &[u8], columns: &mut [Column], rows: usize) -> Option<BTreeMap<u64, Item>> {
    let mut input = told;
    let mut items = BTreeMap::new();
    let short = |bytes: u64| bytes <= u64::from(STORED_BYTES_MAX);
    let memory = |number: u64| usize::try_from(number).ok();
    for (column, own) in columns.iter_mut().enumerate() {
        match rows::take(&mut input)? {
            0 => {}
            1 => {
                let offset = rows::take(&mut input)?;
                let bytes = memory(rows::take(&mut input).filter(|&bytes| short(bytes))?)?;
                items.insert(offset, Item { offset, bytes, column, rows: None });
            }
            2 => own.told = Some(unpack(&mut input)?),
            _ => return None,
        }
        for _ in 0..rows::take(&mut input)? {
            let mut offset = rows::take(&mut input)?;
            let mut first = memory(rows::take(&mut input)?)?;
            for _ in 0..rows::take(&mut input)? {
                let bytes = rows::take(&mut input).filter(|&bytes| short(bytes))?;
                let own = memory(rows::take(&mut input)?)?;
                if first.checked_add(own)? > rows {
                    return None;
                }
                let item = Item { offset, bytes: memory(bytes)?, column, rows: Some((first, own)) };
                items.insert(offset, item);
                offset = offset.checked_add(bytes)?;
                first += own;
            }
        }
    }
    input.is_empty().then_some(items)
}

impl Program for Pages {
    fn name(&self) -> &'static str {
        NAME
    }

    fn records(&self) -> Records {
        // All of a piece is taken; what of it is a page is known here.
        Records::Fixed(1)
    }

    fn begin(&self) -> Box<dyn Running + '_> {
        Box::new(Judging { pages: self, out: Vec::new() })
    }
}

impl Judging<'_> {
    /// Takes an item of which all bytes have come.
    fn take(&mut self, held: &mut Held, item: &Item, bytes: Vec<u8>) {
        if item.rows.is_none() {
            held.dictionary = Some((item.column, bytes));
            return;
        }
        let here = held.dictionary.as_ref().filter(|(column, _)| *column == item.column);
        let told = self.pages.columns[item.column].told.as_deref();
        let dictionary = here.map(|(_, bytes)| bytes.as_slice()).or(told);
        if let Some(answer) = self.pages.judge(item, &bytes, dictionary) {
            rows::put(&mut self.out, item.offset);
            rows::put(&mut self.out, wide(answer.len()));
            self.out.extend(answer);
        }
    }
}

impl Running for Judging<'_> {
    fn feed(&mut self, offset: u64, block: &[u8]) -> Result<(), MethodError> {
        let mut held = self.pages.held.lock().map_err(|_| MethodError::Incomplete)?;
        let mut at = offset;
        let mut rest = block;
        while !rest.is_empty() {
            let goes_on = |(item, bytes): &(Item, Vec<u8>)| item.offset + wide(bytes.len()) == at;
            let begun = held.begun.take().filter(goes_on);
            let begun = begun.or_else(|| self.pages.items.get(&at).map(|&item| (item, Vec::new())));
            let Some((item, mut bytes)) = begun else {
                // Nothing is known of these bytes, up to the next item.
                let next = self.pages.items.range(at..).next().map_or(u64::MAX, |(&next, _)| next);
                let skip = usize::try_from(next - at).unwrap_or(usize::MAX).min(rest.len());
                rest = &rest[skip..];
                at += wide(skip);
                continue;
            };
            let own = (item.bytes - bytes.len()).min(rest.len());
            bytes.extend_from_slice(&rest[..own]);
            rest = &rest[own..];
            at += wide(own);
            if bytes.len() == item.bytes {
                self.take(&mut held, &item, bytes);
            } else {
                held.begun = Some((item, bytes));
            }
            if own == 0 {
                break;
            }
        }
        Ok(())
    }

    fn partial(&self) -> Vec<u8> {
        self.out.clone()
    }

    fn absorb(&mut self, partial: &[u8]) -> Result<(), MethodError> {
        self.out.extend_from_slice(partial);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, MethodError> {
        // Entries are put together by who asked for them.
        Err(MethodError::Incomplete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_bytes_come_back() {
        for length in 0..20_u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37) ^ 0xff).collect();
            let mut out = Vec::new();
            pack(&mut out, &bytes);
            assert!(out.is_ascii());
            let mut input = out.as_slice();
            assert_eq!(unpack(&mut input), Some(bytes));
            assert!(input.is_empty());
        }
        assert_eq!(unpack(&mut &[9, 1][..]), None);
    }

    #[test]
    fn a_request_that_is_none_is_refused() {
        let good = || Arguments::default().with("columns", "none message m { required int32 c; }");
        let parsed = |arguments: &Arguments| Pages::parse(arguments, 1).map(drop);
        let rows = "\u{2}a";
        assert_eq!(parsed(&good().with("pages", "\0\0").with("rows", rows)), Ok(()));
        for pages in ["", "\u{3}", "\0\u{1}\u{4}\0\u{1}\u{9}\u{3}", "\0\0\0", "\u{2}\u{9}x"] {
            assert!(parsed(&good().with("pages", pages).with("rows", rows)).is_err(), "{pages:?}");
        }
        assert!(parsed(&good().with("pages", "\0\0").with("rows", "x")).is_err());
        let other = Arguments::default().with("columns", "lzo message m { required int32 c; }");
        assert!(parsed(&other.with("pages", "\0\0").with("rows", rows)).is_err());
    }
}
