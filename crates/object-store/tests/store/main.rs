//! Tests of the store against a real manager and real drives, in this process, on loopback: the tests of
//! both versions of object_store, and tests of what those leave out.

mod cluster;
mod conformance;
mod directories;
mod objects;
mod races;
mod snapshots;
mod uploads;
