//! Braid as an object store: the trait `ObjectStore` of the crate object_store over a Braid client. Libraries
//! of the Rust data ecosystem (DataFusion, Lance, delta-rs, polars and others) then read and write a volume.
//!
//! Guarantees:
//!
//! - An object appears whole, or not at all: it is written as a file without a name, which then gets its name
//!   in one step. An object that is not completed vanishes by itself.
//! - Of several clients that create an object, or update it from the same content, exactly one succeeds: the
//!   manager compares and names in one transaction.
//! - Streams and copies hold a bounded number of bytes, whatever the object's size.
//!
//! The store exposes no layouts, leases or capabilities. An object is a file, its path is the file's name,
//! and a prefix is a directory.
//!
//! The features `v0_14` (on by default) and `v0_13` choose the version of the crate object_store whose
//! trait is implemented. Both may be on, and one [`BraidStore`] then implements both traits. The code that
//! both need is in `store`, `read`, `write`, `list` and `copy`, without a type of either version. `adapter`
//! is the implementation of the trait, compiled once for each version by `v0_13` and `v0_14`, which hold
//! the differences.

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

/// Holds the examples of `docs/object-store.md`, so that they are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/object-store.md")]
struct Document;

pub use builder::{BraidStoreBuilder, BuildError};
pub use error::Error;
pub use store::BraidStore;
