//! The state: a transactional key-value store, the records in it, and the rows that follow from them.

pub mod check;
mod check_past;
pub mod columns;
pub mod db;
pub mod filling_rows;
pub mod frozen;
pub mod inodes;
pub mod kv;
pub mod log;
pub mod memory;
pub mod numbers;
pub mod past;
pub mod quotas;
pub mod relayouts;
pub mod schema;
pub mod seats;
pub mod successor_rows;
pub mod tx;
pub mod upgrade;
