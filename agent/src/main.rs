//! mountie: a watchdog for mounts.
fn main() {}
