//! Experiments: Braid's parts against what the machine does without them.
//!
//! Every figure is a ratio taken inside one run. A measurement is a row of pairs: one sample of Braid, one of the plain
//! system doing the same work (sizes, depth, sync policy), taken one after the other, the order turned round from pair
//! to pair, so that what else the machine does hits both. The median of the pairs' ratios is the figure; its spread
//! stands beside it. Rates and CPU time are the medians of each side. Two things have no such pair: how long a store takes
//! to open stands beside a target ([`Timing`]), and what cleaning costs, which counts bytes and not time, beside a
//! simulation of the same decisions ([`Amplification`]).
//!
//! [`store`] measures one drive's store against raw files; `docs/bench.md` says what each row is. It refuses to know the network, and how results are shown:
//! [`markdown`] and [`plot`] make documents of a [`Report`], the caller prints.

mod amplification;
mod crew;
mod error;
mod machine;
pub mod markdown;
mod measure;
mod memory;
mod open;
pub mod plot;
mod raw;
mod report;
mod rings;
mod sizes;
mod stats;
pub mod store;
mod subject;
mod svg;
mod ways;

pub use error::Error;
pub use machine::{Machine, Place};
pub use measure::{Progress, Watch};
pub use report::{Amplification, Cache, Experiment, Load, Report, Row, Side, Spread, Timing};
