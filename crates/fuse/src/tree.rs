//! Names, attributes, and what is kept of them.

pub(crate) mod attributes;
pub(crate) mod creating;
pub(crate) mod former;
pub(crate) mod kept;
pub(crate) mod later;
pub(crate) mod listing;
pub(crate) mod names;
pub(crate) mod news;
pub(crate) mod past;
pub(crate) mod said;
pub(crate) mod space;
pub(crate) mod xattrs;
