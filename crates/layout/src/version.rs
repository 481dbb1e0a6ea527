//! Versions: each names one content of one unit, permanently (PROTOCOL section 1).

use std::fmt;

/// A file's generation: durable at the manager, together with the file's set and joining columns. It rises
/// with every change of the set or the joining columns, and when a lease ends without a clean release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u32);

/// A lease's number; rises with every grant of a lease on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lease(pub u32);

/// Version `(g, lease, n)` of a unit's content, compared left to right; 16 bytes. [`Version::ZERO`] means
/// never written: the unit reads as zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version {
    /// The generation under which the content was first sent.
    pub g: Generation,
    /// The lease under which the content was written.
    pub lease: Lease,
    /// Number of the write under the lease, from 1.
    pub n: u64,
}

impl Version {
    /// Version of a unit that was never written.
    pub const ZERO: Version = Version { g: Generation(0), lease: Lease(0), n: 0 };

    /// Returns true if this is [`Version::ZERO`].
    pub fn is_zero(self) -> bool {
        self == Version::ZERO
    }
}

impl Generation {
    /// The generation after this one. `None` after 2^32 - 1: such a file must be copied to a new one.
    pub fn next(self) -> Option<Generation> {
        self.0.checked_add(1).map(Generation)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}", self.0)
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.g.0, self.lease.0, self.n)
    }
}
