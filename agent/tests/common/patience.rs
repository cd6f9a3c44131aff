//! Limits of time on machines that are emulated.

use std::time::Duration;

/// A limit that a real machine keeps, as long as this machine needs: `MOUNTIE_PATIENCE` times longer.
pub(crate) fn patiently(limit: Duration) -> Duration {
    let times = std::env::var("MOUNTIE_PATIENCE").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    limit.saturating_mul(times)
}
