//! The commands that ask a running agent.
