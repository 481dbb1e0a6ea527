//! Files that clients open: leases, their holders, and their ends.

pub(crate) mod allocate;
pub(crate) mod endings;
pub(crate) mod lapses;
pub(crate) mod layouts;
pub(crate) mod opened;
pub mod opens;
pub(crate) mod reach;
pub(crate) mod receipts;
pub(crate) mod sharing;
