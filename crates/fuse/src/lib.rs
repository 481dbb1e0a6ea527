//! A volume mounted as a file system, on which any program runs unchanged: the standard mode beside the
//! library's high-bandwidth one.
//!
//! The kernel names files by inode numbers, which are the manager's file numbers and stay when names change.
//! The volume's root has the number that the kernel expects ([`fuser::INodeNo::ROOT`]) besides its own.
//!
//! Written bytes are kept here for a while (`write_back`), and not in the kernel: with its own write-back the
//! kernel takes no notice of what other mounts do to a file's size. Pages are cached by the kernel (`fresh`).

mod agreed;
mod answers;
mod attributes;
mod buffers;
mod caretaker;
mod closing;
mod context;
mod creating;
mod dirty;
#[cfg(feature = "driven")]
pub mod driven;
mod errors;
mod expiry;
mod flights;
mod former;
mod fresh;
mod holes;
mod idle;
mod inode;
mod inodes;
mod interrupts;
mod kept;
mod kernel;
mod later;
mod listing;
mod locks;
mod lookups;
mod memory;
mod mount;
mod mounted;
mod names;
mod news;
mod opening;
mod reach;
mod readahead;
mod said;
mod shared;
mod space;
mod table;
mod unmapped;
mod waits;
mod write_back;
mod xattrs;

pub use mount::{Mount, MountOptions, Unmounted};
