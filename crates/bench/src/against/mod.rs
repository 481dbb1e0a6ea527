//! Rates against a fair bound, taken by turns in one run, with the processor time of both sides and what the
//! papers found.
//!
//! [`Question`] describes a row as data, [`Report`] holds the rows, [`document`] and [`svg`] make documents
//! of it. [`kernels`] measures copies, XOR and checksums in memory. The caller starts the processes and takes
//! the samples.

mod document;
pub mod kernels;
mod report;

pub use document::{document, show, svg};
pub use report::{Asked, Goal, Judged, LeftOut, Of, Question, Report, Row, Side, Taken, Unit};
