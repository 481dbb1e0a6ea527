//! Numbers of operations: requests to the manager that would not find the same state if repeated.
//!
//! Each operation has its own number, which repeats carry too. The manager remembers an operation's result
//! until it is told that all operations below some number are settled: answered, or given up for good.

use std::collections::BTreeSet;
use std::sync::Mutex;

use braid_layout::OperationNumber;

/// A client's operations.
#[derive(Debug)]
pub(crate) struct Operations {
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    next: OperationNumber,
    /// Numbers of operations that have begun and are not yet settled.
    numbers: BTreeSet<OperationNumber>,
}

/// An operation that was begun. Dropping it settles it: it is never sent again.
#[derive(Debug)]
pub(crate) struct Begun<'a> {
    operations: &'a Operations,
    pub(crate) number: OperationNumber,
    /// Manager time at its beginning, never ahead of the true value.
    pub(crate) at_ms: u64,
}

impl Operations {
    /// Creates the numbers of a client that has begun no operation yet.
    pub(crate) fn new() -> Operations {
        Operations { open: Mutex::new(Open { next: OperationNumber::FIRST, numbers: BTreeSet::new() }) }
    }

    /// Begins an operation at this manager time.
    pub(crate) fn begin(&self, at_ms: u64) -> Begun<'_> {
        let mut open = self.open.lock().expect("no holder panics");
        let number = open.next;
        open.next = number.next();
        open.numbers.insert(number);
        Begun { operations: self, number, at_ms }
    }

    /// Number below which all operations are settled.
    pub(crate) fn settled_below(&self) -> OperationNumber {
        let open = self.open.lock().expect("no holder panics");
        open.numbers.first().copied().unwrap_or(open.next)
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.operations.open.lock().expect("no holder panics").numbers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_is_open_holds_the_mark() {
        let operations = Operations::new();
        assert_eq!(operations.settled_below(), OperationNumber(1));
        let first = operations.begin(0);
        let second = operations.begin(0);
        assert_eq!(
            (first.number, second.number, operations.settled_below()),
            (OperationNumber(1), OperationNumber(2), OperationNumber(1))
        );
        drop(second);
        assert_eq!(operations.settled_below(), OperationNumber(1));
        drop(first);
        assert_eq!(operations.settled_below(), OperationNumber(3));
        assert_eq!(operations.begin(0).number, OperationNumber(3));
    }
}
