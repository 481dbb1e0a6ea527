//! Torture: the real manager, drives and clients in one thread, on a virtual clock, network and disks, with
//! faults drawn from a seed. Checkers outside the code judge the results.
//!
//! - The same seed gives the same run, to the last byte on the network: see [`SeedOutcome::hash`].
//! - Every byte that a client reads is allowed by the `model`: it was acknowledged, or is in doubt because
//!   its writer died or got an error. No stripe is mixed. After the trouble all is healed within a bounded
//!   time, parity equals data, and every acknowledged byte is there.
//! - Every operation ends within a bound of virtual time.
//!
//! How it works: `apart` runs each seed in a process of its own. `world` has hosts with one process each
//! and lets time pass; `net` is the network, `disk` has the disks; `fate` replaces the random numbers and
//! the clock that the C library would take from the system. `cluster` starts and ends processes; `workload`
//! has the clients' operations, `nemesis` the faults of all runs, `ills` further faults in half of the
//! runs, and `manager_disk` those of the manager's disk in some; `told` bounds the losses of disks; `run`
//! is one run from beginning to end, and `site` the place of a run. In half of the runs a drive is added
//! meanwhile, and an `operator` drains drives. In some runs a `snapper` makes, reads and removes snapshots,
//! and `quotas` bounds all files.
//! With [`Settings::mounts`] programs on mounts take the clients' place: see `mounts`.
//! [`mutants`] are mechanisms that can be switched off, to see that the torture finds their absence.

mod apart;
mod cluster;
mod disk;
mod end;
mod fate;
mod host;
mod ills;
mod key_turner;
mod manager_disk;
mod model;
mod mounts;
pub mod mutants;
mod nemesis;
mod net;
mod operator;
mod random;
mod reserver;
mod run;
mod site;
mod snapper;
mod told;
mod trace;
mod workload;
mod world;

pub use braid_transport::Transport;

pub use apart::{REPORT, report, run_apart};
pub use mounts::Mix;
pub use run::{SeedOutcome, Settings, note_panics, run};
