//! What the kernel programs cost calls that do not fail: in instructions, and in time.

mod empty;
pub(super) mod instructions;
pub(super) mod overhead;
mod peer;
mod workload;

/// What an operation costs, one value for every workload.
type Column = Vec<f64>;
