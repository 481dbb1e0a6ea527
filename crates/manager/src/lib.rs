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

pub mod admission;
pub mod asker;
pub mod attributes;
pub mod backup;
pub mod balance;
pub mod behind;
mod bulk;
pub mod callbacks;
pub mod check;
pub mod column_changes;
pub mod columns;
pub mod compare;
pub mod comparisons;
pub mod core;
pub mod db;
pub mod directories;
pub mod directory;
pub mod drain;
pub mod drive_calls;
pub mod drives;
pub mod embedded;
pub mod endings;
pub mod entries;
pub mod fence;
pub mod files;
pub mod filling;
pub mod filling_rows;
pub mod free;
pub mod fullness;
pub mod grants;
mod half_fenced;
pub mod heal;
pub mod heal_reports;
pub mod healing;
pub mod homes;
pub mod inodes;
pub mod keepers;
pub mod kv;
pub mod lapses;
mod layouts;
pub mod leadership;
pub mod leading;
pub mod leases;
pub mod listing;
pub mod live_out;
pub mod lock_table;
mod locking;
pub mod locks;
pub mod members;
pub mod memory;
pub mod mislaid;
pub mod moves;
pub mod names;
pub mod needs;
pub mod nodes;
pub mod numbers;
pub mod opened;
pub mod opens;
pub mod operation_turns;
pub mod operations;
pub mod orphans;
pub mod partitions;
pub mod parts;
pub mod pauses;
mod present;
mod private;
pub mod procedure;
pub mod receipts;
pub mod recovery;
pub mod relayout;
pub mod relayouts;
pub mod replacement;
pub mod retake;
pub mod returns;
pub mod schema;
pub mod scrub;
pub mod seats;
pub mod serve;
pub mod session_slots;
pub mod settle;
pub mod shapes;
pub mod sharing;
pub mod sisters;
pub mod slow;
pub mod space;
pub mod spread;
pub mod start;
pub mod status;
pub mod successor_rows;
pub mod successors;
pub mod sweep;
pub mod terms;
pub mod time;
mod together;
pub mod turns;
pub mod tx;
pub mod upgrade;
pub mod view;
pub mod volumes;
pub mod watchers;

pub use directory::ManagerError;
pub use start::{Config, LOST_AFTER_MS, Ready, run};
