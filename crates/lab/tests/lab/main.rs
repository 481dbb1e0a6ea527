//! The built binary: real processes, real sockets.

mod bench;
mod demo;
mod mine;
mod simulate;
mod support;
