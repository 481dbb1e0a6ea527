//! Experiments: Braid's parts compared with what the machine does without them.
//!
//! Every figure is a ratio taken within one run. A measurement is a row of pairs: one sample of Braid and
//! one of the plain system doing the same work (sizes, depth, sync policy), one right after the other. The
//! order alternates from pair to pair, so that other load on the machine affects both. The figure is the
//! median of the pairs' ratios, with its spread beside it. Rates and CPU time are medians of each side. Two
//! results have no such pair: the time to open a store is compared with a target ([`Timing`]), and the cost
//! of cleaning, which is counted in bytes, with a simulation of the same decisions ([`Amplification`]).
//!
//! [`store`] measures one drive's store against raw files, [`stripes`] the rates that clients get from
//! several drives, [`small`] the rates of small files, names and pieces, [`promises`] how late reserved rates
//! are, [`volumes`] the rest of what volumes and drives do, [`against`] large transfers against a fair bound,
//! [`mining`] how fast several clients count what is in one file;
//! `docs/bench.md` describes each row. The caller
//! shows the results: [`markdown`] and [`plot`] make documents of a [`Report`], and the others have their
//! own.

pub mod against;
mod conditions;
mod connected;
mod content;
pub mod disk;
mod error;
mod lines;
mod load_threads;
mod machine;
pub mod markdown;
mod measure;
mod memory;
pub mod mining;
pub mod plain;
pub mod plot;
pub mod predict;
pub mod promises;
mod rates;
mod raw;
pub mod receipts;
mod report;
pub mod small;
mod stats;
pub mod store;
pub mod stripes;
mod subject;
pub mod volumes;

pub use conditions::Conditions;
pub use error::Error;
pub use machine::{Machine, MeasuredDir, available_bytes};
pub use measure::{Effort, Progress, Watch};
pub use memory::touch as touch_memory;
pub use report::{Amplification, Cache, Experiment, Load, Report, Row, Side, Spread, Timing};
pub use stats::{median, spread};
