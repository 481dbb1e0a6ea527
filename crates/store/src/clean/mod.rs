//! Cleaning: giving back the dead bytes of segments that still hold live ones.
//!
//! The decisions are pure and stand here: which segment to clean ([`victim`]), how fast beside the foreground
//! ([`pace`]), how much space must stay free so that cleaning can never be stuck ([`reserve`]). [`simulate`] runs them
//! on a log of counters, to measure what they cost.
//!
//! Cleaned data goes to the log's one head, but in *bursts* with a segment of their own: what was moved is cold, as it
//! outlived its segment, and is not mixed with what the foreground writes, much of which dies soon. Without that the
//! cost-benefit choice buys nothing (simulated, 80 % full, 90 % of the writes to 10 % of the data: every byte is written
//! 3.8 times mixed, by either choice; apart it is 3.0 times by the greedy choice and 2.1 times by cost-benefit). A
//! second head would do as well, but give the log two tails to recover.

pub(crate) mod burst;
pub(crate) mod cleaner;
mod gather;
pub mod pace;
pub mod reserve;
pub(crate) mod rest;
pub mod simulate;
pub(crate) mod turn;
pub mod victim;
