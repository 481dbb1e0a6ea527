//! Output of commands: reports, failures, and waits with progress.

pub(crate) mod base64;
pub(crate) mod causes;
pub(crate) mod exit;
pub(crate) mod interrupt;
pub(crate) mod manual;
pub(crate) mod rate;
pub(crate) mod report;
pub(crate) mod shell;
pub(crate) mod size;
pub(crate) mod time;
pub(crate) mod waiting;
