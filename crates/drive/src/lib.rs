//! The drive: serves one store's objects to peers that hold capabilities, while its heartbeat lease holds.
//!
//! What it guarantees
//! - A request whose capability is forged, expired, replayed, stale, out of range or for something else is refused with
//!   its own reason before its payload is read or the store is touched (DESIGN I3).
//! - A write is acknowledged only when it is durable, and only while the lease still holds; a read's answer leaves only while
//!   it does (PROTOCOL R8).
//! - What it holds for its peers is bounded: connections, requests, payload bytes, threads. A peer that is slow or mute
//!   loses its connection, and harms no other.
//! - A drive never comes back empty under its old identity (PROTOCOL R9).
//!
//! What it refuses to know: files, names, layouts, other drives, and which clients there are.
//!
//! [`lease`] and [`gate`](self) decide whether to serve; `connection` takes requests and answers them in order; `requests`, `manage`
//! and `queries` carry them out; `claim` decides which drive a directory is, `join` and `heartbeat` are its side of the manager's sessions; `serve` is its life; `scrub` verifies what is
//! stored.

mod buffers;
mod claim;
pub mod clock;
mod config;
mod connection;
mod convert;
mod core;
mod error;
mod gate;
mod heartbeat;
mod identity;
mod join;
pub mod lease;
mod manage;
mod queries;
mod reply;
mod requests;
mod revoked;
mod room;
mod scrub;
mod sending;
mod serve;

pub use clock::Clock;
pub use config::{CAPACITY_BYTES_MIN, Config, SCRUB_RATE, Settings};
pub use error::DriveError;
pub use sending::Sending;
pub use serve::{Ready, run, run_all};
