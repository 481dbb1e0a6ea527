//! End to end: the built binary, real processes, real sockets.

mod bad_input;
mod bench;
mod cluster;
mod demo;
mod drain;
mod failures;
mod floods;
mod gone;
mod health;
mod json;
mod kill_loop;
mod manager_disk;
mod manual;
mod media;
mod messages;
mod older;
mod relayout;
mod room;
mod rounds;
mod scrub;
mod sending;
mod signals;
mod sources;
mod store;
mod support;
mod trees;
