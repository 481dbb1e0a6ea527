//! Commands on names and files.

pub(crate) mod analyze;
pub(crate) mod attributes;
pub(crate) mod beneath;
pub(crate) mod list;
pub(crate) mod methods;
pub(crate) mod mode;
pub(crate) mod modules;
pub(crate) mod mount;
pub(crate) mod mount_helper;
pub(crate) mod names;
pub mod namespace;
pub(crate) mod plan_cmd;
pub(crate) mod snapshots_below;
pub(crate) mod stat;
pub(crate) mod why;
