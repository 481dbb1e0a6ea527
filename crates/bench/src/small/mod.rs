//! Small work on a cluster: files of 4 KiB, names by the thousand, 4 KiB at random places of a large file.
//!
//! [`Operation`] lists the measurements, with their goals. [`Worker`] is the work of a client process: it
//! prepares a [`Job`], and runs it with the clock going; [`serve`] is the far end of the plain exchanges,
//! which are measured beside the operations. [`Report`] holds the figures, [`document`] and [`svg`] make
//! documents of it. The module knows no processes: the caller starts the manager, the drives, the clients
//! and the far ends, and reads their processor time.

mod document;
mod exchange;
mod job;
mod operation;
mod pace;
mod plot;
mod report;
mod sync;
mod tree;

pub use document::{document, show_latency, show_number};
pub use exchange::{Exchange, FarEnd, With, serve};
pub use job::{Job, Prepared, Work, Worker};
pub use operation::{FILE_BYTES, Goals, IN_FLIGHT, NAME_REPLY_BYTES, Operation};
pub use pace::{Done, Limit};
pub use plot::svg;
pub use report::{CpuTime, Plain, Processes, Report, Row, Sample, SyncRate, Synced};
pub use sync::sync_rate;
pub use tree::{Tree, count_same, make_tree};
