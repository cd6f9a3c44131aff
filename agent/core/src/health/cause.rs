//! What made a volume read-only: its storage, or a person.
//!
//! Only an error of storage shortly before the volume turned speaks for storage. One that is long past, or that came
//! later, does not: whoever remounts a volume read-only on purpose must not have it undone because a disk had
//! stumbled a week ago, or stumbles a week from now.

use core::time::Duration;

use crate::time::Monotonic;

/// Errors are told by several sensors, the table by another: an error this long after the turn may have come first.
const RACE: Duration = Duration::from_secs(1);

/// Errors of storage, and when the table turned read-only. Of one generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadonlyCause {
    error: Option<Monotonic>,
    turned: Option<Monotonic>,
}

impl ReadonlyCause {
    /// Storage itself reported an error at this moment.
    pub fn storage_failed(&mut self, at: Monotonic) {
        if self.turned.is_none_or(|turned| at <= turned + RACE) {
            self.error = self.error.max(Some(at));
        }
    }

    /// The table was read, and says this.
    pub fn see_table(&mut self, is_readonly: bool, now: Monotonic) {
        self.turned = is_readonly.then(|| self.turned.unwrap_or(now));
    }

    /// Whether storage failed at most `close` before the volume turned read-only: when the table did, else at the
    /// moment that the caller knows of.
    #[must_use]
    pub fn is_storage(&self, otherwise: Option<Monotonic>, close: Duration) -> bool {
        match (self.error, self.turned.or(otherwise)) {
            (Some(error), Some(turned)) => turned.since(error) < close,
            (_, None) | (None, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSE: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn only_an_error_close_before_the_turn_is_its_cause() {
        for (error, turned, expected) in
            [(100, 100, true), (71, 100, true), (70, 100, false), (101, 100, true), (102, 100, false)]
        {
            let mut cause = ReadonlyCause::default();
            cause.see_table(false, at(0));
            if error <= turned {
                cause.storage_failed(at(error));
            }
            cause.see_table(true, at(turned));
            cause.see_table(true, at(turned + 500));
            if error > turned {
                cause.storage_failed(at(error));
            }
            assert_eq!(cause.is_storage(None, CLOSE), expected, "{error} {turned}");
        }
    }

    #[test]
    fn a_later_error_does_not_hide_the_one_that_was_the_cause() {
        let mut cause = ReadonlyCause::default();
        cause.storage_failed(at(99));
        cause.see_table(true, at(100));
        cause.storage_failed(at(400));
        assert!(cause.is_storage(None, CLOSE));
        // Writable again, and then by hand.
        cause.see_table(false, at(500));
        cause.see_table(true, at(600));
        assert!(!cause.is_storage(None, CLOSE));
    }

    #[test]
    fn where_the_table_never_says_it_the_first_refused_write_counts() {
        let mut cause = ReadonlyCause::default();
        cause.see_table(false, at(1));
        assert!(!cause.is_storage(Some(at(100)), CLOSE));
        cause.storage_failed(at(99));
        assert!(cause.is_storage(Some(at(100)), CLOSE));
        assert!(!cause.is_storage(Some(at(200)), CLOSE));
        assert!(!cause.is_storage(None, CLOSE));
    }
}
