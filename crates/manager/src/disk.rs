//! The manager's directory and the store in it.

pub(crate) mod directory;
pub mod embedded;
pub(crate) mod private;
