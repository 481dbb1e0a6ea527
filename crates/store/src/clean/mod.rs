//! Cleaning: freeing the dead bytes of segments that still hold live ones.
//!
//! The decisions are pure functions: which segment to clean ([`victim`]), how fast relative to the foreground
//! ([`pace`]), and how much space must stay free so that cleaning never gets stuck ([`reserve`]).
//! `braid-lab bench store` runs them on a log of counters, to measure their cost.
//!
//! Cleaned data goes to the log's one head, but in *batches of moves* with a segment of their own. Moved data
//! is cold, as it outlived its segment, and is kept apart from the foreground's data, much of which dies
//! soon. Mixed, the cost-benefit choice gains nothing (simulated, 80 % full, 90 % of the writes to 10 % of
//! the data: every byte is written 3.8 times mixed, by either choice; apart it is 3.0 times by the greedy
//! choice and 2.1 times by cost-benefit). A second head would do as well, but leave two log tails to recover.

pub(crate) mod clusters;
pub(crate) mod gather;
pub(crate) mod move_batch;
pub mod pace;
pub mod reserve;
pub(crate) mod trigger;
pub mod victim;
