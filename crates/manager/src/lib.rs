//! The manager: names files, places them, hands out capabilities and leases, watches the drives. No unit of
//! data passes through it.
//!
//! The records and the rules are in `braid_meta`, which is pure. This crate carries them out. A request is
//! one transaction ([`core`]). Work that must continue after a crash (components to free, procedures to
//! finish) is listed in the state. Drives are called outside transactions, and each call is bounded in time.
//!
//! | folder | what it has |
//! |---|---|
//! | [`sessions`] | sessions of clients and drives: permissions, and the dispatch of requests |
//! | [`files`] | files that clients open: leases, their holders, and their ends |
//! | `columns` | columns of files on drives: the procedure that changes them, and the work that calls for it
//! |
//! | `catalogue` | the rows that drives keep, so that names outlive a lost manager |
//! | `snapshots` | snapshots of directories, and the bytes that are kept for them |
//! | [`restore`] | backups, and the comparison of a restored state with what the drives hold |
//! | [`own_etcd`] | the etcd that Braid runs for its managers: its members, its upkeep, its snapshots |
//! | [`disk`] | the manager's directory and the store in it |
//! | [`etcd`] | several managers on one state in etcd |

pub mod catalogue;
pub mod core;
pub mod disk;
pub mod etcd;
pub mod files;
pub mod own_etcd;
pub mod restore;
pub mod sessions;
pub mod start;
pub mod sweep;

mod asker;
mod columns;
mod drive_calls;
mod jobs;
mod leading;
mod rates;
mod snapshots;
mod time;
mod together;

pub use braid_meta::records::kv::Kv;
pub use disk::directory::ManagerError;
pub use etcd::EtcdConfig;
pub use start::{Config, LOST_AFTER_MS, Ready, SEVERAL_LEASE_MS, run};
