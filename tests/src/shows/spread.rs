//! A set of measured values, shown as its quantiles.

use std::fmt;

/// Measured values, sorted.
pub(super) struct Spread(Vec<f64>);

impl Spread {
    pub(super) fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The value below which this many percent of all lie; NaN without values.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let index = (self.0.len().saturating_sub(1) * percent.min(100)).div_ceil(100);
        self.0.get(index).copied().unwrap_or(f64::NAN)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, percent) in [("min", 0), ("median", 50), ("p90", 90), ("p99", 99), ("max", 100)] {
            write!(f, "{name} {:<9.3}", self.percentile(percent))?;
        }
        Ok(())
    }
}
