//! Values that must not be used, nor even dropped, in another process than the one that made them.
//!
//! A fork copies memory, but not threads. In the child the parent's runtime stands still, and its
//! connections and its epoll are still the parent's: to close one of them in the child would take it out of
//! the epoll that the parent waits on.

use std::mem;

use crate::errors::Failure;

/// A value that only the process that made it can use.
#[derive(Debug)]
pub(crate) struct OfProcess<T> {
    process: u32,
    value: Option<T>,
}

impl<T> OfProcess<T> {
    /// Wraps a value of the present process.
    pub(crate) fn new(value: T) -> OfProcess<T> {
        OfProcess { process: std::process::id(), value: Some(value) }
    }

    /// The value. Refused in another process.
    pub(crate) fn here(&self) -> Result<&T, Failure> {
        self.value.as_ref().filter(|_| self.is_here()).ok_or_else(Failure::forked)
    }

    /// The value, to be changed. Refused in another process.
    pub(crate) fn here_mut(&mut self) -> Result<&mut T, Failure> {
        if self.is_here() { self.value.as_mut().ok_or_else(Failure::forked) } else { Err(Failure::forked()) }
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            mem::forget(self.value.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_another_process_is_neither_used_nor_dropped() {
        let dropped = std::rc::Rc::new(());
        let mut value = OfProcess::new(std::rc::Rc::clone(&dropped));
        assert!(value.here().is_ok());
        value.process = value.process.wrapping_add(1);
        assert_eq!(value.here().expect_err("it is another's").errno(), libc::ECHILD);
        assert!(value.here_mut().is_err());
        drop(value);
        assert_eq!(std::rc::Rc::strong_count(&dropped), 2);
    }
}
