//! End to end: the built binary, real processes, real sockets.

mod bad_input;
mod bench;
mod cluster;
mod demo;
mod failures;
mod kill_loop;
mod means;
mod media;
mod scrub;
mod sources;
mod store;
mod support;
