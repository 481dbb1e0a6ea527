//! The records' format, and the tree of names against simple models. One binary, so that it is linked once.

mod diff;
mod doors;
mod format;
mod layouts;
mod links;
mod log;
mod names;
mod quotas;
mod snapshots;
