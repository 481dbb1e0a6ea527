//! The client against a real manager and real drives, in this process, on loopback.

mod common;
mod faults;
mod files;
mod holes;
