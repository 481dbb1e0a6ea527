//! The numbers of a client's unit writes (PROTOCOL C4). A drive carries out the write of each number once,
//! and remembers the number until it is told that the client will not repeat it. That watermark holds for all
//! files that the client has open, also for one that it has open twice.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use braid_layout::OperationNumber;

/// The unit writes of a client that may still be repeated.
#[derive(Debug)]
pub(crate) struct UnitWrites {
    begun: Mutex<Begun>,
}

#[derive(Debug)]
struct Begun {
    next: OperationNumber,
    numbers: BTreeSet<OperationNumber>,
}

/// A unit write's number, given up on drop.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    all: &'a UnitWrites,
    pub(crate) number: OperationNumber,
}

impl UnitWrites {
    pub(crate) fn new() -> UnitWrites {
        UnitWrites { begun: Mutex::new(Begun { next: OperationNumber::FIRST, numbers: BTreeSet::new() }) }
    }

    /// The next number.
    pub(crate) fn begin(&self) -> Operation<'_> {
        let mut begun = self.lock();
        let number = begun.next;
        begun.next = number.next();
        begun.numbers.insert(number);
        Operation { all: self, number }
    }

    /// Number below which the client repeats none of its unit writes.
    pub(crate) fn watermark(&self) -> OperationNumber {
        let begun = self.lock();
        begun.numbers.first().copied().unwrap_or(begun.next)
    }

    fn lock(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock().expect("no holder panics")
    }
}

impl Operation<'_> {
    /// Number below which the client repeats none of its unit writes.
    pub(crate) fn watermark(&self) -> OperationNumber {
        self.all.watermark()
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.all.lock().numbers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_once_and_the_watermark_follows_the_oldest() {
        let all = UnitWrites::new();
        let a = all.begin();
        let b = all.begin();
        let c = all.begin();
        assert_eq!(
            (a.number, b.number, c.number),
            (OperationNumber(1), OperationNumber(2), OperationNumber(3))
        );
        assert_eq!(c.watermark(), OperationNumber(1));
        drop(b);
        assert_eq!(c.watermark(), OperationNumber(1));
        drop(a);
        assert_eq!(c.watermark(), OperationNumber(3));
        drop(c);
        assert_eq!(all.watermark(), OperationNumber(4));
    }
}
