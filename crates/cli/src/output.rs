//! Output of commands: reports, failures, and waits with progress.

pub mod bar;
pub(crate) mod causes;
pub mod documents;
pub(crate) mod duration;
pub mod exit;
pub mod interrupt;
pub(crate) mod json_log;
pub(crate) mod manual;
pub mod rate;
pub mod report;
pub(crate) mod shell;
pub mod size;
pub mod time;
pub(crate) mod waiting;
