//! What a transaction does to volumes, directories and files, and how their records look to clients.

pub mod attributes;
pub mod directories;
pub mod entries;
pub mod files;
pub mod keepers;
pub mod names;
pub mod nodes;
pub mod shapes;
pub mod view;
pub mod volumes;
