//! The clock that leases are counted on: it keeps running while the machine is suspended, and never goes back
//! (PROTOCOL R8).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_transport::host::boot_ms;

/// Milliseconds since an arbitrary start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

/// The source of moments.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The system's `CLOCK_BOOTTIME`.
    #[default]
    Boottime,
    /// Set by hand, for tests: milliseconds.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The present moment.
    pub fn now(&self) -> Moment {
        match self {
            Clock::Boottime => Moment(boot_ms()),
            Clock::Manual(milliseconds) => Moment(milliseconds.load(Ordering::SeqCst)),
        }
    }
}

impl Moment {
    /// Milliseconds from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
