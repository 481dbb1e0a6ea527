//! Tables drawn by a seed, as Parquet files of many kinds, and what is to come of them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{
    Array as _, ArrayRef, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, FixedSizeBinaryArray,
    Float64Array, Int32Array, Int64Array, LargeStringArray, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray, UInt8Array,
};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};

/// Numbers drawn by a seed.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn maybe<T>(&mut self, value: T) -> Option<T> {
        (self.below(5) > 0).then_some(value)
    }
}

/// Conditions of these tables, with what they say of a row.
pub(crate) type Holds = fn(&RecordBatch, usize) -> bool;
pub(crate) const CONDITIONS: &[(&str, Holds)] = &[
    ("id>=100 and id<160", |all, row| (100..160).contains(&id(all, row))),
    ("a=7", |all, row| a(all, row) == Some(7)),
    ("s=tea and a<50", |all, row| s(all, row) == Some("tea") && a(all, row).is_some_and(|a| a < 50)),
    ("f>0.5", |all, row| column::<Float64Type>(all, "f", row).is_some_and(|f| f > 0.5)),
    ("f!=0.5", |all, row| column::<Float64Type>(all, "f", row).is_some()),
    ("d<=12.34", |all, row| column::<Decimal128Type>(all, "d", row).is_some_and(|d| d <= 1234)),
    ("date>1970-02-01", |all, row| column::<Date32Type>(all, "date", row).is_some_and(|day| day > 31)),
    ("t<1970-01-01T00:00:01", |all, row| id(all, row) < 1000),
    ("s!='no such'", |all, row| s(all, row).is_some()),
    ("word=w3", |all, row| word(all, row) == Some("w3")),
    ("id<0", |_, _| false),
];

fn column<T: arrow_array::ArrowPrimitiveType>(
    all: &RecordBatch,
    name: &str,
    row: usize,
) -> Option<T::Native> {
    let own = all.column_by_name(name).expect("a column").as_primitive::<T>();
    own.is_valid(row).then(|| own.value(row))
}

fn id(all: &RecordBatch, row: usize) -> i64 {
    column::<Int64Type>(all, "id", row).expect("it is required")
}

fn a(all: &RecordBatch, row: usize) -> Option<i32> {
    column::<Int32Type>(all, "a", row)
}

fn s(all: &RecordBatch, row: usize) -> Option<&str> {
    let own = all.column_by_name("s").expect("a column").as_string::<i32>();
    own.is_valid(row).then(|| own.value(row))
}

fn word(all: &RecordBatch, row: usize) -> Option<&str> {
    let own = all.column_by_name("word").expect("a column").as_dictionary::<Int32Type>();
    let key = usize::try_from(own.keys().value(row)).expect("a key");
    own.is_valid(row).then(|| own.values().as_string::<i32>().value(key))
}

/// A table of so many rows.
pub(crate) fn table(draw: &mut Draw, rows: usize) -> RecordBatch {
    let count = i64::try_from(rows).expect("few");
    let texts = ["tea", "coffee", "", "\u{e9}t\u{e9}", "a longer text, of some words"];
    let text = |draw: &mut Draw| texts[usize::try_from(draw.below(5)).expect("small")].to_owned();
    let all = |draw: &mut Draw, one: &mut dyn FnMut(&mut Draw) -> i32| -> Vec<Option<i32>> {
        (0..rows)
            .map(|_| {
                let own = one(draw);
                draw.maybe(own)
            })
            .collect()
    };
    let small = all(draw, &mut |draw| i32::try_from(draw.below(100)).expect("small"));
    let lists = small.iter().map(|own| own.map(|own| (0..own % 4).map(Some).collect::<Vec<_>>()));
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
    let days = all(draw, &mut |draw| i32::try_from(draw.below(60)).expect("small"));
    let strings: Vec<Option<String>> = (0..rows)
        .map(|_| {
            let own = text(draw);
            draw.maybe(own)
        })
        .collect();
    let unique: Vec<String> = (0..rows).map(|row| format!("{row}-{}", draw.below(1 << 40))).collect();
    let floats = (0..rows).map(|row| match row % 7 {
        0 => None,
        1 => Some(f64::NAN),
        _ => Some(f64::from(u32::try_from(draw.below(1000)).expect("small")) / 999.0 * 0.997),
    });
    let floats: Vec<Option<f64>> = floats.collect();
    let decimals: Vec<Option<i128>> = (0..rows)
        .map(|_| {
            let own = draw.below(3000);
            draw.maybe(i128::from(own))
        })
        .collect();
    let words: DictionaryArray<Int32Type> =
        (0..rows).map(|_| Some(["w1", "w2", "w3"][usize::try_from(draw.below(3)).expect("small")])).collect();
    let bytes: Vec<[u8; 5]> = (0..rows).map(|row| [u8::try_from(row % 251).expect("small"); 5]).collect();
    let part: ArrayRef = Arc::new(Int32Array::from(small.clone()));
    let both: ArrayRef =
        Arc::new(StructArray::from(vec![(Arc::new(Field::new("x", DataType::Int32, true)), part)]));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..count))),
        ("a", Arc::new(Int32Array::from(small))),
        ("s", Arc::new(StringArray::from(strings))),
        ("f", Arc::new(Float64Array::from(floats))),
        ("d", Arc::new(Decimal128Array::from(decimals).with_precision_and_scale(9, 2).expect("good"))),
        (
            "t",
            Arc::new(
                TimestampMicrosecondArray::from_iter_values((0..count).map(|id| id * 1000))
                    .with_timezone("+00:00"),
            ),
        ),
        ("b", Arc::new(BooleanArray::from_iter((0..rows).map(|row| (row % 3 > 0).then_some(row % 2 == 0))))),
        (
            "u",
            Arc::new(UInt8Array::from_iter_values(
                (0..rows).map(|row| u8::try_from(row % 256).expect("small")),
            )),
        ),
        ("large", Arc::new(LargeStringArray::from(unique))),
        ("word", Arc::new(words)),
        ("fixed", Arc::new(FixedSizeBinaryArray::try_from_iter(bytes.iter()).expect("good"))),
        ("date", Arc::new(Date32Array::from(days))),
        ("list", Arc::new(list)),
        ("both", both),
    ];
    let fields =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), *name != "id"));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns.into_iter().map(|(_, array)| array).collect()).expect("a table")
}

/// The table as a file of a kind that is drawn.
pub(crate) fn file(draw: &mut Draw, table: &RecordBatch) -> Vec<u8> {
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4_RAW,
        Compression::GZIP(Default::default()),
    ];
    let statistics = [EnabledStatistics::None, EnabledStatistics::Chunk, EnabledStatistics::Page];
    let mut one = |end: u64| usize::try_from(draw.below(end)).expect("small");
    let version = if one(2) == 0 { WriterVersion::PARQUET_1_0 } else { WriterVersion::PARQUET_2_0 };
    let statistics = statistics[one(3)];
    let mut properties = WriterProperties::builder()
        .set_compression(codecs[one(5)])
        .set_writer_version(version)
        .set_dictionary_enabled(one(3) > 0)
        .set_statistics_enabled(statistics)
        .set_max_row_group_row_count(Some(200 + one(2000)))
        .set_data_page_row_count_limit(20 + one(400))
        .set_dictionary_page_size_limit(64 + one(20_000))
        .set_write_batch_size(16)
        .set_offset_index_disabled(statistics != EnabledStatistics::Page && one(2) == 0);
    if one(3) == 0 {
        for (name, encoding) in [
            ("id", Encoding::DELTA_BINARY_PACKED),
            ("large", Encoding::DELTA_BYTE_ARRAY),
            ("s", Encoding::DELTA_LENGTH_BYTE_ARRAY),
            ("f", Encoding::BYTE_STREAM_SPLIT),
        ] {
            properties = properties
                .set_column_dictionary_enabled(name.into(), false)
                .set_column_encoding(name.into(), encoding);
        }
    }
    write(table, properties.build())
}

/// The table as a file.
pub(crate) fn write(table: &RecordBatch, properties: WriterProperties) -> Vec<u8> {
    let mut writer = ArrowWriter::try_new(Vec::new(), table.schema(), Some(properties)).expect("a writer");
    writer.write(table).expect("written");
    writer.into_inner().expect("written")
}

/// The answer that is to come of it, by the crate's own reader.
pub(crate) fn expected(file: &[u8], columns: &[&str], holds: Option<Holds>) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::copy_from_slice(file)).expect("a file");
    let schema = Arc::clone(reader.schema());
    let batches: Vec<RecordBatch> =
        reader.build().expect("it opens").map(|batch| batch.expect("it is read")).collect();
    let all = concat_batches(&schema, &batches).expect("one table");
    let mask: BooleanArray =
        (0..all.num_rows()).map(|row| Some(holds.is_none_or(|holds| holds(&all, row)))).collect();
    let places: Vec<usize> = columns.iter().map(|name| schema.index_of(name).expect("a column")).collect();
    filter_record_batch(&all, &mask).and_then(|own| own.project(&places)).expect("filtered")
}

/// A stream of Arrow IPC as one table.
pub(crate) fn of_stream(stream: &[u8]) -> RecordBatch {
    let reader = arrow_ipc::reader::StreamReader::try_new(stream, None).expect("a stream");
    let schema = reader.schema();
    let batches: Vec<RecordBatch> = reader.map(|batch| batch.expect("a batch")).collect();
    concat_batches(&schema, &batches).expect("one table")
}
