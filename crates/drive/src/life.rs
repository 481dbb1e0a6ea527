//! The drive's life: its identity, its lease, its start and stop.

pub mod clock;
pub(crate) mod config;
pub(crate) mod heartbeat;
pub(crate) mod identity;
pub(crate) mod join;
pub(crate) mod latency;
pub mod lease;
pub(crate) mod serve;
pub(crate) mod stall;
pub(crate) mod startup_identity;
