//! Decisions on what the store is asked to change, before anything is appended.

pub(crate) mod bounds;
pub(crate) mod check;
pub(crate) mod check_step;
pub(crate) mod decision;
pub(crate) mod growth;
pub(crate) mod touched;
