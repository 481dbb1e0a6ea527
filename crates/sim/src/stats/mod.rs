//! What can be said of a run's samples, and when enough is known.

pub(crate) mod batch_means;
pub(crate) mod percentiles;
pub(crate) mod warm_up;
