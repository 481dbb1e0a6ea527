//! The client against a real manager and real drives, in this process, on loopback.

mod allocate;
mod analysis;
mod answers;
mod between;
mod common;
mod faults;
mod files;
mod holes;
mod keys;
mod managers;
mod methods;
mod modules;
mod parquet_files;
mod privacy;
mod quotas;
mod rails;
mod ranges;
mod raw;
mod records;
mod removed;
mod renewals;
mod requests;
mod sealed;
mod sealed_faults;
mod settled;
mod shared;
mod sizes;
mod snapshots;
mod sparse;
mod tokens;
mod units;
mod wrong;

use braid_drive::run as run_drive;
