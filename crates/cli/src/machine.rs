//! A cluster on this machine, and its processes.

pub(crate) mod address;
pub(crate) mod bring_up;
pub(crate) mod cluster_dir;
pub(crate) mod down;
pub(crate) mod held;
pub(crate) mod local;
pub(crate) mod process;
pub(crate) mod serve;
pub(crate) mod temporary_dir;
pub(crate) mod up;
