//! Promised rates, simulated: streams that the manager's admission lets in, on drives with their scheduler.
//!
//! Admission is [`braid_admission`] itself: streams are asked for one after another, each with files of its
//! own on the drives that admission chooses. A drive is a [`braid_schedule::Scheduler`] set as a drive sets
//! it, before a modelled disk, and one for each direction of its rail if the link's rate is modelled. A
//! stream is a client: it asks for whole stripes, the units of a stripe at the same time, paced by
//! [`braid_schedule::Pacer`], and keeps its account with [`braid_schedule::Lateness`]. Plan sets say what a
//! stripe costs, also after a drive is lost in the middle of the run.
//!
//! Operations are charged at their mean costs, as a drive charges them at calibrated ones; the disk draws
//! how long they take.
//!
//! | file | about |
//! |---|---|
//! | `spec` | what is simulated |
//! | `admit` | the ledger, the streams' places and promises |
//! | `plans` | operations of a stripe |
//! | `source` | rates of streams, constant and variable |
//! | `station` | a scheduler and what is below it |
//! | `engine`, `streams`, `others` | events; streams; best effort and the rebuild |
//! | `outcome` | results |
//!
//! Not modelled: clients' links and processors, the log's commits, the time until a loss is noticed.

mod admit;
mod engine;
mod others;
mod outcome;
mod plans;
mod source;
mod spec;
mod station;
mod streams;

pub use admit::{drive_parts, policy};
pub use engine::{carries, run};
pub use outcome::{
    BestEffortOutcome, ClassOutcome, Overloaded, PromisesOutcome, RebuildOutcome, Refusal, Share, csv,
};
pub use spec::{Admission, BestEffort, Class, Cluster, Loss, Parts, PromisesSpec, Way};
