//! The bench of the integration tests: everything a case needs to break a real mount and to look at what the
//! agent says about it. The cases themselves are in `cases/`.
#![forbid(unsafe_code)]

pub mod harness;
