//! Changes of volumes, directories and files in a transaction, and their records as clients see them.

pub mod attributes;
pub mod diff;
pub mod directories;
pub mod doors;
pub mod entries;
pub mod files;
pub mod keepers;
pub mod keys;
pub mod layouts;
pub mod names;
pub mod nodes;
pub mod quotas;
pub mod reach;
pub mod room;
pub mod schedules;
pub mod seen;
pub mod shapes;
pub mod snapshots;
pub mod tokens;
pub mod view;
pub mod volumes;
