//! The work of volumes and their drives beside moving bytes, and what files get of links: tables of rows,
//! each with what was found and its goal.
//!
//! [`Report`] holds the rows, [`document`] makes a document of it. The caller starts the clusters and the
//! clients, whose work is that of [`crate::stripes::Job`]. A group of rows is a module of the caller.

mod document;
mod report;

pub use document::document;
pub use report::{LeftOut, Report, Row};
