//! Bytes of files: reads, writes, and the repair of the damage that they meet.

pub(crate) mod arithmetic;
pub(crate) mod buffers;
pub(crate) mod check;
pub(crate) mod cut;
pub(crate) mod extents;
pub(crate) mod held;
pub(crate) mod joined;
pub(crate) mod landing;
pub(crate) mod mend;
pub(crate) mod planning;
pub(crate) mod quick;
pub(crate) mod read;
pub(crate) mod recent;
pub(crate) mod retire;
pub(crate) mod scratch;
pub(crate) mod shared;
pub(crate) mod stamps;
pub(crate) mod stripes;
pub(crate) mod unit_writes;
pub(crate) mod write;
pub(crate) mod write_side;
