//! Healing: what is stale, how far drives have come, and what moves.

use braid_layout::{DriveId, FileId};

record! {
    /// Lists the files with a column on this drive that is out or joining.
    pub struct StaleFiles {
        /// The drive: name or identity.
        drive: String,
        /// Only those above this number.
        after: FileId,
        /// At most this many; the manager may return fewer, and none only at the end.
        limit: u32,
    }
}

record! {
    /// Files, ascending.
    pub struct StaleFilesReply {
        /// The files.
        files: Vec<FileId>,
    }
}

record! {
    /// How a drive brings its stale columns up to date. The counts begin with its process.
    pub struct HealProgress {
        /// Files whose columns on it were made ready.
        files: u64,
        /// Bytes of units that it compared with the other columns.
        compared_bytes: u64,
        /// Those of them that differed and were written.
        written_bytes: u64,
        /// Damaged units that were made anew in place.
        repaired: u64,
        /// Damaged units that could not be made anew so far.
        damaged: u64,
        /// Why the last file that it tried could not be done; empty: it could.
        error: String,
    }
}

record! {
    /// A drive's word on how it brings its stale columns up to date.
    pub struct HealReport {
        /// How far it is.
        progress: HealProgress,
    }
}

record! {
    /// What the drive is to do.
    pub struct HealOrders {
        /// Bytes a second that it may write; 0: no limit.
        rate: u64,
        /// Components that it has to bring up to date, with those of drives that it replaced.
        stale: u64,
    }
}

record! {
    /// Asks how far the drives have brought their stale columns up to date, and sets how they do it.
    pub struct HealStatus {
        /// The bytes a second that each drive may write from now on, 0 for no limit; absent: as it is.
        rate: Option<u64>,
        /// Whether columns move to emptier drives from now on; absent: as it is.
        balance: Option<bool>,
    }
}

record! {
    /// How equally full the drives are.
    pub struct BalanceState {
        /// Columns move to emptier drives when the drives' shares are too far apart.
        on: bool,
        /// That has begun, and is not done.
        active: bool,
        /// How far the fullest and the emptiest drive are apart, in thousandths of their capacity, once what
        /// is moving has moved; as of the last look.
        spread_permille: u64,
        /// Files with a column that moves for it now.
        files: u64,
        /// Bytes that are still to be begun.
        left_bytes: u64,
        /// Bytes that were to move when it began.
        begun_bytes: u64,
    }
}

record! {
    /// A drive with stale columns, or that has brought some up to date.
    pub struct HealRow {
        /// The drive.
        drive: DriveId,
        /// Its name.
        name: String,
        /// Components that are stale.
        stale: u64,
        /// About how many bytes of units they have.
        left_bytes: u64,
        /// How far it is, by its last report.
        progress: HealProgress,
        /// Bytes a second that it compared lately.
        rate: u64,
        /// Milliseconds since its last report.
        silent_ms: u64,
    }
}

record! {
    /// How far the drives are.
    pub struct HealStatusReply {
        /// The bytes a second that each drive may write; 0: no limit.
        rate: u64,
        /// How equally full they are.
        balance: BalanceState,
        /// The drives, by name.
        drives: Vec<HealRow>,
    }
}
