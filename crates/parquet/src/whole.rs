//! Columns that are decoded as a whole: nested ones, and those whose pages are not told apart.

use std::collections::BTreeMap;

use arrow_array::{Array, ArrayRef, new_empty_array};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, Buffer};
use arrow_select::concat::concat;
use bytes::buf::Reader;
use bytes::{Buf as _, Bytes};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
    RowSelection,
};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::chunk::first_bad;
use crate::page::{AT_CLIENT, PageError, guarded};
use crate::table::{Condition, Table, Wanted};

const BATCH_ROWS: usize = 8192;

/// Some bytes of a file, by their places.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    parts: BTreeMap<u64, Bytes>,
    length: u64,
}

impl Parts {
    /// Parts of a file, each with its first byte.
    pub fn new(parts: Vec<(u64, Vec<u8>)>, length: u64) -> Parts {
        let parts = parts.into_iter().map(|(offset, bytes)| (offset, Bytes::from(bytes))).collect();
        Parts { parts, length }
    }

    fn from(&self, offset: u64) -> Option<Bytes> {
        let (&start, bytes) = self.parts.range(..=offset).next_back()?;
        let skip = usize::try_from(offset - start).ok()?;
        (skip <= bytes.len()).then(|| bytes.slice(skip..))
    }

    fn check(&self) -> Result<(), PageError> {
        for bytes in self.parts.values() {
            match first_bad(bytes) {
                None => {}
                Some((_, 0)) => return Err(PageError::Header),
                Some((_, bytes)) => return Err(PageError::TooLarge { bytes, rows: 0, limits: AT_CLIENT }),
            }
        }
        Ok(())
    }
}

impl Length for Parts {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Parts {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.from(start).ok_or_else(|| missing(start))?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.from(start).filter(|bytes| bytes.len() >= length);
        Ok(bytes.ok_or_else(|| missing(start))?.slice(..length))
    }
}

fn missing(at: u64) -> ParquetError {
    ParquetError::EOF(format!("a page goes on behind its column, at byte {at}"))
}

impl Table {
    /// The rows among `among` for which a condition holds, from all bytes of its column.
    pub fn filtered(
        &self,
        condition: &Condition,
        group: usize,
        parts: Parts,
        among: &BooleanBuffer,
    ) -> Result<BooleanBuffer, PageError> {
        guarded(|| self.filter_whole(condition, group, parts, among))
    }

    fn filter_whole(
        &self,
        condition: &Condition,
        group: usize,
        parts: Parts,
        among: &BooleanBuffer,
    ) -> Result<BooleanBuffer, PageError> {
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let mut rows = BooleanBufferBuilder::new(among.len());
        for batch in self.reader(condition.root, group, parts, options, None)? {
            rows.append_buffer(&condition.predicate.rows(batch?.column(0))?);
        }
        let rows = rows.finish();
        if rows.len() == among.len() { Ok(&rows & among) } else { Err(PageError::Header) }
    }

    /// The values of the rows `wanted`, from all bytes of a column.
    pub fn projected(
        &self,
        column: &Wanted,
        group: usize,
        parts: Parts,
        wanted: &BooleanBuffer,
    ) -> Result<ArrayRef, PageError> {
        guarded(|| self.project_whole(column, group, parts, wanted))
    }

    fn project_whole(
        &self,
        column: &Wanted,
        group: usize,
        parts: Parts,
        wanted: &BooleanBuffer,
    ) -> Result<ArrayRef, PageError> {
        let reader = self.reader(column.root, group, parts, ArrowReaderOptions::new(), Some(wanted))?;
        let mut arrays: Vec<ArrayRef> = Vec::new();
        let mut bytes = 0;
        for batch in reader {
            let batch = batch?;
            bytes += batch.column(0).to_data().get_slice_memory_size()?;
            if bytes > AT_CLIENT.value_bytes {
                return Err(PageError::Values(AT_CLIENT.value_bytes));
            }
            arrays.push(batch.column(0).clone());
        }
        let arrays: Vec<&dyn Array> = arrays.iter().map(|array| &**array).collect();
        let array =
            if arrays.is_empty() { new_empty_array(column.field.data_type()) } else { concat(&arrays)? };
        if array.len() == wanted.count_set_bits() { Ok(array) } else { Err(PageError::Header) }
    }

    fn reader(
        &self,
        root: usize,
        group: usize,
        parts: Parts,
        options: ArrowReaderOptions,
        wanted: Option<&BooleanBuffer>,
    ) -> Result<ParquetRecordBatchReader, PageError> {
        parts.check()?;
        let metadata = ArrowReaderMetadata::try_new(self.metadata.clone(), options)?;
        let mask = ProjectionMask::roots(metadata.parquet_schema(), [root]);
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(parts, metadata)
            .with_projection(mask)
            .with_row_groups(vec![group])
            .with_batch_size(BATCH_ROWS);
        if let Some(wanted) = wanted {
            // The buffer may begin inside a byte.
            let own = BooleanBuffer::new(Buffer::from(wanted.sliced().as_slice()), 0, wanted.len());
            builder = builder.with_row_selection(RowSelection::from(own));
        }
        Ok(builder.build()?)
    }
}
