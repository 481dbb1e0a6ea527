//! The gate before the processors, for methods.

use std::sync::Arc;

use braid_schedule::Config;

use crate::device::gate::Gate;

/// Time of a processor that methods may have in flight, for each processor.
const IN_FLIGHT_NS: u64 = 20_000_000;

/// A gate before the processors, for methods: all of them but one, which is left to other requests.
pub(crate) fn processors(disk: &Gate) -> Arc<Gate> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let own = all.saturating_sub(1).max(1);
    let in_flight_ns = IN_FLIGHT_NS.saturating_mul(u64::try_from(own).unwrap_or(1));
    disk.beside(Config { reads_in_flight: own, ..Config::new(in_flight_ns) })
}
