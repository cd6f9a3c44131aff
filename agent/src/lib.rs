//! The imperative shell of mountie: everything that touches the world, around the pure `agent-core`.
//!
//! Left may use right, never the reverse:
//! `main → app → config → {sensor, probe, remediation, store, export, client} → {kernel, sys, telemetry, secret} → agent-core, agent-common`
#![deny(unsafe_code)]

pub mod app;
pub mod asking;
pub mod cli;
pub mod client;
pub mod config;
#[cfg(test)]
mod docs;
mod error_chain;
pub mod exit_code;
pub mod export;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod kernel;
pub mod probe;
pub mod remediation;
pub mod sensor;
pub mod store;
pub mod sys;
pub mod telemetry;
