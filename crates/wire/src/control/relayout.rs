//! Laying files out anew: in another shape, or on other drives.

use braid_layout::FileId;

use super::names::Place;
use super::shape::ShapeSpec;

record! {
    /// Has a file laid out anew, or no more. It is done in the background, beside readers; a writer disturbs
    /// it, and it begins anew.
    pub struct Relayout {
        /// The file.
        at: Place,
        /// Its new shape, in full; absent: what was asked for before is not to be done any more.
        shape: Option<ShapeSpec>,
    }
}

record! {
    /// What became of the request.
    pub struct RelayoutReply {
        /// The file.
        file: FileId,
        /// Something is to be done; else the file has that shape, or nothing was to be done.
        begun: bool,
        /// The file's bytes.
        size: u64,
    }
}

record! {
    /// Lists the files that are to be laid out anew.
    pub struct Relayouts {
        /// Only those above this number.
        after: FileId,
        /// At most this many; the manager may return fewer.
        limit: u32,
    }
}

record! {
    /// A file that is to be laid out anew.
    pub struct RelayoutRow {
        /// The file.
        file: FileId,
        /// Its volume and path, as users write them.
        path: String,
        /// Its bytes.
        size: u64,
        /// Its present shape.
        from: ShapeSpec,
        /// Its new shape.
        to: ShapeSpec,
        /// Columns of the new layout; 0: it is not begun.
        columns: u8,
        /// Those of them that are filled.
        filled: u8,
        /// What it waits for; empty: for nothing, or its turn has not come.
        why: String,
    }
}

record! {
    /// Some of the files that are to be laid out anew.
    pub struct RelayoutsReply {
        /// How many there are in all.
        files: u64,
        /// Some of them, ascending; none if there are no more.
        rows: Vec<RelayoutRow>,
    }
}
