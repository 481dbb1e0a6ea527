//! The parts of a cluster as small state machines: a job that is handed in starts now or waits, and a job
//! that ends makes room for the next. They know the time only as it is told.

pub(crate) mod cache;
pub(crate) mod disk;
pub(crate) mod network;
pub(crate) mod server;
pub(crate) mod usage;
