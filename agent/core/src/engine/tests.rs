//! The engine as a whole, one behaviour a test.

mod looks;
mod places;
mod repairs;
mod schedule;
mod settles;
mod waits;
pub(super) mod world;
