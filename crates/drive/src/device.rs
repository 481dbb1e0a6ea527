//! The drive's disk, as something to be shared: every use of it waits its turn here.

pub(crate) mod flows;
pub(crate) mod gate;
pub(crate) mod own_work;
pub(crate) mod processors;
pub(crate) mod rail;
mod served;
