//! Parquet files, filtered and projected page by page, where the pages lie.
//!
//! What: the unit of work is a page of a column. A drive that holds a page decodes it, and answers which of
//! its rows fulfil a condition, or with the values of rows that are asked for: the method `parquet-pages`
//! ([`PAGES`]). The client knows the file's footer ([`Table`]) and the places of the pages ([`Chunk`]). It
//! asks for the rows first, page by page of the columns with conditions, then for their values, and puts
//! these together as Arrow IPC ([`Answer`]). Pages that no drive answers for it decodes by the same code
//! ([`Page`]).
//!
//! The crate knows no drive, layout, message, file or clock: who uses it reads the bytes that it names.

#![warn(missing_docs)]

mod answer;
mod chunk;
mod header;
mod page;
mod pages;
mod predicate;
mod rows;
mod table;
mod values;
mod whole;

pub use answer::{Answer, from_csv, joined, rows_in, rows_of, to_csv, values_of};
/// Values of a column.
pub use arrow_array::ArrayRef as Values;
/// Which rows are selected.
pub use arrow_buffer::BooleanBuffer as Rows;
pub use arrow_schema::ArrowError;
pub use chunk::{Chunk, Step, Walk};
pub use page::{AT_CLIENT, AT_DRIVE, Form, Limits, Page, PageError};
pub use pages::{Asked, Dictionary, PAGES, PagePlace, STORED_BYTES_MAX, TOLD_BYTES_MAX, entries, request};
pub use predicate::Predicate;
pub use table::{Condition, Footer, Next, Table, TableError, Wanted};
pub use whole::Parts;

use braid_methods::Method;

/// The method of this name: one of [`braid_methods`], or that of this crate.
pub fn find(name: &str) -> Option<&'static Method> {
    if name == PAGES.name { Some(&PAGES) } else { braid_methods::find(name) }
}
