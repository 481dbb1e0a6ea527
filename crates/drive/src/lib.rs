//! The drive: serves one store's objects to peers that hold capabilities, while its heartbeat lease holds.
//!
//! The drive guarantees:
//! - A request whose capability is forged, expired, replayed, stale, out of range or for something else is
//!   refused with its own reason before its payload is read or the store is touched (DESIGN I3).
//! - A write is acknowledged only when it is durable, and only while the lease still holds; a read's answer
//!   leaves only while it does (PROTOCOL R8).
//! - The resources that it holds for its peers are bounded: connections, requests, payload bytes, threads. A
//!   peer that is slow or silent loses its connection and harms no other peer.
//! - A drive never comes back empty under its old identity (PROTOCOL R9).
//!
//! The drive must not know files, names, or which clients exist. Of other drives it knows only its sisters:
//! the drives that the column maps of its objects name.
//!
//! `life::lease` and `readmission` decide whether to serve. `connection` receives requests and answers them
//! as they are done; `requests`, `manage`, `steps` and `queries` carry them out. `debts` records what is owed
//! to which sister, `forward` pays it, and `sisters` has the sisters' addresses. `startup_identity` decides
//! which drive a directory is; `join` and `heartbeat` are the drive's side of its sessions with the manager.
//! `readahead` reads ahead for sequential readers. `serve` runs the drive from start to stop; [`testimony`]
//! reads one that does not run. `scrub` verifies stored units; `damage` has damaged ones repaired.

mod calibration;
mod connections;
mod core;
mod damage;
mod damage_checks;
mod device;
mod error;
mod keys;
pub mod life;
#[cfg(feature = "simulated")]
pub mod medium;
mod parity;
mod readahead;
mod readmission;
mod revoked;
mod scrub;
mod scrubber;
pub mod testimony;

pub use calibration::device_cost;
pub use connections::sending::Sending;
pub use damage::{Damage, DamagedPart};
pub use error::DriveError;
pub use life::clock::Clock;
pub use life::config::{CAPACITY_BYTES_MIN, Config, READ_AHEAD_BYTES, SCRUB_RATE, Settings};
pub use life::identity::holds_drive;
pub use life::serve::{Ready, run, run_all};
