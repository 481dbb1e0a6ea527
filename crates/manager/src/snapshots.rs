//! Snapshots: how they are made and removed, and how the bytes that they show are kept.

pub(crate) mod diff;
pub(crate) mod freeze;
pub(crate) mod keep;
pub(crate) mod make;
pub(crate) mod names;
