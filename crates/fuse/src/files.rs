//! Open files, and bytes on their way to the drives.

pub(crate) mod buffers;
pub(crate) mod closing;
pub(crate) mod dirty;
pub(crate) mod flights;
pub(crate) mod fresh;
pub(crate) mod holes;
pub(crate) mod idle;
pub(crate) mod inode;
pub(crate) mod inode_state;
pub(crate) mod inodes;
pub(crate) mod lock_table;
pub(crate) mod locks;
pub(crate) mod opening;
pub(crate) mod reach;
pub(crate) mod version;
pub(crate) mod write_back;
