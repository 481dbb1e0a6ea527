//! Deltas that this drive owes to parity drives, and how far the drives are.

pub(crate) mod debts;
pub(crate) mod forward;
pub(crate) mod forwarder;
pub(crate) mod receipts;
pub(crate) mod sisters;
