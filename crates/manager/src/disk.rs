//! The manager's directory and the store in it.

#[cfg(test)]
pub(crate) mod conformance;
pub(crate) mod directory;
pub mod embedded;
pub(crate) mod private;
