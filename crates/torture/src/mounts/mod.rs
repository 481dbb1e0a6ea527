//! Mounts under torture: a few of them, each on a host of its own with programs that use it, beside drives
//! and a manager, with faults drawn from a seed. The mounts are the real ones except for their kernel
//! (`kernel`), which uses them as Linux does. `programs` has the programs, `locked` their work under locks,
//! and `judge` says what they may find. `scenes` are tests in which nothing is left to chance.

mod judge;
mod kernel;
mod locked;
mod mix;
mod programs;
#[cfg(test)]
mod scenes;
mod stage;

pub use mix::Mix;
pub(crate) use stage::torture;
