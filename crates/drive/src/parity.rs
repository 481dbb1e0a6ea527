//! Deltas that this drive owes to parity drives, and how much of them those drives have taken.

pub(crate) mod debts;
pub(crate) mod forward;
pub(crate) mod forwarder;
pub(crate) mod receipts;
pub(crate) mod sisters;
