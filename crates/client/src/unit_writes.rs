//! The numbers of a handle's unit writes (PROTOCOL C4). A drive carries each number out once, and remembers
//! it until it is told that the writer will not repeat it.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The unit writes of one handle that may still be repeated.
#[derive(Debug, Default)]
pub(crate) struct UnitWrites {
    begun: Mutex<BTreeSet<u64>>,
}

/// A unit write's number, given up on drop.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    all: &'a UnitWrites,
    pub(crate) number: u64,
}

impl UnitWrites {
    /// The next number of the client, whose last one `next` holds.
    pub(crate) fn begin(&self, next: &AtomicU64) -> Operation<'_> {
        // Under the lock, so that no lower number of this handle comes after the watermark was taken.
        let mut begun = self.begun.lock().expect("no holder panics");
        let number = next.fetch_add(1, Ordering::Relaxed);
        begun.insert(number);
        Operation { all: self, number }
    }
}

impl UnitWrites {
    /// The handle repeats none of its unit writes below this number.
    pub(crate) fn watermark(&self, next: &AtomicU64) -> u64 {
        let begun = self.begun.lock().expect("no holder panics");
        begun.first().copied().unwrap_or_else(|| next.load(Ordering::Relaxed))
    }
}

impl Operation<'_> {
    /// The handle repeats none of its unit writes below this number.
    pub(crate) fn watermark(&self) -> u64 {
        let begun = self.all.begun.lock().expect("no holder panics");
        begun.first().copied().unwrap_or(self.number)
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.all.begun.lock().expect("no holder panics").remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_once_and_the_watermark_follows_the_oldest() {
        let next = AtomicU64::new(1);
        let (one, other) = (UnitWrites::default(), UnitWrites::default());
        let (a, b, c) = (one.begin(&next), other.begin(&next), one.begin(&next));
        assert_eq!((a.number, b.number, c.number), (1, 2, 3));
        assert_eq!((a.watermark(), b.watermark(), c.watermark()), (1, 2, 1));
        drop(a);
        assert_eq!(c.watermark(), 3);
    }
}
