//! The client: compiles requests to plans and runs them against drives.
//!
//! What it guarantees
//! - Every returned byte was verified against the checksum made when it was written. A byte that does not
//!   match is reconstructed, or the read fails with an error that names file, stripes and drives.
//! - A write that returned is durable on every drive of the file's set. A failed write is not acknowledged,
//!   and the handle then writes no more.
//! - Every wait is bounded ([`Config`]), and so is everything in flight.
//! - Data moves between the drives and the caller's buffer without a copy in between.
//!
//! What it refuses to know: who sends what where (the planner decides), and TCP (the transport's part).
//!
//! The path of a request: [`File`] cuts it into chunks of whole stripes. Each chunk is compiled by
//! `braid_plan`, verified, and run by the executor (`executor`) with one list of requests per drive
//! (`drive_requests`). Reads work around columns that fail (`read`); writes have the manager take them out of
//! the file's set (`write`).

#![warn(missing_docs)]

mod arithmetic;
mod attributes;
mod buffers;
mod check;
mod client;
pub mod cluster;
mod concurrent;
mod config;
mod control;
mod cut;
mod drive_requests;
mod drives;
mod error;
mod executor;
mod explain;
mod extents;
mod faults;
mod file;
mod file_systems;
mod handle;
mod heal;
mod held;
mod landing;
mod lane;
mod later;
mod lease;
mod locks;
mod mend;
mod name;
mod names;
mod open;
mod operations;
mod quick;
mod read;
mod receipts;
mod relayout;
mod renewals;
mod retire;
mod retry;
mod room;
mod scratch;
mod shared;
mod small_requests;
mod stamps;
mod stripes;
mod unit_writes;
mod view;
mod watch;
mod write;
mod write_side;

pub use attributes::Node;
pub use braid_plan::Way;
pub use braid_wire::control::{AttributeChanges, NewAttributes, News, Seen};
pub use check::{FINDINGS_MAX, Fault, Finding, Report, Unchecked, WrongUnit};
pub use client::{Client, SentRequests};
pub use config::{Config, PartWrites, WAIT_TOLD_AFTER};
pub use error::{Error, Kind, Result};
pub use explain::{Asked, Explained};
pub use file::{FILE_BYTES_MAX, File, Replace};
pub use file_systems::{OnOneFileSystem, file_systems, reserve_bytes};
pub use heal::{DamagedAt, HealTally};
pub use name::{
    COMPONENT_BYTES_MAX, Name, NameError, PATH_BYTES_MAX, PREFIX, VOLUME_BYTES_MAX, check_volume,
};
pub use names::{Lister, Parents};
pub use open::OpenOptions;
pub use room::Room;
pub use watch::Watching;
