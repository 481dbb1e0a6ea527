//! Experiment E14: promised rates beside best-effort overload, lost drives and rebuilds.
//!
//! [`Worker`] is the work of a client process: streams that are due at a rate, whose lateness it counts, and
//! streams that take what they can get. [`Report`] holds the rows, [`document`] makes a document of it, and
//! [`lateness_chart`] a plot of lateness over time. The caller starts the cluster and the clients, and says
//! when a drive dies.

mod document;
mod job;
mod report;

pub use document::{document, lateness_chart};
pub use job::{Done, Job, Pace, Prepared, Stream, StreamDone, Worker};
pub use report::{Goal, LeftOut, Marks, Plot, Report, Row, Summary, between};
