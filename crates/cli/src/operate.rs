//! Commands of operators.

pub(crate) mod check;
pub(crate) mod cost;
pub(crate) mod df;
pub(crate) mod drive_cmd;
pub mod heal;
pub(crate) mod health;
pub(crate) mod jobs;
pub(crate) mod key;
pub(crate) mod layout;
pub(crate) mod manager_cmd;
pub(crate) mod qualify;
pub(crate) mod quota;
pub(crate) mod rails;
pub(crate) mod rebalance;
pub(crate) mod rebuild;
pub(crate) mod relayout;
pub mod replace;
pub(crate) mod reserve;
pub(crate) mod scrub;
pub(crate) mod snapshot;
pub(crate) mod status;
pub(crate) mod store_cmd;
pub(crate) mod token;
pub(crate) mod volume;
pub(crate) mod whole_run;
