//! How many may be at something that may never end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One of a few places; given back when it is dropped.
pub(super) struct Place(Arc<AtomicUsize>);

impl Place {
    /// Nothing where as many as that are taken.
    pub(super) fn take(taken: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let place = Self(Arc::clone(taken));
        // Counted at once, so that it is given back in either case.
        (taken.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
