//! The system calls that the agent makes itself, behind safe functions.

pub mod clock;
