//! Laying files out anew, in another shape.

use braid_layout::FileId;

use super::names::NamePlace;
use super::shape::ShapeSpec;

record! {
    /// Has a file laid out anew, or cancels that. The work is done in the background, beside readers; a
    /// write to the file makes it begin again.
    pub struct Relayout {
        /// The file to lay out anew.
        at: NamePlace,
        /// The new shape, in full; absent: an earlier request is cancelled.
        shape: Option<ShapeSpec>,
    }
}

record! {
    /// The answer to [`Relayout`].
    pub struct RelayoutReply {
        /// The file's number.
        file: FileId,
        /// True if there is something to do. False if the file has that shape already, or if there was
        /// nothing to cancel.
        begun: bool,
        /// Size of the file, in bytes.
        size: u64,
    }
}

record! {
    /// Lists the files that are to be laid out anew.
    pub struct Relayouts {
        /// The number after which the list begins: only files with higher numbers are listed.
        after: FileId,
        /// Maximum number of files; the manager may return fewer.
        limit: u32,
    }
}

record! {
    /// A file that is to be laid out anew.
    pub struct RelayoutRow {
        /// The file's number.
        file: FileId,
        /// The file's volume and path, as users write them.
        path: String,
        /// Size of the file, in bytes.
        size: u64,
        /// The present shape.
        from: ShapeSpec,
        /// The new shape.
        to: ShapeSpec,
        /// Number of columns of the new layout; 0: the work has not begun.
        columns: u8,
        /// Number of those columns that are filled.
        filled: u8,
        /// The reason why the work waits, for people; empty: it does not wait, or its turn has not come.
        why: String,
    }
}

record! {
    /// The answer to [`Relayouts`].
    pub struct RelayoutsReply {
        /// Number of all files that are to be laid out anew.
        files: u64,
        /// Some of these files, ascending by number; empty if there are no more.
        rows: Vec<RelayoutRow>,
    }
}
