//! Programs of the simulator, with bad input, and against what can be calculated.

mod analytic;
mod bad_input;
mod document;
mod loads;
mod plans;
mod same;
