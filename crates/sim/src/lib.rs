//! Plan sets timed on modelled parts.
//!
//! A discrete-event simulator: requests of loads are compiled to plan sets by `braid-plan`, as the client
//! does it, and their instructions visit modelled processors, links and disks. The results say how long
//! requests take, how busy each part is and which part limits. With the papers' parts the simulator
//! reproduces Swift's figures (`braid-lab sim swift-1991`), and with others it tells what a cluster will do
//! before it is bought.
//!
//! The crate is pure: texts are handed in and results handed out; time is simulated; all randomness follows
//! from the spec's seed, so the same spec gives the same results to the last byte, on any number of threads
//! ([`sweep`]). Which host sends what to which is decided by the plan sets, not here.
//!
//! | module | about |
//! |---|---|
//! | [`model`] | what parts cost: the one description, which calibration and sizing share |
//! | [`spec`], [`trace`] | what is simulated, as TOML, and requests as CSV |
//! | `programs`, `program` | plan sets, compiled once for each class of requests, in the form that is timed |
//! | `engine`, `parts`, `queue`, `random` | the simulation |
//! | `stats`, [`outcome`] | intervals, warm-up, percentiles; the results |
//! | [`calibrate`] | costs from measured runs |
//! | [`timing`] | one plan set alone, instruction by instruction |
//! | [`promises`] | promised rates: the same admission and the same scheduler as the manager's and the drives' |
//! | [`size`] | the fewest drives for so many streams, by arithmetic on the same costs |

pub mod calibrate;
mod engine;
pub mod model;
mod number;
pub mod outcome;
mod parts;
mod program;
mod programs;
pub mod promises;
mod queue;
mod random;
pub mod report;
pub mod size;
pub mod spec;
mod stats;
pub mod sweep;
#[cfg(test)]
mod test_spec;
pub mod timing;
pub mod trace;
pub mod units;

pub use engine::run;
pub use outcome::RunOutcome;
pub use spec::{Spec, SpecError};
