//! The layouts of new files: of a volume, of a directory, and of a file that was never written.

use braid_layout::FileId;

use super::names::NamePlace;
use super::shape::ShapeSpec;

/// The extended attribute that stands for a layout, as text such as `raid5 4+1 unit=64KiB`. A [`SetXattr`]
/// of this name does what a [`SetLayout`] does; [`Xattrs`] lists it for directories that have a layout of
/// their own.
///
/// [`SetXattr`]: super::SetXattr
/// [`Xattrs`]: super::Xattrs
pub const LAYOUT_XATTR: &[u8] = b"user.braid.layout";

choice! {
    /// The place that a layout comes from.
    pub enum LayoutFrom {
        /// The file itself: it lies so.
        File = 1,
        /// A directory: the one asked for, or the nearest one above that has a layout.
        Directory = 2,
        /// The volume as a whole.
        Volume = 3,
    }
}

choice! {
    /// The small files that are placed near each other in the logs of their drives, so that they are read in
    /// one sweep.
    pub enum Clustering {
        /// Those of each directory.
        Directory = 1,
        /// All below the directory that says so.
        Tree = 2,
        /// None: files lie where they were written.
        Nothing = 3,
    }
}

record! {
    /// Sets which small files of those that are made in a directory and below it from now on are placed near
    /// each other. Existing files stay as they are.
    pub struct SetClustering {
        /// The directory that is changed.
        at: NamePlace,
        /// The clustering there. Absent: that of the nearest directory above counts.
        clustering: Option<Clustering>,
    }
}

record! {
    /// Sets the layout of what is made in a directory and below it from now on, or of the whole volume if
    /// the place is its root. Existing files stay as they are. A file can be given a layout until something
    /// is written to it; one that has bytes is refused with [`Reason::Written`](crate::Reason::Written).
    pub struct SetLayout {
        /// The directory or file.
        at: NamePlace,
        /// The layout; with `k` 0 the one in force, in this unit. Absent: the directory's own layout is taken
        /// away; [`Reason::NoXattr`](crate::Reason::NoXattr) if it has none.
        shape: Option<ShapeSpec>,
    }
}

record! {
    /// Asks for the layout of a file, or of new files in a directory.
    pub struct LayoutOf {
        /// The file or directory; a symbolic link at the end of the path is followed.
        at: NamePlace,
    }
}

record! {
    /// The answer to [`LayoutOf`].
    pub struct LayoutReply {
        /// The layout, in full.
        shape: ShapeSpec,
        /// The kind of what has it.
        from: LayoutFrom,
        /// Number of the directory or file that has it; 0: it is the volume's.
        of: FileId,
        /// The directory or file that has it, or the volume, as users write them.
        path: String,
        /// The small files that new files in the directory are placed near to; of a file, whether it has
        /// such ([`Clustering::Directory`] or [`Clustering::Nothing`]).
        clustering: Clustering,
    }
}
