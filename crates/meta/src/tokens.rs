//! The rules of tokens: which may be used, which requests each allows, and where in the tree of names.

pub mod access;
pub mod opened;
pub mod permissions;
pub mod rights;
pub mod table;
