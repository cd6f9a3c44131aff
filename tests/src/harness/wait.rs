//! Waiting for a condition, with a deadline. The only place of the bench that pauses.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use nix::time::{ClockId, clock_gettime};

/// How often a condition is looked at.
const PERIOD: Duration = Duration::from_millis(10);

/// How many times longer everything may take than on a real machine: set where the machine is emulated.
const PATIENCE: &str = "MOUNTIE_PATIENCE";

/// A limit that a real machine keeps, as long as this machine needs.
#[must_use]
pub fn patiently(limit: Duration) -> Duration {
    let times = std::env::var(PATIENCE).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    limit.saturating_mul(times)
}

/// The kernel's monotonic clock. Zero if it cannot be read, which Linux never refuses.
#[must_use]
pub fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

/// Pauses. For loops that wait for a condition, and for programs of the bench that act at intervals.
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Waits until `condition` holds. The error names what was waited for.
///
/// # Errors
/// When the time has passed.
pub fn wait_for(what: &str, within: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
    wait_for_some(what, within, || Ok(condition().then_some(())))
}

/// Waits until `look` returns something. An error of `look` counts as "not yet"; the last one is told
/// when the time has passed.
///
/// # Errors
/// When the time has passed.
pub fn wait_for_some<T>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begin = now();
    let within = patiently(within);
    loop {
        let last_error = match look() {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if now().saturating_sub(begin) >= within {
            match last_error {
                None => bail!("not within {within:?}: {what}"),
                Some(error) => return Err(error.context(format!("not within {within:?}: {what}"))),
            }
        }
        pause(patiently(PERIOD));
    }
}

/// Whether something is at a path of the bench's own. Never asked of a mount that may hang.
#[must_use]
pub fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}
