//! The scheduler of one device, what operations cost, and a client's side of a promise.
//!
//! The crate is pure: time is handed in, in nanoseconds. A drive runs a [`Scheduler`] for its disk and for
//! each direction of its links, and the simulator runs the same code.
//!
//! # The problem
//!
//! A device is shared. Some flows were promised a rate, and their requests must be done by their due times.
//! The drive's own work (rebuild, scrub, cleaning) needs a rate too, or it never ends, and a limit, or it
//! drowns all others. What is left belongs to the tenants, each by its weight, and none of them may take
//! another's part by sending more requests. Nothing is counted in requests: all is *device time*, as handed
//! in with each request.
//!
//! # The algorithm
//!
//! mClock (Gulati, Merchant, Varman: "mClock: Handling Throughput Variability for Hypervisor IO Scheduling",
//! OSDI 2010) with what its users learned. Each flow has a queue in the order of arrival, and only heads of
//! queues compete. [`Scheduler::next`] takes the first of these that there is:
//!
//! 1. *The system*, up to a small share of the device: fences and verdicts are tiny and hold up everything.
//! 2. *Promised heads that are eligible*, the one that is due first. A flow that keeps to its rate is always
//!    eligible; what is beyond its rate is not yet. How tags are computed is told in `tags.rs`, and what
//!    lateness can come of it, with proof, in [`bound`].
//! 3. *The tree of shares*: all other heads, by weight, in device time, level by level (`tree.rs`). A
//!    reserved flow's requests beyond its rate compete here. What is served here does not count against the
//!    promise (mClock, section 3.1, reduces the reservation tags by it; here they are not advanced).
//!
//! A queue held to a limit is nowhere until its time comes; [`Next::WaitUntil`] tells that time if there is
//! nothing else. Otherwise the device never idles while something waits.
//!
//! # Bounded below
//!
//! An order is kept only as long as requests wait here. So only a little is given out: a bounded device time,
//! and a bounded number of requests of each direction. The request that is next waits for its place, and
//! smaller ones do not pass it, or it might wait for ever. If it waits for one of the places of its
//! direction, requests of the other direction go meanwhile and leave it its device time.
//!
//! # If more is promised than the device has
//!
//! Admission prevents it, but devices get slower. Then due times pass, and as the first due goes first, all
//! promises lag by the same time: each flow gets the same fraction of its rate. A flow that begins then
//! begins where the others are (within [`Config::lateness_ns`]), as otherwise it would wait until they have
//! caught up. The system has its share still, background rates are promises among the others, and the tree of
//! shares has a rate of its own ([`Config::rest_permille`]) which takes part as a promise does. So nothing
//! starves. When the device is fast enough again, the promises catch up with what waited.
//!
//! # Clocks
//!
//! Time that stands still or goes back counts as standing still. If it jumps ahead, all that waits is late,
//! and nothing else happens: nobody has credit from the time that was jumped over, but for the stated bursts.

pub mod bound;
pub mod cost;
pub mod drift;
pub mod figures;
pub mod fit;
pub mod flow;
pub mod lateness;
pub mod pacer;
mod queue;
pub mod rail;
pub mod scheduler;
mod tags;
mod tree;

pub use bound::{BOOKED_PERMILLE, Config, Load, OPERATION_BYTES, booked_permille, idle_ns, lateness_bound};
pub use cost::{Charge, DeviceCost, Direction, DirectionCost};
pub use figures::{Cause, Figures, FlowFigures};
pub use flow::{Background, BackgroundRate, Flow, FlowId, Promise, Request, Share};
pub use lateness::{Delivered, Due, Late, Lateness};
pub use pacer::Pacer;
pub use rail::RailRate;
pub use scheduler::{Actual, Next, Phase, Scheduler, Ticket};
