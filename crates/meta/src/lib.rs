//! The manager's records, and the rules by which it decides. Pure: it knows no socket, file, thread or clock;
//! time is handed in.
//!
//! All state is in an ordered transactional key-value store behind one small trait ([`records::kv`]). A
//! request is one transaction, so a crash at any point leaves the name space consistent; many share a durable
//! commit ([`records::db`]).
//!
//! | folder | what it has |
//! |---|---|
//! | [`catalogue`] | the rows as several drives keep them, and how a state is made of those |
//! | [`records`] | the store's trait, transactions, the records and their keys, and the rows that follow from them |
//! | [`tree`] | what a transaction does to volumes, directories and files |
//! | [`rules`] | machines beside the state: leases, admission of drives, locks, watchers, recovery of stripes |
//! | [`tokens`] | which tokens may be used, and which requests each allows |

pub mod catalogue;
pub mod records;
pub mod rules;
pub mod tokens;
pub mod tree;
