//! Frames and sessions over real sockets, also with peers that misbehave.

mod at_once;
mod datagrams;
mod frames;
mod sessions;
mod strangers;
