//! Several managers on one state: etcd holds it as a log and a checkpoint, one manager leads, the others
//! stand by.
//!
//! The leader decides requests as a manager with an embedded store does, on a copy of the state in its own
//! directory. Each commit is one record of the log, written in one transaction that etcd carries out only if
//! this leader still leads and the record's place is free (`kv`). The others apply the log to copies of
//! their own (`reader`), and one of them takes over when the leader's lease in etcd ends (`run`).
//!
//! A lease alone fences nobody: a leader may be slow to learn that it lost its own. So every write to etcd is
//! conditional on the revision at which the leader's key was made (`pen`), and no answer is given after the
//! leader's own count of its lease (`lease`).
//!
//! | file | what it has |
//! |---|---|
//! | `config` | where etcd is, and how it is trusted |
//! | `link` | requests to etcd's members, one after another until one answers |
//! | `names` | the keys in etcd |
//! | `lease`, `election`, `pen` | the lease; who leads; writes of who leads |
//! | `cache`, `reader`, `checkpoint` | the copy in the directory; how it follows the log; the log's beginning |
//! | `kv` | the leader's store |
//! | `fellows`, `members` | the managers, and etcd's members, for status and for peers |
//! | `standby`, `run` | a manager that stands by; a manager's whole life |

mod cache;
mod checkpoint;
pub mod config;
mod election;
pub mod error;
mod fellows;
mod import;
mod kv;
mod lease;
mod link;
mod members;
mod names;
mod pen;
mod reader;
pub(crate) mod run;
mod standby;
#[cfg(test)]
mod tests;

pub use cache::STATE_FILE;
pub use config::EtcdConfig;
pub use error::EtcdError;
pub use import::import;
