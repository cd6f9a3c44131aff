//! What crosses the boundary between kernel programs and agent.
#![cfg_attr(not(feature = "user"), no_std)]
