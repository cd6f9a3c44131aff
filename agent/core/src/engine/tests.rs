//! The engine as a whole, one behaviour a test.

mod below;
mod consumers;
mod controls;
mod errors;
mod incidents;
mod looks;
mod losses;
mod places;
mod renewed;
mod remembers;
mod repairs;
mod schedule;
mod settles;
mod shared;
mod waits;
pub(super) mod world;
