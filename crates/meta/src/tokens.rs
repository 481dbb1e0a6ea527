//! The rules of tokens: which may be used, and which requests each allows.

pub mod rights;
pub mod table;
