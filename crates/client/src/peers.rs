//! Requests to the manager and to drives: sessions, retries, leases.

mod calls;
pub(crate) mod control;
pub(crate) mod credit;
pub(crate) mod dealing;
pub(crate) mod drive_requests;
pub(crate) mod drives;
pub(crate) mod faults;
pub(crate) mod lane;
pub(crate) mod lease;
pub(crate) mod operations;
pub(crate) mod rails;
pub(crate) mod receipts;
pub(crate) mod renewals;
pub(crate) mod retry;
pub(crate) mod small_requests;
pub(crate) mod watch;
