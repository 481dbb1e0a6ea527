//! Names and attributes: requests that the manager answers by itself.

pub(crate) mod attributes;
pub(crate) mod differences;
pub(crate) mod encrypted;
pub(crate) mod file_systems;
pub(crate) mod keys;
pub(crate) mod layouts;
pub(crate) mod locks;
pub(crate) mod managers;
pub(crate) mod name;
pub(crate) mod names;
pub(crate) mod quotas;
pub(crate) mod relayout;
pub(crate) mod reservations;
pub(crate) mod room;
pub(crate) mod snapshots;
pub(crate) mod tokens;
