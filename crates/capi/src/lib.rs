//! The client for C: `libbraid.so`, with `include/braid.h`, which is made of the comments and types here.
//!
//! Guarantees:
//!
//! - All that a client, a file or a request needs lives in the process that made it: the runtime's threads
//!   are the client's own, and there is no global state but each thread's last error. After a fork the child
//!   is refused what is the parent's, which it neither uses nor frees (`process`), and may connect anew.
//! - Every function that C calls ends in a value: a failure is `errno` and a message of the calling thread
//!   (`calls`, `errors`), and so is a panic.
//! - Data moves between the drives and the program's memory without a copy in between, but for short parts of
//!   lists that lie together in the file (`list`).
//! - What C hands over is trusted to be what the header says: a null pointer is refused, any other one is
//!   used. Such pointers are followed in `memory`.
//!
//! Signatures say who owns what: `Option<&T>` is a pointer that C keeps, `Option<Box<T>>` one that is made or
//! taken. Both may be null.

#![expect(unsafe_code, reason = "a function that C calls has a name that is not mangled")]
#![expect(unreachable_pub, reason = "what is public goes into the header, and to no other crate")]

mod calls;
mod client;
mod directory;
mod errors;
mod file;
mod list;
mod memory;
mod methods;
mod names;
mod process;
mod requests;
mod signals;
mod stat;
mod transfer;
