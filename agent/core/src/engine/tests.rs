//! The engine as a whole, one behaviour a test.

mod looks;
mod places;
mod repairs;
mod settles;
mod shared;
mod waits;
pub(super) mod world;
