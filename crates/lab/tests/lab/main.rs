//! The built binary: real processes, real sockets.

mod bench;
mod demo;
mod simulate;
mod support;
