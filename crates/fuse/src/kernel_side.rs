//! The kernel's side of a mount: its requests, their answers, and what it is told.

pub(crate) mod agreed;
pub(crate) mod answers;
#[cfg(feature = "driven")]
pub mod driven;
pub(crate) mod expiry;
pub(crate) mod interrupts;
pub(crate) mod kernel;
pub(crate) mod lookups;
pub(crate) mod memory;
pub(crate) mod readahead;
pub(crate) mod unmapped;
pub(crate) mod waits;
