//! Braid as an object store: the trait `ObjectStore` of the crate object_store over a Braid client. Libraries
//! of the Rust data ecosystem (DataFusion, Lance, delta-rs, polars and others) then read and write a volume.
//!
//! What it guarantees
//! - An object appears whole, or not at all: it is written as a file without a name, which then gets its name
//!   in one step. What is not completed vanishes by itself.
//! - Of several that create an object, or update it from the same content, exactly one succeeds: the manager
//!   compares and names in one transaction.
//! - Streams and copies hold a bounded number of bytes, whatever the object's size.
//!
//! What it refuses to know: layouts, leases, capabilities. An object is a file, its path is the file's name,
//! and a prefix is a directory.
//!
//! The features `v0_14` (on by default) and `v0_13` choose whose trait it is; both may be on, and one
//! [`BraidStore`] then has both. What both need is in `store`, `read`, `write`, `list` and `copy`, without a
//! type of either. `adapter` is the trait's text, compiled once for each version by `v0_13` and `v0_14`,
//! which hold what differs.

#![warn(missing_docs)]

mod builder;
mod cleanup;
mod copy;
mod error;
mod list;
mod object;
mod read;
mod store;
#[cfg(feature = "v0_13")]
pub mod v0_13;
#[cfg(feature = "v0_14")]
pub mod v0_14;
mod write;

/// The examples of the document are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/object-store.md")]
struct Document;

pub use builder::{BraidStoreBuilder, BuildError};
pub use error::Error;
pub use store::BraidStore;
