//! The engine as a whole, one behaviour a test.

mod errors;
mod looks;
mod places;
mod renewed;
mod repairs;
mod settles;
mod waits;
pub(super) mod world;
