//! The manager: names files, places them, hands out capabilities and leases, watches the drives. No unit of
//! data passes through it.
//!
//! All state is in an ordered transactional key-value store behind one small trait ([`kv`]). A request is one
//! transaction, so a crash at any point leaves the name space consistent; many share a durable commit
//! ([`db`]). Work that must continue after a crash (components to free, procedures to finish) is listed in
//! the state. Drives are called outside transactions, and each call is bounded in time.
//!
//! From the pure inside out: [`names`], [`leases`], [`drives`], [`shapes`], [`grants`], [`recovery`] decide;
//! [`volumes`], [`directories`], [`files`], [`inodes`], [`operations`] are transactions' work; [`procedure`],
//! [`opens`], [`endings`], [`heal`], [`healing`], [`members`], [`sweep`] carry out; [`serve`] answers
//! sessions.

pub mod asker;
pub mod backup;
pub mod balance;
pub mod behind;
mod bulk;
pub mod callbacks;
pub mod column_changes;
pub mod compare;
pub mod core;
pub mod directory;
pub mod drain;
pub mod drive_calls;
pub mod embedded;
pub mod endings;
pub mod fence;
pub mod filling;
pub mod free;
pub mod heal;
pub mod healing;
pub mod homes;
pub mod lapses;
mod layouts;
pub mod leading;
pub mod listing;
pub mod live_out;
pub mod lock_table;
mod locking;
pub mod members;
pub mod mislaid;
pub mod moves;
pub mod needs;
pub mod opened;
pub mod opens;
pub mod operation_turns;
pub mod orphans;
pub mod partitions;
mod present;
mod private;
pub mod procedure;
pub mod receipts;
pub mod relayout;
pub mod replacement;
pub mod retake;
pub mod returns;
pub mod scrub;
pub mod serve;
pub mod session_slots;
pub mod settle;
pub mod sharing;
pub mod sisters;
pub mod start;
pub mod status;
pub mod successors;
pub mod sweep;
pub mod terms;
pub mod time;
mod together;

pub use directory::ManagerError;
pub use start::{Config, LOST_AFTER_MS, Ready, run};
