//! Columns of files on drives: the procedure that changes them, and the background work that calls for it.

pub(crate) mod balance;
pub(crate) mod behind;
pub(crate) mod calls;
pub(crate) mod column_changes;
pub(crate) mod drain;
pub(crate) mod fence;
pub(crate) mod filling;
pub(crate) mod free;
pub(crate) mod heal;
pub(crate) mod healing;
pub(crate) mod homes;
pub(crate) mod listing;
pub(crate) mod live_out;
pub(crate) mod mislaid;
pub(crate) mod moves;
pub(crate) mod needs;
pub(crate) mod orphans;
pub(crate) mod partitions;
pub(crate) mod procedure;
pub(crate) mod relayout;
pub(crate) mod replacement;
pub(crate) mod returns;
pub(crate) mod settle;
pub(crate) mod stills;
pub(crate) mod successors;
