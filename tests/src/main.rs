//! The integration tests.
fn main() {}
