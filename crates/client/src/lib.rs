//! The client: compiles requests to plans and runs them against drives.
//!
//! What it guarantees
//! - A byte that is returned was checked against the checksum made when it was written; one that does not match is made
//!   from the redundancy, or the read fails with an error that names file, stripes and drives.
//! - A write that returned is durable on every drive of the file's set; one that failed is not acknowledged, and the handle
//!   then writes no more.
//! - Every wait has a bound ([`Config`]), and so has everything that is in flight.
//! - Data moves between the drives and the caller's own buffer: there is no copy in between.
//!
//! What it refuses to know: who sends what where (the planner decides), and what TCP is (the transport knows).
//!
//! How a request goes: [`File`] cuts it into chunks of whole stripes; each is compiled by `braid_plan`, verified, and run by
//! the executor (`run`) with one exchange per drive (`exchange`); reads go round columns that fail (`read`), writes have the
//! manager take them out of the file's set (`write`).

mod arithmetic;
mod buffers;
mod check;
mod client;
mod config;
mod control;
mod cut;
mod drives;
mod error;
mod exchange;
mod explain;
mod extents;
mod faults;
mod file;
mod handle;
mod held;
mod join;
mod lease;
mod mend;
mod name;
mod names;
mod open;
mod operations;
mod read;
mod rebuild;
mod retire;
mod retry;
mod run;
mod scratch;
mod stamps;
mod stripes;
mod view;
mod write;

pub use check::{FINDINGS_MAX, Fault, Finding, Report, Unchecked, WrongUnit};
pub use client::Client;
pub use config::{Config, WAIT_TOLD_AFTER};
pub use error::{Error, Kind, Result};
pub use explain::{Asked, Explained};
pub use file::{FILE_BYTES_MAX, File, Kept, Replace};
pub use name::{
    COMPONENT_BYTES_MAX, Name, NameError, PATH_BYTES_MAX, PREFIX, VOLUME_BYTES_MAX, check_volume,
};
pub use names::{Lister, Parents};
pub use open::OpenOptions;
pub use rebuild::Rebuilt;
