//! Torture: the real manager, drives and clients in one thread, on a virtual clock, network and disks, while
//! things go wrong by seed. Checkers outside the code judge what comes of it.
//!
//! - The same seed gives the same run, to the last byte on the network: see [`Outcome::hash`].
//! - Every byte that a client reads is one that it may be (`model`): acknowledged, or in doubt because its
//!   writer died or got an error. No stripe is mixed. After the trouble all is healed within a bounded time,
//!   parity equals data, and what was acknowledged is there.
//! - Every operation ends within a bound of virtual time.
//!
//! How it works: `apart` runs each seed in a process of its own. `world` has hosts with one process each
//! and lets time pass; `net` is the network, `disk` the disks; `fate` replaces what the C library would
//! draw from the system. `cluster` starts and ends processes; `workload` is what clients do, `nemesis` what
//! goes wrong, and `ills` what else does in half of the runs; `manager_disk` is full or fails in some; `told`
//! bounds what disks lose; `run` is one run from begin to end, `site` where it takes place. In half of the
//! runs a drive is added meanwhile, and an `operator` drains drives.
//! With [`Settings::mounts`] programs on mounts take the clients' place: see `mounts`.
//! [`mutants`] are the mechanisms that can be switched off, to see that it bites.

mod apart;
mod cluster;
mod disk;
mod end;
mod fate;
mod host;
mod ills;
mod manager_disk;
mod model;
mod mounts;
pub mod mutants;
mod nemesis;
mod net;
mod operator;
mod random;
mod run;
mod site;
mod told;
mod trace;
mod workload;
mod world;

pub use apart::{REPORT, report, run_apart};
pub use mounts::Mix;
pub use run::{Outcome, Settings, note_panics, run};
