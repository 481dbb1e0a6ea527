//! A volume mounted as a file system, on which any program runs unchanged: the standard mode beside the
//! library's high-bandwidth one.
//!
//! The kernel names files by inode numbers. They are the manager's numbers, which stay when names change; the
//! volume's root has the number that the kernel expects ([`fuser::INodeNo::ROOT`]) besides its own.

mod attributes;
mod errors;
mod listing;
mod mount;
mod mounted;
mod table;

pub use mount::{Mount, MountOptions, Unmounted};
