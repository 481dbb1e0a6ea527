//! One page of a flat column, decoded by itself.
//!
//! How: the page, behind its dictionary, is given to the crate parquet as the only page of a file of one
//! column. So codecs, encodings and types are all that crate's. Before that its header is looked at: what it
//! claims has bounds, as it may come from anybody.

use std::fmt::Write as _;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatchReader, new_empty_array};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat;
use arrow_select::filter::filter;
use bytes::{Bytes, BytesMut};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::{CompressionCodec, LogicalType, Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataBuilder, RowGroupMetaData,
};
use parquet::schema::parser::parse_message_type;
use parquet::schema::printer::print_schema;
use parquet::schema::types::{ColumnDescriptor, SchemaDescPtr, SchemaDescriptor, Type};

use crate::header::{Header, Kind};
use crate::predicate::Predicate;
use crate::values;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;
/// Bytes of the values that are decoded at a time, where they are longer than what is stored.
const BATCH_BYTES: usize = 8 << 20;
/// The column's name in the file of one page.
const NAME: &str = "c";

/// Codecs as they are named to drives. LZ4 in its former frame is left to clients.
const CODECS: [(&str, CompressionCodec); 5] = [
    ("none", CompressionCodec::UNCOMPRESSED),
    ("snappy", CompressionCodec::SNAPPY),
    ("gzip", CompressionCodec::GZIP),
    ("zstd", CompressionCodec::ZSTD),
    ("lz4", CompressionCodec::LZ4_RAW),
];

/// The make of a column's pages: codec, type, and whether values may be missing.
#[derive(Debug, Clone)]
pub struct Form {
    codec: CompressionCodec,
    schema: SchemaDescPtr,
    field: Field,
}

/// Bounds on the claims of a page.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a page once it is decompressed.
    pub page_bytes: u32,
    /// Rows of a page.
    pub rows: usize,
    /// Bytes of what is taken from it.
    pub value_bytes: usize,
}

/// At a drive, which has memory for a request of so much.
pub const AT_DRIVE: Limits = Limits { page_bytes: 4 << 20, rows: 1 << 20, value_bytes: 1 << 20 };
/// At a client.
pub const AT_CLIENT: Limits = Limits { page_bytes: 256 << 20, rows: 1 << 26, value_bytes: 1 << 30 };

/// A page with what it takes to decode it.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// The make of the page.
    pub form: &'a Form,
    /// The page of the dictionary, if there is one.
    pub dictionary: Option<&'a [u8]>,
    /// The page with its header.
    pub bytes: &'a [u8],
    /// Rows that it is to have.
    pub rows: usize,
}

/// Reason for which a page cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// Its header is none, or does not fit what is known of it.
    #[error("its header is damaged, or does not fit the footer")]
    Header,
    /// It claims too much.
    #[error("it claims {bytes} bytes and {rows} rows; a page has at most {} bytes and {} rows here",
        .limits.page_bytes, .limits.rows)]
    TooLarge {
        /// Bytes that it claims to have once it is decompressed.
        bytes: u64,
        /// The rows that it claims.
        rows: usize,
        /// The bounds that hold here.
        limits: Limits,
    },
    /// Its values need a dictionary that is not there.
    #[error("its column has no dictionary, and it needs one")]
    NoDictionary,
    /// The values that are wanted of it are too long.
    #[error("more than {0} bytes are wanted of one page")]
    Values(usize),
    /// The decoder gave up on its bytes.
    #[error("it is damaged")]
    Damaged,
    /// Its bytes cannot be decoded.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    /// Its values cannot be compared or put together.
    #[error(transparent)]
    Arrow(#[from] arrow_schema::ArrowError),
}

impl Form {
    /// The form of a column's pages; `None` if only the whole column can be decoded.
    pub fn of(column: &ColumnDescriptor, codec: CompressionCodec) -> Option<Form> {
        let is_flat = column.max_rep_level() == 0 && column.path().parts().len() == 1;
        if !is_flat || !CODECS.iter().any(|(_, known)| *known == codec) {
            return None;
        }
        let info = column.self_type().get_basic_info();
        // Which types of variants there are is not told by texts.
        if matches!(info.logical_type_ref(), Some(LogicalType::Variant(_) | LogicalType::Unknown)) {
            return None;
        }
        let own = Type::primitive_type_builder(NAME, column.physical_type())
            .with_repetition(info.repetition())
            .with_converted_type(info.converted_type())
            .with_logical_type(info.logical_type_ref().cloned())
            .with_length(column.type_length())
            .with_precision(column.type_precision())
            .with_scale(column.type_scale())
            .build()
            .ok()?;
        let root = Type::group_type_builder("m").with_fields(vec![Arc::new(own)]).build().ok()?;
        let form = Form::with(codec, root)?;
        // A drive must understand the same.
        let told = Form::parse(&form.text())?;
        (told.field == form.field && told.schema.column(0).self_type() == form.schema.column(0).self_type())
            .then_some(form)
    }

    fn with(codec: CompressionCodec, root: Type) -> Option<Form> {
        let schema = SchemaDescriptor::new(Arc::new(root));
        if schema.num_columns() != 1 || schema.column(0).max_rep_level() != 0 {
            return None;
        }
        let arrow = parquet_to_arrow_schema(&schema, None).ok()?;
        let field = arrow.fields().first()?.as_ref().clone();
        // A list or a structure is no flat column, even with one leaf.
        values::is_known(field.data_type()).then(|| Form { codec, schema: Arc::new(schema), field })
    }

    /// The form as a text: the codec, and the column as a message of Parquet.
    pub fn text(&self) -> String {
        let codec = CODECS.iter().find(|(_, codec)| *codec == self.codec).map_or("none", |(name, _)| name);
        let mut schema = Vec::new();
        print_schema(&mut schema, self.schema.root_schema());
        let schema = String::from_utf8_lossy(&schema);
        let mut text = codec.to_owned();
        for word in schema.split_whitespace() {
            // Writing to a text does not fail.
            let _ = write!(text, " {word}");
        }
        text
    }

    /// The form of this text.
    pub fn parse(text: &str) -> Option<Form> {
        let (codec, schema) = text.split_once(' ')?;
        let (_, codec) = CODECS.iter().find(|(name, _)| *name == codec)?;
        Form::with(*codec, parse_message_type(schema).ok()?)
    }

    /// The type of its values.
    pub fn data_type(&self) -> &DataType {
        self.field.data_type()
    }

    /// The column as a field of Arrow, named `c`.
    pub fn field(&self) -> &Field {
        &self.field
    }
}

impl Page<'_> {
    /// The rows among `among` for which a predicate holds.
    pub fn filtered(
        &self,
        predicate: &Predicate,
        among: &BooleanBuffer,
        limits: Limits,
    ) -> Result<BooleanBuffer, PageError> {
        guarded(|| self.filter(predicate, among, limits))
    }

    /// The values of the rows `wanted`.
    pub fn projected(&self, wanted: &BooleanBuffer, limits: Limits) -> Result<ArrayRef, PageError> {
        guarded(|| self.project(wanted, limits))
    }

    fn filter(
        &self,
        predicate: &Predicate,
        among: &BooleanBuffer,
        limits: Limits,
    ) -> Result<BooleanBuffer, PageError> {
        let mut rows = BooleanBufferBuilder::new(self.rows);
        for array in self.open(limits)? {
            rows.append_buffer(&predicate.rows(&array?)?);
        }
        let rows = rows.finish();
        if rows.len() == self.rows { Ok(&rows & among) } else { Err(PageError::Header) }
    }

    fn project(&self, wanted: &BooleanBuffer, limits: Limits) -> Result<ArrayRef, PageError> {
        let mut parts = Vec::new();
        let mut at = 0;
        let mut bytes = 0;
        for array in self.open(limits)? {
            let array = array?;
            if at + array.len() > self.rows {
                return Err(PageError::Header);
            }
            let own = wanted.slice(at, array.len());
            at += array.len();
            if own.count_set_bits() == 0 {
                continue;
            }
            let mut part = filter(&array, &BooleanArray::new(own, None))?;
            bytes += decoded_bytes(&part);
            if bytes > limits.value_bytes {
                return Err(PageError::Values(limits.value_bytes));
            }
            if part.data_type() != self.form.data_type() {
                part = cast(&part, self.form.data_type())?;
            }
            parts.push(part);
        }
        if at != self.rows {
            return Err(PageError::Header);
        }
        let parts: Vec<&dyn Array> = parts.iter().map(|part| &**part).collect();
        if parts.is_empty() { Ok(new_empty_array(self.form.data_type())) } else { Ok(concat(&parts)?) }
    }

    /// The page's values, in parts.
    fn open(
        &self,
        limits: Limits,
    ) -> Result<impl Iterator<Item = Result<ArrayRef, PageError>> + use<>, PageError> {
        let header = self.checked(self.bytes, Kind::Data, limits)?;
        let is_of_dictionary = header.needs_dictionary();
        let mut file = BytesMut::new();
        if is_of_dictionary {
            let dictionary = self.dictionary.ok_or(PageError::NoDictionary)?;
            self.checked(dictionary, Kind::Dictionary, limits)?;
            file.extend_from_slice(dictionary);
        }
        let page_at = file.len();
        file.extend_from_slice(self.bytes);
        let kind = self.form.data_type();
        let width = values::width(kind).unwrap_or(1).max(1);
        let longest = if header.is_delta_bytes() {
            usize::try_from(header.uncompressed).unwrap_or(usize::MAX).max(1)
        } else {
            width
        };
        let rows = (BATCH_BYTES / longest).clamp(1, BATCH_ROWS);
        // Texts of a dictionary stay its entries' numbers: written out, they may be of any length.
        let stays = is_of_dictionary && matches!(kind, DataType::Utf8 | DataType::Binary);
        let file = file.freeze();
        let length = file.len();
        let reader = self.form.reader(file, page_at, header.values, length, stays)?.batch(rows)?;
        Ok(reader.map(|batch| Ok(Arc::clone(batch?.column(0)))))
    }

    /// The header of a page, if what it claims fits.
    fn checked(&self, bytes: &[u8], kind: Kind, limits: Limits) -> Result<Header, PageError> {
        let header = Header::parse(bytes).map_err(|_| PageError::Header)?;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let rows = usize::try_from(header.values).unwrap_or(usize::MAX);
        if header.kind != kind || header.bytes() != length || (kind == Kind::Data && rows != self.rows) {
            return Err(PageError::Header);
        }
        let bytes_claimed = u64::from(header.uncompressed);
        if header.uncompressed > limits.page_bytes || rows > limits.rows {
            return Err(PageError::TooLarge { bytes: bytes_claimed, rows, limits });
        }
        if self.form.codec == CompressionCodec::GZIP && header.is_compressed {
            // Other codecs stop at the size that is claimed.
            let levels = usize::try_from(header.levels).unwrap_or(usize::MAX);
            let from = header.length.saturating_add(levels);
            let packed = bytes.get(from..).ok_or(PageError::Header)?;
            let claimed = bytes_claimed.saturating_sub(u64::from(header.levels));
            let mut unpacked = flate2::read::MultiGzDecoder::new(packed).take(claimed + 1);
            let own = std::io::copy(&mut unpacked, &mut std::io::sink()).map_err(ParquetError::from)?;
            if own > claimed {
                return Err(PageError::Header);
            }
        }
        Ok(header)
    }
}

/// Does the work. The crate parquet panics at some damage: that is an error here, as bytes come from anybody.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, PageError>) -> Result<T, PageError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(PageError::Damaged))
}

/// A file of one page that is to be read.
struct OnePage {
    file: Bytes,
    metadata: ArrowReaderMetadata,
}

impl OnePage {
    fn batch(self, rows: usize) -> Result<ParquetRecordBatchReader, ParquetError> {
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(self.file, self.metadata);
        let reader = reader.with_batch_size(rows).build()?;
        debug_assert_eq!(reader.schema().fields().len(), 1);
        Ok(reader)
    }
}

impl Form {
    fn reader(
        &self,
        file: Bytes,
        page_at: usize,
        rows: u32,
        length: usize,
        stays: bool,
    ) -> Result<OnePage, ParquetError> {
        let metadata = Arc::new(self.metadata(page_at, rows, length)?);
        let field = if stays {
            let kind = DataType::Dictionary(Box::new(DataType::Int32), Box::new(self.data_type().clone()));
            self.field.clone().with_data_type(kind)
        } else {
            self.field.clone()
        };
        let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(vec![field])));
        Ok(OnePage { file, metadata: ArrowReaderMetadata::try_new(metadata, options)? })
    }

    fn metadata(&self, page_at: usize, rows: u32, length: usize) -> Result<ParquetMetaData, ParquetError> {
        let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        let rows = i64::from(rows);
        let chunk = ColumnChunkMetaData::builder(self.schema.column(0))
            .set_compression_codec(self.codec)
            .set_num_values(rows)
            .set_total_compressed_size(signed(length))
            .set_total_uncompressed_size(signed(length))
            .set_dictionary_page_offset((page_at > 0).then_some(0))
            .set_data_page_offset(signed(page_at))
            .build()?;
        let group = RowGroupMetaData::builder(Arc::clone(&self.schema))
            .set_num_rows(rows)
            .set_total_byte_size(signed(length))
            .set_column_metadata(vec![chunk])
            .build()?;
        let file = FileMetaData::new(2, rows, None, None, Arc::clone(&self.schema), None);
        Ok(ParquetMetaDataBuilder::new(file).add_row_group(group).build())
    }

    /// Returns true if every row has a value.
    pub fn is_required(&self) -> bool {
        self.schema.column(0).self_type().get_basic_info().repetition() == Repetition::REQUIRED
    }

    /// The type that is stored.
    pub fn physical(&self) -> Physical {
        self.schema.column(0).physical_type()
    }
}

/// Bytes that an array has once no dictionary stands for its values.
fn decoded_bytes(array: &ArrayRef) -> usize {
    let Some(dictionary) = array.as_dictionary_opt::<Int32Type>() else {
        return array.to_data().get_slice_memory_size().unwrap_or(usize::MAX);
    };
    let values = dictionary.values();
    let length = |key: usize| match values.data_type() {
        DataType::Utf8 if key < values.len() => values.as_string::<i32>().value(key).len(),
        DataType::Binary if key < values.len() => values.as_binary::<i32>().value(key).len(),
        _ => 0,
    };
    let keys = dictionary.keys();
    let own = |row: usize| length(usize::try_from(keys.value(row)).unwrap_or(usize::MAX));
    (0..keys.len()).filter(|&row| keys.is_valid(row)).map(|row| 4_usize.saturating_add(own(row))).sum()
}
