//! The log, and the segments that it consists of.

pub(crate) mod lengths;
pub(crate) mod log;
pub(crate) mod log_rest;
pub(crate) mod recent;
pub(crate) mod recycled;
pub(crate) mod scan;
