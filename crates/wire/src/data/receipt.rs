//! Receipts: statements of drives about their logs, which writers carry to the manager.
//!
//! A drive answers a write when it is durable, and says how far its log is durable at that time. A writer
//! carries the highest of these receipts to the manager, together with the file size that rests on them. So
//! a drive that returns with less than its receipts say is found out, even if it lost the end of its log
//! together with everybody's power, before a heartbeat could report the log's length.

use braid_layout::DriveId;

record! {
    /// A drive's statement of how far its log is durable.
    pub struct Receipt {
        /// The drive that made the statement.
        drive: DriveId,
        /// Number of the last durable record of the drive's log. It falls only if the log has lost
        /// acknowledged records.
        log: u64,
    }
}

impl Copy for Receipt {}
