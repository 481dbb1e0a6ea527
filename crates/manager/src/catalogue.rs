//! The catalogue: the rows that several drives keep, so that names outlive a lost manager; and the state that
//! is made of them again.
//!
//! `followed` notes each change as it becomes durable. `keep` writes a picture of all rows to drives, and
//! after it the changes every few seconds (`stream`, by the `calls` of the manager). [`rebuild`] makes a
//! state of what drives hold, for a manager that has none. The format and the rules are in
//! `braid_meta::catalogue`.

pub(crate) mod calls;
pub(crate) mod followed;
pub(crate) mod keep;
pub(crate) mod kept;
pub mod rebuild;
pub(crate) mod refused;
pub(crate) mod stream;
