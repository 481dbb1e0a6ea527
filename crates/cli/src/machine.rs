//! A cluster on this machine, and its processes.

pub(crate) mod address;
pub mod bring_up;
pub mod cluster_dir;
pub mod down;
pub(crate) mod etcd;
pub(crate) mod held;
pub(crate) mod hosting;
pub mod local;
pub mod process;
pub(crate) mod serve;
pub mod temporary_dir;
pub(crate) mod up;
