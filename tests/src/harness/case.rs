//! What a case is, and how it says that it cannot run here.

use std::fmt;
use std::time::Duration;

use anyhow::Result;

use super::bench::Bench;
use super::needs::Need;

/// One behaviour, shown in a world of its own.
#[derive(Clone, Copy)]
pub struct Case {
    /// A sentence, in snake case.
    pub name: &'static str,
    /// Without these it is skipped, with the reason.
    pub needs: &'static [Need],
    /// It is ended then, and has failed.
    pub timeout: Duration,
    /// What it does, in a mount namespace of its own.
    pub run: fn(&mut Bench) -> Result<()>,
}

/// Why a case that already runs cannot go on here. Returned as the error of the case.
#[derive(Debug)]
pub struct Skip(pub String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot run here: {}", self.0)
    }
}

impl std::error::Error for Skip {}
