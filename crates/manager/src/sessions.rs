//! Sessions of clients and drives: permissions, and the dispatch of requests to the parts of the manager.

pub(crate) mod bulk;
pub(crate) mod callbacks;
pub(crate) mod dispatch;
pub(crate) mod keys;
pub(crate) mod lock_table;
pub(crate) mod locking;
pub mod managers;
pub mod members;
pub(crate) mod names;
pub mod operation_turns;
pub(crate) mod scrub;
pub mod serve;
pub mod session_slots;
pub(crate) mod sisters;
pub(crate) mod status;
pub(crate) mod token_rights;
pub(crate) mod tokens;
pub mod trust;
