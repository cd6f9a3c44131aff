//! The engine as a whole, one behaviour a test.

mod asks;
mod below;
mod consumers;
mod controls;
mod doubts;
mod errors;
mod incidents;
mod late;
mod learnt;
mod looks;
mod losses;
mod others;
mod places;
mod read_only;
mod refused;
mod renewed;
mod remembers;
mod repairs;
mod schedule;
mod servers;
mod settles;
mod shared;
mod told;
mod troubles;
mod waits;
pub(super) mod world;
