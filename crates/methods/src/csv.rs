//! `csv`: columns of the rows for which a condition holds.
//!
//! A row is a line. Fields in quotes may hold delimiters and doubled quotes, but no line feed: a line with an
//! odd number of quotes is refused, as only who reads the file from its beginning could tell what it is.

use std::collections::BTreeMap;

use memchr::memchr_iter;

use crate::answer::{Answer, Found};
use crate::arguments::{Arguments, ArgumentsError, wrong};
use crate::codec::{Input, Output};
use crate::condition::{Comparison, Operator};
use crate::grep::{ANSWER_BYTES_MAX, Kept};
use crate::histogram::delimiter_of;
use crate::program::{MethodError, Program, Running};
use crate::records::{Records, lines, wide};

/// Columns that are asked for, at most: a row that lacks them has a delimiter for each.
const COLUMNS_MAX: usize = 1000;
/// Names of columns that an error lists.
const SHOWN_MAX: usize = 50;

/// The method with its arguments.
#[derive(Debug)]
pub(crate) struct Csv {
    delimiter: u8,
    /// The columns that are asked for, by number from 0.
    columns: Vec<usize>,
    /// All of them must hold.
    conditions: Vec<Condition>,
    /// Header of the answer.
    header: Vec<u8>,
    /// True if the file's first line is its header, and no row.
    skips_first: bool,
}

/// A comparison of a field with a value.
#[derive(Debug)]
struct Condition {
    column: usize,
    operator: Operator,
    value: Vec<u8>,
    number: Option<f64>,
}

struct Selecting<'a> {
    csv: &'a Csv,
    kept: Kept,
}

impl Csv {
    pub(crate) fn parse(arguments: &Arguments, _size: u64) -> Result<Box<dyn Program>, ArgumentsError> {
        arguments.check("csv", &["columns", "where", "delimiter", "header", "skip-first", "format"])?;
        let delimiter = delimiter_of(arguments)?;
        if let Some(format) = arguments.get("format").filter(|format| !matches!(*format, "csv" | "arrow")) {
            return Err(wrong("format", format, "give csv or arrow"));
        }
        let header = arguments.need("csv", "header")?;
        let header = header.trim_end_matches(['\n', '\r']).as_bytes();
        let fields = fields(header, delimiter);
        let names: Vec<String> =
            fields.iter().map(|field| String::from_utf8_lossy(&unquoted(field)).into_owned()).collect();
        let mut numbers = BTreeMap::new();
        for (number, name) in names.iter().enumerate() {
            numbers.entry(name.as_str()).or_insert(number);
        }
        let number = |argument: &'static str, name: &str| {
            numbers.get(name.trim()).copied().ok_or_else(|| {
                let shown = names[..names.len().min(SHOWN_MAX)].join(", ");
                let more = if names.len() > SHOWN_MAX { ", and more" } else { "" };
                wrong(argument, name, format!("the file has no such column; it has: {shown}{more}"))
            })
        };
        let columns: Vec<usize> = match arguments.get("columns") {
            None => (0..fields.len()).collect(),
            Some(named) => named.split(',').map(|name| number("columns", name)).collect::<Result<_, _>>()?,
        };
        check_columns(&columns, arguments.get("columns").unwrap_or_default())?;
        let conditions = match arguments.get("where") {
            None => Vec::new(),
            Some(text) => {
                let of = |own: Comparison| Ok(Condition::of(number("where", &own.column)?, own));
                Comparison::parse_all(text)?.into_iter().map(of).collect::<Result<_, _>>()?
            }
        };
        let header = projected(&fields, &columns, delimiter);
        let skips_first = arguments.flag("skip-first")?;
        Ok(Box::new(Csv { delimiter, columns, conditions, header, skips_first }))
    }
}

/// Refuses columns that are too many, or named twice: a row of the answer is to be no longer than the file's.
fn check_columns(columns: &[usize], named: &str) -> Result<(), ArgumentsError> {
    if columns.len() > COLUMNS_MAX {
        let begin: String = named.chars().take(40).collect();
        let why = format!("{} columns are asked for: name at most {COLUMNS_MAX}", columns.len());
        return Err(wrong("columns", &begin, why));
    }
    let mut sorted = columns.to_vec();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(wrong("columns", named, "a column is named twice"));
    }
    Ok(())
}

/// The fields of a line, as they are written.
fn fields(line: &[u8], delimiter: u8) -> Vec<&[u8]> {
    let mut fields = Vec::new();
    let mut from = 0;
    let mut is_quoted = false;
    for (at, &byte) in line.iter().enumerate() {
        if byte == b'"' {
            is_quoted = !is_quoted;
        } else if byte == delimiter && !is_quoted {
            fields.push(&line[from..at]);
            from = at + 1;
        }
    }
    fields.push(&line[from..]);
    fields
}

/// The content of a field.
fn unquoted(field: &[u8]) -> Vec<u8> {
    let field = field.trim_ascii();
    let Some(inner) = field.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) else {
        return field.to_vec();
    };
    let mut content = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        content.push(byte);
        if byte == b'"' {
            bytes.next();
        }
    }
    content
}

/// These columns of a row; one that the row lacks is empty.
fn projected(fields: &[&[u8]], columns: &[usize], delimiter: u8) -> Vec<u8> {
    let own: Vec<&[u8]> = columns.iter().map(|&column| fields.get(column).copied().unwrap_or(b"")).collect();
    own.join(&delimiter)
}

impl Condition {
    fn of(column: usize, own: Comparison) -> Condition {
        let number = own.value.parse().ok();
        Condition { column, operator: own.operator, value: own.value.into_bytes(), number }
    }

    fn holds(&self, fields: &[&[u8]]) -> bool {
        let Some(field) = fields.get(self.column) else { return false };
        let content = unquoted(field);
        // Numbers are compared as numbers, all else byte by byte.
        let own: Option<f64> = str::from_utf8(&content).ok().and_then(|text| text.parse().ok());
        let order = match (own, self.number) {
            (Some(own), Some(number)) => own.partial_cmp(&number),
            (_, None) => Some(content.as_slice().cmp(&self.value)),
            (None, Some(_)) => None,
        };
        let Some(order) = order else { return self.operator == Operator::Unequal };
        self.operator.holds(order)
    }
}

impl Program for Csv {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn records(&self) -> Records {
        Records::Lines
    }

    fn begin(&self) -> Box<dyn Running + '_> {
        self.begin_within(ANSWER_BYTES_MAX)
    }

    fn begin_within(&self, bytes_max: u64) -> Box<dyn Running + '_> {
        Box::new(Selecting { csv: self, kept: Kept::within(bytes_max) })
    }
}

impl Running for Selecting<'_> {
    fn feed(&mut self, offset: u64, block: &[u8]) -> Result<(), MethodError> {
        for line in lines(block) {
            let offset = offset + wide(line.at);
            if memchr_iter(b'"', line.bytes).count() % 2 == 1 {
                return Err(MethodError::Quotes { offset });
            }
            let bytes = line.bytes.strip_suffix(b"\r").unwrap_or(line.bytes);
            if offset == 0 && self.csv.skips_first || bytes.is_empty() {
                continue;
            }
            let fields = fields(bytes, self.csv.delimiter);
            if self.csv.conditions.iter().all(|condition| condition.holds(&fields)) {
                let bytes = projected(&fields, &self.csv.columns, self.csv.delimiter);
                self.kept.push(Found { offset, bytes })?;
            }
        }
        Ok(())
    }

    fn partial(&self) -> Vec<u8> {
        let mut out = Output::default();
        for found in &self.kept.found {
            out.number(found.offset);
            out.bytes(&found.bytes);
        }
        out.0
    }

    fn absorb(&mut self, partial: &[u8]) -> Result<(), MethodError> {
        let mut input = Input(partial);
        while !input.is_empty() {
            let offset = input.number()?;
            self.kept.push(Found { offset, bytes: input.bytes()?.to_vec() })?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, MethodError> {
        let mut found = self.kept.found;
        found.sort_unstable();
        let mut rows = self.csv.header.clone();
        rows.push(b'\n');
        for row in found {
            rows.extend_from_slice(&row.bytes);
            rows.push(b'\n');
        }
        Ok(Answer::Rows(rows))
    }
}
