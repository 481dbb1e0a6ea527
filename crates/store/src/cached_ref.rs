//! References to what a cache's slot holds without a shared reference count, which all cores would write to.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};

/// What a slot held when it was looked at. It stays valid even if the slot is filled anew.
pub(crate) struct CachedRef<T>(Guard<Option<Arc<T>>>);

impl<T> CachedRef<T> {
    /// What `slot` holds, if `is_it` accepts it.
    pub(crate) fn of(slot: &ArcSwapOption<T>, is_it: impl FnOnce(&T) -> bool) -> Option<CachedRef<T>> {
        let guard = slot.load();
        guard.as_deref().is_some_and(is_it).then_some(CachedRef(guard))
    }

    /// A counted reference, to keep.
    pub(crate) fn to_arc(&self) -> Arc<T> {
        Arc::clone(self.held())
    }

    fn held(&self) -> &Arc<T> {
        self.0.as_ref().expect("what was looked for was there")
    }
}

impl<T> Clone for CachedRef<T> {
    fn clone(&self) -> CachedRef<T> {
        CachedRef(Guard::from_inner(Some(self.to_arc())))
    }
}

impl<T> Deref for CachedRef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held()
    }
}

impl<T: fmt::Debug> fmt::Debug for CachedRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held().fmt(f)
    }
}
