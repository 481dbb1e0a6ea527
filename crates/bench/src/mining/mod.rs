//! Frequent sets of sales transactions, counted by several clients, as in NASD's mining run (Gibson et al.,
//! 1998, section 5.2).
//!
//! [`Sales`] makes the transactions. A [`Job`] is one client's part of a pass: every so-manieth chunk of
//! 2 MiB, read by four producers and counted by one consumer. [`combined`] adds up what the clients counted,
//! and [`candidates`] says which sets the next pass counts. Counting is the method `frequent-sets`, whose
//! code also runs at the drives. The file is Braid's, or an NFS server's ([`nfs`]).

mod job;
pub mod nfs;
mod passes;
mod sales;

pub use braid_methods::candidates;
pub use job::{Done, Job, PRODUCERS, Prepared, Source, Worker};
pub use passes::{Counted, arguments, combined, counting_rate};
pub use sales::{CHUNK_BYTES, Chunk, Known, PLANTED, Planted, Sales};
