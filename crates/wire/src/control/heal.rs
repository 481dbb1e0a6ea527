//! Healing: stale columns, the progress of drives in bringing them up to date, and columns that move.

use braid_layout::{DriveId, FileId};

record! {
    /// Lists the files with a column on this drive that is out or joining.
    pub struct StaleFiles {
        /// The drive: its name or identity.
        drive: String,
        /// The number after which the list begins: only files with higher numbers are listed.
        after: FileId,
        /// Maximum number of files; the manager may return fewer, and none only at the end.
        limit: u32,
    }
}

record! {
    /// The answer to [`StaleFiles`].
    pub struct StaleFilesReply {
        /// Numbers of the files, ascending.
        files: Vec<FileId>,
    }
}

record! {
    /// A drive's progress in bringing its stale columns up to date. The counts begin at 0 with each process
    /// of the drive.
    pub struct HealProgress {
        /// Number of files whose columns on the drive were made ready.
        files: u64,
        /// Bytes of units that the drive compared with the other columns.
        compared_bytes: u64,
        /// Bytes of those units that are of columns which are not ready yet, found or made equal so far.
        under_way_bytes: u64,
        /// Bytes of those units that differed and were written.
        written_bytes: u64,
        /// Number of damaged units that were rebuilt in place.
        repaired: u64,
        /// Number of damaged units that could not be rebuilt so far.
        damaged: u64,
        /// The reason why the last file tried could not be healed, for people; empty: it could.
        error: String,
    }
}

record! {
    /// A drive's report on how it brings its stale columns up to date.
    pub struct HealReport {
        /// The drive's progress.
        progress: HealProgress,
    }
}

record! {
    /// The answer to [`HealReport`]: the work of the drive from now on.
    pub struct HealOrders {
        /// Maximum number of bytes a second that the drive may write; 0: no limit.
        rate: u64,
        /// Number of components that the drive has to bring up to date, including those of drives that it
        /// replaced.
        stale: u64,
    }
}

record! {
    /// Asks how far the drives have brought their stale columns up to date, and changes settings if any are
    /// given.
    pub struct HealStatus {
        /// New maximum of bytes a second that each drive may write, 0 for no limit; absent: unchanged.
        rate: Option<u64>,
        /// True if columns move to emptier drives from now on, false if not; absent: unchanged.
        balance: Option<bool>,
    }
}

record! {
    /// The balance of the drives: how equally full they are.
    pub struct BalanceState {
        /// True if columns move to emptier drives when the drives' shares are too far apart.
        on: bool,
        /// True if such moving has begun and is not done.
        active: bool,
        /// Difference between the fullest and the emptiest drive, in thousandths of their capacity, as it
        /// will be once the present moves are done; as of the last look.
        spread_permille: u64,
        /// Number of files with a column that moves now to balance the drives.
        files: u64,
        /// Bytes that have yet to begin moving.
        left_bytes: u64,
        /// Bytes that were to move when the moving began.
        begun_bytes: u64,
    }
}

record! {
    /// A drive that has stale columns, or that has brought some up to date.
    pub struct HealRow {
        /// The drive's identity.
        drive: DriveId,
        /// The drive's name.
        name: String,
        /// Number of components that are stale.
        stale: u64,
        /// Approximate size of the units of these components, in bytes.
        left_bytes: u64,
        /// The drive's progress, by its last report.
        progress: HealProgress,
        /// Bytes a second that the drive compared lately.
        rate: u64,
        /// Milliseconds since the drive's last report.
        silent_ms: u64,
    }
}

record! {
    /// The answer to [`HealStatus`].
    pub struct HealStatusReply {
        /// Maximum number of bytes a second that each drive may write; 0: no limit.
        rate: u64,
        /// The balance of the drives: how equally full they are.
        balance: BalanceState,
        /// The drives that have something to heal or have healed something, by name.
        drives: Vec<HealRow>,
    }
}
