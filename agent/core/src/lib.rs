//! The pure core of mountie: what is known about mounts, what it means, and what to do about it.
//!
//! Invariants, in the order in which the modules build on them:
//! * Nothing here does I/O, reads a clock, spawns, logs, or panics on any input.
//! * Time comes in as an argument ([`time::Monotonic`]); randomness does not exist (jitter is a hash).
//! * Paths are bytes ([`path::BytePath`]). A label is a lossless escape of them.
//! * A superblock is what gets sick ([`id::SuperblockId`]); a volume is what a person names.
//! * Every fact is an [`engine::Input`], in the words of [`observation`]; every decision is an [`engine::Output`].
//! * At most one probe and at most one plan is outstanding per superblock.
//! * A plan that repairs is only ever made for a volume in mode `act` (or printed, in mode `dry-run`), or because a
//!   person ordered it. A plan without a reason repairs nothing: it takes away what an earlier plan of the agent's own
//!   left half-made, or a person had a volume mounted anew that was not sick.
//! * Same inputs in the same order give the same outputs, whatever order any map had.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod id;
pub mod time;
pub mod path;
pub mod hash;
pub mod errno;
pub mod fstype;
pub mod source;
pub mod glob;
pub mod topology;
pub mod volume;
pub mod observation;
pub mod verdict;
pub mod policy;
pub mod discovery;
pub mod health;
pub mod remediation;
pub mod consumer;
pub mod secret;
pub mod incident;
pub mod memory;
pub mod pause;
pub mod order;
pub mod status;
pub mod engine;
