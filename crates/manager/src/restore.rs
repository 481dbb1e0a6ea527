//! A state that is older than what the drives hold: backups, and the comparison after one was restored.

pub mod adopt;
pub mod backup;
pub mod compare;
pub(crate) mod layouts;
pub(crate) mod present;
pub(crate) mod retake;
pub(crate) mod terms;
