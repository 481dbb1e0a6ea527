//! Experiments E15, E16, E18 and E19: stripes over real drives, each figure a ratio taken within one run.
//!
//! [`Worker`] is the work of a client process: it prepares a [`Job`], and runs it with the clock going.
//! [`Report`] holds the figures, [`document`] and `plot` make documents of it. The module knows neither
//! processes nor hosts: the caller starts the manager, the drives and the clients, and says which of two
//! samples came first.

mod document;
mod job;
mod plot;
mod report;

pub use document::{document, show_figure, show_value};
pub use job::{Done, Job, Prepared, RECORD_BYTES, RECORDS_AT_ONCE, Work, Worker};
pub use plot::svg;
pub use report::{Goal, LeftOut, Question, Report, Row, Side, Unit};
