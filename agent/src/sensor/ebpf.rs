//! Kernel programs: counters and records into observations.
