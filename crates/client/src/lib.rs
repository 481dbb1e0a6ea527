//! The client: compiles requests to plans and runs them against drives.
//!
//! Guarantees
//! - Every returned byte was verified against the checksum made when it was written. A byte that does not
//!   match is reconstructed, or the read fails with an error that names file, stripes and drives.
//! - A write that returned is durable on every drive of the file's set. A failed write is not acknowledged,
//!   and the handle then writes no more.
//! - Every wait is bounded ([`Config`]), and so is everything in flight.
//! - Data moves between the drives and the caller's buffer without a copy in between.
//!
//! Not part of the client: deciding which bytes go to which drive (the planner does), and TCP (the transport
//! does).
//!
//! The path of a request: [`File`] cuts it into chunks of whole stripes. Each chunk is compiled by
//! `braid_plan`, verified, and run by the executor (`executor`) with one list of requests per drive
//! (`drive_requests`). Reads work around columns that fail (`read`); writes have the manager take them out of
//! the file's set (`write`).

#![warn(missing_docs)]

pub mod analysis;
mod client;
pub mod cluster;
mod concurrent;
mod config;
mod data;
mod errno;
mod error;
mod executor;
mod explain;
mod file;
mod handle;
mod heal;
mod later;
mod methods;
mod naming;
mod open;
mod peers;
mod promised;
mod sealed;
mod sequential;
mod show_rate;
mod view;

pub use braid_credit::Counts as CreditCounts;
pub use braid_methods::{
    Answer, Argument, Arguments, Bin, Engine, Found, ItemSet, METHODS, MODULE_BYTES_MAX, Method, Module,
    WASM, hash_of as hash_of_module,
};
pub use braid_parquet::{rows_in as arrow_rows, to_csv as arrow_to_csv};
pub use braid_plan::{RunWays, Way};
pub use braid_schedule::Delivered;
pub use braid_transport::{BadTransport, Policy, Transport, Way as TransportWay};
pub use braid_wire::control::{AttributeChanges, HandlePromise, NewAttributes, News, NotAdmitted, Seen};
pub use client::{Client, SentRequests};
pub use config::{Config, PartWrites, WAIT_TOLD_AFTER};
pub use data::check::{FINDINGS_MAX, Fault, Finding, Report, Unchecked, WrongUnit};
pub use error::{Error, Kind, Result};
pub use explain::{Asked, Explained};
pub use file::{FILE_BYTES_MAX, File, Replace};
pub use heal::{DamagedAt, HealTally};
pub use methods::{
    METHODS_OF_RUNS, MethodOfRuns, PlannedRun, Ran, RunAsk, RunAt, RunDocument, RunFailure, RunPlan,
};
pub use naming::attributes::Node;
pub use naming::differences::Differences;
pub use naming::file_systems::{OnOneFileSystem, file_systems, reserve_bytes};
pub use naming::name::{
    COMPONENT_BYTES_MAX, Name, NameError, PATH_BYTES_MAX, PREFIX, VOLUME_BYTES_MAX, check_volume,
};
pub use naming::names::{Lister, Parents};
pub use naming::reservations::{DataDirection, RateAsk};
pub use naming::room::Room;
pub use naming::snapshots::Buffered;
pub use naming::tokens::TokenSpec;
pub use open::OpenOptions;
pub use peers::credit::LinkCredit;
pub use peers::dealing::{Datagrams, RailSeen, RailUse, Reached};
pub use peers::watch::Watching;
pub use sealed::keys::{KEYS_VARIABLE, KeyError, KeySource, VolumeKeys};
pub use sequential::{ReadAhead, Sequential};
pub use show_rate::show_rate;
