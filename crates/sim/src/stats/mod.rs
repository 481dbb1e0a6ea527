//! Statistics of a run's samples: means, percentiles and the end of the warm-up.

pub(crate) mod batch_means;
pub(crate) mod percentiles;
pub(crate) mod warm_up;
