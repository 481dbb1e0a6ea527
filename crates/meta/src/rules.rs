//! State machines in memory that decide beside the stored state. Their inputs are records, messages and the
//! time.

mod active;
pub mod admission;
pub mod clients;
pub mod comparisons;
pub mod drives;
pub mod ended_rates;
pub mod fullness;
pub mod grants;
pub mod half_fenced;
pub mod heal_reports;
pub mod jobs;
pub mod leadership;
pub mod leases;
pub mod locks;
pub mod operations;
pub mod parts;
pub mod pauses;
pub mod recovery;
pub mod reservations;
pub mod scarce;
pub mod schedules;
pub mod slow;
pub mod space;
pub mod spread;
pub mod turns;
pub mod watchers;
