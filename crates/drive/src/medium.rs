//! Disks of simulated hosts, which take the place of a drive's directory (feature `simulated`, which no
//! binary has).

use std::fmt::Debug;
use std::io;

use braid_store::{Error, Identity, Options, Store};

/// A simulated disk, which holds a drive's small files and its store.
pub trait Medium: Debug + Send + Sync {
    /// The text of a small file, if it exists.
    fn read(&self, name: &str) -> io::Result<Option<String>>;
    /// Replaces a small file as a whole; it is durable when this returns.
    fn write(&self, name: &str, text: &str) -> io::Result<()>;
    /// Opens the store; `None`: no complete store was ever made here.
    fn open(&self, expect: Identity, options: Options) -> Result<Option<Store>, Error>;
    /// Makes an empty store in place of any that is there.
    fn format(&self, identity: Identity, options: &Options) -> Result<(), Error>;
    /// Removes the store.
    fn discard(&self);
}
