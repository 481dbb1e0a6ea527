//! Runs modules of users, which are WebAssembly, in processes that can do nothing else.
//!
//! What: [`Sandbox`] is an engine for the method `wasm` ([`braid_methods::Engine`]). It hands each task to a
//! child process, bounds its time, and kills the child if the time is over. [`work`] is what the child does.
//!
//! How: the child is this same program, started anew with one word (`sandbox.rs`), so it has no memory, no
//! file and no secret of the parent. Before it reads the first byte of a module it gives up all system calls
//! but some (`lockdown.rs`). It compiles modules with Cranelift, and runs each task in a new instance with a
//! bound on its steps (fuel), memory and answer (`guest.rs`). Parent and child talk over a socket pair
//! (`talk.rs`).
//!
//! Steps are counted, so a module that loops ends at the same place everywhere. There is no epoch deadline:
//! it would cost as much again in each loop, and a thread in the child. What steps do not bound, as the
//! compiler's time, the parent does.

#![warn(missing_docs)]

mod guest;
mod lockdown;
mod sandbox;
mod talk;
mod work;

pub use guest::Bounds;
pub use lockdown::lock_down;
pub use sandbox::{Sandbox, Worker as WorkerProgram};
pub use work::work;
