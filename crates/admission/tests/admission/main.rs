//! Tests of admission as its users see it.

mod by_hand;
mod common;
mod counts;
mod sums;
