//! Answers as streams of Arrow IPC, and as CSV for people.

use std::io::Cursor;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_csv::ReaderBuilder;
use arrow_csv::reader::Format;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType};
use arrow_select::concat::concat;

use crate::page::Form;
use crate::table::{Table, TableError};
use crate::values;

/// An answer as it is written.
pub struct Answer {
    writer: StreamWriter<Vec<u8>>,
    rows: u64,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Answer {
    /// An answer without rows.
    pub fn new(table: &Table) -> Result<Answer, TableError> {
        let writer = StreamWriter::try_new(Vec::new(), &table.schema).map_err(TableError::Answer)?;
        Ok(Answer { writer, rows: 0 })
    }

    /// Adds the columns of some rows.
    pub fn add(&mut self, table: &Table, columns: Vec<ArrayRef>, rows: usize) -> Result<(), TableError> {
        let own = columns.into_iter().zip(&table.wanted).map(|(array, column)| {
            let kind = column.field.data_type();
            if array.data_type() == kind { Ok(array) } else { cast(&array, kind) }
        });
        let own: Result<Vec<ArrayRef>, ArrowError> = own.collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&table.schema);
        let batch = own.and_then(|own| RecordBatch::try_new_with_options(schema, own, &options));
        let written = batch.and_then(|batch| self.writer.write(&batch));
        self.rows += crate::rows::wide(rows);
        written.map_err(TableError::Answer)
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.writer.get_ref().len()
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The whole stream.
    pub fn finish(self) -> Result<Vec<u8>, TableError> {
        self.writer.into_inner().map_err(TableError::Answer)
    }
}

/// Arrays of one column, one behind the other.
pub fn joined(arrays: &[ArrayRef]) -> Result<ArrayRef, TableError> {
    let arrays: Vec<_> = arrays.iter().map(|array| &**array).collect();
    concat(&arrays).map_err(TableError::Answer)
}

/// The values of a page as a drive answered them; `None` if they are not `length` values of this form.
pub fn values_of(form: &Form, length: usize, answer: &[u8]) -> Option<ArrayRef> {
    let array = values::decode(form.data_type(), length, answer)?;
    (!form.is_required() || array.null_count() == 0).then_some(array)
}

/// The rows among `among` that a drive answered; `None` if the answer is none, or has others.
pub fn rows_of(answer: &[u8], among: &crate::Rows) -> Option<crate::Rows> {
    let rows = crate::rows::decode(answer, among.len())?;
    ((&rows & among) == rows).then_some(rows)
}

/// A table in CSV with a header as a stream of Arrow IPC. Columns whose values all are whole numbers,
/// numbers, dates or truths get such a type, all others are texts.
pub fn from_csv(csv: &[u8], delimiter: u8) -> Result<Vec<u8>, ArrowError> {
    let format = Format::default().with_header(true).with_delimiter(delimiter);
    let (schema, _) = format.infer_schema(Cursor::new(csv), None)?;
    let schema = Arc::new(schema);
    let reader = ReaderBuilder::new(Arc::clone(&schema)).with_format(format).build(Cursor::new(csv))?;
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    for batch in reader {
        writer.write(&batch?)?;
    }
    writer.into_inner()
}

/// A stream of Arrow IPC as CSV with a header.
pub fn to_csv(stream: &[u8]) -> Result<Vec<u8>, ArrowError> {
    let reader = StreamReader::try_new(Cursor::new(stream), None)?;
    let schema = reader.schema();
    let names: Vec<String> = schema.fields().iter().map(|field| quoted(field.name())).collect();
    let mut out = names.join(",").into_bytes();
    out.push(b'\n');
    let options = FormatOptions::default();
    for batch in reader {
        let batch = batch?;
        let columns = batch.columns().iter().map(|column| match column.data_type() {
            // Names of zones are not known here.
            DataType::Timestamp(unit, Some(_)) => {
                cast(column, &DataType::Timestamp(*unit, Some("+00:00".into())))
            }
            _ => Ok(Arc::clone(column)),
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
        let columns = columns.iter().map(|column| ArrayFormatter::try_new(column, &options));
        let columns: Vec<ArrayFormatter<'_>> = columns.collect::<Result<_, _>>()?;
        for row in 0..batch.num_rows() {
            let fields = columns
                .iter()
                .map(|column| Ok::<String, ArrowError>(quoted(&column.value(row).try_to_string()?)));
            let fields: Vec<String> = fields.collect::<Result<_, _>>()?;
            out.extend_from_slice(fields.join(",").as_bytes());
            out.push(b'\n');
        }
    }
    Ok(out)
}

/// Number of rows of a stream of Arrow IPC.
pub fn rows_in(stream: &[u8]) -> Result<u64, ArrowError> {
    let reader = StreamReader::try_new(Cursor::new(stream), None)?;
    reader.map(|batch| Ok(crate::rows::wide(batch?.num_rows()))).sum()
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}
