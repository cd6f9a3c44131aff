//! Texts that are made once for all who ask in the same moment: who reads slowly holds no copy of its own.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use agent_core::time::Monotonic;
use hyper::body::Bytes;

use crate::export::Snapshot;
use crate::sys::clock;

/// A text is given to all who ask for the same of its snapshot for so long. Not longer: what is counted, and what
/// happens, goes on beside it.
pub(super) const LASTS: Duration = Duration::from_secs(1);

/// The last texts, one for each of at most so many kinds.
#[derive(Debug)]
pub(super) struct Texts<K, const KINDS: usize>(Mutex<[Option<Text<K>>; KINDS]>);

/// One of them.
#[derive(Debug)]
pub(super) struct Text<K> {
    kind: K,
    /// Of which snapshot; it is not kept for this.
    of: Weak<Snapshot>,
    pub(super) made: Monotonic,
    text: Bytes,
}

impl<K, const KINDS: usize> Default for Texts<K, KINDS> {
    fn default() -> Self {
        Self(Mutex::new([const { None }; KINDS]))
    }
}

impl<K: PartialEq, const KINDS: usize> Texts<K, KINDS> {
    /// The text of this kind; it is made if there is none of this snapshot.
    pub(super) fn text<T: Into<Bytes>>(
        &self,
        kind: K,
        snapshot: &Arc<Snapshot>,
        make: impl FnOnce() -> T,
    ) -> Bytes {
        // They are whole after every statement. Who waits here is given what the other makes.
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        let is_fresh = |last: &Text<K>| {
            std::ptr::eq(last.of.as_ptr(), Arc::as_ptr(snapshot)) && now.since(last.made) < LASTS
        };
        if let Some(last) = texts.iter().flatten().find(|last| last.kind == kind && is_fresh(last)) {
            return last.text.clone();
        }
        let text: Bytes = make().into();
        // What nobody has asked for lately is not kept either.
        for place in texts.iter_mut() {
            if place.as_ref().is_some_and(|last| last.kind == kind || !is_fresh(last)) {
                *place = None;
            }
        }
        let made = Text { kind, of: Arc::downgrade(snapshot), made: now, text: text.clone() };
        if let Some(place) = texts.iter_mut().find(|place| place.is_none()) {
            *place = Some(made);
        }
        text
    }

    /// The last text of a kind, for tests that look at its age.
    #[cfg(test)]
    pub(super) fn with_last<T>(&self, kind: &K, look: impl FnOnce(&mut Text<K>) -> T) -> Option<T> {
        let mut texts = self.0.lock().unwrap();
        texts.iter_mut().flatten().find(|last| last.kind == *kind).map(look)
    }
}
