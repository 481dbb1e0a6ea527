//! Tests of the simulator's programs, with bad input, and against results that can be calculated.

mod analytic;
mod bad_input;
mod document;
mod loads;
mod plans;
mod promises;
mod same;
