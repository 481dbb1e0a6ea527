//! Looking at what a slot of a cache holds without counting who looks: all cores would write to that count.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};

/// A look at what a slot held: it stays what it is, whatever the slot holds meanwhile.
pub(crate) struct Seen<T>(Guard<Option<Arc<T>>>);

impl<T> Seen<T> {
    /// What `slot` holds, if it is what is looked for.
    pub(crate) fn of(slot: &ArcSwapOption<T>, is_it: impl FnOnce(&T) -> bool) -> Option<Seen<T>> {
        let guard = slot.load();
        guard.as_deref().is_some_and(is_it).then_some(Seen(guard))
    }

    /// The same to keep, counted.
    pub(crate) fn to_arc(&self) -> Arc<T> {
        Arc::clone(self.held())
    }

    fn held(&self) -> &Arc<T> {
        self.0.as_ref().expect("what was looked for was there")
    }
}

impl<T> Clone for Seen<T> {
    fn clone(&self) -> Seen<T> {
        Seen(Guard::from_inner(Some(self.to_arc())))
    }
}

impl<T> Deref for Seen<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held()
    }
}

impl<T: fmt::Debug> fmt::Debug for Seen<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held().fmt(f)
    }
}
