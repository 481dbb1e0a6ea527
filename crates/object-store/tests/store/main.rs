//! The store against a real manager and real drives, in this process, on loopback: what both versions of
//! object_store check by themselves, and what they do not.

mod cluster;
mod conformance;
mod directories;
mod objects;
mod races;
mod uploads;
