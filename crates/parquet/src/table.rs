//! A Parquet file as a table: its footer, the columns that are asked for, and what statistics exclude.

use std::ops::Range;
use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_schema::{FieldRef, Schema, SchemaRef};
use braid_methods::{ArgumentsError, Comparison};
use bytes::Bytes;
use parquet::DecodeResult;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::CompressionCodec;
use parquet::errors::ParquetError;
use parquet::file::metadata::page_index::PageIndexBuilder;
use parquet::file::metadata::{
    PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder, RowGroupMetaData,
};
use parquet::file::page_index::index_reader::{decode_column_index, decode_offset_index};

use crate::chunk::Chunk;
use crate::page::{Form, PageError};
use crate::predicate::Predicate;

/// Bytes of a footer at most.
const FOOTER_BYTES_MAX: u64 = 64 << 20;
/// Rows of a row group at most.
const GROUP_ROWS_MAX: usize = 1 << 28;

/// Reason for which a file gives no answer.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// It is no Parquet file, or a damaged one.
    #[error("it is no Parquet file, or its footer is damaged: {0}")]
    Footer(ParquetError),
    /// The footer is too long.
    #[error("its footer claims {0} bytes; one has at most {FOOTER_BYTES_MAX}")]
    FooterTooLong(u64),
    /// A row group or a column does not fit the file.
    #[error("its footer is damaged: row group {group} {what}")]
    Group {
        /// The row group, from 0.
        group: usize,
        /// The fault that was found.
        what: &'static str,
    },
    /// A page cannot be decoded.
    #[error("row group {group}, column {column:?}, the page at byte {offset}: {why}")]
    Page {
        /// The row group, from 0.
        group: usize,
        /// The column's name.
        column: String,
        /// First byte of the page.
        offset: u64,
        /// The reason for that.
        why: PageError,
    },
    /// A column cannot be decoded.
    #[error("row group {group}, column {column:?}: {why}")]
    Column {
        /// The row group, from 0.
        group: usize,
        /// The column's name.
        column: String,
        /// The reason for that.
        why: PageError,
    },
    /// An argument does not fit the file.
    #[error(transparent)]
    Arguments(#[from] ArgumentsError),
    /// The answer cannot be put together.
    #[error("the answer cannot be put together: {0}")]
    Answer(arrow_schema::ArrowError),
}

/// A footer as it is read.
#[derive(Debug)]
pub struct Footer(ParquetMetaDataPushDecoder);

/// The next need of a footer.
#[derive(Debug)]
pub enum Next {
    /// These bytes of the file.
    Read(Range<u64>),
    /// Nothing: it is known.
    Known(Box<ParquetMetaData>),
}

impl Footer {
    /// That of a file of so many bytes.
    pub fn new(file_bytes: u64) -> Result<Footer, TableError> {
        let decoder = ParquetMetaDataPushDecoder::try_new(file_bytes).map_err(TableError::Footer)?;
        Ok(Footer(decoder.with_page_index_policy(PageIndexPolicy::Skip)))
    }

    /// The next thing to be done.
    pub fn step(&mut self) -> Result<Next, TableError> {
        match self.0.try_decode().map_err(TableError::Footer)? {
            DecodeResult::NeedsData(ranges) => {
                let range = ranges.into_iter().next().unwrap_or(0..0);
                let bytes = range.end.saturating_sub(range.start);
                if bytes > FOOTER_BYTES_MAX {
                    return Err(TableError::FooterTooLong(bytes));
                }
                Ok(Next::Read(range))
            }
            DecodeResult::Data(metadata) => Ok(Next::Known(Box::new(metadata))),
            DecodeResult::Finished => Err(TableError::Footer(ParquetError::EOF("it ends early".into()))),
        }
    }

    /// Takes the bytes that were asked for.
    pub fn push(&mut self, range: Range<u64>, bytes: Vec<u8>) -> Result<(), TableError> {
        self.0.push_range(range, Bytes::from(bytes)).map_err(TableError::Footer)
    }
}

/// A column that is asked for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Its place among the file's columns.
    pub root: usize,
    /// It as a flat column, if it is one.
    pub leaf: Option<usize>,
    /// It in the answer.
    pub field: FieldRef,
}

/// A column with conditions.
#[derive(Debug, Clone)]
pub struct Condition {
    /// Its place among the file's columns.
    pub root: usize,
    /// It as a flat column.
    pub leaf: usize,
    /// The comparisons that must hold.
    pub predicate: Predicate,
    /// The same as a text, in which the column is named `c`.
    pub text: String,
    form: Form,
}

/// A file, and what is asked of it.
#[derive(Debug)]
pub struct Table {
    pub(crate) metadata: Arc<ParquetMetaData>,
    /// Columns of the answer.
    pub wanted: Vec<Wanted>,
    /// Conditions, each of another column.
    pub conditions: Vec<Condition>,
    /// The answer's schema.
    pub schema: SchemaRef,
    file_bytes: u64,
}

impl Table {
    /// The file of this footer. `columns`: names with commas between them; `condition`: as it is typed.
    pub fn new(
        metadata: ParquetMetaData,
        file_bytes: u64,
        columns: Option<&str>,
        condition: Option<&str>,
    ) -> Result<Table, TableError> {
        let file = metadata.file_metadata();
        let arrow = parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata());
        let arrow = arrow.map_err(TableError::Footer)?;
        let names =
            || arrow.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
        let wrong = |name, value: &str, why| ArgumentsError::Value { name, value: value.to_owned(), why };
        let root_of = |argument, name: &str| {
            let known = arrow.fields().iter().position(|field| field.name() == name.trim());
            known.ok_or_else(|| {
                wrong(argument, name, format!("the file has no such column; it has: {}", names()))
            })
        };
        let roots: Vec<usize> = match columns {
            None => (0..arrow.fields().len()).collect(),
            Some(named) => named.split(',').map(|name| root_of("columns", name)).collect::<Result<_, _>>()?,
        };
        let leaf_of = |root: usize| {
            let mut leaves = 0..file.schema_descr().num_columns();
            let leaf = leaves.find(|&leaf| file.schema_descr().get_column_root_idx(leaf) == root)?;
            let form = Form::of(&file.schema_descr().column(leaf), CompressionCodec::UNCOMPRESSED)?;
            Some(Flat { leaf, form })
        };
        let wanted = roots.iter().map(|&root| Wanted {
            root,
            leaf: leaf_of(root).map(|flat| flat.leaf),
            field: Arc::clone(&arrow.fields()[root]),
        });
        let wanted: Vec<Wanted> = wanted.collect();
        let mut conditions: Vec<Condition> = Vec::new();
        let all = condition.map(Comparison::parse_all).transpose()?.unwrap_or_default();
        let mut by_root: Vec<(usize, Vec<&Comparison>)> = Vec::new();
        for own in &all {
            let root = root_of("where", &own.column)?;
            match by_root.iter_mut().find(|(known, _)| *known == root) {
                Some((_, same)) => same.push(own),
                None => by_root.push((root, vec![own])),
            }
        }
        for (root, own) in by_root {
            let named = |why: String| {
                let name = arrow.field(root).name();
                wrong("where", condition.unwrap_or_default(), format!("column {name:?}: {why}"))
            };
            let Some(Flat { leaf, form }) = leaf_of(root) else {
                let kind = arrow.field(root).data_type();
                return Err(named(format!("values of its type, {kind}, are not compared")).into());
            };
            let predicate = Predicate::new(&own, form.data_type()).map_err(named)?;
            let texts = own.iter().map(|one| Comparison { column: "c".to_owned(), ..(*one).clone() }.text());
            let text = texts.collect::<Vec<_>>().join(" and ");
            conditions.push(Condition { root, leaf, predicate, text, form });
        }
        let fields: Vec<FieldRef> = wanted.iter().map(|column| Arc::clone(&column.field)).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, arrow.metadata().clone()));
        let table = Table { metadata: Arc::new(metadata), wanted, conditions, schema, file_bytes };
        for group in 0..table.groups() {
            table.check(group)?;
        }
        Ok(table)
    }

    /// Number of row groups.
    pub fn groups(&self) -> usize {
        self.metadata.num_row_groups()
    }

    /// Rows of a row group.
    pub fn rows(&self, group: usize) -> usize {
        usize::try_from(self.metadata.row_group(group).num_rows()).unwrap_or(0)
    }

    /// Name of a flat column, or of a part of another.
    pub fn name(&self, leaf: usize) -> String {
        self.metadata.file_metadata().schema_descr().column(leaf).path().string()
    }

    /// The flat columns that a column consists of.
    pub fn leaves(&self, root: usize) -> Vec<usize> {
        let schema = self.metadata.file_metadata().schema_descr();
        (0..schema.num_columns()).filter(|&leaf| schema.get_column_root_idx(leaf) == root).collect()
    }

    /// The make of a column's pages in a row group; `None` if it is decoded as a whole.
    pub fn form(&self, group: usize, leaf: usize) -> Option<Form> {
        let schema = self.metadata.file_metadata().schema_descr();
        Form::of(&schema.column(leaf), self.metadata.row_group(group).column(leaf).compression_codec())
    }

    /// The bytes of a column in a row group.
    pub fn chunk_range(&self, group: usize, leaf: usize) -> Range<u64> {
        self.chunk_of(group, leaf).unwrap_or(0..0)
    }

    fn chunk_of(&self, group: usize, leaf: usize) -> Option<Range<u64>> {
        let chunk = self.metadata.row_group(group).column(leaf);
        let data = u64::try_from(chunk.data_page_offset()).ok()?;
        let dictionary = chunk.dictionary_page_offset().and_then(|offset| u64::try_from(offset).ok());
        let start = dictionary.filter(|&offset| offset > 0 && offset < data).unwrap_or(data);
        let end = start.checked_add(u64::try_from(chunk.compressed_size()).ok()?)?;
        (end <= self.file_bytes).then_some(start..end)
    }

    fn check(&self, group: usize) -> Result<(), TableError> {
        let own = self.metadata.row_group(group);
        let bad = |what| Err(TableError::Group { group, what });
        if !usize::try_from(own.num_rows()).is_ok_and(|rows| rows <= GROUP_ROWS_MAX) {
            return bad("has more rows than 268435456, or less than none");
        }
        if own.num_columns() != self.metadata.file_metadata().schema_descr().num_columns() {
            return bad("lacks columns");
        }
        if own.columns().iter().any(|chunk| chunk.file_path().is_some()) {
            return bad("lies in other files");
        }
        if (0..own.num_columns()).any(|leaf| self.chunk_of(group, leaf).is_none()) {
            return bad("lies beyond the end of the file");
        }
        Ok(())
    }

    /// Returns true if statistics do not exclude the row group.
    pub fn may_hold(&self, group: usize) -> bool {
        self.rows(group) > 0 && self.conditions.iter().all(|own| self.may(own, group).unwrap_or(true))
    }

    fn may(&self, condition: &Condition, group: usize) -> Option<bool> {
        let groups: [&RowGroupMetaData; 1] = [self.metadata.row_group(group)];
        // Bounds of former writers have an order that depends on the writer.
        if groups[0].column(condition.leaf).statistics()?.is_min_max_deprecated() {
            return None;
        }
        let converter = self.converter(condition)?;
        let least = converter.row_group_mins(groups).ok()?;
        let most = converter.row_group_maxes(groups).ok()?;
        Some(condition.predicate.parts(&least, &most).ok()?.value(0))
    }

    fn converter<'a>(&'a self, condition: &'a Condition) -> Option<StatisticsConverter<'a>> {
        let file = self.metadata.file_metadata();
        let field = condition.form.field();
        let own = StatisticsConverter::from_column_index(condition.leaf, field, file.schema_descr()).ok()?;
        Some(own.with_column_orders(file.column_orders().map(Vec::as_slice)))
    }

    /// Where the places of a column's pages are told, if they are.
    pub fn places_range(&self, group: usize, leaf: usize) -> Option<Range<u64>> {
        self.index_range(self.metadata.row_group(group).column(leaf).offset_index_range())
    }

    /// Where the bounds of a column's pages are told, if they are.
    pub fn bounds_range(&self, group: usize, leaf: usize) -> Option<Range<u64>> {
        self.index_range(self.metadata.row_group(group).column(leaf).column_index_range())
    }

    fn index_range(&self, range: Option<Range<u64>>) -> Option<Range<u64>> {
        range.filter(|own| {
            own.start < own.end && own.end <= self.file_bytes && own.end - own.start <= FOOTER_BYTES_MAX
        })
    }

    /// The pages of a column, from the bytes that tell their places; `None` if these do not fit.
    pub fn placed(&self, group: usize, leaf: usize, places: &[u8]) -> Option<Chunk> {
        let index = decode_offset_index(places).ok()?;
        Chunk::of(self.chunk_range(group, leaf), index.page_locations(), self.rows(group))
    }

    /// The rows that the bounds of a column's pages do not exclude; `None` if they tell nothing.
    pub fn kept(
        &self,
        condition: &Condition,
        group: usize,
        places: &[u8],
        bounds: &[u8],
    ) -> Option<BooleanBuffer> {
        let places = decode_offset_index(places).ok()?;
        let firsts: Vec<i64> = places.page_locations().iter().map(|place| place.first_row_index).collect();
        let bounds = decode_column_index(bounds, condition.form.physical()).ok()?;
        let columns = self.metadata.row_group(group).num_columns();
        let mut builder = PageIndexBuilder::new(self.groups(), columns);
        builder.allocate_column_indexes(self.groups(), columns);
        builder.allocate_offset_indexes(self.groups(), columns);
        builder.put_column_index(bounds, group, condition.leaf);
        builder.put_offset_index(places, group, condition.leaf);
        let index = builder.build();
        let converter = self.converter(condition)?;
        let least = converter.data_page_mins(&index, [&group]).ok()?;
        let most = converter.data_page_maxes(&index, [&group]).ok()?;
        if least.len() != firsts.len() || most.len() != firsts.len() {
            return None;
        }
        let parts = condition.predicate.parts(&least, &most).ok()?;
        let mut rows = BooleanBufferBuilder::new(self.rows(group));
        for (page, is_kept) in parts.iter().enumerate() {
            let end =
                firsts.get(page + 1).map_or(Some(self.rows(group)), |&row| usize::try_from(row).ok())?;
            rows.append_n(end.checked_sub(rows.len())?, is_kept);
        }
        (rows.len() == self.rows(group)).then(|| rows.finish())
    }
}

struct Flat {
    leaf: usize,
    form: Form,
}
