//! Receipts: what a drive has said of its log, carried by writers to the manager.
//!
//! A drive answers a write when it is durable, and says how far its log is durable then. A writer brings the
//! highest of these to the manager with the size that rests on them. So a drive that comes back with less is
//! found out even if it lost the end of its log together with everybody's power, before a heartbeat could say
//! how far it was.

use braid_layout::DriveId;

record! {
    /// A drive's word of how far its log is durable.
    pub struct Receipt {
        /// The drive.
        drive: DriveId,
        /// The number of the last durable record of its log. It falls only if the log has lost acknowledged
        /// records.
        log: u64,
    }
}

impl Copy for Receipt {}
