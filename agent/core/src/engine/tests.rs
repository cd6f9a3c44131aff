//! The engine as a whole, one behaviour a test.

mod incidents;
mod looks;
mod losses;
mod places;
mod remembers;
mod repairs;
mod settles;
mod waits;
pub(super) mod world;
