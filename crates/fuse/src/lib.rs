//! A volume mounted as a file system, on which any program runs unchanged: the standard mode beside the
//! library's high-bandwidth one.
//!
//! The kernel names files by inode numbers, which are the manager's file numbers and stay when names change.
//! The volume's root has the number that the kernel expects ([`fuser::INodeNo::ROOT`]) besides its own.
//!
//! Written bytes are kept here for a while (`write_back`), and not in the kernel: with its own write-back the
//! kernel takes no notice of what other mounts do to a file's size. Pages are cached by the kernel (`fresh`).

mod caretaker;
mod context;
mod errors;
mod files;
pub mod kernel_side;
mod mount;
mod mounted;
mod shared;
mod table;
mod tree;

pub use mount::{Mount, MountOptions, Unmounted};
